"""Build the paths and encode the values of Kafka 0.7's nodes in ZooKeeper.

    /brokers/ids/<broker id>                              creator:host:port        ephemeral
    /brokers/topics/<topic>/<broker id>                   partition count          ephemeral
    /consumers/<group>/ids/<consumer id>                  subscription             ephemeral
    /consumers/<group>/owners/<topic>/<broker>-<part>     consumer thread id       ephemeral
    /consumers/<group>/offsets/<topic>/<broker>-<part>    next offset              persistent

Values are UTF-8. A host must not contain a colon, because colons separate the fields of a broker's value. Source:
`kafkalite.classic`, fact 3.

Pure: no I/O, no state.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from kafkalite.base.dataclass import dataclass
from kafkalite.zookeeper.topic_filter import filter_of

BROKER_IDS: Final = "/brokers/ids"
BROKER_TOPICS: Final = "/brokers/topics"
CONSUMERS: Final = "/consumers"

COUNT_MAX: Final = 100_000
"""The maximum partitions of a topic on one broker, or streams of a member. Node values are untrusted."""

_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_PARTITION: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")
_FILTER: Final = re.compile(r"([*!])([0-9]+)[*!](.*)", re.DOTALL)
_HOST: Final = re.compile(r"[^:/\s]+")


class NodeError(ValueError):
    """A node whose value does not have Kafka 0.7's format."""


class BrokerPartition(NamedTuple):
    """A partition of a topic on one broker. Its text is `<broker id>-<partition>`."""

    broker_id: int
    partition: int

    def __str__(self) -> str:
        return f"{self.broker_id}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> BrokerPartition:
        """Parse `<broker id>-<partition>`. NodeError if it is invalid."""
        found = _PARTITION.fullmatch(text)
        if found is None:
            raise NodeError(f"{text!r} is not of the form <broker id>-<partition>")
        return cls(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """The value of a broker's node.

    `creator` is different in each run of the broker. NodeError if the host contains a colon, slash or space.
    """

    broker_id: int
    creator: str
    host: str
    port: int

    def __post_init__(self) -> None:
        if _HOST.fullmatch(self.host) is None or _HOST.fullmatch(self.creator) is None:
            raise NodeError(f"a broker's host in ZooKeeper must not contain a colon, slash or space: {self.host!r}")

    @property
    def path(self) -> str:
        return broker_path(self.broker_id)

    def encode(self) -> bytes:
        return f"{self.creator}:{self.host}:{self.port}".encode()

    @classmethod
    def decode(cls, broker_id: int, value: bytes) -> BrokerNode:
        """Decode the value of a broker's node. NodeError if it is invalid. Fields after the third are ignored."""
        parts = value.decode("utf-8", "replace").split(":")
        if len(parts) < 3 or not _NUMBER.fullmatch(parts[2]):
            raise NodeError(f"the ZooKeeper node of broker {broker_id} is not of the form creator:host:port: {value!r}")
        return cls(broker_id, parts[0], parts[1], int(parts[2]))


def broker_path(broker_id: int) -> str:
    """Return the path of a broker's node."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the path of a topic's node. Its children are the ids of its brokers."""
    return f"{BROKER_TOPICS}/{topic}"


def topic_broker_path(topic: str, broker_id: int) -> str:
    """Return the path of the node that has a topic's number of partitions on one broker."""
    return f"{BROKER_TOPICS}/{topic}/{broker_id}"


def broker_number(name: str) -> int | None:
    """Return the broker id in the name of a node; None if the name is invalid."""
    return int(name) if _NUMBER.fullmatch(name) else None


def decode_count(value: bytes) -> int:
    """Decode a number of partitions. NodeError if it is invalid or above COUNT_MAX."""
    text = value.decode("ascii", "replace").strip()
    if not _NUMBER.fullmatch(text) or int(text) > COUNT_MAX:
        raise NodeError(f"not a partition count: {value[:80]!r}")
    return int(text)


def decode_offset(value: bytes) -> int:
    """Decode a stored offset. NodeError if it is invalid.

    Clients store -1 if they cannot reach the broker.
    """
    try:
        return int(value)
    except ValueError:
        raise NodeError(f"not an offset: {value!r}") from None


class GroupPaths:
    """The paths of a consumer group's nodes."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.root = f"{CONSUMERS}/{group}"
        self.ids = f"{self.root}/ids"
        self.owners = f"{self.root}/owners"
        self.offsets = f"{self.root}/offsets"

    def id_of(self, consumer_id: str) -> str:
        return f"{self.ids}/{consumer_id}"

    def owner(self, topic: str, partition: BrokerPartition) -> str:
        return f"{self.owners}/{topic}/{partition}"

    def topic_offsets(self, topic: str) -> str:
        return f"{self.offsets}/{topic}"

    def offset(self, topic: str, partition: BrokerPartition) -> str:
        return f"{self.offsets}/{topic}/{partition}"


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """A subscription to topics by name, with the number of streams for each topic."""

    streams: dict[str, int]

    def encode(self) -> bytes:
        pairs = ",".join(f"{_quoted(topic)}: {count}" for topic, count in self.streams.items())
        return f"{{ {pairs} }}".encode()

    def streams_of(self, topics: list[str], *, only_linear: bool = False) -> dict[str, int]:
        """Return the number of streams for each subscribed topic. The arguments are not used."""
        del topics, only_linear
        return dict(self.streams)


@dataclass(frozen=True, slots=True)
class FilterCounts:
    """A subscription to topics by a filter, with the same number of streams for each topic."""

    marker: str
    stream_count: int
    pattern: str

    def encode(self) -> bytes:
        return f"{self.marker}{self.stream_count}{self.marker}{self.pattern}".encode()

    def streams_of(self, topics: list[str], *, only_linear: bool = False) -> dict[str, int]:
        """Return the number of streams for each of `topics` that the filter allows.

        ValueError if the filter is invalid. With `only_linear`, also if matching it might take more than linear time.
        """
        chosen = filter_of(self.marker, self.pattern)
        if only_linear and not chosen.is_linear:
            raise ValueError(f"topic filter {self.pattern[:80]!r} is refused, as matching it may take exponential time")
        return {topic: self.stream_count for topic in topics if chosen.allows(topic)}


Subscription = TopicCounts | FilterCounts


def decode_subscription(value: bytes) -> Subscription:
    """Decode a consumer's subscription. NodeError if it is invalid, or has more than COUNT_MAX streams.

    Some old clients write only the name of a topic, which means one stream.
    """
    text = value.decode("utf-8", "replace").strip()
    found = _FILTER.fullmatch(text)
    if found is not None:
        if not _NUMBER.fullmatch(found[2]) or int(found[2]) > COUNT_MAX:
            raise NodeError(f"at most {COUNT_MAX} streams are allowed: {value[:80]!r}")
        return FilterCounts(found[1], int(found[2]), found[3])
    if not text.startswith("{"):
        if not text or any(character in text for character in '"{}[],'):
            raise NodeError(f"not a subscription: {value!r}")
        return TopicCounts({text: 1})
    try:
        streams = json.loads(text)
    except (ValueError, RecursionError):
        raise NodeError(f"not a subscription: {value[:80]!r}") from None
    if not all(isinstance(count, int) and not isinstance(count, bool) for count in streams.values()):
        raise NodeError(f"a subscription must map topics to stream counts: {value!r}")
    if any(count < 0 for count in streams.values()) or sum(streams.values()) > COUNT_MAX:
        raise NodeError(f"stream counts must be at least 0 and at most {COUNT_MAX} together: {value[:80]!r}")
    return TopicCounts(streams)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
