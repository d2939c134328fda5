"""Select topics by a whitelist or blacklist, as Kafka 0.7 does.

A list is a regular expression that must match the whole name of a topic. A comma means `|`, spaces are ignored, and
quotes around the list are removed.

Kafka 0.7 uses Java's regular expressions. This module uses RE2. If RE2 rejects an expression, such as one with
lookaround, it uses Python's `re`.

Source: `kafkalite.classic`, fact 4 (0.7.1's TopicFilter).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

from kafkalite.base.regex import compiled

_NAMES_ONLY: Final = re.compile(r"[A-Za-z0-9\-|]+")


class TopicFilter(ABC):
    """A filter of the topics to which a consumer subscribes (kafka.consumer.TopicFilter)."""

    marker: ClassVar[str]
    """The character that identifies the kind of filter in ZooKeeper."""

    def __init__(self, pattern: str) -> None:
        """Compile the list. ValueError if it is not a regular expression."""
        self.pattern = pattern.strip().replace(",", "|").replace(" ", "").strip("'\"")
        self.is_linear = True
        """Whether matching takes linear time. Check it before matching an untrusted expression."""
        try:
            self._compiled: Any = compiled(self.pattern)
        except ValueError:
            self.is_linear = False
            try:
                self._compiled = re.compile(self.pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None

    @abstractmethod
    def allows(self, topic: str) -> bool:
        """Return whether the filter allows a topic."""

    @property
    @abstractmethod
    def needs_topic_watcher(self) -> bool:
        """Whether the filter may allow topics that are created later."""

    def _matches(self, topic: str) -> bool:
        return self._compiled.fullmatch(topic) is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.pattern!r})"


class Whitelist(TopicFilter):
    """A filter that allows topics whose names match (kafka.consumer.Whitelist)."""

    marker = "*"

    def allows(self, topic: str) -> bool:
        return self._matches(topic)

    @property
    def needs_topic_watcher(self) -> bool:
        return _NAMES_ONLY.fullmatch(self.pattern) is None


class Blacklist(TopicFilter):
    """A filter that allows topics whose names do not match (kafka.consumer.Blacklist)."""

    marker = "!"

    def allows(self, topic: str) -> bool:
        return not self._matches(topic)

    @property
    def needs_topic_watcher(self) -> bool:
        return True


def filter_of(marker: str, pattern: str) -> TopicFilter:
    """Return the filter in a subscription. ValueError for an unknown marker or an invalid pattern."""
    for kind in (Whitelist, Blacklist):
        if kind.marker == marker:
            return kind(pattern)
    raise ValueError(f"unknown topic filter marker {marker!r}")
