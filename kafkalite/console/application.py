"""Serve one cluster's pages as a WSGI application. A page function returns plain data, rendered as HTML or JSON.

    GET     the page for the path is called, and its data fills the template NAME.html
            with `?as_json=1` or Accept: application/json, the response is the data itself
    POST    refused unless the request comes from one of the console's pages and the user has the role
            the action is called and audited; the response redirects (303) to the result, or shows the form again

A GET request changes nothing. Templates escape every value. Scripts, styles and images come only from this server
(CSP), and pages contain no inline scripts.

Thread rule: any thread.
"""

from __future__ import annotations

import json
import logging
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from kafkalite.base.extras import needs_extra
from kafkalite.client.errors import ClientError
from kafkalite.console.action_context import ActionContext, ActionRequest
from kafkalite.console.actions import ACTIONS, SCRIPTS, notice_of
from kafkalite.console.audit import AuditEntry, NoAuditError
from kafkalite.console.clusters import based
from kafkalite.console.console_roles import Access, ForbiddenError, access_of, require_own
from kafkalite.console.forms import body_pairs
from kafkalite.console.groups import group_page, groups_page
from kafkalite.console.letters import letter_topic_page, letters_page
from kafkalite.console.messages import message_page, messages_page
from kafkalite.console.places import Route
from kafkalite.console.requests import (
    AwayError,
    BadRequestError,
    BusyError,
    ConflictError,
    Done,
    Download,
    NotFoundError,
    all_topics,
)
from kafkalite.console.texts import FILTERS
from kafkalite.console.topics import topic_page, topics_page
from kafkalite.console.tracking import track_page
from kafkalite.errors import ErrorCode, GroupIdNotFound, KafkaError, StartupError, UnknownTopicOrPartition
from kafkalite.failures.dead_topics import RoutedTopics
from kafkalite.version import VERSION
from kafkalite.web.routes import NoSuchMethodError, NoSuchPathError, Routes
from kafkalite.web.users import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.avro.documents import Documents
    from kafkalite.console.clients import Clients
    from kafkalite.console.console_state import ConsoleState
    from kafkalite.console.masks import Masks
    from kafkalite.console.requests import Topics
    from kafkalite.console.sampler import Sampler

