"""Narrow the offset ranges of a query by its filters on topic, partition, offset and timestamp.

    partition IN (0, 1) AND offset >= 500 AND timestamp > '…' ─▶ narrowed ─▶ Narrowing ─▶ smaller ranges

Spark still applies all filters to every row. So if this module ignores a filter, the query only takes longer.

Filters are PySpark's (`pyspark.sql.datasource.EqualTo` and others). They are recognized by class name, so this module
does not need PySpark.

Thread rule: pure functions and frozen values.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.load.selection import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.model import TopicPartition

    Positions = Mapping[TopicPartition, int]

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The topics, partitions, offsets and times that may have matching rows. None means no restriction."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_from: int = 0
    offset_end: int = INT64_MAX
    """Exclusive. No record has the largest possible offset."""
    time_from_ms: int = 0
    """Older records do not match; 0: no limit."""

    def wants(self, key: TopicPartition) -> bool:
        """Return whether a partition may have matching rows."""
        return (self.topics is None or key.topic in self.topics) and (
            self.partitions is None or key.partition in self.partitions
        )

    def apply(
        self, starts: Positions, ends: Positions, look_up: Callable[[Positions], Positions]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the start and end offsets of the wanted partitions.

        `look_up` returns the offset of the first record at or after a time, for each partition.
        """
        kept = {key: max(start, self.offset_from) for key, start in starts.items() if self.wants(key)}
        cut = {key: min(ends[key], self.offset_end) for key in kept}
        asked = {key: self.time_from_ms for key, start in kept.items() if start < cut[key]}
        if self.time_from_ms > 0 and asked:
            for key, first in look_up(asked).items():
                kept[key] = max(kept[key], first) if first >= 0 else cut[key]
        return kept, cut


def narrowed(filters: Iterable[Any]) -> Narrowing:
    """Return the narrowing by all of these filters."""
    found = Narrowing()
    for each in filters:
        column: tuple[str, ...] = getattr(each, "attribute", ())
        rule = RULES.get(column[0]) if len(column) == 1 else None
        if rule is not None:
            found = rule(found, type(each).__name__, getattr(each, "value", None))
    return found


def values_of(kind: str, value: Any, wanted: type) -> list[Any] | None:
    """Return the values of an equality or IN filter; None for another filter, or for values of another type."""
    if kind in {"EqualTo", "EqualNullSafe"}:
        values = [value]
    elif kind == "In":
        values = [one for one in value if one is not None]
    else:
        return None
    return values if all(type(one) is wanted for one in values) else None


def by_topic(found: Narrowing, kind: str, value: Any) -> Narrowing:
    """Narrow by topic = 'a' or topic IN ('a', 'b')."""
    values = values_of(kind, value, str)
    if values is None:
        return found
    return replace(found, topics=frozenset(values) if found.topics is None else found.topics & set(values))


def by_partition(found: Narrowing, kind: str, value: Any) -> Narrowing:
    """Narrow by partition = 0 or partition IN (0, 1)."""
    values = values_of(kind, value, int)
    if values is None:
        return found
    return replace(found, partitions=frozenset(values) if found.partitions is None else found.partitions & set(values))


def by_offset(found: Narrowing, kind: str, value: Any) -> Narrowing:
    """Narrow by a comparison of offset with a number, or by a list."""
    first, end = interval(kind, value, values_of(kind, value, int), int)
    return replace(
        found,
        offset_from=found.offset_from if first is None else max(found.offset_from, first),
        offset_end=found.offset_end if end is None else min(found.offset_end, end),
    )


def by_timestamp(found: Narrowing, kind: str, value: Any) -> Narrowing:
    """Narrow by a lower bound of the records' timestamps.

    All records before the first record that is new enough are too old. An upper bound narrows nothing, because older
    records may follow a record that is too new.
    """
    first, _ = interval(kind, value, values_of(kind, value, dt.datetime), dt.datetime)
    return found if first is None else replace(found, time_from_ms=max(found.time_from_ms, first))


def interval(kind: str, value: Any, values: list[Any] | None, wanted: type) -> tuple[int | None, int | None]:
    """Return (first, end) of the integers that match: offsets, or ms since 1970. None means no bound."""
    if values is None:
        if kind not in COMPARISONS or type(value) is not wanted:
            return None, None
        values = [value]
    elif not values:
        return INT64_MAX, None  # nothing passes
    exact = [microseconds(one) for one in values] if wanted is dt.datetime else [1000 * one for one in values]
    if any(one is None for one in exact):
        return None, None
    low, high = min(exact), max(exact)  # in thousandths
    first = low // 1000 + 1 if kind == "GreaterThan" else -(-low // 1000)
    end = -(-high // 1000) if kind == "LessThan" else high // 1000 + 1
    return (None if kind.startswith("LessThan") else first), (None if kind.startswith("GreaterThan") else end)


def microseconds(moment: dt.datetime) -> Any:
    """Return microseconds since 1970. Return None for a time without a zone, which is ambiguous."""
    return None if moment.tzinfo is None else (moment - EPOCH) // dt.timedelta(microseconds=1)


COMPARISONS: Final = ("GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual")
RULES: Final = {"topic": by_topic, "partition": by_partition, "offset": by_offset, "timestamp": by_timestamp}
"""Column → function that narrows by a filter of it."""
