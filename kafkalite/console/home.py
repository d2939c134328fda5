"""Show the first page: health, throughput, groups with problems, dead letters of the last day, and a search for names.

The brokers and dead letters are requested from the cluster. All other data comes from the sampler.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.errors import ClientError
from kafkalite.console.chart_sets import WINDOWS, ChartSet
from kafkalite.console.letter_counts import count_letters, is_dead_letter_topic
from kafkalite.console.observations import TROUBLES, GroupNow, Sample
from kafkalite.errors import KafkaError

if TYPE_CHECKING:
    from kafkalite.client import Client
    from kafkalite.console.requests import Request
    from kafkalite.console.sampler import Sampler
    from kafkalite.failures.dead_topics import RoutedTopics

DAY_MS: Final = 86_400_000
GROUPS_SHOWN: Final = 8
LETTER_TOPICS_MAX: Final = 200
FOUND_MAX: Final = 20


class Home:
    """The first page, and the search for names of topics and groups."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def page(self, client: Client, request: Request) -> dict[str, Any]:
        """Return the data of the first page."""
        window = request.choice("window", WINDOWS)
        sample = self._sampler.latest
        brokers = client.with_retries(client.brokers)
        since_ms = int(time.time() * 1000) - DAY_MS
        groups = [] if sample is None else in_trouble(sample)
        return {
            "brokers": len(brokers),
            "sample": None if sample is None else health(sample),
            "gap": self._sampler.failure,
            "window": window,
            "charts": ChartSet.of(self._sampler, window).cluster(),
            "groups": [group_row(group) for group in groups[:GROUPS_SHOWN]],
            "troubled": len(groups),
            "letters": [] if sample is None else letters_since(client, request.routed, sample, since_ms),
        }

    def search_page(self, client: Client, request: Request) -> dict[str, Any]:
        """Return the topics and groups whose names contain a text. Names that begin with the text come first."""
        del client
        sought = request.text("q")
        sample = self._sampler.latest
        if not sought or sample is None:
            return {"q": sought, "topics": [], "groups": [], "more_topics": 0, "more_groups": 0}
        topics = named(sought, list(sample.topics))
        groups = named(sought, list(sample.groups))
        return {
            "q": sought,
            "topics": [sample.topics[name]._asdict() for name in topics[:FOUND_MAX]],
            "groups": [group_row(sample.groups[name]) for name in groups[:FOUND_MAX]],
            "more_topics": max(len(topics) - FOUND_MAX, 0),
            "more_groups": max(len(groups) - FOUND_MAX, 0),
        }


def health(sample: Sample) -> dict[str, Any]:
    """Return the numbers of brokers, topics and other objects, and the numbers of their problems."""
    topics = sample.topics.values()
    sizes = [topic.size for topic in topics if topic.size is not None]
    return {
        "time": sample.time_ms,
        "topics": sum(not topic.internal for topic in topics),
        "partitions": sum(topic.partitions for topic in topics),
        "offline": sum(topic.offline for topic in topics),
        "under_replicated": sum(topic.under_replicated for topic in topics),
        "groups": len(sample.groups),
        "bytes": sum(sizes) if sizes else None,
        "rate_in": sample.rate_in,
        "rate_out": sample.rate_out,
    }


def in_trouble(sample: Sample) -> list[GroupNow]:
    """Return the groups with problems, worst first."""
    found = [group for group in sample.groups.values() if group.trouble]
    return sorted(found, key=lambda group: (TROUBLES.index(group.trouble), -(group.lag or 0), group.group))


def group_row(group: GroupNow) -> dict[str, Any]:
    """Return a group as plain data."""
    return {
        "group": group.group,
        "state": group.state,
        "trouble": group.trouble,
        "lag": group.lag,
        "seconds": None if group.age_ms is None else group.age_ms / 1000,
        "exact": group.exact,
        "rate": group.rate,
        "trend": group.trend,
        "zero_s": group.zero_s,
    }


def letters_since(client: Client, routed: RoutedTopics, sample: Sample, since_ms: int) -> list[dict[str, Any]]:
    """Return the dead-letter topics, with the number of open letters that were written after a time.

    Return no topics if the letters cannot be counted, for example without authorization.
    """
    owners = routed.find(client, sample.topics)
    names = [name for name in sample.topics if name in owners or is_dead_letter_topic(name)][:LETTER_TOPICS_MAX]
    if not names:
        return []
    try:
        counts = count_letters(client, client.described(names).values(), since_ms, owners)
    except (KafkaError, ClientError):
        return []
    rows = [{"topic": name, "count": row.letters, "exact": row.exact} for name, row in counts.items()]
    return sorted(rows, key=lambda row: (-(row["count"] or 0), row["topic"]))


def named(sought: str, names: list[str]) -> list[str]:
    """Return the names that contain a text, ignoring case."""
    low = sought.lower()
    found = [name for name in names if low in name.lower()]
    return sorted(found, key=lambda name: (not name.lower().startswith(low), name.startswith("__"), name))
