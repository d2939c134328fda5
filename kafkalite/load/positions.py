"""Convert positions (offsets by partition) to and from JSON: {"topic": {"0": 17}}.

Equal positions always have the same text. Spark requires this, because it compares the offsets of a stream as text.

Thread rule: pure functions; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    Positions = Mapping[TopicPartition, int]

INT32_MAX: Final = 2**31 - 1


def to_json(positions: Positions) -> dict[str, dict[str, int]]:
    """Return positions as {"topic": {"0": 17}}, sorted by topic and partition."""
    found: dict[str, dict[str, int]] = {}
    for key in sorted(positions):
        found.setdefault(key.topic, {})[str(key.partition)] = positions[key]
    return found


def from_json(value: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Parse positions from {"topic": {"0": 17}}. ValueError if `value` has another form."""
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
