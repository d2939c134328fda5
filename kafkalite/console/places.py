"""Define routes.

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
    """A page, its template, its section of the console, and the role it requires."""

    page: Page
    template: str
    part: str
    role: Role = Role.VIEWER
