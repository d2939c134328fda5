"""What the parts of a session share: the partitions in hand, what is to be done, and the time of the event.

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
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.failures.events import Action, Decided
    from kafkalite.failures.lanes import Item, PartitionLane
    from kafkalite.failures.policy import Policy
    from kafkalite.failures.rows import Row


class SessionState:
    """See the module.

    `member`        the member's name in rows of the ledger
    `nonce`         part of the ids of letters, different in every session; "" where moves are at least once and a move
                    that is done again needs the same id
    `draw`          returns a number from 0 to 1
    `by_partition`  a transaction is about one source partition
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
        self.losses = Losses(policy.strategies)
        self.number = 0
        self.moves = Moves(member, keeps_ledger=policy.keeps_ledger, by_partition=by_partition)
        self.decided: dict[tuple[str, TopicPartition], Decided] = {}
        self.finished_ids: dict[str, Row | None] = {}
        """Where moves are at least once: letters that are done, and their last row."""
        self.actions: list[Action] = []
        self.now = Moment(0, 0.0)
        self.stopped = ""
        """Why the session has ended, once it has."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """By name and label; see kafkalite.failures.metrics."""

    def partner(self, lane: PartitionLane) -> PartitionLane | None:
        """With order by key, the retry partition that says which keys of a topic's own partition are blocked."""
        return self.lanes.get(TopicPartition(self.policy.layout.retry(lane.origin.topic, 0), lane.origin.partition))

    def letter_id(self, item: Item) -> str:
        """Return the id of the item's next letter."""
        where = origin_text(item.origin, item.origin_offset)
        if not self.nonce:
            return f"{where}/{item.rounds}.{item.attempt}"
        self.number += 1
        return f"{where}/{item.rounds}.{item.attempt}/{self.nonce}{self.number:x}"

    def stop(self, reason: str) -> None:
        """Starts no record from now on; what is done can be written still."""
        self.stopped = reason
        self.actions += [Alarm("stopped", reason, {}), Stop(reason)]
