"""Compute Kafka's hash of the topics that a consumer group reads (KIP-1101).

    topic   XXH3 of a zero byte, the id, the name and the number of partitions; then, for each partition, its number and
            the racks of its replicas, sorted
    group   XXH3 of the hashes of its existing topics, in the order of their names; 0 without any

When the hash changes, the group is assigned again. Java brokers compute the same hash, so a group keeps its assignment
when its coordinator moves to or from a Java broker.

Source: computeTopicHash and computeGroupHash of org.apache.kafka.coordinator.group.Utils, Kafka 4.1 and 4.4.

Thread rule: any thread. The cache has no lock: an entry is valid only for the topic state from which it was computed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkalite._native.serve.topic_table import Topic

_VERSION: Final = 0


class Racks(Protocol):
    """Looks up the racks of a topic's replicas."""

    def state_of(self, topic: Topic) -> object:
        """Return an object that represents the topic's current state. After every change of the topic, it is a
        different object.
        """

    def racks_of(self, topic: Topic) -> Sequence[Collection[str]]:
        """Return the racks of each partition's replicas. A broker without a rack is left out."""


class OwnRack:
    """The racks of a standalone broker, which has every replica."""

    def __init__(self, rack: str | None) -> None:
        self._racks = () if rack is None else (rack,)

    def state_of(self, topic: Topic) -> object:
        return topic

    def racks_of(self, topic: Topic) -> Sequence[Collection[str]]:
        return (self._racks,) * len(topic.partitions)


class MetadataHashes:
    """Computes the hashes of groups, and caches the hash of each topic until the topic changes."""

    def __init__(self, racks: Racks) -> None:
        self.racks = racks
        self._cache: dict[str, tuple[object, int]] = {}

    def of_topics(self, names: frozenset[str], topics: Mapping[str, Topic]) -> int:
        """Return the hash of a group that reads these topics. Topics that do not exist are ignored."""
        return group_hash([self._of_topic(topics[name]) for name in sorted(names & topics.keys())])

    def forget(self, name: str) -> None:
        """Drop the cached hash of a topic that was changed or deleted."""
        self._cache.pop(name, None)

    def _of_topic(self, topic: Topic) -> int:
        state = self.racks.state_of(topic)
        known = self._cache.get(topic.name)
        if known is not None and known[0] is state:
            return known[1]
        found = topic_hash(topic.name, topic.id, self.racks.racks_of(topic))
        self._cache[topic.name] = state, found
        return found


def topic_hash(name: str, topic_id: bytes, racks: Sequence[Collection[str]]) -> int:
    """Return the hash of a topic as a signed 64-bit number. `racks` has the racks of each partition's replicas.

    Numbers are little-endian. A topic id is written as two numbers of 64 bits. A string is written as its UTF-16 code
    units followed by their count; a rack has the count in front as well.
    """
    parts = [struct.pack("<bqq", _VERSION, *struct.unpack(">qq", topic_id)), _string(name), _int(len(racks))]
    for number, found in enumerate(racks):
        parts.append(_int(number))
        for rack in sorted(found, key=_java_order) if len(found) > 1 else found:
            string = _string(rack)
            parts += (string[-4:], string)
    return _xxh3(b"".join(parts))


def group_hash(hashes: Sequence[int]) -> int:
    """Return the hash of a group as a signed 64-bit number.

    `hashes` are the hashes of the group's topics, in the order of the topic names.
    """
    return _xxh3(struct.pack(f"<{len(hashes)}q", *hashes)) if hashes else 0


def _int(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _string(text: str) -> bytes:
    units = text.encode("utf-16-le")
    return units + _int(len(units) // 2)


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be")


def _xxh3(data: bytes) -> int:
    import xxhash  # only brokers with such a group load it

    unsigned = xxhash.xxh3_64_intdigest(data)
    return unsigned - (unsigned >> 63 << 64)
