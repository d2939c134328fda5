"""One transactional id of a coordinator: what is known of it, its lock, and the requests that wait for it.

Thread rule: any thread; names that end in `_locked` are called under the lock, which `changing` holds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kafkalite.broker.coordinator.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.coordinator.shard_epoch import ShardEpoch
    from kafkalite.broker.coordinator.timer_queue import Timer
    from kafkalite.broker.coordinator.transaction_rules import Metadata
    from kafkalite.broker.limits.holder import Holder
    from kafkalite.model import TopicPartition


class Wait:
    """A request that waits for a change of its id, or for the markers."""

    __slots__ = ("deadline", "refuse")

    def __init__(self, refuse: Callable[[int], object]) -> None:
        """`refuse` answers it with a code. It is called unlocked."""
        self.refuse = refuse
        self.deadline = math.inf


class Add(Wait):
    """Partitions that wait to be added."""

    __slots__ = ("epoch", "partitions", "producer_id", "version")

    def __init__(
        self,
        producer_id: int,
        epoch: int,
        partitions: frozenset[TopicPartition],
        version: int,
        answer: Deferred[int],
    ) -> None:
        super().__init__(answer.complete)
        self.producer_id = producer_id
        self.epoch = epoch
        self.partitions = partitions
        self.version = version


class Change(Wait):
    """EndTxn or InitProducerId."""

    __slots__ = ("attempt",)

    def __init__(self, attempt: Callable[[], bool], refuse: Callable[[int], object]) -> None:
        """`attempt` judges it, under the lock and while nothing is being written; False: it has to wait."""
        super().__init__(refuse)
        self.attempt = attempt


class Transaction(Outbox):
    """One transactional id. `now` is what is durable, `coming` what is being written."""

    def __init__(
        self, transactional_id: str, now: Metadata, home: ShardEpoch | None = None, holder: Holder | None = None
    ) -> None:
        super().__init__()
        self.transactional_id = transactional_id
        self.holder = holder
        """Who began it, and is charged for it; None: it was read from the log."""
        self.home = home
        """In a cluster: where it was read or begun. What was decided in that epoch is written in no other, and said in
        its name, so that it counts no more once a later coordinator has spoken. None: there is no other coordinator."""
        self.now = now
        self.coming: Metadata | None = None
        self.dead = False
        self.changes: list[Change] = []
        """What waits, in the order of arrival; these before those."""
        self.adds: list[Add] = []
        self.patience: Timer | None = None
        """Ends their waits."""
        self.completing = False
        """Whether its markers are on their way."""
        self.deadline = math.inf
        """When an open transaction has taken too long: seconds of the monotonic clock."""
        self.timer: Timer | None = None
        self.dropped = False
        """Whether another coordinator has it now, or this one from its log again."""

    def __repr__(self) -> str:
        return f"<Transaction {self.transactional_id!r} {self.now.state.label}>"

    @property
    def waits(self) -> bool:
        """Whether a request waits."""
        return bool(self.changes or self.adds)

    def has_waiting(self, wait: Wait) -> bool:
        """Whether this request waits."""
        return wait in self.changes or wait in self.adds

    def take_waiting(self, wanted: Callable[[Wait], bool]) -> list[Wait]:
        """Those of the requests that wait which are wanted; they wait no longer."""
        taken: list[Wait] = [wait for wait in (*self.changes, *self.adds) if wanted(wait)]
        self.changes = [change for change in self.changes if change not in taken]
        self.adds = [add for add in self.adds if add not in taken]
        return taken
