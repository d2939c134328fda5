"""Convert positions to JSON: {"topic": {"0": 17}}, with the same text for the same positions.

The text must be the same because Spark compares the offsets of a stream as text, and people compare manifests. Pure
functions; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    Positions = Mapping[TopicPartition, int]

INT32_MAX: Final = 2**31 - 1


def to_json(positions: Positions) -> dict[str, dict[str, int]]:
    """Return {"topic": {"0": 17}} with topics sorted by name and partitions by number."""
    found: dict[str, dict[str, int]] = {}
    for key in sorted(positions):
        found.setdefault(key.topic, {})[str(key.partition)] = positions[key]
    return found


def from_json(value: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Parse the result of `to_json`, in any order. ValueError for anything else."""
    found = {}
    for topic, numbers in value.items():
        if not isinstance(numbers, dict):
            raise ValueError(f"{topic!r} needs an object of partitions and offsets, not {numbers!r}")  # noqa: TRY004  # a text is wrong, not a program
        for partition, offset in numbers.items():
            if not partition.isascii() or not partition.isdigit() or int(partition) > INT32_MAX:
                raise ValueError(f"{topic!r}: {partition!r} is not a partition number")
            if type(offset) is not int or offset < 0:
                raise ValueError(f"{topic}-{partition}: {offset!r} is not an offset")
            found[TopicPartition(topic, int(partition))] = offset
    return found