logger = logging.getLogger(__name__)

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
STATIC: Final = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "pictures.css": "text/css; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    **SCRIPTS,
}
REASONS: Final = {
    200: "OK",
    302: "Found",
    303: "See Other",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
DENIED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
UNFIT: Final = frozenset(
    {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    }
)
"""Broker errors caused by the request rather than by the cluster."""


class Answer(NamedTuple):
    """A response: status, content type and body."""

    status: int
    kind: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    file: Path | None = None
    """A file sent in place of the body."""


ROUTES: Final = (
    ("/topics", {"GET": Route(topics_page, "topics", "topics")}),
    ("/topics/{}", {"GET": Route(topic_page, "topic", "topics")}),
    ("/topics/{}/messages", {"GET": Route(messages_page, "messages", "topics")}),
    ("/topics/{}/messages/{}/{}", {"GET": Route(message_page, "message", "topics")}),
    ("/groups", {"GET": Route(groups_page, "groups", "groups")}),
    ("/groups/{}", {"GET": Route(group_page, "group", "groups")}),
    ("/letters", {"GET": Route(letters_page, "letters", "letters")}),
    ("/letters/{}", {"GET": Route(letter_topic_page, "letter_topic", "letters")}),
    ("/track", {"GET": Route(track_page, "track", "track")}),
    *ACTIONS,
)


class Application:
    """The WSGI application of one cluster. Raises StartupError without Jinja2."""

    def __init__(self, clients: Clients, masks: Masks, desk: ConsoleState, *, cluster: str, writes: bool) -> None:
        """If `writes`, users may make the changes that their roles allow. `desk` is the state that the changes
        share."""
        self._clients = clients
        self._masks = masks
        self._desk = desk
        self._cluster = cluster
        self._writes = writes
        self._templates = templates()
        self._routes: Routes[Route | str] = Routes([("/static/{}", {"GET": "static"}), *ROUTES])
        self._topics: Topics = all_topics
        self._routed = RoutedTopics()
        self._renew: Callable[[], None] = lambda: None

    def extend(
        self,
        rows: Iterable[tuple[str, Mapping[str, Route]]],
        names: Mapping[str, object],
        sampler: Sampler,
        *,
        base: str = "",
    ) -> None:
        """Add routes and names for templates, and use the sampler's list of topics. Call it before serving.

        The routes take precedence over existing ones. `base` is the prefix of all addresses: that of a reverse proxy,
        of one of several clusters, or both.
        """
        self._topics, self._renew = sampler.topics, sampler.renew
        self._routes = Routes([*rows, ("/static/{}", {"GET": "static"}), *ROUTES])
        self._templates.globals |= names
        if base:
            self._templates.loader = at_base(self._templates, base)

    @property
    def first_parts(self) -> frozenset[str]:
        """The first path segments of all pages."""
        return self._routes.first_parts

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        answer = self._answer(environ)
        size = len(answer.body) if answer.file is None else answer.file.stat().st_size
        headers = [
            ("Content-Type", answer.kind),
            ("Content-Length", str(size)),
            ("Content-Security-Policy", CSP),
            ("Referrer-Policy", "same-origin"),  # without it, browsers send no Origin for `is_own`
            *answer.headers,
        ]
        start_response(f"{answer.status} {REASONS[answer.status]}", headers)
        if environ["REQUEST_METHOD"] == "HEAD":
            return [b""]
        if answer.file is not None:
            wrapped: Iterable[bytes] = environ["wsgi.file_wrapper"](answer.file.open("rb"))
            return wrapped
        return [answer.body]

    def _answer(self, environ: dict[str, Any]) -> Answer:
        try:
            place, values = self._routes.find(environ)
        except NoSuchPathError:
            return self._failed(environ, 404, "page not found")
        except NoSuchMethodError as error:
            why = f"this page accepts {error}, not {environ['REQUEST_METHOD'][:20]}"
            return self._failed(environ, 405, why)._replace(headers=(("Allow", str(error)),))
        if isinstance(place, str):
            return self._static(environ, values[0])
        try:
            found = self._found(environ, place, values)
        except Exception as error:  # a page that fails must not end the worker
            status, why = refusal(error)
            if status == 500:
                logger.exception("the page %s failed", environ.get("PATH_INFO"))
            return self._failed(environ, status, why)
        if isinstance(found, Download):
            name = ("Content-Disposition", f'attachment; filename="{found.name}"')
            return Answer(200, "application/octet-stream", b"", (name,), found.path)
        if isinstance(found, Done):
            if wants_json(environ):
                return Answer(200, "application/json", json.dumps(found.data, indent=1).encode())
            return Answer(303, "text/plain", b"", (("Location", found.location),))
        return self._rendered(environ, 400 if found.get("error") else 200, place.template, place.part, found)

    def _found(
        self, environ: dict[str, Any], place: Route, values: tuple[str, ...]
    ) -> dict[str, Any] | Done | Download:
        """Call the page or action at a path, and return its result."""
        access = access_of(environ, writes=self._writes)
        changes = environ["REQUEST_METHOD"] == "POST"
        deed = AuditEntry(
            access.name,
            access.role.name.lower(),
            str(environ.get("REMOTE_ADDR", "")),
            f"{place.part}.{place.page.__name__.removesuffix('_action')}",
            values,
            {},
        )
        if not changes:
            access.require(place.role)
            with self._clients.taken() as seat:
                bench = ActionContext(self._desk, access, deed, seat.registry)
                request = self._request(bench, environ, values, seat.documents)
                return place.page(seat.client, request)
        require_own(environ)
        with self._clients.taken() as seat, self._desk.audit.watched(seat.client, deed):
            access.require(place.role)
            bench = ActionContext(self._desk, access, deed, seat.registry)
            pairs = body_pairs(environ)
            request = self._request(bench, environ, values, seat.documents, pairs)
            found = place.page(seat.client, request)
            self._renew()
            if isinstance(found, dict) and found.get("error"):
                deed.detail.setdefault("why", found["error"])
            return found

    def _request(
        self,
        bench: ActionContext,
        environ: dict[str, Any],
        values: tuple[str, ...],
        documents: Documents | None,
        pairs: list[tuple[str, str]] | None = None,
    ) -> ActionRequest:
        return ActionRequest(
            bench, environ, values, self._masks, documents, pairs=pairs, topics=self._topics, routed=self._routed
        )

    def _static(self, environ: Mapping[str, Any], name: str) -> Answer:
        kind = STATIC.get(name)
        if kind is None:
            return self._failed(environ, 404, "page not found")
        body = resources.files("kafkalite.console").joinpath("static", name).read_bytes()
        return Answer(200, kind, body, (("Cache-Control", "max-age=3600"),))

    def _failed(self, environ: Mapping[str, Any], status: int, why: str) -> Answer:
        return self._rendered(environ, status, "failed", "", {"status": status, "reason": REASONS[status], "why": why})

    def _rendered(
        self, environ: Mapping[str, Any], status: int, template: str, part: str, data: dict[str, Any]
    ) -> Answer:
        if wants_json(environ):
            body = json.dumps(data, ensure_ascii=True, indent=1).encode()
            return Answer(status, "application/json", body)
        access = access_of(environ, writes=self._writes)
        page = self._templates.get_template(f"{template}.html")
        text: str = page.render(
            **data,
            part=part,
            cluster=self._cluster,
            version=VERSION,
            user=access.name,
            may=may_of(access),
            notice=notice_of(environ),
        )
        return Answer(status, "text/html; charset=utf-8", text.encode(errors="replace"))


def may_of(access: Access) -> dict[str, bool]:
    """Return role → whether the user may make its changes, for the templates."""
    return {role.name.lower(): access.may(role) for role in Role} | {"write": access.writes}


def refusal(error: Exception) -> tuple[int, str]:
    """Return (HTTP status, message) for an exception. The status is 500 if the exception is unexpected."""
    match error:
        case BadRequestError():
            return 400, str(error)
        case ForbiddenError():
            return 403, str(error)
        case BusyError() | NoAuditError():
            return 503, str(error)
        case AwayError():
            return 502, str(error)
        case ConflictError():
            return 409, str(error)
        case NotFoundError() | UnknownTopicOrPartition() | GroupIdNotFound():
            return 404, str(error)
        case KafkaError():
            return status_of(error), f"{error} ({error.name})"
        case ClientError():
            return 502, f"the cluster is not available: {error}"
        case _:
            return 500, "this page failed; see the log of the console"


def status_of(error: KafkaError) -> int:
    """Return the HTTP status for a broker's error."""
    if error.code in DENIED:
        return 403
    return 400 if error.code in UNFIT else 502


def wants_json(environ: Mapping[str, Any]) -> bool:
    """Return whether the client wants JSON instead of HTML."""
    query = environ.get("QUERY_STRING", "")
    return "as_json=1" in query.split("&") or environ.get("HTTP_ACCEPT", "").startswith("application/json")


def at_base(environment: Any, base: str) -> Any:
    """Return a loader of the templates that prefixes their links with the path `base`."""
    from jinja2 import FunctionLoader

    loader = environment.loader
    return FunctionLoader(lambda name: based(loader.get_source(environment, name)[0], base))


def templates() -> Any:
    """Return a Jinja2 environment that escapes every value and rejects undefined names. Raises StartupError without
    Jinja2."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise StartupError(needs_extra("the console needs Jinja2", "console")) from error
    environment = Environment(
        loader=PackageLoader("kafkalite.console"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= FILTERS
    environment.filters["urlencode"] = lambda text: quote(str(text), safe="")  # Jinja's leaves slashes in names
    environment.filters["tojson_text"] = json.dumps  # escaped like other text; Jinja's filter is for scripts
    return environment
