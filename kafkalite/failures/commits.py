"""Plain commits of a member: offsets of partitions of which no transaction commits any now.

    done, and all before it ─▶ every COMMIT_INTERVAL_MS, or COMMIT_COUNT records ─▶ Commit ─▶ CommitEnded

Nobody waits for one: records are read, handled and moved meanwhile. What keeps offsets from going back is that of a
partition one thing is under way at a time. While a commit is, a transaction that has something of the partition waits
(PartitionLane.committing, kafkalite.failures.moves); while a transaction is, or has only to begin, no commit begins.

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
    """See the module."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self._number = 0
        self._under_way: dict[int, list[tuple[PartitionLane, int]]] = {}
        """The offsets of each. A partition that was lost meanwhile, and came again, has another lane."""
        self.due_at = 0.0
        """Monotonic ms at which what is done is committed, however little it is."""
        self._not_before = 0.0
        """Monotonic ms before which nothing is committed, however much it is: a commit has failed."""

    def waits(self, lane: PartitionLane) -> bool:
        """Whether there is something to commit, for which it is only too early."""
        return lane.low() > lane.committed and not self._is_taken(lane)

    def _is_taken(self, lane: PartitionLane) -> bool:
        """Whether its offset is under way, or goes with the transaction that comes next: the first, or the last too."""
        if lane.committing or not lane.opened or lane.leaving or self._moves.concerns(lane):
            return True
        return lane.has_movable

    def begin(self, lanes: Iterable[PartitionLane], now_ms: float) -> Commit | None:
        """By time, and by count before that. What one partition commits by count puts off no other."""
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
        """Of partitions that go, and have no transaction to go with; behind the commits that are under way."""
        chosen = [lane for lane in lanes if lane.low() > lane.committed]
        return self._send(chosen) if chosen else None

    def _send(self, lanes: list[PartitionLane]) -> Commit:
        self._number += 1
        self._under_way[self._number] = [(lane, lane.low()) for lane in lanes]
        for lane in lanes:
            lane.committing = self._number
        return Commit(self._number, {lane.partition: lane.low() for lane in lanes})

    def end(self, event: CommitEnded, now_ms: float) -> None:
        """How it ended. What failed is committed again in a while, with what is done then."""
        if event.failed:
            self._not_before = now_ms + AGAIN_MS
            self.due_at = max(self.due_at, self._not_before)
        for lane, offset in self._under_way.pop(event.number):
            if lane.committing == event.number:
                lane.committing = 0
            if not event.failed:
                lane.committed = max(lane.committed, offset)
