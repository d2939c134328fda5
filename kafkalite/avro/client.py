"""A client of a schema registry over the standard library: two questions, an answer remembered for good.

    schema(7) ─▶ remembered? ─▶ GET /schemas/ids/7 ─▶ parsed with its references ─▶ remembered

An id means one schema for ever, so what was fetched is never asked again, up to `cache_count_max` schemas. That an id
is not known is remembered for `unknown_age_s`, since a batch may hold garbage. Several URLs are asked in turn; refused
connections, lost ones and 5xx are tried again. No authentication.

Works with `kafkalite registry` and with Confluent's. Thread rule: any thread; one request at a time.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import quote, urlsplit

from kafkalite.avro.schema import Schema, SchemaError, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.avro.schema import Type

ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
ANSWER_SIZE_MAX: Final = 64 * 1024 * 1024
BACKOFF_S: Final = 0.1
BACKOFF_S_MAX: Final = 2.0
REFERENCE_DEPTH_MAX: Final = 20
UNKNOWN_COUNT_MAX: Final = 10_000
SCHEMA_NOT_FOUND: Final = 40403
SCHEMA_ID_MAX: Final = 2**31 - 1
LOST: Final = (OSError, http.client.HTTPException)


class RegistryUnreachable(Exception):
    """No registry answered, though asked repeatedly."""


class RegistryRefused(Exception):
    """A registry's own refusal."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.status = status
        """Of HTTP."""
        self.code = code
        """The registry's, such as 40403; -1 when there was none."""


class RegisteredSchema(NamedTuple):
    """A version of a subject."""

    schema_id: int
    version: int
    schema: Schema


