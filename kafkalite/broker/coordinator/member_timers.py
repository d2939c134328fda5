"""Timers of members."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalite.broker.coordinator.consumer_state import AWAY_EPOCH, ConsumerMember, ConsumerState, MemberState
from kafkalite.broker.coordinator.member_memory import consumer_size
from kafkalite.broker.coordinator.operation_queue import OperationQueue

if TYPE_CHECKING:
    from kafkalite.broker.coordinator.base import Environment, GroupBase
    from kafkalite.broker.coordinator.consumer_environment import ConsumerEnvironment
    from kafkalite.broker.coordinator.records import Record
    from kafkalite.broker.coordinator.timer_queue import Timer

NO_JOIN: Final = "it did not join again in time"

NO_SYNC: Final = "it did not sync in time"


class MemberTimers(OperationQueue):
    """See the module."""

    def __init__(
        self,
        group_id: str,
        environment: Environment,
        consumers: ConsumerEnvironment,
        predecessor: GroupBase | None = None,
        preface: list[Record] | None = None,
    ) -> None:
        super().__init__(group_id, environment, consumers, predecessor, preface)
        self._joins: dict[str, Timer] = {}  # of those who were told to join again
        self._syncs: dict[str, Timer] = {}  # of those who have joined
        self._sessions: dict[str, Timer] = {}
        self._revocations: dict[str, Timer] = {}

    def _touch_locked(self, member_id: str) -> None:
        """A member was heard of, and what it said was good."""
        timer = self._sessions.get(member_id)
        if timer is not None:
            timer.set(self._session_s(self._durable.members[member_id]))

    def _session_s(self, member: ConsumerMember) -> float:
        classic = member.classic
        own = (
            self._consumers.timing(self.group_id).session_timeout_ms if classic is None else classic.session_timeout_ms
        )
        return own / 1000

    def _set_timers_locked(self, before: ConsumerState) -> None:
        """Sessions of members that came or went, and deadlines of those that have begun or ended to give up."""
        if self._dead:
            return
        for member_id in before.members.keys() - self._durable.members.keys():
            self._sessions.pop(member_id).cancel()
            self._memory.drop(member_id)
            self._end_revocation_locked(member_id)
        for member_id, member in self._durable.members.items():
            old = before.members.get(member_id)
            if old is member:
                continue
            self._memory.put(member_id, consumer_size(member))
            if old is None:
                self._sessions[member_id] = self._environment.timers.timer(
                    partial(self._session_due, member_id), awaits_client=True
                )
                self._touch_locked(member_id)
            if member.state is not MemberState.UNREVOKED or member.epoch == AWAY_EPOCH or member.classic is not None:
                self._end_revocation_locked(member_id)
            elif member_id not in self._revocations or (old is not None and old.epoch != member.epoch):
                self._begin_revocation_locked(member)
        self._end_waits_locked()

    def _set_again_locked(self) -> None:
        """What timers have found to be over could not be written down: they look again."""
        for member_id, timer in self._sessions.items():
            if not timer.armed:
                self._touch_locked(member_id)
        for member_id, timer in list(self._revocations.items()):
            if not timer.armed:
                self._begin_revocation_locked(self._durable.members[member_id])
        self._wait_again_locked()

    def _begin_revocation_locked(self, member: ConsumerMember) -> None:
        member_id, epoch = member.member_id, member.epoch
        self._end_revocation_locked(member_id)
        timer = self._environment.timers.timer(lambda: self._revocation_due(member_id, epoch), awaits_client=True)
        timer.set(max(member.rebalance_timeout_ms, 0) / 1000)
        self._revocations[member_id] = timer

    def _end_revocation_locked(self, member_id: str) -> None:
        timer = self._revocations.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def _session_due(self, member_id: str) -> None:
        def play() -> None:
            timer = self._sessions.get(member_id)
            member = self._staged.members.get(member_id)
            if member is not None and timer is not None and not timer.armed:
                self._fence([member], "its session ended")

        self._play_later(play)

    def _revocation_due(self, member_id: str, epoch: int) -> None:
        def play() -> None:
            member = self._staged.members.get(member_id)
            if member is not None and member.state is MemberState.UNREVOKED and member.epoch == epoch:
                self._fence([member], "it did not give up its partitions in time")

        self._play_later(play)

    def _cancel_timers_locked(self) -> None:
        for timer in (*self._sessions.values(), *self._revocations.values()):
            timer.cancel()
        self._sessions.clear()
        self._revocations.clear()
        self._cancel_waits_locked()

    def _await_join_locked(self, member: ConsumerMember) -> None:
        """It was told to join again; telling it once more gives it no more time."""
        if member.member_id not in self._joins:
            timer = self._wait_timer(member.member_id, self._joins, NO_JOIN)
            timer.set(max(member.rebalance_timeout_ms, 0) / 1000)

    def _wait_timer(self, member_id: str, waits: dict[str, Timer], why: str) -> Timer:
        timers = self._environment.timers
        timer = waits[member_id] = timers.timer(lambda: self._play_later(due), awaits_client=True)

        def due() -> None:
            member = self._staged.members.get(member_id)
            if member is not None and waits.get(member_id) is timer and not timer.armed:
                self._fence([member], why)

        return timer

    @staticmethod
    def _end_wait(waits: dict[str, Timer], member_id: str) -> None:
        timer = waits.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def _end_waits_locked(self) -> None:
        """Of those who are out, or speak the newer protocol now."""
        for waits in (self._joins, self._syncs):
            for member_id in list(waits):
                member = self._durable.members.get(member_id)
                if member is None or member.classic is None:
                    self._end_wait(waits, member_id)

    def _wait_again_locked(self) -> None:
        """What was over could not be written down: as long once more."""
        for waits in (self._joins, self._syncs):
            for member_id, timer in waits.items():
                if not timer.armed:
                    timer.set(max(self._durable.members[member_id].rebalance_timeout_ms, 0) / 1000)

    def _cancel_waits_locked(self) -> None:
        for waits in (self._joins, self._syncs):
            for member_id in list(waits):
                self._end_wait(waits, member_id)
