"""Select the topics of a search, and fix the offset range of each partition before the search starts.

A topic without permission or a partition without a leader does not stop the search: it is reported with the reason.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.regex import compiled
from kafkalite.client.cluster import READ_UNCOMMITTED
from kafkalite.client.errors import UNREACHED, ClientError
from kafkalite.errors import KafkaError, UnknownTopicOrPartition
from kafkalite.model import NAME_CHARACTERS, OFFSET_EARLIEST, OFFSET_LATEST, OFFSET_MAX_TIMESTAMP, TopicPartition
from kafkalite.track.questions import split_names
from kafkalite.track.reach import Asked, Reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.client import Client
    from kafkalite.client.cluster import TopicDescription

INTERNAL: Final = "__"
"""Topics with this prefix are searched only by their exact names."""


class Snapshot(NamedTuple):
    """The offset ranges to search by partition, and the partitions that cannot be read."""

    asked: dict[TopicPartition, Asked]
    refused: list[Reach]

    @property
    def size(self) -> int:
        """The approximate size in bytes; -1 if a broker does not report it."""
        sizes = [row.size for row in self.asked.values() if row.end > row.start]
        return -1 if any(size < 0 for size in sizes) else sum(sizes)


class TopicFilter:
    """Selects topics by whole names, or by regular expressions (RE2) for whole names, separated by commas.

    Raises ValueError for an invalid filter.
    """

    def __init__(self, text: str) -> None:
        self.parts = split_names(text)
        if not self.parts:
            raise ValueError("no topic given")
        self._expressions = []
        for part in self.parts:
            try:
                self._expressions.append(compiled(part))
            except ValueError as error:
                raise ValueError(f"{part!r} is not a valid regular expression: {error}") from None

    def matches(self, name: str) -> bool:
        """Return whether a topic with this name is selected."""
        return any(
            name == part or (not name.startswith(INTERNAL) and expression.fullmatch(name))
            for part, expression in zip(self.parts, self._expressions, strict=True)
        )

    def without_topic(self, names: Iterable[str]) -> list[str]:
        """Return the names and expressions of this filter that match none of these topics."""
        listed = list(names)
        return [
            part
            for part, expression in zip(self.parts, self._expressions, strict=True)
            if not any(name == part or expression.fullmatch(name) for name in listed)
        ]


def topics_of(client: Client, topics: TopicFilter) -> tuple[dict[str, TopicDescription], list[Reach]]:
    """Return the selected topics, and the account of those that the client is not allowed to describe.

    Raises UnknownTopicOrPartition if a name or expression matches no topic.
    """
    known = client.with_retries(client.topics)
    found = {name: row for name, row in known.items() if topics.matches(name)}
    refused: list[Reach] = []
    for part in topics.without_topic(known):
        if not set(part) <= NAME_CHARACTERS:
            raise UnknownTopicOrPartition(f"no topic matches {part}")
        try:
            found[part] = client.topic(part)
        except UnknownTopicOrPartition:
            raise UnknownTopicOrPartition(f"topic {part} does not exist") from None
        except KafkaError as error:
            refused.append(Reach(part, -1, problem=fault_of(error)))
    return found, refused


def snapshot(client: Client, topics: TopicFilter, isolation: int, since: int | None = None) -> Snapshot:
    """Return the offset range to search in each partition.

    With `since` (ms since 1970), the range begins at the first record that is not older. It begins at the log start if
    no record has a timestamp. The range always ends at the partition's end, because timestamps do not always increase
    with offsets.
    """
    found, refused = topics_of(client, topics)
    keys, faults = reachable(client, found)
    starts = offsets_at(client, keys, OFFSET_EARLIEST, READ_UNCOMMITTED, faults)
    ends = offsets_at(client, keys, OFFSET_LATEST, isolation, faults)
    tops = ends if isolation == READ_UNCOMMITTED else offsets_at(client, keys, OFFSET_LATEST, READ_UNCOMMITTED, faults)
    firsts = starts if since is None else offsets_at(client, keys, since, READ_UNCOMMITTED, faults)
    timeless = without_times(client, [key for key, first in firsts.items() if first < 0], faults)
    sizes = sizes_of(client, keys)
    asked = {}
    for key in keys:
        if key in faults or key not in starts or key not in ends:
            continue
        begin, end, top = starts[key], ends[key], tops.get(key, ends[key])
        start = firsts.get(key, -1)
        if start < 0:
            start = begin if key in timeless else end  # no record is that new
        start = min(start, end)
        share = (end - start) / max(top - begin, 1)
        size = round(sizes[key] * min(share, 1.0)) if key in sizes else -1
        asked[key] = Asked(key, start, end, top, begin if start == begin and start < end else 0, size)
    refused += [Reach(key.topic, key.partition, problem=fault) for key, fault in sorted(faults.items())]
    return Snapshot(asked, refused)


def without_times(
    client: Client, keys: Iterable[TopicPartition], faults: dict[TopicPartition, str]
) -> set[TopicPartition]:
    """Return the partitions whose records have no timestamps: those in message format 0 or in Kafka 0.7's format."""
    return {
        key for key, at in offsets_at(client, keys, OFFSET_MAX_TIMESTAMP, READ_UNCOMMITTED, faults).items() if at < 0
    }


def reachable(
    client: Client, topics: Mapping[str, TopicDescription]
) -> tuple[list[TopicPartition], dict[TopicPartition, str]]:
    """Return the partitions with a leader, and the reason for each partition without one."""
    keys: list[TopicPartition] = []
    faults: dict[TopicPartition, str] = {}
    brokers = {broker.node_id for broker in client.brokers()}
    for name, topic in topics.items():
        for row in topic.partitions:
            key = TopicPartition(name, row.partition)
            if row.leader in brokers:
                keys.append(key)
            else:
                faults[key] = "it has no leader"
    return keys, faults


def offsets_at(
    client: Client, keys: Iterable[TopicPartition], stamp: int, isolation: int, faults: dict[TopicPartition, str]
) -> dict[TopicPartition, int]:
    """Return the offsets from ListOffsets. Partitions that fail are added to `faults`."""
    wanted = [key for key in keys if key not in faults]
    if not wanted:
        return {}
    try:
        found = client.list_offsets(dict.fromkeys(wanted, stamp), isolation=isolation)
    except (KafkaError, ClientError) as error:
        parts = parted(wanted)
        if len(parts) == 1:
            faults[wanted[0]] = fault_of(error)
            return {}
        return {
            key: offset for part in parts for key, offset in offsets_at(client, part, stamp, isolation, faults).items()
        }
    return {key: row.offset for key, row in found.items()}


def parted(keys: list[TopicPartition]) -> list[list[TopicPartition]]:
    """Split partitions by topic. If all partitions belong to one topic, return single partitions."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for key in keys:
        by_topic.setdefault(key.topic, []).append(key)
    return list(by_topic.values()) if len(by_topic) > 1 else [[key] for key in keys]


def fault_of(error: Exception) -> str:
    """Return the error in one sentence, with the name of its Kafka error code if it has one."""
    if isinstance(error, KafkaError):
        return f"{error} ({error.name})"
    return f"it cannot be reached: {error}" if isinstance(error, UNREACHED) else str(error)


def sizes_of(client: Client, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the bytes of partitions on their leaders' disks; empty without the permission."""
    try:
        return client.admin.partition_sizes(keys)
    except (KafkaError, ClientError):
        return {}