class RegistryClient:
    """See the module. A context manager; `close` drops the connection.

    `urls`              http://host:port, several with commas between
    `timeout_s`         for one answer
    `retry_timeout_s`   how long a question is repeated
    """

    def __init__(
        self,
        urls: str | Iterable[str],
        *,
        timeout_s: float = 10.0,
        retry_timeout_s: float = 30.0,
        cache_count_max: int = 10_000,
        unknown_age_s: float = 5.0,
    ) -> None:
        self.urls = tuple(urls.split(",") if isinstance(urls, str) else urls)
        self._bases = [_base(url) for url in self.urls]
        self._timeout_s = timeout_s
        self._retry_timeout_s = retry_timeout_s
        self._cache_count_max = cache_count_max
        self._unknown_age_s = unknown_age_s
        self._lock = threading.RLock()
        self._connection: http.client.HTTPConnection | None = None
        self._schemas: dict[int, Schema] = {}
        self._unknown: dict[int, float] = {}
        self.request_count = 0
        """Requests that were sent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Drops the connection; the next question connects anew."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # --- questions ---------------------------------------------------------------------------------------------------

    def schema(self, schema_id: int) -> Schema:
        """The schema of an id. RegistryRefused (40403: there is none), RegistryUnreachable, SchemaError."""
        with self._lock:
            found = self._schemas.get(schema_id)
            if found is None:
                self._refuse_unknown(schema_id)
                try:
                    answer = self.request("GET", f"/schemas/ids/{schema_id}")
                except RegistryRefused as error:
                    if error.code == SCHEMA_NOT_FOUND:
                        self._note_unknown(schema_id)
                    raise
                found = self._parsed(answer)
                if len(self._schemas) >= self._cache_count_max:
                    self._schemas.clear()
                self._schemas[schema_id] = found
            return found

    def latest(self, subject: str) -> RegisteredSchema:
        """The last version of a subject; asked afresh each time."""
        answer = self.request("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        return RegisteredSchema(answer["id"], answer["version"], self._parsed(answer))

    def register(self, subject: str, schema: str, references: Iterable[Mapping[str, Any]] = ()) -> int:
        """The id of a schema under a subject, registered if need be. RegistryRefused (409: not compatible)."""
        body = {"schema": schema, **_references(references)}
        answer = self.request("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        schema_id: int = answer["id"]
        return schema_id

    def look_up(self, subject: str, schema: str, references: Iterable[Mapping[str, Any]] = ()) -> int:
        """The id of a schema that is registered under a subject. RegistryRefused (40401, 40403: it is not)."""
        body = {"schema": schema, **_references(references)}
        schema_id: int = self.request("POST", f"/subjects/{quote(subject, safe='')}", body)["id"]
        return schema_id

    def _refuse_unknown(self, schema_id: int) -> None:
        """Garbage is not asked for again at once, nor what no registry's path can say."""
        age_s = time.monotonic() - self._unknown.get(schema_id, float("-inf"))
        if schema_id > SCHEMA_ID_MAX or age_s < self._unknown_age_s:
            raise RegistryRefused(404, SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")

    def _note_unknown(self, schema_id: int) -> None:
        if len(self._unknown) >= UNKNOWN_COUNT_MAX:
            self._unknown.clear()
        self._unknown[schema_id] = time.monotonic()

    def _parsed(self, answer: Mapping[str, Any]) -> Schema:
        return self._parsed_with(answer, 0, {})

    def _parsed_with(
        self, answer: Mapping[str, Any], depth: int, seen: dict[tuple[str, int], Mapping[str, Type]]
    ) -> Schema:
        """`seen` is what versions bring that were asked for already: many may refer to one, and it to many again."""
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise SchemaError(f"the schema is of type {answer['schemaType']}, not AVRO")
        if depth > REFERENCE_DEPTH_MAX:
            raise SchemaError(f"references go deeper than {REFERENCE_DEPTH_MAX}")
        named: dict[str, Type] = {}
        for row in answer.get("references") or ():
            subject, version = row["subject"], int(row["version"])
            if (subject, version) not in seen:
                path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
                seen[subject, version] = self._parsed_with(self.request("GET", path), depth + 1, seen).named
            named |= seen[subject, version]
        return parse(answer["schema"], named)

    # --- asking ------------------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: object = None) -> Any:
        """One question of the registry's interface, repeated until it is answered; the JSON of the answer."""
        with self._lock:
            deadline = time.monotonic() + self._retry_timeout_s
            backoff_s = BACKOFF_S
            while True:
                failure: Exception
                try:
                    return self._ask(method, path, body)
                except RegistryRefused as error:
                    if error.status < 500:
                        raise
                    failure = error
                except LOST as error:
                    failure = error
                self.close()
                self._bases.append(self._bases.pop(0))
                if time.monotonic() + backoff_s > deadline:
                    if isinstance(failure, RegistryRefused):
                        raise failure
                    raise RegistryUnreachable(f"{', '.join(self.urls)}: {failure}") from failure
                time.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)

    def _ask(self, method: str, path: str, body: object) -> Any:
        scheme, host, port, prefix = self._bases[0]
        reused = self._connection is not None
        if self._connection is None:
            kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
            self._connection = kind(host, port, timeout=self._timeout_s)
        raw = None if body is None else json.dumps(body).encode()
        headers = {"Accept": ACCEPT, "Content-Type": CONTENT_TYPE} if raw is not None else {"Accept": ACCEPT}
        self.request_count += 1
        try:
            self._connection.request(method, prefix + path, raw, headers)
            response = self._connection.getresponse()
        except LOST:
            self.close()
            if not reused:
                raise
            return self._ask(method, path, body)  # the registry closed an idle connection
        text = response.read(ANSWER_SIZE_MAX + 1)
        if len(text) > ANSWER_SIZE_MAX:
            raise http.client.HTTPException(f"an answer of more than {ANSWER_SIZE_MAX} bytes")
        if response.will_close:
            self.close()
        return _answer(response.status, text)


def _answer(status: int, text: bytes) -> Any:
    try:
        answer = json.loads(text)
    except ValueError as error:
        if status < 400:
            raise http.client.HTTPException("the answer is no JSON: this is no schema registry") from error
        raise RegistryRefused(status, -1, f"HTTP status {status}") from error
    if status >= 400:
        known = answer if isinstance(answer, dict) else {}
        raise RegistryRefused(status, known.get("error_code", -1), str(known.get("message", f"HTTP status {status}")))
    return answer


def _references(references: Iterable[Mapping[str, Any]]) -> dict[str, object]:
    rows = [dict(row) for row in references]
    return {"references": rows} if rows else {}


def _base(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and the path before ours; ValueError for what is no URL of HTTP."""
    parts = urlsplit(url.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url!r} is no URL of a schema registry, such as http://127.0.0.1:8081")
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80), parts.path.rstrip("/")
