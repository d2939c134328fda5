"""Resolve a consumer group's subscriptions (KIP-848), and do so again when topics are created, changed or deleted.

As in Kafka, a regular expression matches only topics that a member with this expression is authorized to describe.
After a load, it matches no further topic until the first heartbeat of such a member. When the subscribed topics change,
the group epoch is bumped.

Thread rule: guarded by the group's lock.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator import topic_regex
from kafkalite.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.base.clock import Clock
    from kafkalite.broker.coordinator.consumer_environment import ConsumerEnvironment, Describes
    from kafkalite.broker.coordinator.staged_changes import StagedChanges

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)

EPOCH_MAX: Final = (1 << 31) - 1


class Subscriptions:
    """The subscribed topics of one group."""

    __slots__ = ("_changes", "_clock", "_consumers", "_describers", "_group_id")

    def __init__(self, group_id: str, clock: Clock, consumers: ConsumerEnvironment, changes: StagedChanges) -> None:
        self._group_id = group_id
        self._clock = clock
        self._consumers = consumers
        self._changes = changes
        self._describers: dict[str, Describes | None] = {}
        """Regular expression → permissions of a member that sent a heartbeat; empty after a start.

        A removed expression keeps its entry until another expression is new in the group, since the removal could be
        discarded.
        """

    def authorize(self, expression: str, describes: Describes | None) -> None:
        """Limit an expression to the topics that a member's client is authorized to describe. None: all topics."""
        staged = self._changes.staged.expressions
        is_news = expression not in self._describers
        if is_news:
            kept = staged.keys() | self._changes.durable.expressions.keys()
            self._describers = {known: by for known, by in self._describers.items() if known in kept}
        self._describers[expression] = describes
        if is_news and expression in staged:  # it was read from the log, which has no permissions
            self.refresh(None)

    def resolve(self, expression: str) -> None:
        """Resolve an expression that is new in the group."""
        if expression and expression not in self._changes.staged.expressions:
            self._put(expression, self._matching(expression, self._consumers.topics()))

    def drop_unused(self, expression: str) -> None:
        """Remove an expression if no member subscribes to it any more."""
        staged = self._changes.staged
        if expression and expression in staged.expressions and not staged.uses(expression):
            self._changes.remove_expression(expression)

    def may_read(self, topic: str) -> bool:
        """Return whether the group may be affected by a change of this topic."""
        staged = self._changes.staged
        return bool(staged.expressions) or topic in staged.subscribed()

    def refresh(self, names: set[str] | None) -> None:
        """Resolve all subscriptions again after the topics `names` changed (None: all topics).

        Bump the group epoch if the subscribed topics have changed.
        """
        topics = self._consumers.topics()
        for expression, known in list(self._changes.staged.expressions.items()):
            looked_at = topics.keys() if names is None else names & topics.keys()
            try:
                found = self._matching(expression, looked_at)
            except KafkaError as error:  # another broker wrote it to the log
                logger.warning(
                    "a stored topic expression is invalid and matches no topic: %s",
                    error,
                    extra=fields(group=self._group_id),
                )
                found = frozenset()
            if expression not in self._describers:
                found &= known  # after a load: topics are added at a member's first heartbeat, with its permissions
            means = found if names is None else (known - names) | found
            if means != known:
                self._put(expression, means)
        staged = self._changes.staged
        if staged.members and self._consumers.hashes.of_topics(staged.subscribed(), topics) != staged.metadata_hash:
            self.bump_epoch()

    def bump_epoch(self) -> None:
        """Begin a new group epoch; the next heartbeat computes its target assignment."""
        staged = self._changes.staged
        metadata_hash = self._consumers.hashes.of_topics(staged.subscribed(), self._consumers.topics())
        self._changes.put_epoch(staged.epoch % EPOCH_MAX + 1, metadata_hash)

    def _matching(self, expression: str, names: Iterable[str]) -> frozenset[str]:
        found = topic_regex.matching(expression, names)
        describes = self._describers.get(expression)
        return found if describes is None else describes(found)

    def _put(self, expression: str, topics: frozenset[str]) -> None:
        self._changes.put_expression(expression, topics, self._clock.time_ms())
