"""White and black lists of topics: Kafka 0.7's filters, written as it writes them.

A list is a regular expression that has to match the whole name, in which a comma stands for `|`, spaces do not count,
and quotes around it fall off. 0.7 takes Java's expressions, this takes RE2's, and Python's for what RE2 does not know
(looking around, backreferences); they agree on what topic lists use.
Source: `kafkalite.classic`, fact 4 (0.7.1's TopicFilter).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

from kafkalite.base.regex import compiled

_NAMES_ONLY: Final = re.compile(r"[A-Za-z0-9\-|]+")


class TopicFilter(ABC):
    """Which topics a consumer wants (kafka.consumer.TopicFilter)."""

    marker: ClassVar[str]
    """The character that stands for this kind of list in ZooKeeper."""

    def __init__(self, pattern: str) -> None:
        """ValueError when the pattern is not a regular expression."""
        self.pattern = pattern.strip().replace(",", "|").replace(" ", "").strip("'\"")
        self.is_linear = True
        """Whether it takes time in proportion to a topic's name. Whoever tries the expression of a stranger looks."""
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
        """Whether a topic of this name is wanted."""

    @property
    @abstractmethod
    def needs_topic_watcher(self) -> bool:
        """Whether topics that come later may be wanted too."""

    def _matches(self, topic: str) -> bool:
        return self._compiled.fullmatch(topic) is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.pattern!r})"


class Whitelist(TopicFilter):
    """The topics that match (kafka.consumer.Whitelist)."""

    marker = "*"

    def allows(self, topic: str) -> bool:
        return self._matches(topic)

    @property
    def needs_topic_watcher(self) -> bool:
        return _NAMES_ONLY.fullmatch(self.pattern) is None


class Blacklist(TopicFilter):
    """The topics that do not match (kafka.consumer.Blacklist)."""

    marker = "!"

    def allows(self, topic: str) -> bool:
        return not self._matches(topic)

    @property
    def needs_topic_watcher(self) -> bool:
        return True


def filter_of(marker: str, pattern: str) -> TopicFilter:
    """The filter that a subscription names; ValueError for another marker or a pattern that is none."""
    for kind in (Whitelist, Blacklist):
        if kind.marker == marker:
            return kind(pattern)
    raise ValueError(f"unknown topic filter marker {marker!r}")
