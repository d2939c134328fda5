"""Serve the REST interface of the schema registry as a WSGI application, with Confluent's paths and JSON.

    method, path ─▶ ROUTES ─▶ handler(request) ─▶ JSON
                                 └─ RegistryError ─▶ {"error_code": ..., "message": ...}

The content type is application/vnd.schemaregistry.v1+json, or another of CONTENT_TYPES if the client prefers it.

If a read finds nothing, the application waits until this registry has read the writes of other registries. Then it
repeats the read.

Thread rule: any thread.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qs

from kafkalite.schema_registry import errors
from kafkalite.schema_registry.records import AVRO, ID_MAX, Reference, SchemaVersion, dumps
from kafkalite.schema_registry.registry import LATEST, OfferedSchema, Registry
from kafkalite.version import VERSION
from kafkalite.web.guard import user_in
from kafkalite.web.routes import NoSuchMethodError, NoSuchPathError, Routes
from kafkalite.web.users import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

logger = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
CONTENT_TYPES: Final = (CONTENT_TYPE, "application/vnd.schemaregistry+json", "application/json")
ACCEPTED_BODIES: Final = frozenset({*CONTENT_TYPES, "application/octet-stream"})
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    409: "Conflict",
    413: "Request Entity Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Entity",
    500: "Internal Server Error",
}
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})
BODY_SIZE_MAX: Final = 2 * 1024 * 1024
REFERENCE_COUNT_MAX: Final = 1000
DIGITS_MAX: Final = 20
LENIENT: Final = "HTTP_CONFLUENT_ACCEPT_UNKNOWN_PROPERTIES"
"""With this header, newer clients send attributes that an older registry does not know."""


class Text(NamedTuple):
    """A response whose body is the text of a schema."""

    text: str


class Request:
    """A request with its parsed path and query string."""

    def __init__(self, environ: Mapping[str, Any], values: tuple[str, ...]) -> None:
        self.environ = environ
        self.values = values
        """The variable parts of the path, decoded."""
        self.query: dict[str, list[str]] = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)

    def flag(self, name: str) -> bool:
        """Return whether a flag in the query string is set.

        `True` is also accepted, because Python's clients send it.
        """
        return self.query.get(name, ["false"])[-1].lower() == "true"

    def text(self, name: str) -> str:
        return self.query.get(name, [""])[-1]

    def page(self, rows: list[Any]) -> list[Any]:
        """Return the part of a list that `offset` and `limit` in the query string select. RegistryError."""
        try:
            offset, limit = int(self.text("offset") or 0), int(self.text("limit") or -1)
        except ValueError:
            raise errors.plain(404, "HTTP 404 Not Found") from None
        start = max(offset, 0)
        return rows[start:] if limit < 0 else rows[start : start + limit]

    @property
    def version(self) -> int:
        """The version in the path: a number or LATEST. RegistryError."""
        return version_of(self.values[1])

    def body(self, known: Iterable[str]) -> dict[str, Any]:
        """Return the JSON object in the body.

        RegistryError if it is invalid or has attributes that are not in `known`.
        """
        kind = self.environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
        if kind and kind not in ACCEPTED_BODIES:
            raise errors.plain(415, "HTTP 415 Unsupported Media Type")
        size = int(self.environ.get("CONTENT_LENGTH") or 0)
        raw = self.environ["wsgi.input"].read(size)
        if not raw.strip():
            raise errors.plain(422, "the request has no body")
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise errors.plain(400, f"the body is not valid JSON: {error}") from error
        if not isinstance(found, dict):
            raise errors.plain(400, "the body is not a JSON object")
        if self.environ.get(LENIENT, "").lower() != "true":
            for name in sorted(found.keys() - set(known)):
                raise errors.plain(422, f"Unrecognized field: {name[:100]}")
        return found

    def offered(self) -> OfferedSchema:
        """Return the schema in the body. RegistryError."""
        body = self.body(
            ("schema", "schemaType", "references", "id", "version", "metadata", "ruleSet", "schemaTagsToAdd")
        )
        text = body.get("schema")
        if not isinstance(text, str) or not text:
            raise errors.invalid_schema("Empty schema")
        for name in ("metadata", "ruleSet"):
            if body.get(name):
                raise errors.invalid_schema(f"{name} is not supported")
        return OfferedSchema(
            text,
            text_in(body, "schemaType") or AVRO,
            references_in(body),
            number_in(body, "id"),
            number_in(body, "version"),
            self.flag("normalize"),
        )


class Application:
    """The WSGI application of a schema registry."""

    def __init__(self, registry: Registry, *, refresh: Callable[[], None], cluster_id: str = "") -> None:
        self.registry = registry
        self.cluster_id = cluster_id
        self.refresh = refresh
        self._counting = threading.Lock()
        self._counts: dict[tuple[str, int], int] = {}
        self._seconds: dict[tuple[str, int], float] = {}

    def counts(self) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], float]]:
        """Return the number of responses, and their total time in seconds, each by (method, status)."""
        with self._counting:
            return dict(self._counts), dict(self._seconds)

    def _count(self, method: str, status: int, began: float) -> None:
        key = (method if method in METHODS else "other", status)
        with self._counting:
            self._counts[key] = self._counts.get(key, 0) + 1
            self._seconds[key] = self._seconds.get(key, 0.0) + time.monotonic() - began

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
    ) -> list[bytes]:
        kind, began = CONTENT_TYPE, time.monotonic()
        try:
            kind = answer_type(environ.get("HTTP_ACCEPT", ""))
            status, answer = 200, self._answer(environ)
        except errors.RegistryError as error:
            status, answer = error.status, {"error_code": error.code, "message": error.message}
        except Exception:  # the client gets an error, and the log the reason
            logger.exception("request failed")
            status, answer = 500, {"error_code": 500, "message": "Internal Server Error"}
        text = answer.text if isinstance(answer, Text) else dumps(answer)
        raw = text.encode("utf-8", "replace")
        headers = [("Content-Type", kind), ("Content-Length", str(len(raw))), ("Vary", "Accept")]
        self._count(environ["REQUEST_METHOD"], status, began)
        start_response(f"{status} {REASONS[status]}", headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else raw]

    def _answer(self, environ: dict[str, Any]) -> Any:
        handler, values = find(environ)
        request = Request(environ, values)
        try:
            return handler(self, request)
        except errors.RegistryError as error:
            if error.status != 404 or environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
                raise
        self.refresh()
        return handler(self, request)


# --- handlers ---------------------------------------------------------------------------------------------------------


def get_root(_app: Application, _request: Request) -> Any:
    return {}


def get_schema_types(_app: Application, _request: Request) -> Any:
    return [AVRO]


def get_contexts(_app: Application, request: Request) -> Any:
    return request.page(["."])


def get_server_id(app: Application, _request: Request) -> Any:
    clusters = {"kafka-cluster": app.cluster_id, "schema-registry-cluster": "schema-registry"}
    return {"scope": {"path": [], "clusters": clusters}}


def get_server_version(_app: Application, _request: Request) -> Any:
    return {"version": f"kafkalite-{VERSION}", "commitId": ""}


def get_schemas(app: Application, request: Request) -> Any:
    rows = app.registry.schemas(
        prefix=request.text("subjectPrefix"), deleted=request.flag("deleted"), latest_only=request.flag("latestOnly")
    )
    return [version_json(row) for row in request.page(rows)]


def get_schema(app: Application, request: Request) -> Any:
    row = app.registry.schema(id_of(request.values[0]))
    answer = schema_json(row)
    if request.flag("fetchMaxId"):
        answer["maxId"] = app.registry.id_max
    return answer


def get_schema_text(app: Application, request: Request) -> Any:
    return Text(app.registry.schema(id_of(request.values[0])).text)


def get_schema_subjects(app: Application, request: Request) -> Any:
    return request.page(sorted({row.subject for row in places(app, request)}))


def get_schema_versions(app: Application, request: Request) -> Any:
    return request.page([{"subject": row.subject, "version": row.version} for row in places(app, request)])


def get_subjects(app: Application, request: Request) -> Any:
    found = app.registry.subjects(
        prefix=request.text("subjectPrefix"),
        deleted=request.flag("deleted"),
        deleted_only=request.flag("deletedOnly"),
    )
    return request.page(found)


def look_up_schema(app: Application, request: Request) -> Any:
    offered, deleted = request.offered(), request.flag("deleted")
    try:
        row = app.registry.look_up(request.values[0], offered, deleted=deleted)
    except errors.RegistryError as error:
        if error.status != 404:
            raise
        app.refresh()  # `_answer` cannot repeat the request, because its body is already read
        row = app.registry.look_up(request.values[0], offered, deleted=deleted)
    return version_json(row)


def delete_subject(app: Application, request: Request) -> Any:
    return app.registry.delete_subject(request.values[0], permanent=request.flag("permanent"))


def get_versions(app: Application, request: Request) -> Any:
    found = app.registry.versions(
        request.values[0], deleted=request.flag("deleted"), deleted_only=request.flag("deletedOnly")
    )
    return request.page(found)


def register_schema(app: Application, request: Request) -> Any:
    return {"id": app.registry.register(request.values[0], request.offered()).schema_id}


def get_version(app: Application, request: Request) -> Any:
    return version_json(app.registry.version(request.values[0], request.version, deleted=request.flag("deleted")))


def get_version_text(app: Application, request: Request) -> Any:
    return Text(app.registry.version(request.values[0], request.version, deleted=request.flag("deleted")).text)


def get_referenced_by(app: Application, request: Request) -> Any:
    return request.page(app.registry.referenced_by(request.values[0], request.version))


def delete_version(app: Application, request: Request) -> Any:
    return app.registry.delete_version(request.values[0], request.version, permanent=request.flag("permanent"))


def check_version(app: Application, request: Request) -> Any:
    return verdict(request, app.registry.problems(request.values[0], request.offered(), request.version))


def check_versions(app: Application, request: Request) -> Any:
    return verdict(request, app.registry.problems(request.values[0], request.offered(), None))


def get_level(app: Application, request: Request) -> Any:
    level = app.registry.level(subject_in(request), or_default=request.flag("defaultToGlobal"))
    return {"compatibilityLevel": level}


def put_level(app: Application, request: Request) -> Any:
    body = request.body(("compatibility",))
    level = body.get("compatibility")
    if not isinstance(level, str):
        raise errors.invalid_level()
    return {"compatibility": app.registry.set_level(subject_in(request), level)}


def delete_level(app: Application, request: Request) -> Any:
    return {"compatibilityLevel": app.registry.unset_level(subject_in(request))}


def get_mode(app: Application, request: Request) -> Any:
    return {"mode": app.registry.mode(subject_in(request), or_default=request.flag("defaultToGlobal"))}


def put_mode(app: Application, request: Request) -> Any:
    mode = request.body(("mode",)).get("mode")
    if not isinstance(mode, str):
        raise errors.invalid_mode()
    return {"mode": app.registry.set_mode(subject_in(request), mode, force=request.flag("force"))}


def delete_mode(app: Application, request: Request) -> Any:
    return {"mode": app.registry.unset_mode(subject_in(request))}


Handler: TypeAlias = "Callable[[Application, Request], Any]"

PATHS: Final[list[tuple[str, dict[str, Handler]]]] = [
    ("/", {"GET": get_root}),
    ("/contexts", {"GET": get_contexts}),
    ("/v1/metadata/id", {"GET": get_server_id}),
    ("/v1/metadata/version", {"GET": get_server_version}),
    ("/schemas", {"GET": get_schemas}),
    ("/schemas/types", {"GET": get_schema_types}),
    ("/schemas/ids/{}", {"GET": get_schema}),
    ("/schemas/ids/{}/schema", {"GET": get_schema_text}),
    ("/schemas/ids/{}/subjects", {"GET": get_schema_subjects}),
    ("/schemas/ids/{}/versions", {"GET": get_schema_versions}),
    ("/subjects", {"GET": get_subjects}),
    ("/subjects/{}", {"POST": look_up_schema, "DELETE": delete_subject}),
    ("/subjects/{}/versions", {"GET": get_versions, "POST": register_schema}),
    ("/subjects/{}/versions/{}", {"GET": get_version, "DELETE": delete_version}),
    ("/subjects/{}/versions/{}/schema", {"GET": get_version_text}),
    ("/subjects/{}/versions/{}/referencedby", {"GET": get_referenced_by}),
    ("/compatibility/subjects/{}/versions", {"POST": check_versions}),
    ("/compatibility/subjects/{}/versions/{}", {"POST": check_version}),
    ("/config", {"GET": get_level, "PUT": put_level, "DELETE": delete_level}),
    ("/config/{}", {"GET": get_level, "PUT": put_level, "DELETE": delete_level}),
    ("/mode", {"GET": get_mode, "PUT": put_mode, "DELETE": delete_mode}),
    ("/mode/{}", {"GET": get_mode, "PUT": put_mode, "DELETE": delete_mode}),
]
ROUTES: Final = Routes(PATHS)
READING: Final = frozenset(
    {look_up_schema, check_version, check_versions, *(methods["GET"] for _, methods in PATHS if "GET" in methods)}
)
"""Handlers that change nothing: a viewer may call only these."""


# --- conversions between HTTP and the registry ------------------------------------------------------------------------


def find(environ: Mapping[str, Any]) -> tuple[Handler, tuple[str, ...]]:
    """Return the handler for a request, and the variable parts of its path.

    RegistryError 404 or 405 without a handler, 403 if the user may not make changes.
    """
    try:
        handler, values = ROUTES.find(environ)
    except NoSuchPathError:
        raise errors.plain(404, "HTTP 404 Not Found") from None
    except NoSuchMethodError:
        raise errors.plain(405, "HTTP 405 Method Not Allowed") from None
    user = user_in(environ)
    if user is not None and user.role < Role.OPERATOR and handler not in READING:
        raise errors.plain(403, f"user {user.name} may read schemas but not change them")
    return handler, values


def answer_type(accept: str) -> str:
    """Return the content type of the response for an Accept header. RegistryError 406 if none is acceptable."""
    if not accept.strip():
        return CONTENT_TYPE
    wanted = []
    for part in accept.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if weight > 0:
            wanted.append((-weight, name))
    for _, name in sorted(wanted, key=lambda row: row[0]):
        if name in {"*/*", "application/*"}:
            return CONTENT_TYPE
        if name in CONTENT_TYPES:
            return name
    raise errors.plain(406, "HTTP 406 Not Acceptable")


def version_of(text: str) -> int:
    """Parse a version number or "latest". RegistryError 42202 if the text is neither."""
    if text.strip().lower() in {"latest", "-1"}:
        return LATEST
    digits = text.strip()
    if not is_number(digits) or not 0 < int(digits) <= ID_MAX:
        raise errors.invalid_version(text[:100])
    return int(digits)


def id_of(text: str) -> int:
    """Parse a schema id. RegistryError 404 if the text is not a number, as for an unknown path."""
    if not is_number(text) or int(text) > ID_MAX:
        raise errors.plain(404, "HTTP 404 Not Found")
    return int(text)


def is_number(text: str) -> bool:
    """Return whether a text is a number of at most DIGITS_MAX digits."""
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX


def places(app: Application, request: Request) -> list[SchemaVersion]:
    return app.registry.places(
        id_of(request.values[0]), subject=request.text("subject") or None, deleted=request.flag("deleted")
    )


def subject_in(request: Request) -> str | None:
    return request.values[0] if request.values else None


def verdict(request: Request, messages: list[str]) -> dict[str, object]:
    """Return the response to a compatibility check. `messages` are the reasons why the schema is incompatible."""
    answer: dict[str, object] = {"is_compatible": not messages}
    if request.flag("verbose"):
        answer["messages"] = messages
    return answer


def schema_json(row: SchemaVersion) -> dict[str, Any]:
    """Return a schema as JSON, without its subject, version and id."""
    answer: dict[str, Any] = {"schema": row.text}
    if row.schema_type != AVRO:
        answer["schemaType"] = row.schema_type
    if row.references:
        answer["references"] = [reference.json() for reference in row.references]
    return answer | dict(row.carried)


def version_json(row: SchemaVersion) -> dict[str, Any]:
    """Return a version of a subject as JSON."""
    return {"subject": row.subject, "version": row.version, "id": row.schema_id, **schema_json(row)}


def text_in(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise errors.plain(400, f"{name} is not a string")
    return value or ""


def number_in(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name)
    if value is None:
        return -1
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= ID_MAX:
        raise errors.plain(400, f"{name} is not a whole number")
    return value


def references_in(body: Mapping[str, Any]) -> tuple[Reference, ...]:
    rows = body.get("references") or []
    if not isinstance(rows, list) or len(rows) > REFERENCE_COUNT_MAX:
        raise errors.plain(400, f"references must be a list of at most {REFERENCE_COUNT_MAX}")
    found = []
    for row in rows:
        if not isinstance(row, dict):
            raise errors.plain(400, "a reference must be a JSON object")
        found.append(Reference(text_in(row, "name"), text_in(row, "subject"), number_in(row, "version")))
    return tuple(found)
