"""Which topics a mirror copies, and the target's topics for them: same name, no fewer partitions, the same settings.

A topic that the target lacks is created with the settings that the source's topic has of its own, as far as the target
knows them; a topic that is there keeps its settings and gets the partitions that it lacks. What belongs to a cluster,
not to its data, is not copied: replication, and the format of Kafka 0.7, whose topics become ordinary ones. Nor is
LogAppendTime, since a copy keeps its records' timestamps.

Thread rule: one thread at a time, that of the Clients.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from kafkalite.errors import InvalidPartitions, TopicAlreadyExists
from kafkalite.mirror.progress import PREFIX
from kafkalite.model import INTERNAL_TOPICS

if TYPE_CHECKING:
    from kafkalite.client import Client, TopicDescription

NOT_COPIED: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.format",
        "message.timestamp.type",
        "min.insync.replicas",
    }
)
OWN_SETTING: Final = "topic"
"""Source of a setting that a topic has of its own, as Admin calls it."""


class TopicFilter:
    """Names that match `include` as a whole and not `exclude`; never internal topics or mirrors' own."""

    def __init__(self, include: str = ".*", exclude: str | None = None) -> None:
        self._include = compiled(include)
        self._exclude = None if exclude is None else compiled(exclude)

    def takes(self, topic: TopicDescription) -> bool:
        """Whether this topic is copied."""
        name = topic.name
        if topic.is_internal or name in INTERNAL_TOPICS or name.startswith(PREFIX):
            return False
        left_out = self._exclude is not None and self._exclude.fullmatch(name) is not None
        return self._include.fullmatch(name) is not None and not left_out


def compiled(pattern: str) -> re.Pattern[str]:
    """ValueError says what is wrong with a pattern."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error


class TargetTopics:
    """See the module."""

    def __init__(self, source: Client, target: Client, sample_topic: str) -> None:
        """`sample_topic` is one of the target's: its settings are those that the target knows."""
        self._source = source
        self._target = target
        self._sample_topic = sample_topic
        self._counts: dict[str, int] = {}
        """Partitions that the target's topics are known to have."""
        self.created: list[str] = []

    def ensure(self, topic: TopicDescription) -> None:
        """The target has the topic, with as many partitions. KafkaError when it refuses."""
        wanted = len(topic.partitions)
        if self._counts.get(topic.name, 0) >= wanted:
            return
        there = self._target.partition_counts([topic.name]).get(topic.name, 0)
        if not there:
            with contextlib.suppress(TopicAlreadyExists):
                self._target.admin.create_topic(topic.name, wanted, configs=self._settings(topic.name))
                self.created.append(topic.name)
        elif there < wanted:
            with contextlib.suppress(InvalidPartitions):  # somebody was faster
                self._target.admin.add_partitions(topic.name, wanted)
        self._counts[topic.name] = max(there, wanted)

    def _settings(self, name: str) -> dict[str, str]:
        known = {entry.name for entry in self._target.admin.describe_topic_configs(self._sample_topic)}
        return {
            entry.name: entry.value
            for entry in self._source.admin.describe_topic_configs(name)
            if entry.source == OWN_SETTING and entry.value is not None and entry.name in known - NOT_COPIED
        }
