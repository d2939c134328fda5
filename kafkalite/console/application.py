"""Paths to pages, as a WSGI application: plain data from a page, made HTML by a template, or JSON for who asks for it.

    path ─▶ ROUTES ─▶ page(client, request) ─▶ template NAME.html
                                            └▶ `?as_json=1`, or Accept: application/json: the same data

Every path takes GET alone. Templates escape whatever they are given; scripts, styles and pictures come from this server
alone (CSP), and nothing stands inside a page that could run.

Thread rule: any thread.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.client.errors import ClientError
from kafkalite.console.groups import group_page, groups_page
from kafkalite.console.letters import letter_topic_page, letters_page
from kafkalite.console.messages import message_page, messages_page
from kafkalite.console.requests import BadRequestError, BusyError, NotFoundError, Request
from kafkalite.console.topics import topic_page, topics_page
from kafkalite.console.tracking import track_page
from kafkalite.errors import ErrorCode, GroupIdNotFound, KafkaError, StartupError, UnknownTopicOrPartition
from kafkalite.version import VERSION
from kafkalite.web.guard import user_in
from kafkalite.web.routes import NoSuchMethodError, NoSuchPathError, Routes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.client import Client
    from kafkalite.console.clients import Clients
    from kafkalite.console.masks import Masks

    Page = Callable[[Client, Request], dict[str, Any]]

logger = logging.getLogger(__name__)

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
STATIC: Final = {"console.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8"}
REASONS: Final = {
    200: "OK",
    302: "Found",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
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


class Place(NamedTuple):
    """What a path leads to: a page and its template, whose name is that of the part of the console too."""

    page: Page
    template: str
    part: str


class Answer(NamedTuple):
    """Status, type and body."""

    status: int
    kind: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


ROUTES: Final = (
    ("/topics", {"GET": Place(topics_page, "topics", "topics")}),
    ("/topics/{}", {"GET": Place(topic_page, "topic", "topics")}),
    ("/topics/{}/messages", {"GET": Place(messages_page, "messages", "topics")}),
    ("/topics/{}/messages/{}/{}", {"GET": Place(message_page, "message", "topics")}),
    ("/groups", {"GET": Place(groups_page, "groups", "groups")}),
    ("/groups/{}", {"GET": Place(group_page, "group", "groups")}),
    ("/letters", {"GET": Place(letters_page, "letters", "letters")}),
    ("/letters/{}", {"GET": Place(letter_topic_page, "letter_topic", "letters")}),
    ("/track", {"GET": Place(track_page, "track", "track")}),
)


class Application:
    """See the module. StartupError without Jinja2."""

    def __init__(self, clients: Clients, masks: Masks, *, cluster: str) -> None:
        self._clients = clients
        self._masks = masks
        self._cluster = cluster
        self._routes: Routes[Place | str] = Routes([("/", {"GET": "home"}), ("/static/{}", {"GET": "static"}), *ROUTES])
        self._templates = templates()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        answer = self._answer(environ)
        headers = [
            ("Content-Type", answer.kind),
            ("Content-Length", str(len(answer.body))),
            ("Content-Security-Policy", CSP),
            *answer.headers,
        ]
        start_response(f"{answer.status} {REASONS[answer.status]}", headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else answer.body]

    def _answer(self, environ: dict[str, Any]) -> Answer:
        try:
            place, values = self._routes.find(environ)
        except NoSuchPathError:
            return self._failed(environ, 404, "there is no such page")
        except NoSuchMethodError as error:
            return self._failed(environ, 405, "this console reads and changes nothing")._replace(
                headers=(("Allow", str(error)),)
            )
        if place == "home":
            return Answer(302, "text/plain", b"", (("Location", "/topics"),))
        if isinstance(place, str):
            return self._static(environ, values[0])
        try:
            with self._clients.taken() as seat:
                data = place.page(seat.client, Request(environ, values, self._masks, seat.documents))
        except BadRequestError as error:
            return self._failed(environ, 400, str(error))
        except BusyError as error:
            return self._failed(environ, 503, str(error))
        except (NotFoundError, UnknownTopicOrPartition, GroupIdNotFound) as error:
            return self._failed(environ, 404, str(error))
        except KafkaError as error:
            return self._failed(environ, 403 if error.code in DENIED else 502, f"{error} ({error.name})")
        except ClientError as error:
            return self._failed(environ, 502, f"the cluster does not answer: {error}")
        except Exception:  # a page that fails must not end the worker
            logger.exception("the page %s failed", environ.get("PATH_INFO"))
            return self._failed(environ, 500, "this page failed; the log of the console says why")
        return self._rendered(environ, 200, place.template, place.part, data)

    def _static(self, environ: Mapping[str, Any], name: str) -> Answer:
        if name not in STATIC:
            return self._failed(environ, 404, "there is no such page")
        body = resources.files("kafkalite.console").joinpath("static", name).read_bytes()
        return Answer(200, STATIC[name], body, (("Cache-Control", "max-age=3600"),))

    def _failed(self, environ: Mapping[str, Any], status: int, why: str) -> Answer:
        return self._rendered(environ, status, "failed", "", {"status": status, "reason": REASONS[status], "why": why})

    def _rendered(
        self, environ: Mapping[str, Any], status: int, template: str, part: str, data: dict[str, Any]
    ) -> Answer:
        if wants_json(environ):
            body = json.dumps(data, ensure_ascii=True, indent=1).encode()
            return Answer(status, "application/json", body)
        user = user_in(environ)
        page = self._templates.get_template(f"{template}.html")
        text: str = page.render(
            **data, part=part, cluster=self._cluster, version=VERSION, user=user.name if user is not None else ""
        )
        return Answer(status, "text/html; charset=utf-8", text.encode(errors="replace"))


def wants_json(environ: Mapping[str, Any]) -> bool:
    """Whether a program asks."""
    query = environ.get("QUERY_STRING", "")
    return "as_json=1" in query.split("&") or environ.get("HTTP_ACCEPT", "").startswith("application/json")


def templates() -> Any:
    """Jinja2 with escaping for everything, and an error for a name that is not there."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise StartupError("the console needs Jinja2: pip install 'kafkalite[console]'") from error
    environment = Environment(
        loader=PackageLoader("kafkalite.console"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"count": count_text, "size": size_text, "time": time_text, "after": after_text}
    return environment


def count_text(value: int | None) -> str:
    """1234567 → 1,234,567."""
    return "–" if value is None else f"{value:,}"


def size_text(value: int | None) -> str:
    """Bytes with a unit."""
    if value is None:
        return "–"
    for unit, length in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= length:
            return f"{value / length:.3g} {unit}"
    return f"{value} B"


def time_text(ms: int) -> str:
    """2026-11-22 19:44:32.123 UTC; – for none."""
    if ms <= 0:
        return "–"
    try:
        return f"{dt.datetime.fromtimestamp(ms // 1000, dt.UTC):%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} UTC"
    except (OverflowError, ValueError, OSError):
        return str(ms)


def after_text(ms: int) -> str:
    """+1.5 s."""
    sign, size = ("−", -ms) if ms < 0 else ("+", ms)
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if size >= length:
            return f"{sign}{size / length:.3g} {unit}"
    return f"{sign}{size} ms"
