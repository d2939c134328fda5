"""Fence members of a consumer group (KIP-848) that miss a timeout.

Each timer waits for a request of one member:

    session      a heartbeat, within group.consumer.session.timeout.ms or a classic member's own session timeout
    revocation   a heartbeat that no longer reports the revoked partitions, within the member's rebalance timeout
    join, sync   a JoinGroup or SyncGroup of a classic member, within its rebalance timeout

When a timer expires, an operation (`operation_queue`) fences the member, unless its request has arrived meanwhile.

Thread rule: guarded by the group's lock; the timers' thread calls `timed_out` without the lock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from kafkalite.broker.coordinator.consumer_state import AWAY_EPOCH, MemberState

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.broker.coordinator.consumer_environment import Timing
    from kafkalite.broker.coordinator.consumer_state import ConsumerMember, MemberChanges
    from kafkalite.broker.coordinator.staged_changes import StagedChanges
    from kafkalite.broker.coordinator.timer_queue import Timer, TimerQueue

NO_JOIN: Final = "did not rejoin in time"
NO_SYNC: Final = "did not sync in time"

Overdue: TypeAlias = "Callable[[], ConsumerMember | None]"
"""Returns the member whose timer expired; None if the member's request has arrived meanwhile. Called under the lock."""


class MemberTimers:
    """The timers of one group, by member id."""

    __slots__ = (
        "_changes",
        "_group_id",
        "_joins",
        "_revocations",
        "_sessions",
        "_syncs",
        "_timed_out",
        "_timer",
        "_timing",
    )

    def __init__(
        self,
        group_id: str,
        timers: TimerQueue,
        timing: Callable[[str], Timing],
        changes: StagedChanges,
        timed_out: Callable[[Overdue, str], None],
    ) -> None:
        """Begin without timers. `timed_out` is called without the lock, with a function that finds the member, and a
        reason.
        """
        self._group_id = group_id
        self._timer = partial(timers.timer, awaits_client=True)
        self._timing = timing
        self._changes = changes
        self._timed_out = timed_out
        self._sessions: dict[str, Timer] = {}
        self._revocations: dict[str, Timer] = {}
        self._joins: dict[str, Timer] = {}
        """Timers of classic members that were asked to rejoin."""
        self._syncs: dict[str, Timer] = {}
        """Timers of classic members that have joined and not synced."""

    def update(self, changes: MemberChanges) -> None:
        """Set and cancel timers for members that changed in the durable state."""
        for member_id in changes.removed:
            self._sessions.pop(member_id).cancel()
            self._end(self._revocations, member_id)
        for old, member in changes.updated:
            member_id = member.member_id
            if old is None:
                self._sessions[member_id] = self._timer(partial(self._session_due, member_id))
                self.touch(member_id)
            if member.state is not MemberState.UNREVOKED or member.epoch == AWAY_EPOCH or member.classic is not None:
                self._end(self._revocations, member_id)
            elif member_id not in self._revocations or (old is not None and old.epoch != member.epoch):
                self._begin_revocation(member)
        if self._joins or self._syncs:
            self._end_waits()

    def rearm(self) -> None:
        """Set expired timers again, because their members could not be fenced."""
        for member_id, timer in self._sessions.items():
            if not timer.armed:
                self.touch(member_id)
        for member_id, timer in list(self._revocations.items()):
            if not timer.armed:
                self._begin_revocation(self._changes.durable.members[member_id])
        for waits in (self._joins, self._syncs):
            for member_id, timer in waits.items():
                if not timer.armed:
                    timer.set(_rebalance_s(self._changes.durable.members[member_id]))

    def cancel(self) -> None:
        """Cancel all timers."""
        for timers in (self._sessions, self._revocations, self._joins, self._syncs):
            for timer in timers.values():
                timer.cancel()
            timers.clear()

    # --- sessions -----------------------------------------------------------------------------------------------------

    def touch(self, member_id: str) -> None:
        """Restart a member's session timeout after a request."""
        timer = self._sessions.get(member_id)
        if timer is not None:
            timer.set(self._session_s(self._changes.durable.members[member_id]))

    def _session_s(self, member: ConsumerMember) -> float:
        classic = member.classic
        timeout_ms = self._timing(self._group_id).session_timeout_ms if classic is None else classic.session_timeout_ms
        return timeout_ms / 1000

    def _session_due(self, member_id: str) -> None:
        def overdue() -> ConsumerMember | None:
            timer = self._sessions.get(member_id)
            return None if timer is None or timer.armed else self._changes.staged.members.get(member_id)

        self._timed_out(overdue, "its session timed out")

    # --- revocations --------------------------------------------------------------------------------------------------

    def _begin_revocation(self, member: ConsumerMember) -> None:
        member_id, epoch = member.member_id, member.epoch
        self._end(self._revocations, member_id)
        timer = self._revocations[member_id] = self._timer(lambda: self._revocation_due(member_id, epoch))
        timer.set(_rebalance_s(member))

    def _revocation_due(self, member_id: str, epoch: int) -> None:
        def overdue() -> ConsumerMember | None:
            member = self._changes.staged.members.get(member_id)
            revokes = member is not None and member.state is MemberState.UNREVOKED and member.epoch == epoch
            return member if revokes else None

        self._timed_out(overdue, "it did not revoke its partitions within the rebalance timeout")

    # --- joins and syncs of classic members ---------------------------------------------------------------------------

    def await_join(self, member: ConsumerMember) -> None:
        """Start the timeout within which a member must rejoin: its rebalance timeout. A repeated call does not extend
        it.
        """
        if member.member_id not in self._joins:
            self._wait(self._joins, member.member_id, NO_JOIN).set(_rebalance_s(member))

    def await_sync(self, member: ConsumerMember) -> None:
        """Start the timeout within which a member that has joined must sync: its rebalance timeout."""
        self._end(self._joins, member.member_id)
        timer = self._syncs.get(member.member_id) or self._wait(self._syncs, member.member_id, NO_SYNC)
        timer.set(_rebalance_s(member))

    def end_sync(self, member_id: str) -> None:
        """Stop waiting for a member's SyncGroup."""
        self._end(self._syncs, member_id)

    def _wait(self, waits: dict[str, Timer], member_id: str, why: str) -> Timer:
        def overdue() -> ConsumerMember | None:
            in_time = waits.get(member_id) is not timer or timer.armed
            return None if in_time else self._changes.staged.members.get(member_id)

        timer = waits[member_id] = self._timer(lambda: self._timed_out(overdue, why))
        return timer

    def _end_waits(self) -> None:
        """Stop waiting for members that have left or switched to the consumer protocol."""
        for waits in (self._joins, self._syncs):
            for member_id in list(waits):
                member = self._changes.durable.members.get(member_id)
                if member is None or member.classic is None:
                    self._end(waits, member_id)

    @staticmethod
    def _end(timers: dict[str, Timer], member_id: str) -> None:
        timer = timers.pop(member_id, None)
        if timer is not None:
            timer.cancel()


def _rebalance_s(member: ConsumerMember) -> float:
    return max(member.rebalance_timeout_ms, 0) / 1000
