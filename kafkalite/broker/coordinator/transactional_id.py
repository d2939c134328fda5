"""Keep one transactional id in memory: its state, its lock, and the requests that wait for it.

Thread rule: any thread; methods ending in `_locked` need the lock, which `changing` takes.
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
    """A request that waits until a write of its transactional id's state has ended, or until the markers are
    written.
    """

    __slots__ = ("deadline", "refuse")

    def __init__(self, refuse: Callable[[int], object]) -> None:
        """Create a request whose wait has no deadline yet. `refuse` answers it with an error code and is called without
        the lock.
        """
        self.refuse = refuse
        self.deadline = math.inf


class Add(Wait):
    """A waiting request to add partitions to the transaction.

    It is AddPartitionsToTxn, AddOffsetsToTxn, Produce 12 or TxnOffsetCommit 5. The last two add the partition to which
    they write.
    """

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
    """A waiting EndTxn or InitProducerId."""

    __slots__ = ("attempt",)

    def __init__(self, attempt: Callable[[], bool], refuse: Callable[[int], object]) -> None:
        """Create a waiting request.

        `attempt` serves it. It is called under the lock, while no state is being written, and returns False if the
        request has to wait. `refuse`: see `Wait`.
        """
        super().__init__(refuse)
        self.attempt = attempt


class Transaction(Outbox):
    """One transactional id. `now` is its durable state; `coming` is the state that is being written."""

    def __init__(
        self, transactional_id: str, now: Metadata, home: ShardEpoch | None = None, holder: Holder | None = None
    ) -> None:
        super().__init__()
        self.transactional_id = transactional_id
        self.holder = holder
        """The client that created the id and is charged for it; None if the id was read from the log."""
        self.home = home
        """In a cluster: the partition and leader epoch in which the id was read or created; None in a standalone
        broker. Decisions of that epoch are written in no other epoch, and contain it, so that a later coordinator's
        decision wins."""
        self.now = now
        self.coming: Metadata | None = None
        self.dead = False
        self.changes: list[Change] = []
        """Waiting requests, in order of arrival; changes come before additions."""
        self.adds: list[Add] = []
        self.patience: Timer | None = None
        """The timer that ends the waits of all these requests."""
        self.completing = False
        """Whether the markers of the id's transaction are being written."""
        self.deadline = math.inf
        """When an open transaction times out: seconds of the monotonic clock."""
        self.timer: Timer | None = None
        self.dropped = False
        """Whether another coordinator has the id now, or this coordinator has loaded it again."""

    def __repr__(self) -> str:
        return f"<Transaction {self.transactional_id!r} {self.now.state.label}>"

    @property
    def waits(self) -> bool:
        """Whether any request waits."""
        return bool(self.changes or self.adds)

    def has_waiting(self, wait: Wait) -> bool:
        """Return whether the request `wait` still waits."""
        return wait in self.changes or wait in self.adds

    def take_waiting(self, wanted: Callable[[Wait], bool]) -> list[Wait]:
        """Remove and return the waiting requests for which `wanted` is true."""
        taken: list[Wait] = [wait for wait in (*self.changes, *self.adds) if wanted(wait)]
        self.changes = [change for change in self.changes if change not in taken]
        self.adds = [add for add in self.adds if add not in taken]
        return taken
