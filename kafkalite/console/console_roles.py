"""Who may do what: a role that a page or an action needs, and whether this console changes anything at all.

    viewer    reads
    operator  works with records: produces, redrives letters, moves a group's offsets
    admin     makes, alters and deletes topics and groups

Who has not signed in (the console is this machine's alone then) is an admin. What somebody may not do is neither drawn
nor served.

Thread rule: immutable values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.web.guard import is_own, user_in
from kafkalite.web.users import Role

if TYPE_CHECKING:
    from collections.abc import Mapping


class ForbiddenError(Exception):
    """403, with a sentence."""


class Access(NamedTuple):
    """Somebody at this console. `name` is empty where nobody signs in."""

    name: str
    role: Role
    writes: bool
    """Whether this console changes anything."""

    def may(self, role: Role) -> bool:
        """Whether what needs this role is for him."""
        return role <= Role.VIEWER or (self.writes and role <= self.role)

    def require(self, role: Role) -> None:
        """ForbiddenError."""
        if self.may(role):
            return
        if not self.writes:
            raise ForbiddenError("this console is read-only; start it with --allow-changes to make changes")
        raise ForbiddenError(
            f"this requires the role {role.name.lower()}; {self.name} has the role {self.role.name.lower()}"
        )


def access_of(environ: Mapping[str, Any], *, writes: bool) -> Access:
    """Whose request it is."""
    user = user_in(environ)
    return Access("", Role.ADMIN, writes) if user is None else Access(user.name, user.role, writes)


def require_own(environ: Mapping[str, Any]) -> None:
    """ForbiddenError for a change that does not come from a page of this console, or from a program that says so."""
    if not is_own(environ):
        raise ForbiddenError(
            "changes must come from a page of this console (Sec-Fetch-Site: same-origin, or its Origin)"
        )
