"""Route requests to handlers by the undecoded path.

    Routes([("/subjects/{}", {"GET": get_subject, "DELETE": delete_subject}), ...])

A `{}` matches one part of the path. A part may contain an encoded slash, so parts are decoded after matching. HEAD is
handled as GET; the application omits the body. Pure functions on WSGI's environ; any thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

H = TypeVar("H")


class NoSuchPathError(Exception):
    """No route matches the path: status 404."""


class NoSuchMethodError(Exception):
    """No handler for the method: status 405. The argument is the value of the Allow header."""


class Routes(Generic[H]):
    """A routing table with handlers of type H."""

    def __init__(self, rows: Iterable[tuple[str, Mapping[str, H]]]) -> None:
        """Create the table from rows of (path, method → handler). The first match wins; a final slash is ignored."""
        rows = list(rows)
        self.first_parts = frozenset(path.split("/")[1] for path, _ in rows) - {""}
        """The first part of each path, such as `subjects`."""
        self._rows = [
            (re.compile(re.escape(path).replace(r"\{\}", "([^/]+)") + "/?"), methods) for path, methods in rows
        ]

    def find(self, environ: Mapping[str, object]) -> tuple[H, tuple[str, ...]]:
        """Return a request's handler and the variable parts of its path. NoSuchPathError or NoSuchMethodError."""
        path = raw_path(environ)
        for pattern, methods in self._rows:
            match = pattern.fullmatch(path)
            if match:
                method = str(environ["REQUEST_METHOD"])
                handler = methods.get("GET" if method == "HEAD" else method)
                if handler is None:
                    raise NoSuchMethodError(", ".join(sorted(methods)))
                return handler, tuple(unquote(value) for value in match.groups())
        raise NoSuchPathError


def raw_path(environ: Mapping[str, object]) -> str:
    """Return the path as sent. PATH_INFO is unsuitable: an encoded slash is already decoded in it."""
    uri = environ.get("REQUEST_URI")
    if isinstance(uri, str) and uri:
        path = uri.partition("?")[0]
        if "://" in path:
            path = "/" + path.split("://", 1)[1].partition("/")[2]
        return path
    return str(environ.get("PATH_INFO", "/")) or "/"
