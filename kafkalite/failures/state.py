"""What the parts of a session share: the partitions in hand, what is to be done, and the time of the event.

Thread rule: one thread at a time, that of the session.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkalite.failures.breaker import Breaker
from kafkalite.failures.commits import Commits
from kafkalite.failures.events import Alarm, Stop
from kafkalite.failures.losses import Losses
from kafkalite.failures.moves import Moves
from kafkalite.failures.names import origin_text
from kafkalite.failures.strategies import Ignore, RetryTopics
from kafkalite.failures.times import Moment
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.failures.events import Action, Decided
    from kafkalite.failures.lanes import Item, PartitionLane
    from kafkalite.failures.policy import Policy
    from kafkalite.failures.rows import Row


class SessionState:
    """See the module."""

    def __init__(
        self, policy: Policy, *, member: str, nonce: str, draw: Callable[[], float], by_partition: bool = False
    ) -> None:
        self._policy = policy
        self._member = member
        self._nonce = nonce
        self._draw = draw
        self._lanes: dict[TopicPartition, PartitionLane] = {}
        self._breaker = Breaker(policy.limit)
        self._holds = policy.after_dead == "hold"
        self._rotates = policy.order == "none" and isinstance(policy.strategy, (RetryTopics, Ignore))
        self._goes_on = self._rotates or (policy.order == "key" and isinstance(policy.strategy, RetryTopics))
        self._losses = Losses(policy.strategies)
        self._counts_failures = policy.limit is not None or self._losses.counts
        self._number = 0
        self._moves = Moves(member, keeps_ledger=policy.keeps_ledger, by_partition=by_partition)
        self._commits = Commits(self._moves)
        self._decided: dict[tuple[str, TopicPartition], Decided] = {}
        self._finished_ids: dict[str, Row | None] = {}
        """Where moves are at least once: letters that are done, and their last row."""
        self._actions: list[Action] = []
        self._now = Moment(0, 0.0)
        self.stopped = ""
        """Why the session has ended, once it has."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """By name and label; see kafkalite.failures.metrics."""
        self.late_ms: list[float] = []
        """How long after their due time letters ran since somebody took them from here."""

    def _partner(self, lane: PartitionLane) -> PartitionLane | None:
        """With order by key, the retry partition that says which keys of a topic's own partition are blocked."""
        return self._lanes.get(TopicPartition(self._policy.layout.retry(lane.origin.topic, 0), lane.origin.partition))

    def _letter_id(self, item: Item) -> str:
        where = origin_text(item.origin, item.origin_offset)
        if not self._nonce:
            return f"{where}/{item.rounds}.{item.attempt}"
        self._number += 1
        return f"{where}/{item.rounds}.{item.attempt}/{self._nonce}{self._number:x}"

    def stop(self, reason: str) -> None:
        """Starts no record from now on; what is done can be written still."""
        self.stopped = reason
        self._actions += [Alarm("stopped", reason, {}), Stop(reason)]
