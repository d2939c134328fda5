"""Select the partitions that a load or a Spark query reads, and the offsets at which it starts and ends.

    Subscription ─▶ discover ─▶ partitions_of
    OffsetBound (earliest, offsets, times) ─▶ resolve ─▶ an offset in each partition

Thread rule: functions and immutable values. An Offsets belongs to the thread of its Client.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, ZERO_UUID, TopicPartition, topic_name_error, uuid_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.client import Client, TopicDescription

    Positions = Mapping[TopicPartition, int]

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class OptionError(ValueError):
    """An invalid option. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions to read. Exactly one of `assigned`, `topics` and `pattern` is set."""

    assigned: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    whole_name: bool = False
    """Whether the pattern must match the whole name."""

    def wants(self, topic: str) -> bool:
        """Return whether a topic is read.

        The pattern may match a part of the name, as in Spark's Kafka connector, unless `whole_name` is set.
        """
        if self.pattern is not None:
            match = re.fullmatch if self.whole_name else re.search
            return match(self.pattern, topic) is not None
        return topic in self.topics or any(key.topic == topic for key in self.assigned)


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """The start or end of ranges, before its offsets are looked up. Exactly one of the first three fields is set."""

    everywhere: int | None = None
    """OFFSET_EARLIEST or OFFSET_LATEST in all partitions."""
    offsets: Mapping[TopicPartition, int] | None = None
    """By partition: an offset, OFFSET_EARLIEST or OFFSET_LATEST."""
    timestamps: int | Mapping[TopicPartition, int] | None = None
    """The first record with at least this timestamp, in ms since 1970: for all partitions, or by partition."""
    option: str = field(default="a bound", compare=False)
    """The option that set the bound, for messages."""


# --- in a cluster -----------------------------------------------------------------------------------------------------


def discover(client: Client, subscription: Subscription) -> dict[str, TopicDescription]:
    """Return the topics to read, by name.

    Raises UnknownTopicOrPartition for an unknown topic, and OptionError for a partition that does not exist.
    """
    if subscription.pattern is not None:
        found = client.topics()
        return {name: row for name, row in found.items() if not row.is_internal and subscription.wants(name)}
    names = subscription.topics or sorted({key.topic for key in subscription.assigned})
    described = {name: client.topic(name) for name in names}
    for key in subscription.assigned:
        count = len(described[key.topic].partitions)
        if key.partition >= count:
            raise OptionError(
                f"option assign: topic {key.topic} has no partition {key.partition} (partition count: {count})"
            )
    return described


def partitions_of(subscription: Subscription, topics: Mapping[str, TopicDescription]) -> list[TopicPartition]:
    """Return the partitions to read, sorted by topic and number."""
    if subscription.assigned:
        return list(subscription.assigned)
    return [TopicPartition(name, row.partition) for name in sorted(topics) for row in topics[name].partitions]


def ids_of(topics: Mapping[str, Any]) -> dict[str, str]:
    """Return the topic ids as text, by topic name. Topics of brokers without topic ids are omitted."""
    return {name: uuid_text(row.topic_id) for name, row in topics.items() if row.topic_id != ZERO_UUID}


class Offsets:
    """A lookup of offsets that caches its results, so that repeated lookups are consistent."""

    def __init__(self, client: Client, isolation: int) -> None:
        self._client = client
        self._isolation = isolation
        self._known: dict[tuple[TopicPartition, int], int] = {}

    def __call__(self, stamps: Positions) -> dict[TopicPartition, int]:
        """Look up an offset for each partition.

        `stamps` has a time in ms, OFFSET_EARLIEST or OFFSET_LATEST for each partition. The offset is -1 if no record
        has that time or a later one.
        """
        asked = {key: at for key, at in stamps.items() if (key, at) not in self._known}
        if asked:
            answers = self._client.list_offsets(asked, isolation=self._isolation)
            self._known |= {(key, asked[key]): row.offset for key, row in answers.items()}
        return {key: self._known[key, at] for key, at in stamps.items()}


def resolve(
    bound: OffsetBound,
    partitions: Iterable[TopicPartition],
    look_up: Callable[[Positions], Positions],
    *,
    missing: str,
) -> dict[TopicPartition, int]:
    """Return the offset of a bound in each partition.

    `look_up` returns offsets for times in ms, OFFSET_EARLIEST or OFFSET_LATEST. If a time is later than all records,
    `missing` decides: "error" raises OptionError, and "latest" returns the end.
    """
    keys = sorted(partitions)
    if bound.everywhere is not None:
        return dict(look_up(dict.fromkeys(keys, bound.everywhere)))
    if bound.offsets is not None:
        require_same(bound.option, keys, bound.offsets)
        markers = {key: offset for key, offset in bound.offsets.items() if offset < 0}
        return {**bound.offsets, **(look_up(markers) if markers else {})}
    assert bound.timestamps is not None, "a bound is one of three"
    if isinstance(bound.timestamps, int):
        stamps = dict.fromkeys(keys, bound.timestamps)
    else:
        require_same(bound.option, keys, bound.timestamps)
        stamps = dict(bound.timestamps)
    found = dict(look_up(stamps))
    late = [key for key in keys if found[key] < 0]
    if late and missing == "error":
        raise OptionError(
            f"option {bound.option}: {late[0]} has no record at or after {stamps[late[0]]} ms; "
            "set startingOffsetsByTimestampStrategy to latest to start at the end instead"
        )
    return {**found, **(look_up(dict.fromkeys(late, OFFSET_LATEST)) if late else {})}


def require_same(name: str, wanted: Iterable[TopicPartition], given: Iterable[TopicPartition]) -> None:
    """Raise OptionError unless an option names exactly the partitions that are read."""
    expected, named = set(wanted), set(given)
    if expected - named:
        raise OptionError(
            f"option {name} leaves out {min(expected - named)}; it must contain every partition that is read "
            "(-2: earliest offset, -1: latest)"
        )
    if named - expected:
        raise OptionError(f"option {name} contains {min(named - expected)}, which the query does not read")


def beyond_the_end(starting: OffsetBound, starts: Positions, ends: Positions) -> list[str]:
    """Return a sentence for each partition whose start is after its end."""
    return [
        f"option {starting.option}: {key} starts at offset {starts[key]}, after its end {ends[key]}"
        for key in sorted(ends)
        if starts[key] > ends[key]
    ]


# --- as text ----------------------------------------------------------------------------------------------------------


def offset_bound(name: str, text: str | None, default: int) -> OffsetBound:
    """Parse the option `name`: "earliest", "latest", or JSON with offsets by partition. OptionError.

    `default` applies if the option is not set.
    """
    if text is None:
        return OffsetBound(everywhere=default, option=name)
    words = {"earliest": OFFSET_EARLIEST, "latest": OFFSET_LATEST}
    if text.strip().lower() in words:
        return OffsetBound(everywhere=words[text.strip().lower()], option=name)
    return OffsetBound(offsets=partition_numbers(name, text, OFFSET_EARLIEST), option=name)


def assigned_partitions(text: str) -> tuple[TopicPartition, ...]:
    """Parse the option assign, such as {"topic": [0, 1]}. OptionError if it is invalid.

    The result is sorted and has no duplicates.
    """
    example = 'expected {"topic": [0, 1]}'
    found = set()
    for topic, numbers in json_object("assign", text, example).items():
        require_topic("assign", topic)
        if not isinstance(numbers, list):
            raise OptionError(f"option assign: the partitions of {topic} must be a list; {example}")
        for number in numbers:
            if type(number) is not int or not 0 <= number <= INT32_MAX:
                raise OptionError(f"option assign: {number!r} is not a partition number of {topic}")
            found.add(TopicPartition(topic, number))
    if not found:
        raise OptionError("option assign contains no partition")
    return tuple(sorted(found))


def partition_numbers(name: str, text: str, low: int) -> dict[TopicPartition, int]:
    """Parse an option with a number for each partition, such as {"topic": {"0": 17}}.

    OptionError if it is invalid or a number is below `low`.
    """
    example = 'expected {"topic": {"0": 17}}'
    found = {}
    for topic, numbers in json_object(name, text, example).items():
        require_topic(name, topic)
        if not isinstance(numbers, dict):
            raise OptionError(f"option {name}: the value of {topic} must be an object; {example}")
        for partition, number in numbers.items():
            if not re.fullmatch(r"[0-9]{1,10}", partition) or int(partition) > INT32_MAX:
                raise OptionError(f"option {name}: {partition!r} is not a partition number of {topic}")
            key = TopicPartition(topic, int(partition))
            if key in found:
                raise OptionError(f"option {name} contains {key} twice")
            if type(number) is not int or not low <= number <= INT64_MAX:
                raise OptionError(f"option {name}: {key} must be a number of at least {low}, not {number!r}")
            found[key] = number
    return found


def json_object(name: str, text: str, example: str) -> dict[str, Any]:
    """Parse an option that is a JSON object. OptionError if it is invalid or has a duplicate key."""
    try:
        value = json.loads(text, object_pairs_hook=once_each)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"option {name} is not valid JSON ({error}); {example}") from None
    if not isinstance(value, dict):
        raise OptionError(f"option {name} must be a JSON object; {example}")
    return value


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Convert the pairs of a JSON object to a dict. ValueError for a duplicate key, because a value would be lost."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def require_topic(name: str, topic: str) -> None:
    """Raise OptionError if an option contains an invalid topic name."""
    why = topic_name_error(topic)
    if why is not None:
        raise OptionError(f"option {name}: {why}")
