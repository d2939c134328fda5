"""Fetch schemas from a schema registry and register schemas in it.

    schema(7) ─▶ cached? ─▶ GET /schemas/ids/7 ─▶ parsed with its references ─▶ cached

Works with `kafkalite registry` and with Confluent's registry. Uses only the standard library. Cached schemas do not
expire, because an id always means the same schema.

Credentials and trusted CAs have the same settings as in Java's clients:

    basic.auth.user.info=alice:secret           or in the URL: https://alice:secret@host:8081
    bearer.auth.token=…
    schema.registry.ssl.truststore.location=…   and the other TLS settings with this prefix

Thread rule: any thread. Requests are sent one at a time.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import quote, unquote

from kafkalite.avro.schema import Schema, SchemaError, parse
from kafkalite.base import http_ask
from kafkalite.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Mapping

    from kafkalite.avro.schema import Type

USER_INFO_KEY: Final = "basic.auth.user.info"
TOKEN_KEY: Final = "bearer.auth.token"  # noqa: S105  # its key, not it
SSL_PREFIX: Final = "schema.registry."
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
    """No registry responded before the retry timeout expired."""


class RegistryRefused(Exception):
    """The registry responded with an error."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.status = status
        """The HTTP status."""
        self.code = code
        """The registry's error code, such as 40403; -1 without one."""


class RegisteredSchema(NamedTuple):
    """One version of a subject: its number, its schema and the schema's id."""

    schema_id: int
    version: int
    schema: Schema


class RegistryClient:
    """A client for a schema registry. A context manager that closes the connection.

    `urls`              URLs such as http://host:8081, separated by commas; they are tried in turn
    `settings`          credentials and TLS settings (see the module); other keys are ignored
    `timeout_s`         the time limit for one complete response
    `retry_timeout_s`   how long a request is retried
    `cache_count_max`   the maximum number of cached schemas; at this number, the cache is cleared
    `unknown_age_s`     how long an unknown id is refused without a request, because a batch of invalid messages may
                        contain many of them
    """

    def __init__(
        self,
        urls: str | Iterable[str],
        *,
        settings: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        retry_timeout_s: float = 30.0,
        cache_count_max: int = 10_000,
        unknown_age_s: float = 5.0,
    ) -> None:
        self.urls = tuple(urls.split(",") if isinstance(urls, str) else urls)
        self._bases = [_base(url) for url in self.urls]
        given = settings or {}
        self._authorization = _authorization(given)
        self._tls = _tls_context(given) if any(base.scheme == "https" for base in self._bases) else None
        self._timeout_s = timeout_s
        self._retry_timeout_s = retry_timeout_s
        self._cache_count_max = cache_count_max
        self._unknown_age_s = unknown_age_s
        self._lock = threading.RLock()
        self._connection: http.client.HTTPConnection | None = None
        self._schemas: dict[int, Schema] = {}
        self._unknown: dict[int, float] = {}
        self.request_count = 0
        """Number of requests sent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. The next request opens a new one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # --- operations ---------------------------------------------------------------------------------------------------

    def schema(self, schema_id: int) -> Schema:
        """Return the schema with this id, from the cache or from the registry.

        RegistryRefused (40403: unknown id), RegistryUnreachable, or SchemaError if the schema is invalid.
        """
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
        """Fetch the last version of a subject. It is not cached. RegistryRefused (40401: unknown subject)."""
        answer = self.request("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        return RegisteredSchema(answer["id"], answer["version"], self._parsed(answer))

    def register(self, subject: str, schema: str, references: Iterable[Mapping[str, Any]] = ()) -> int:
        """Register a schema under a subject and return its id.

        A schema that is already registered keeps its id. RegistryRefused (409: incompatible with the subject's
        versions).
        """
        body = {"schema": schema, **_references(references)}
        answer = self.request("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        schema_id: int = answer["id"]
        return schema_id

    def look_up(self, subject: str, schema: str, references: Iterable[Mapping[str, Any]] = ()) -> int:
        """Return the id of a schema that is registered under a subject.

        RegistryRefused (40401: unknown subject; 40403: the subject does not have this schema).
        """
        body = {"schema": schema, **_references(references)}
        schema_id: int = self.request("POST", f"/subjects/{quote(subject, safe='')}", body)["id"]
        return schema_id

    def _refuse_unknown(self, schema_id: int) -> None:
        """Raise RegistryRefused if the id is out of range or was recently unknown to the registry."""
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
        """Parse a schema from a response of the registry, after fetching the schemas that it references.

        `seen` caches the types of each referenced (subject, version) during one call.
        """
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise SchemaError(f"the schema has type {answer['schemaType']}; expected AVRO")
        if depth > REFERENCE_DEPTH_MAX:
            raise SchemaError(f"schema references are nested more than {REFERENCE_DEPTH_MAX} levels deep")
        named: dict[str, Type] = {}
        for row in answer.get("references") or ():
            subject, version = row["subject"], int(row["version"])
            if (subject, version) not in seen:
                path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
                seen[subject, version] = self._parsed_with(self.request("GET", path), depth + 1, seen).named
            named |= seen[subject, version]
        return parse(answer["schema"], named)

    # --- requests -----------------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send a request and return the JSON of the response.

        After a lost connection or a 5xx response, it is sent again, to the next URL. RegistryRefused for an error
        response, RegistryUnreachable without a response.
        """
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
                    raise RegistryUnreachable(f"{', '.join(map(_without_secret, self.urls))}: {failure}") from failure
                time.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)

    def _connect(self, base: _Base) -> http.client.HTTPConnection:
        if base.scheme == "https":
            return http.client.HTTPSConnection(base.host, base.port, timeout=self._timeout_s, context=self._tls)
        return http.client.HTTPConnection(base.host, base.port, timeout=self._timeout_s)

    def _bound(self, connection: http.client.HTTPConnection) -> None:
        """Set the time limit for the next complete response on this connection."""
        if connection.sock is not None:
            connection.sock.settimeout(self._timeout_s)  # the previous response had reduced it
        answer: Any = partial(http_ask.timed_response, time.monotonic() + self._timeout_s)
        connection.response_class = answer

    def _ask(self, method: str, path: str, body: object) -> Any:
        base = self._bases[0]
        reused = self._connection is not None
        if self._connection is None:
            self._connection = self._connect(base)
        raw = None if body is None else json.dumps(body).encode()
        headers = {"Accept": ACCEPT, "Content-Type": CONTENT_TYPE} if raw is not None else {"Accept": ACCEPT}
        authorization = base.authorization or self._authorization
        if authorization:
            headers["Authorization"] = authorization
        self.request_count += 1
        self._bound(self._connection)
        try:
            self._connection.request(method, base.prefix + path, raw, headers)
            response = self._connection.getresponse()
        except LOST:
            self.close()
            if not reused:
                raise
            return self._ask(method, path, body)  # the registry closed an idle connection
        with response:
            text = response.read(ANSWER_SIZE_MAX + 1)
        if len(text) > ANSWER_SIZE_MAX:
            raise http.client.HTTPException(f"the response is larger than {ANSWER_SIZE_MAX} bytes")
        if response.will_close:
            self.close()
        return _answer(response.status, text)


