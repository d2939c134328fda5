"""Select the topics to mirror, and create them in the target with the same settings and at least as many partitions.

A missing topic is created with the settings of the source's topic that the target supports. An existing topic gets
missing partitions; its settings change only if `follow` is called.

The replication factor, excluded settings (by default CONFIG_EXCLUDE) and those in NEVER_COPIED are not copied.

Thread rule: one thread at a time, that of the Clients.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from kafkalite.errors import InvalidPartitions, TopicAlreadyExists
from kafkalite.mirror import offsets, progress
from kafkalite.model import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.client import Client, TopicDescription

CONFIG_EXCLUDE: Final = (
    "follower[.]replication[.]throttled[.]replicas",
    "leader[.]replication[.]throttled[.]replicas",
    "message[.]timestamp[.]difference[.]max[.]ms",
    "message[.]timestamp[.]type",  # LogAppendTime would give the copies new timestamps
    "unclean[.]leader[.]election[.]enable",
    "min[.]insync[.]replicas",
)
"""Kafka's default of `config.properties.exclude`."""
NEVER_COPIED: Final = frozenset({"message.format", "remote.storage.enable"})
"""Settings of how one cluster stores a topic: Kafka 0.7's format, tiered storage."""
OWN_PREFIXES: Final = (progress.PREFIX, offsets.PREFIX)
OWN_SETTING: Final = "topic"
"""The source of a setting that is set on the topic itself, as Admin reports it."""


class TopicFilter:
    """Selects topics whose names match `include` completely and not `exclude`.

    Internal topics and the progress and offset topics of mirrors are not selected. Raises ValueError for an invalid
    pattern.
    """

    def __init__(self, include: str = ".*", exclude: str | None = None) -> None:
        self._include = compiled(include)
        self._exclude = None if exclude is None else compiled(exclude)

    def takes(self, topic: TopicDescription) -> bool:
        """Return whether this topic is copied."""
        name = topic.name
        if topic.is_internal or name in INTERNAL_TOPICS or name.startswith(OWN_PREFIXES):
            return False
        left_out = self._exclude is not None and self._exclude.fullmatch(name) is not None
        return self._include.fullmatch(name) is not None and not left_out


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern; raise ValueError with the reason if it is invalid."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error


class TargetTopics:
    """Creates and updates the target's topics; see the module."""

    def __init__(
        self,
        source: Client,
        target: Client,
        sample_topic: str,
        *,
        prefix: str = "",
        config_exclude: Iterable[str] = CONFIG_EXCLUDE,
        note: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`sample_topic` is any topic of the target: the target is assumed to support the settings that this topic has.

        `prefix` is put before the source's topic names in the target. `config_exclude` are regular expressions for
        settings that are not copied; an invalid expression raises ValueError. `note` is called with messages for the
        operator.
        """
        self._source = source
        self._target = target
        self._sample_topic = sample_topic
        self._prefix = prefix
        self._exclude = compiled("|".join(f"(?:{compiled(pattern).pattern})" for pattern in config_exclude) or "(?!)")
        self._note = note
        self._known: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}
        """The known partition counts of the target's topics."""
        self.created: list[str] = []
        self.changed: dict[str, dict[str, str | None]] = {}
        """Settings changed in the target to the source's values, by topic; None: removed."""

    def ensure(self, topic: TopicDescription) -> None:
        """Ensure that the target has the topic with at least as many partitions as the source.

        Raises KafkaError if the target refuses.
        """
        wanted = len(topic.partitions)
        if self._counts.get(topic.name, 0) >= wanted:
            return
        name = self.named(topic.name)
        there = self._target.partition_counts([name]).get(name, 0)
        if not there:
            with contextlib.suppress(TopicAlreadyExists):
                self._target.admin.create_topic(name, wanted, configs=self._settings(topic.name))
                self.created.append(name)
        elif there < wanted:
            with contextlib.suppress(InvalidPartitions):  # another client was faster
                self._target.admin.add_partitions(name, wanted)
        self._counts[topic.name] = max(there, wanted)

    def forget(self, name: str) -> None:
        """Make the next `ensure` check the topic again, because the target's topic may have changed."""
        self._counts.pop(name, None)

    def named(self, name: str) -> str:
        """Return the target's name of a source topic."""
        return self._prefix + name

    def follow(self, name: str) -> None:
        """Give the target's topic exactly the settings set on the source's topic, except excluded settings.

        A setting with the default in the source gets the target's default (KIP-894). Raises KafkaError if the target
        refuses.
        """
        wanted = self._settings(name)
        there = {
            entry.name: entry.value
            for entry in self._target.admin.describe_topic_configs(self.named(name))
            if entry.source == OWN_SETTING and not self._left_out(entry.name)
        }
        changes: dict[str, str | None] = {key: value for key, value in wanted.items() if there.get(key) != value}
        changes |= {key: None for key in there if key not in wanted}
        if changes:
            self._target.admin.alter_topic_configs(self.named(name), changes)
            self.changed.setdefault(self.named(name), {}).update(changes)

    def _settings(self, name: str) -> dict[str, str]:
        """Return the settings set on the source's topic that the target supports."""
        if not self._known:
            self._known = frozenset(
                entry.name for entry in self._target.admin.describe_topic_configs(self._sample_topic)
            )
        found = {
            entry.name: entry.value
            for entry in self._source.admin.describe_topic_configs(name)
            if entry.source == OWN_SETTING and entry.value is not None and not self._left_out(entry.name)
        }
        for key in sorted(found.keys() - self._known):
            self._note(f"topic {name}: the target does not support {key}, so {found.pop(key)!r} is not copied")
        return found

    def _left_out(self, key: str) -> bool:
        return key in NEVER_COPIED or self._exclude.fullmatch(key) is not None
