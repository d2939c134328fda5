"""Name a group's retry topics, dead-letter topics and ledger, and map each topic to its role.

    orders ─▶ retry.billing.orders.10s ─▶ retry.billing.orders.1m ─▶ … ─▶ dlq.billing.orders
                        ledger of the group billing: kafkalite.failures.billing

The name of a retry topic contains the group, the source topic and, except with order by key, the delay.

Thread rule: the values are immutable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.failures.times import short_name
from kafkalite.model import NAME_CHARACTERS, TOPIC_NAME_SIZE_MAX, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RETRY: Final = "retry"
DEAD: Final = "dlq"
LEDGER: Final = "kafkalite.failures"
REDRIVEN_MS: Final = 0
"""The delay of the topic that redriven letters go to."""


class Lane(NamedTuple):
    """The role of a subscribed topic: its source topic `main`, and whether it is a retry topic or a dead-letter topic.

    For a dead-letter topic, `main` is the topic itself. Only the dead-letter handler gets its records.
    """

    main: str
    is_retry: bool
    is_dead: bool = False


class Layout:
    """The topic names of a group.

    Raises ValueError for a name that Kafka does not allow, or for two names that are equal or collide in Kafka.
    """

    def __init__(
        self,
        group: str,
        topics: Iterable[str],
        delays_ms: Iterable[int],
        *,
        by_key: bool,
        dead_topics: Iterable[str] = (),
    ) -> None:
        self.group = group
        self.dead_topics = tuple(dead_topics)
        """Dead-letter topics by exception class, in the policy's order."""
        self.topics = tuple(topics)
        self.delays_ms = (REDRIVEN_MS, *(delay for delay in delays_ms if delay != REDRIVEN_MS))
        self.by_key = by_key
        self.ledger = ledger_name(group)
        self.lanes: Mapping[str, Lane] = {topic: Lane(topic, False) for topic in self.topics} | {
            name: Lane(topic, True) for topic in self.topics for name in self.retries(topic)
        }
        self.dead_lanes: Mapping[str, Lane] = {
            name: Lane(name, False, is_dead=True) for name in (*map(self.dead, self.topics), *self.dead_topics)
        }
        self._check()

    def lane(self, topic: str) -> Lane:
        """Return the role of a topic. Raises KeyError for a topic that the group does not use."""
        return self.lanes.get(topic) or self.dead_lanes[topic]

    def retry(self, topic: str, delay_ms: int) -> str:
        """Return the retry topic for this source topic and delay in ms.

        With order by key, all delays have the same topic, and the ledger stores the due times.
        """
        if self.by_key:
            return f"{RETRY}.{self.group}.{topic}"
        return f"{RETRY}.{self.group}.{topic}.{short_name(delay_ms)}"

    def retries(self, topic: str) -> list[str]:
        """Return the retry topics of a source topic. Redriven letters go to the retry topic with delay 0."""
        return list(dict.fromkeys(self.retry(topic, delay) for delay in self.delays_ms))

    def dead(self, topic: str, place: int = -1) -> str:
        """Return the dead-letter topic of a source topic. With `place`, return the policy's `dead_topics` entry at that
        index.
        """
        return f"{DEAD}.{self.group}.{topic}" if place < 0 else self.dead_topics[place]

    def every_dead(self, topic: str) -> list[str]:
        """Return all topics that may contain dead letters of this source topic."""
        return [self.dead(topic), *dict.fromkeys(self.dead_topics)]

    def _check(self) -> None:
        every = [*self.topics, self.ledger, *map(self.dead, self.topics), *dict.fromkeys(self.dead_topics)]
        every += [name for name, lane in self.lanes.items() if lane.is_retry]
        seen: dict[str, str] = {}
        for name in every:
            if not name or len(name) > TOPIC_NAME_SIZE_MAX or set(name) - NAME_CHARACTERS:
                raise ValueError(
                    f"the policy needs topic {name!r}; a name has 1 to {TOPIC_NAME_SIZE_MAX} letters, digits, '.', "
                    "'_' and '-'"
                )
            if name in self.dead_topics and every.count(name) > 1:
                raise ValueError(f"dead_topics has {name!r}, which is another topic of the policy")
            other = seen.setdefault(name.replace(".", "_"), name)
            if other != name or every.count(name) > 1:
                raise ValueError(f"the policy needs topics {other!r} and {name!r}, whose names collide in Kafka")


def ledger_name(group: str) -> str:
    """Return the name of a group's ledger topic."""
    return f"{LEDGER}.{group}"


def origin_text(partition: TopicPartition, offset: int) -> str:
    """Format a source record as topic, partition and offset, such as orders-3-1842. This is the record's key in the
    ledger.
    """
    return f"{partition.topic}-{partition.partition}-{offset}"


def parse_origin(text: str) -> tuple[TopicPartition, int]:
    """Parse the result of `origin_text`. Topic names may contain dashes. Raises ValueError."""
    topic, _, rest = text.rpartition("-")
    topic, _, partition = topic.rpartition("-")
    if not topic or not all(number.isdecimal() and len(number) <= 19 for number in (partition, rest)):
        raise ValueError(f"{text!r} is not a record; write TOPIC-PARTITION-OFFSET")
    return TopicPartition(topic, int(partition)), int(rest)