def _answer(status: int, text: bytes) -> Any:
    try:
        answer = json.loads(text)
    except ValueError as error:
        if status < 400:
            raise http.client.HTTPException("the response is not JSON; is this a schema registry?") from error
        raise RegistryRefused(status, -1, f"HTTP status {status}") from error
    if status >= 400:
        known = answer if isinstance(answer, dict) else {}
        raise RegistryRefused(status, known.get("error_code", -1), str(known.get("message", f"HTTP status {status}")))
    return answer


def _references(references: Iterable[Mapping[str, Any]]) -> dict[str, object]:
    rows = [dict(row) for row in references]
    return {"references": rows} if rows else {}


class _Base(NamedTuple):
    """The address of a registry.

    `authorization` is the Authorization header for the credentials in the URL. It is "" if the URL has none.
    """

    scheme: str
    host: str
    port: int
    prefix: str
    authorization: str


def _base(url: str) -> _Base:
    """Parse the URL of a registry. ValueError if it is not an HTTP or HTTPS URL."""
    parts = http_ask.split_url(url.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{_without_secret(url)!r} is not a schema registry URL such as http://127.0.0.1:8081")
    authorization = _basic(unquote(parts.username), unquote(parts.password or "")) if parts.username else ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return _Base(parts.scheme, parts.hostname, port, parts.path.rstrip("/"), authorization)


def _without_secret(url: str) -> str:
    """Return a URL without its credentials, for error messages."""
    before, at, after = url.strip().rpartition("@")
    return f"{before.partition('://')[0]}://…@{after}" if at else after


def _basic(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode('ascii')}"


def _authorization(settings: Mapping[str, str]) -> str:
    """Return the Authorization header for the credentials in the settings, or "". ConfigError if they are invalid."""
    info, token = settings.get(USER_INFO_KEY, ""), settings.get(TOKEN_KEY, "")
    if info and token:
        raise ConfigError(USER_INFO_KEY, f"cannot be set together with {TOKEN_KEY}")
    if info:
        name, colon, password = info.partition(":")
        if not colon:
            raise ConfigError(USER_INFO_KEY, "must be name:password")
        return _basic(name, password)
    return f"Bearer {token}" if token else ""


def _tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    from kafkalite.client.security import client_context

    return client_context(
        {key.removeprefix(SSL_PREFIX): text for key, text in settings.items() if key.startswith(f"{SSL_PREFIX}ssl.")}
    )
