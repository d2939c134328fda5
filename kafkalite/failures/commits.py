"""Decide when a member commits offsets of processed records without a transaction.

    all records up to an offset are done ─▶ every COMMIT_INTERVAL_MS, or COMMIT_COUNT records ─▶ Commit ─▶ CommitEnded

Each partition has at most one commit or transaction in progress, so its committed offset never decreases. The member
continues to read and handle records while a commit is in progress.

Thread rule: one thread at a time, that of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.failures.events import Commit
from kafkalite.failures.lanes import COMMIT_COUNT
from kafkalite.failures.moves import AGAIN_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.failures.events import CommitEnded
    from kafkalite.failures.lanes import PartitionLane
    from kafkalite.failures.moves import Moves

COMMIT_INTERVAL_MS: Final = 1000.0


class Commits:
    """The commits of a member outside of transactions; see the module."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self._number = 0
        self._under_way: dict[int, list[tuple[PartitionLane, int]]] = {}
        """Offsets of each commit. A partition that is lost and assigned again meanwhile has a new lane."""
        self.due_at = 0.0
        """When finished records are committed, however few (monotonic ms)."""
        self._not_before = 0.0
        """No commit starts before this time (monotonic ms): the backoff after a failed commit."""

    def waits(self, lane: PartitionLane) -> bool:
        """Return whether the partition has an offset that the next periodic commit will cover."""
        return lane.low() > lane.committed and not self._is_taken(lane)

    def _is_taken(self, lane: PartitionLane) -> bool:
        """Return whether no plain commit may start now for this partition, for example because a transaction will
        commit its offset.
        """
        if lane.committing or not lane.opened or lane.leaving or self._moves.concerns(lane):
            return True
        return lane.has_movable

    def begin(self, lanes: Iterable[PartitionLane], now_ms: float) -> Commit | None:
        """Start a commit if one is due.

        Once per commit interval, the commit covers all partitions. Before that, it covers partitions with at least
        COMMIT_COUNT offsets to commit.
        """
        if now_ms < self._not_before:
            return None
        due = now_ms >= self.due_at
        chosen = []
        for lane in lanes:
            count = lane.low() - lane.committed
            if count > 0 and (due or count >= COMMIT_COUNT) and not self._is_taken(lane):
                chosen.append(lane)
        if not chosen:
            return None
        if due:
            self.due_at = now_ms + COMMIT_INTERVAL_MS
        return self._send(chosen)

    def begin_last(self, lanes: Iterable[PartitionLane]) -> Commit | None:
        """Start the last commit of partitions that are being revoked. They need no transaction."""
        chosen = [lane for lane in lanes if lane.low() > lane.committed]
        return self._send(chosen) if chosen else None

    def _send(self, lanes: list[PartitionLane]) -> Commit:
        self._number += 1
        self._under_way[self._number] = [(lane, lane.low()) for lane in lanes]
        for lane in lanes:
            lane.committing = self._number
        return Commit(self._number, {lane.partition: lane.low() for lane in lanes})

    def end(self, event: CommitEnded, now_ms: float) -> None:
        """Process the end of a commit.

        After a failed commit, the next commit starts AGAIN_MS later, with the offsets that are current then.
        """
        if event.failed:
            self._not_before = now_ms + AGAIN_MS
            self.due_at = max(self.due_at, self._not_before)
        for lane, offset in self._under_way.pop(event.number):
            if lane.committing == event.number:
                lane.committing = 0
            if not event.failed:
                lane.committed = max(lane.committed, offset)
