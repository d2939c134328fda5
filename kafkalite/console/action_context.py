"""Define what actions, and the pages that lead to them, need in addition to a request.

Thread rule: as of a Request.
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
    """An action's dependencies besides the client. `registry`: None without a schema registry."""

    desk: ConsoleState
    access: Access
    deed: AuditEntry
    registry: RegistryClient | None


class ActionRequest(Request):
    """A request with its action context."""

    def __init__(self, bench: ActionContext, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.bench = bench
