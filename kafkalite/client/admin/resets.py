"""Plan resets of a consumer group's offsets, as kafka-consumer-groups.sh does. `Groups.commit` applies a plan.

The module also parses files in the format of that tool's options --from-file and --export. Each line is
topic,partition,offset or group,topic,partition,offset.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kafkalite.client.cluster import Cluster

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
TIME: Final = "time"
OFFSET: Final = "offset"
SHIFT: Final = "shift"
OFFSET_DIGITS_MAX: Final = 18
TARGETS: Final = (EARLIEST, LATEST, TIME, OFFSET, SHIFT)


class Target(NamedTuple):
    """The position to which offsets are reset: one of TARGETS, with its value.

    The value is a time in ms since 1970, an offset, or a number of records to move (negative: back).
    """

    kind: str
    number: int = 0


class Reset(NamedTuple):
    """The reset of one partition: committed offset (None: none), new offset, and log start and end.

    `asked` is the requested offset before it was limited to the log.
    """

    partition: TopicPartition
    before: int | None
    after: int
    start: int
    end: int
    asked: int

    @classmethod
    def inside_log(cls, partition: TopicPartition, before: int | None, asked: int, start: int, end: int) -> Reset:
        """Build the reset to the requested offset `asked`, limited to the range from `start` to `end`."""
        return cls(partition, before, min(max(asked, start), end), start, end, asked)


def parse_offsets(text: str, group: str) -> dict[TopicPartition, int]:
    """Parse the lines of a file. Raises ValueError for an invalid line and for a line of another group."""
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(rows_of(text), 1):
        fields = [field.strip() for field in row]
        if not any(fields):
            continue
        if len(fields) == 4 and fields[0] != group:
            raise ValueError(f"line {number} is for group {fields[0]!r}, not {group!r}")
        *_, topic, partition, offset = fields if len(fields) in {3, 4} else ("", "", "", "")
        if not topic or not is_number(partition) or not is_number(offset):
            raise ValueError(f"line {number}: expected topic,partition,offset or group,topic,partition,offset")
        key = TopicPartition(topic, int(partition))
        if key in found:
            raise ValueError(f"line {number} repeats {key}")
        found[key] = int(offset)
    if not found:
        raise ValueError("no offsets found; expected lines of topic,partition,offset")
    return found


def rows_of(text: str) -> Iterator[list[str]]:
    """Split the lines at commas. Raises ValueError for invalid CSV."""
    reader = csv.reader(text.splitlines())
    try:
        yield from reader
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num} is not valid CSV: {error}") from None


def is_number(text: str) -> bool:
    """Return whether a field consists of 1 to OFFSET_DIGITS_MAX digits."""
    return text.isascii() and text.isdigit() and len(text) <= OFFSET_DIGITS_MAX


def plan_offsets(
    client: Cluster, offsets: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> list[Reset]:
    """Plan a reset of each partition to its own offset, limited to its log."""
    starts = client.list_offsets(dict.fromkeys(offsets, OFFSET_EARLIEST))
    ends = client.list_offsets(dict.fromkeys(offsets, OFFSET_LATEST))
    return [
        Reset.inside_log(key, committed.get(key), offset, starts[key].offset, ends[key].offset)
        for key, offset in sorted(offsets.items())
    ]


def plan_reset(
    client: Cluster, keys: Iterable[TopicPartition], committed: Mapping[TopicPartition, int], target: Target
) -> list[Reset]:
    """Plan a reset of each partition, limited to its log. Raises ValueError for a shift without a committed offset."""
    wanted = list(keys)
    starts = client.list_offsets(dict.fromkeys(wanted, OFFSET_EARLIEST))
    ends = client.list_offsets(dict.fromkeys(wanted, OFFSET_LATEST))
    times = client.list_offsets(dict.fromkeys(wanted, target.number)) if target.kind == TIME else {}
    missing = [str(key) for key in wanted if key not in committed] if target.kind == SHIFT else []
    if missing:
        raise ValueError(f"no committed offset for {', '.join(missing)}")
    found = []
    for key in wanted:
        start, end = starts[key].offset, ends[key].offset
        if target.kind == EARLIEST:
            offset = start
        elif target.kind == LATEST:
            offset = end
        elif target.kind == TIME:
            offset = times[key].offset if times[key].offset >= 0 else end
        elif target.kind == OFFSET:
            offset = target.number
        else:
            offset = committed[key] + target.number
        found.append(Reset.inside_log(key, committed.get(key), offset, start, end))
    return found
