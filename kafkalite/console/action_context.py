"""Define ActionContext: the objects that an action (a change) or its form needs in addition to the request.

Thread rule: as for a Request, one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.console.requests import Request

if TYPE_CHECKING:
    from kafkalite.avro.client import RegistryClient
    from kafkalite.console.audit import AuditEntry
    from kafkalite.console.console_roles import Access
    from kafkalite.console.console_state import ConsoleState


class ActionContext(NamedTuple):
    """The objects that an action needs besides a client. `registry` is None without a schema registry."""

    desk: ConsoleState
    access: Access
    deed: AuditEntry
    registry: RegistryClient | None


class ActionRequest(Request):
    """A request, with the objects that an action needs."""

    def __init__(self, bench: ActionContext, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.bench = bench
