"""Store the state that the actions on one cluster share: jobs, audit, sent records, and a limit of waiting live tails.

Thread rule: any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.console.jobs import Jobs

if TYPE_CHECKING:
    from kafkalite.console.audit import Audit
    from kafkalite.console.clients import Clients

SENT_MAX: Final = 500
WAITING_MAX: Final = 3
"""Tails that may block a worker while waiting; the others are answered at once and ask again a second later."""


class Sent(NamedTuple):
    """A record sent from this console."""

    time: int
    who: str
    topic: str
    partition: int
    offset: int
    size: int


class ConsoleState:
    """The state that the actions on one cluster share."""

    def __init__(self, clients: Clients, audit: Audit) -> None:
        self.audit = audit
        self.jobs = Jobs(clients, audit)
        self.waiting = threading.BoundedSemaphore(WAITING_MAX)
        self._sent: deque[Sent] = deque(maxlen=SENT_MAX)

    def note_sent(self, sent: Sent) -> None:
        self._sent.append(sent)

    def sent(self) -> list[dict[str, Any]]:
        """Return the records sent from this console, newest first."""
        return [row._asdict() for row in reversed(list(self._sent))]

    def close(self) -> None:
        self.jobs.close()
