"""Hold the state that the parts of a session share, such as assigned partitions and the current time.

The current time is that of the event in progress (kafkalite.failures.events), not of a clock.

Thread rule: one thread at a time, that of the session.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkalite.failures.breaker import Breaker
from kafkalite.failures.events import Alarm, Stop
from kafkalite.failures.losses import Losses
from kafkalite.failures.moves import Moves
from kafkalite.failures.names import origin_text
from kafkalite.failures.retry_strategies import Ignore, RetryTopics
from kafkalite.failures.times import Moment
from kafkalite.failures.topic_ids import TopicIds
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.failures.events import Action, Decided
    from kafkalite.failures.lanes import Item, PartitionLane
    from kafkalite.failures.policy import Policy
    from kafkalite.failures.rows import Row


class SessionState:
    """The shared state of a session; see the module.

    `member`        the member's name in ledger rows
    `nonce`         part of letter ids, different in every session; "" with at-least-once moves, where a repeated move
                    needs the same id
    `draw`          returns a random number from 0 to 1
    `by_partition`  each transaction covers one source partition
    """

    def __init__(
        self, policy: Policy, *, member: str, nonce: str, draw: Callable[[], float], by_partition: bool = False
    ) -> None:
        self.policy = policy
        self.member = member
        self.nonce = nonce
        self.draw = draw
        self.lanes: dict[TopicPartition, PartitionLane] = {}
        self.breaker = Breaker(policy.limit)
        self.holds = policy.after_dead == "hold"
        self.rotates = policy.order == "none" and isinstance(policy.strategy, (RetryTopics, Ignore))
        self.losses = Losses(policy.last_strategies)
        self.number = 0
        self.topic_ids = TopicIds()
        self.moves = Moves(
            member, keeps_ledger=policy.keeps_ledger, by_partition=by_partition, topic_ids=self.topic_ids
        )
        self.decided: dict[tuple[str, TopicPartition], Decided] = {}
        self.finished_ids: dict[str, Row | None] = {}
        """With at-least-once moves: ids of finished letters, with their last row."""
        self.actions: list[Action] = []
        self.now = Moment(0, 0.0)
        self.stopped = ""
        """The reason why the session ended; "" until then."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """Counts by name and label; see kafkalite.failures.metrics."""

    def partner(self, lane: PartitionLane) -> PartitionLane | None:
        """Return the retry partition in which records of this source partition wait for their keys (order by key), or
        None.
        """
        return self.lanes.get(TopicPartition(self.policy.layout.retry(lane.origin.topic, 0), lane.origin.partition))

    def letter_id(self, item: Item) -> str:
        """Return the id of the next letter of a record."""
        where = origin_text(item.origin, item.origin_offset)
        if not self.nonce:
            return f"{where}/{item.rounds}.{item.attempt}"
        self.number += 1
        return f"{where}/{item.rounds}.{item.attempt}/{self.nonce}{self.number:x}"

    def stop(self, reason: str) -> None:
        """Start no more records. Finished records can still be written."""
        self.stopped = reason
        self.actions += [Alarm("stopped", reason, {}), Stop(reason)]
