"""What topics a group reads."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator import consumer_records as stored
from kafkalite.broker.coordinator import topic_regex
from kafkalite.broker.coordinator.staged_changes import StagedChanges
from kafkalite.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.broker.coordinator.consumer_environment import Describes

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)


EPOCH_MAX: Final = (1 << 31) - 1


class Subscriptions(StagedChanges):
    """Expressions and topics that change."""

    def _drop_expression(self, expression: str) -> None:
        """Forgets what an expression means if nobody uses it any more."""
        if expression and expression in self._staged.expressions and not self._staged.uses(expression):
            self._edit().set_expression(expression, None)
            self._describers.pop(expression, None)
            self._erase(stored.EXPRESSION, expression)

    def _show_to(self, expression: str, describes: Describes) -> None:
        """From now on an expression means topics that this member's client may describe, as in Kafka."""
        is_news = expression not in self._describers and expression in self._staged.expressions
        self._describers[expression] = describes
        if is_news:  # read from the log: nobody could tell whose it is
            self._play_topics(None)

    def _matching(self, expression: str, names: Iterable[str]) -> frozenset[str]:
        found = topic_regex.matching(expression, names)
        describes = self._describers.get(expression)
        return found if describes is None else describes(found)

    def _means(self, expression: str, topics: frozenset[str]) -> None:
        self._edit().set_expression(expression, topics)
        now_ms = self._environment.clock.time_ms()
        self._write(expression, stored.ExpressionValue(topics=sorted(topics), timestamp=now_ms))

    def _raise_epoch(self) -> None:
        state = self._edit()
        state.epoch = state.epoch % EPOCH_MAX + 1
        state.metadata_hash = self._consumers.hashes.of_topics(state.subscribed(), self._consumers.topics())
        self._write("", stored.GroupValue(epoch=state.epoch, metadata_hash=state.metadata_hash))

    def _play_topics(self, names: set[str] | None) -> None:
        """Looks at the topics anew: those that changed, None for all. The group's epoch rises if it matters to it."""
        topics = self._consumers.topics()
        for expression, known in list(self._staged.expressions.items()):
            looked_at = topics.keys() if names is None else names & topics.keys()
            try:
                found = self._matching(expression, looked_at)
            except KafkaError as error:  # read from a log that somebody else wrote
                logger.warning("an expression means no topic: %s", error, extra=fields(group=self.group_id))
                found = frozenset()
            means = found if names is None else (known - names) | found
            if means != known:
                self._means(expression, means)
        staged = self._staged
        if staged.members and self._consumers.hashes.of_topics(staged.subscribed(), topics) != staged.metadata_hash:
            self._raise_epoch()
