"""Paths to handlers: a table, looked up by the path as it was sent.

    Routes([("/subjects/{}", {"GET": get_subject, "DELETE": delete_subject}), ...])

A `{}` is one part of the path, decoded when it is handed on: what is encoded in it may be a slash. HEAD is GET without
a body. Pure functions on WSGI's environ; any thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

H = TypeVar("H")


class NoSuchPathError(Exception):
    """404."""


class NoSuchMethodError(Exception):
    """405; its argument is what the path allows, as the header Allow has it."""


class Routes(Generic[H]):
    """See the module; H is whatever handlers are."""

    def __init__(self, rows: Iterable[tuple[str, Mapping[str, H]]]) -> None:
        """Of (path, method → handler); the first path that fits wins. A slash at the end makes no difference."""
        rows = list(rows)
        self.first_parts = frozenset(path.split("/")[1] for path, _ in rows) - {""}
        """The first part of each path, such as `subjects`."""
        self._rows = [
            (re.compile(re.escape(path).replace(r"\{\}", "([^/]+)") + "/?"), methods) for path, methods in rows
        ]

    def find(self, environ: Mapping[str, object]) -> tuple[H, tuple[str, ...]]:
        """The handler of a request, and the path's variable parts; NoSuchPathError, NoSuchMethodError."""
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
    """The path as it was sent: a part of it may hold an encoded slash, which PATH_INFO has decoded already."""
    uri = environ.get("REQUEST_URI")
    if isinstance(uri, str) and uri:
        path = uri.partition("?")[0]
        if "://" in path:
            path = "/" + path.split("://", 1)[1].partition("/")[2]
        return path
    return str(environ.get("PATH_INFO", "/")) or "/"
