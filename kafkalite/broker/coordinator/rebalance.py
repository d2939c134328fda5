"""Rebalance a classic group: ask members to rejoin, wait for them, and form the next generation.

    start ─▶ PreparingRebalance ──all joined, or the timeout──▶ next generation: CompletingRebalance ─▶ `syncs`

A group that was empty waits for group.initial.rebalance.delay.ms. If members join meanwhile, it waits again, in total
at most for the rebalance timeout (KIP-134).

Thread rule: methods ending in `_locked` need the group's lock; the timers take it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator.classic_state import State
from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from kafkalite.broker.coordinator.classic_parts import ClassicParts
    from kafkalite.broker.coordinator.members import Member

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)

GENERATION_MAX: Final = (1 << 31) - 1


class Rebalance:
    """The rebalances of one group."""

    __slots__ = ("_classic", "_initial_left_ms", "_join_timer", "_more_came", "_parts", "_sync_timer")

    def __init__(self, parts: ClassicParts) -> None:
        self._parts = parts
        self._classic = parts.classic
        self._initial_left_ms: int | None = None
        self._more_came = False
        self._join_timer = parts.environment.timers.timer(self._join_due, awaits_client=True)
        self._sync_timer = parts.environment.timers.timer(self._sync_due, awaits_client=True)

    def start_locked(self, reason: str) -> None:
        """Ask all members to rejoin, unless a rebalance is already waiting for them."""
        if self._classic.state not in {State.EMPTY, State.COMPLETING, State.STABLE}:
            return
        if self._classic.state is State.COMPLETING:
            self._parts.sessions.end_syncs_locked(ErrorCode.REBALANCE_IN_PROGRESS)
        self._sync_timer.cancel()
        self._classic.unsynced.clear()
        delay_ms = self._classic.rebalance_timeout_ms()
        if self._classic.state is State.EMPTY:
            self._initial_left_ms = max(delay_ms - self._parts.environment.initial_delay_ms, 0)
            self._more_came = False
            delay_ms = self._parts.environment.initial_delay_ms
        self._join_timer.set(delay_ms / 1000)
        self._classic.enter(State.PREPARING)
        logger.info(
            "group rebalances",
            extra=fields(group=self._classic.group_id, generation=self._classic.generation, why=reason),
        )

    def member_came_locked(self) -> None:
        """Extend the initial delay of a group that was empty, because a new member has joined. No effect after the
        delay.
        """
        self._more_came = self._initial_left_ms is not None

    def try_complete_locked(self) -> None:
        """End the wait if all members have joined and no issued id is pending. An initial delay is not shortened."""
        if self._classic.state is not State.PREPARING:
            return
        if self._initial_left_ms is not None:
            if self._parts.environment.initial_delay_ms == 0:
                self._complete_locked()
        elif not self._parts.pending and all(member.awaiting_join for member in self._classic.members.values()):
            self._complete_locked()

    def member_gone_locked(self, member: Member, why: str) -> None:
        """Remove a member, and rebalance the others."""
        self._parts.sessions.drop_locked(member)
        if self._classic.state in {State.STABLE, State.COMPLETING}:
            self.start_locked(f"{member.member_id} {why}")
        self.try_complete_locked()

    def _join_due(self) -> None:
        with self._parts.changing():
            if self._join_timer.armed or self._classic.state is not State.PREPARING:
                return
            if self._initial_left_ms and self._more_came:
                delay_ms = min(self._parts.environment.initial_delay_ms, self._initial_left_ms)
                self._initial_left_ms -= delay_ms
                self._more_came = False
                self._join_timer.set(delay_ms / 1000)
                return
            self._complete_locked()

    def _complete_locked(self) -> None:
        """Form the next generation. Its members are those that have joined, and static members even if they have
        not.
        """
        self._join_timer.cancel()
        self._initial_left_ms = None
        for member in list(self._classic.members.values()):
            if member.awaiting_join is None and member.instance_id is None:
                self._parts.sessions.drop_locked(member)
        if self._classic.members and not self._classic.elect_leader():
            # All are static members that have not returned: there is no leader, so keep waiting.
            self._join_timer.set(max(self._classic.rebalance_timeout_ms(), 1) / 1000)
            return
        self._classic.generation = self._classic.generation % GENERATION_MAX + 1
        if not self._classic.members:
            self._classic.protocol = None
            self._classic.subscribed = frozenset()
            self._classic.enter(State.EMPTY)
            self._parts.environment.write(self._classic.group_id, [self._classic.record({})], self._empty_stored)
            return
        self._classic.protocol = self._classic.select_protocol()
        self._classic.read_subscriptions()
        self._classic.enter(State.COMPLETING)
        self._sync_timer.set(self._classic.rebalance_timeout_ms() / 1000)
        for member in self._classic.members.values():
            self._classic.unsynced[member.member_id] = None
            answer, member.awaiting_join = member.awaiting_join, None
            member.is_new = False
            self._parts.sessions.touch_locked(member)
            if answer is not None:
                self._parts.answers.answer_join(answer, member)

    def _empty_stored(self, code: int) -> None:
        if code:
            logger.warning(
                "could not write the state of an empty group", extra=fields(group=self._classic.group_id, error=code)
            )

    def _sync_due(self) -> None:
        """Remove members that joined but did not send SyncGroup in time."""
        with self._parts.changing():
            if self._sync_timer.armed or self._classic.state not in {State.COMPLETING, State.STABLE}:
                return
            members = self._classic.members
            late = [members[member_id] for member_id in self._classic.unsynced if member_id in members]
            self._classic.unsynced.clear()
            for member in late:
                self._parts.sessions.drop_locked(member)
            if late:
                self.start_locked(f"{len(late)} members did not sync")
                self.try_complete_locked()

    def cancel_locked(self) -> None:
        """Cancel the timers of a dead group."""
        self._join_timer.cancel()
        self._sync_timer.cancel()
