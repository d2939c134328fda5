"""Define the roles of console users, and check whether a user may view a page or make a change.

    viewer    reads
    operator  works with records: produces, redrives dead letters, resets a group's offsets
    admin     creates, alters and deletes topics, deletes groups, and aborts transactions

Without sign-in, the user is an admin; this is possible only on loopback addresses. If the console allows no changes,
every user may only read. Changes that a user may not make are neither shown nor served.

Thread rule: immutable values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.web.guard import is_own, user_in
from kafkalite.web.users import Role

if TYPE_CHECKING:
    from collections.abc import Mapping


class ForbiddenError(Exception):
    """Status 403 with a message."""


class Access(NamedTuple):
    """A user of this console. `name` is empty without sign-in."""

    name: str
    role: Role
    writes: bool
    """Whether this console allows changes."""

    def may(self, role: Role) -> bool:
        """Return whether the user has this role. A role above viewer also requires a console that allows changes."""
        return role <= Role.VIEWER or (self.writes and role <= self.role)

    def require(self, role: Role) -> None:
        """Raise ForbiddenError if the user does not have the role."""
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
    """Raise ForbiddenError if a change may come from a page of another site.

    The request must have the header Sec-Fetch-Site: same-origin, or else this console's Origin. Browsers send these
    headers; a program must set one of them.
    """
    if not is_own(environ):
        raise ForbiddenError(
            "changes must come from a page of this console (Sec-Fetch-Site: same-origin, or its Origin)"
        )
