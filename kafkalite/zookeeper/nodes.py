"""Build the paths and encode the values of Kafka 0.7's ZooKeeper nodes. Pure functions, without I/O.

    /brokers/ids/<broker id>                              creator:host:port        ephemeral
    /brokers/topics/<topic>/<broker id>                   partition count          ephemeral
    /consumers/<group>/ids/<consumer id>                  subscription             ephemeral
    /consumers/<group>/owners/<topic>/<broker>-<part>     consumer thread id       ephemeral
    /consumers/<group>/offsets/<topic>/<broker>-<part>    next offset              persistent

Values are UTF-8. The fields of a broker's value are separated by colons, so a host must not contain one. Source:
`kafkalite.classic`, fact 3.
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
    """A node's value does not have 0.7's format."""


class BrokerPartition(NamedTuple):
    """One partition of a topic on a broker. Its text is `<broker id>-<partition>`."""

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
    """The value of a broker's node `/brokers/ids/<broker_id>`. `creator` distinguishes the runs of a broker."""

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
        """Decode the first three fields; further ones are ignored. NodeError if one is missing."""
        parts = value.decode("utf-8", "replace").split(":")
        if len(parts) < 3 or not _NUMBER.fullmatch(parts[2]):
            raise NodeError(f"the ZooKeeper node of broker {broker_id} is not of the form creator:host:port: {value!r}")
        return cls(broker_id, parts[0], parts[1], int(parts[2]))


def broker_path(broker_id: int) -> str:
    """Return the path of a broker's node."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the path of a topic, whose children are its brokers."""
    return f"{BROKER_TOPICS}/{topic}"


def topic_broker_path(topic: str, broker_id: int) -> str:
    """Return the path of the node with a broker's partition count for a topic."""
    return f"{BROKER_TOPICS}/{topic}/{broker_id}"


def broker_number(name: str) -> int | None:
    """Return the broker id in a node's name, None if it is invalid."""
    return int(name) if _NUMBER.fullmatch(name) else None


def decode_count(value: bytes) -> int:
    """Decode a partition count. NodeError if it is invalid or exceeds COUNT_MAX."""
    text = value.decode("ascii", "replace").strip()
    if not _NUMBER.fullmatch(text) or int(text) > COUNT_MAX:
        raise NodeError(f"not a partition count: {value[:80]!r}")
    return int(text)


def decode_offset(value: bytes) -> int:
    """Decode a stored offset. NodeError if it is invalid. A stored -1 means that the broker could not be reached."""
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
    """A subscription to named topics: the number of streams for each."""

    streams: dict[str, int]

    def encode(self) -> bytes:
        pairs = ",".join(f"{_quoted(topic)}: {count}" for topic, count in self.streams.items())
        return f"{{ {pairs} }}".encode()

    def streams_of(self, topics: list[str], *, only_linear: bool = False) -> dict[str, int]:
        """Return the number of streams for each topic. `topics` is not used."""
        del topics, only_linear
        return dict(self.streams)


@dataclass(frozen=True, slots=True)
class FilterCounts:
    """A subscription by filter, with the same number of streams for each topic that the filter allows."""

    marker: str
    stream_count: int
    pattern: str

    def encode(self) -> bytes:
        return f"{self.marker}{self.stream_count}{self.marker}{self.pattern}".encode()

    def streams_of(self, topics: list[str], *, only_linear: bool = False) -> dict[str, int]:
        """Return the number of streams for each of `topics` that the filter allows.

        ValueError if the filter is invalid or, with `only_linear`, might take more than linear time.
        """
        chosen = filter_of(self.marker, self.pattern)
        if only_linear and not chosen.is_linear:
            raise ValueError(f"topic filter {self.pattern[:80]!r} is refused, as matching it may take exponential time")
        return {topic: self.stream_count for topic in topics if chosen.allows(topic)}


Subscription = TopicCounts | FilterCounts


def decode_subscription(value: bytes) -> Subscription:
    """Decode a consumer's subscription. NodeError if it has neither form, or more than COUNT_MAX streams.

    Some old clients write only the name of their topic: it means one stream.
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
