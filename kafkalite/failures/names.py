"""The topics of a group's failures: their names, and what a topic is to the group.

    orders ─▶ retry.billing.orders.10s ─▶ retry.billing.orders.1m ─▶ … ─▶ dlq.billing.orders
                        ledger of the group: kafkalite.failures.billing

A name holds group, topic and delay and nothing else, so that a policy with other attempts keeps its topics. With
order by key there is one retry topic, without a delay in its name, as what is due when stands in the ledger.

Thread rule: immutable values.
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
    """What a subscribed topic is to a group: which topic's records are in it, whether they are there again, and
    whether they are dead letters, which only a dead-letter handler gets."""

    main: str
    is_retry: bool
    is_dead: bool = False


class Layout:
    """The names of a group. ValueError for one that Kafka would refuse, or could not tell from another."""

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
        """Topics of the dead letters of some exception classes, by their places in the policy."""
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
        """What this topic is to the group. KeyError for a topic that is none of the group's."""
        return self.lanes.get(topic) or self.dead_lanes[topic]

    def retry(self, topic: str, delay_ms: int) -> str:
        """Where a record of this topic waits for so long."""
        if self.by_key:
            return f"{RETRY}.{self.group}.{topic}"
        return f"{RETRY}.{self.group}.{topic}.{short_name(delay_ms)}"

    def retries(self, topic: str) -> list[str]:
        """The retry topics of a topic; that of delay 0 is where redriven letters go."""
        return list(dict.fromkeys(self.retry(topic, delay) for delay in self.delays_ms))

    def dead(self, topic: str, place: int = -1) -> str:
        """Where the dead letters of this topic are; those of an exception class by its place among `dead_topics`."""
        return f"{DEAD}.{self.group}.{topic}" if place < 0 else self.dead_topics[place]

    def every_dead(self, topic: str) -> list[str]:
        """The topics that dead letters of this topic may be in."""
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
    """The topic that says what became of a group's records that were not plainly processed."""
    return f"{LEDGER}.{group}"


def origin_text(partition: TopicPartition, offset: int) -> str:
    """orders-3-1842: the key of a record's row in the ledger."""
    return f"{partition.topic}-{partition.partition}-{offset}"


def parse_origin(text: str) -> tuple[TopicPartition, int]:
    """The other way round, from the right, as topics may have dashes; ValueError."""
    topic, _, rest = text.rpartition("-")
    topic, _, partition = topic.rpartition("-")
    if not topic or not partition.isdecimal() or not rest.isdecimal():
        raise ValueError(f"{text!r} is not a record; write TOPIC-PARTITION-OFFSET")
    return TopicPartition(topic, int(partition)), int(rest)
