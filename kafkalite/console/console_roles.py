"""Define roles: which one a page or action needs, and whether this console allows changes at all.

    viewer    reads
    operator  works with records: produces, redrives letters, moves a group's offsets
    admin     makes, alters and deletes topics and groups

Without sign-in (the console is reachable only from this machine) the user is an admin. Actions that a user may not
perform are neither shown nor served.

Thread rule: immutable values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.web.guard import is_own, user_in
from kafkalite.web.users import Role

if TYPE_CHECKING:
    from collections.abc import Mapping


class ForbiddenError(Exception):
    """403 with a message."""


class Access(NamedTuple):
    """A user of this console. `name` is empty without sign-in."""

    name: str
    role: Role
    writes: bool
    """Whether this console allows changes."""

    def may(self, role: Role) -> bool:
        """Return whether the user may act in this role; above viewer, changes must be allowed."""
        return role <= Role.VIEWER or (self.writes and role <= self.role)

    def require(self, role: Role) -> None:
        """Require the role. ForbiddenError."""
        if self.may(role):
            return
        if not self.writes:
            raise ForbiddenError("this console is read-only; start it with --allow-changes to make changes")
        raise ForbiddenError(
            f"this requires the role {role.name.lower()}; {self.name} has the role {self.role.name.lower()}"
        )


def access_of(environ: Mapping[str, Any], *, writes: bool) -> Access:
    """Return the user of a request."""
    user = user_in(environ)
    return Access("", Role.ADMIN, writes) if user is None else Access(user.name, user.role, writes)


def require_own(environ: Mapping[str, Any]) -> None:
    """Require that a change comes from a page of this console or from a program that sends the header.
    ForbiddenError."""
    if not is_own(environ):
        raise ForbiddenError(
            "changes must come from a page of this console (Sec-Fetch-Site: same-origin, or its Origin)"
        )
