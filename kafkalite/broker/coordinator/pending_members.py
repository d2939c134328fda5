"""Track member ids that were issued (MEMBER_ID_REQUIRED, KIP-394) and whose clients have not joined yet.

An id is dropped after the client's session timeout, or earlier if the client leaves or its connection closes.

Thread rule: guarded by the group's lock; its timers call `forget` without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.limits.shares import Shares, note_refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.broker.coordinator.base import Environment
    from kafkalite.broker.coordinator.timer_queue import Timer
    from kafkalite.broker.limits.holder import Holder


class PendingMembers:
    """The pending member ids of one group, at most group.max.pending.members.

    The last tenth of this limit is reserved for clients with few ids (`kafkalite.broker.limits.shares`).
    """

    __slots__ = ("_environment", "_forget", "_ids", "_shares")

    def __init__(self, environment: Environment, forget: Callable[[str], None]) -> None:
        """Begin without ids. `forget` is called with an id whose client did not join within its session timeout."""
        self._environment = environment
        self._forget = forget
        self._ids: dict[str, tuple[Timer, Holder | None]] = {}
        self._shares = Shares()

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def admits(self, holder: Holder | None) -> bool:
        """Return whether this client may get another pending id. A refusal is logged."""
        limit = self._environment.pending_max
        if self._shares.admits(holder, len(self._ids), limit):
            return True
        note_refusal(holder, "group.max.pending.members", limit, self._shares.of(holder))
        return False

    def add(self, member_id: str, timeout_ms: int, holder: Holder | None) -> None:
        """Add an id that was issued to a client. It is dropped after the client's session timeout."""
        timer = self._environment.timers.timer(lambda: self._forget(member_id), awaits_client=True)
        timer.set(timeout_ms / 1000)
        self._ids[member_id] = timer, holder
        self._shares.add(holder)

    def remove(self, member_id: str) -> bool:
        """Remove an id; return whether it was pending."""
        found = self._ids.pop(member_id, None)
        if found is None:
            return False
        timer, holder = found
        timer.cancel()
        self._shares.remove(holder)
        return True

    def clear(self) -> None:
        """Remove all ids."""
        for member_id in list(self._ids):
            self.remove(member_id)
