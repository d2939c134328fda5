"""Define Route: one page of the console, with its template, its section and the role that it requires.

Thread rule: immutable values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.web.users import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.client import Client
    from kafkalite.console.action_context import ActionRequest
    from kafkalite.console.requests import Done, Download

    Page = Callable[[Client, ActionRequest], dict[str, Any] | Done | Download]


class Route(NamedTuple):
    """A page function, with its template, its section in the navigation, and the role that it requires."""

    page: Page
    template: str
    part: str
    role: Role = Role.VIEWER
