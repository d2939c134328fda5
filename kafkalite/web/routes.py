"""Find the handler for the path and method of a request.

    Routes([("/subjects/{}", {"GET": get_subject, "DELETE": delete_subject}), ...])

A `{}` matches one part of the path. The path is matched before it is decoded, because a part may contain an encoded
slash. HEAD uses the handler of GET; the application omits the body.

Thread rule: pure functions on WSGI's environ; any thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

H = TypeVar("H")


class NoSuchPathError(Exception):
    """A request whose path matches no route. The response has status 404."""


class NoSuchMethodError(Exception):
    """A request whose method has no handler. The response has status 405; the argument is its Allow header."""


class Routes(Generic[H]):
    """A routing table. The handlers have the type H."""

    def __init__(self, rows: Iterable[tuple[str, Mapping[str, H]]]) -> None:
        """Create the table from rows of (path, method → handler).

        The first matching row counts. A slash at the end is ignored.
        """
        rows = list(rows)
        self.first_parts = frozenset(path.split("/")[1] for path, _ in rows) - {""}
        """The first part of each path, such as `subjects`."""
        self._rows = [
            (re.compile(re.escape(path).replace(r"\{\}", "([^/]+)") + "/?"), methods) for path, methods in rows
        ]

    def find(self, environ: Mapping[str, object]) -> tuple[H, tuple[str, ...]]:
        """Return the handler for a request, and the variable parts of its path. NoSuchPathError, NoSuchMethodError."""
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
    """Return the path of a request as the client sent it.

    PATH_INFO does not have it, because encoded slashes are already decoded there.
    """
    uri = environ.get("REQUEST_URI")
    if isinstance(uri, str) and uri:
        path = uri.partition("?")[0]
        if "://" in path:
            path = "/" + path.split("://", 1)[1].partition("/")[2]
        return path
    return str(environ.get("PATH_INFO", "/")) or "/"
