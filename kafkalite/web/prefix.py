"""Serve a WSGI application under a path prefix, such as /kafka, for a reverse proxy.

    /kafka/topics (a proxy that passes the prefix on) ─┬▶ the application, which sees /topics
    /topics       (a proxy that strips it)            ─┘
    Location: /topics ─▶ Location: /kafka/topics

Thread rule: pure functions on WSGI's environ; any thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kafkalite.errors import StartupError
from kafkalite.web.routes import raw_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    StartResponse = Callable[..., object]
    WSGI = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]

_BASE_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")


def parse_base_path(text: str) -> str:
    """Parse the option --base-path. Return the prefix without a slash at the end; "" for the root. StartupError."""
    path = text.removesuffix("/")
    if path and (not _BASE_PATH.fullmatch(path) or {".", ".."} & {*path.split("/")}):
        raise StartupError(
            f"--base-path {text[:80]!r} is not a path such as /kafka; each part may have letters, digits, '.', "
            "'_', '~' and '-', and must not be '.' or '..'"
        )
    return path


def call_under(
    application: WSGI, prefix: str, environ: dict[str, Any], start_response: StartResponse
) -> Iterable[bytes]:
    """Call an application for a request under a path prefix.

    The prefix is removed from the path of the request. It is added to a path in the Location header of the response. A
    request path without the prefix is unchanged.
    """
    path = raw_path(environ)
    if path == prefix or path.startswith(f"{prefix}/"):
        rest = path.removeprefix(prefix) or "/"
        query = str(environ.get("QUERY_STRING", ""))
        environ = {**environ, "REQUEST_URI": rest + (f"?{query}" if query else ""), "PATH_INFO": rest}

    def start(status: str, headers: list[tuple[str, str]], *others: object) -> object:
        moved = [
            (name, prefix + value if name == "Location" and value.startswith("/") else value) for name, value in headers
        ]
        return start_response(status, moved, *others)

    return application(environ, start)


def with_prefix(application: WSGI, prefix: str, own: Iterable[str]) -> WSGI:
    """Return an application that serves `application` under a path prefix.

    `own` has the first parts of the application's own paths. StartupError if the prefix begins with one of them: behind
    a proxy that strips the prefix, the application's paths would be ambiguous.
    """
    if not prefix:
        return application
    first = prefix.split("/")[1]
    if first in own:
        raise StartupError(f"--base-path {prefix}: /{first} is a path of this server already; choose another prefix")
    return lambda environ, start_response: call_under(application, prefix, environ, start_response)
