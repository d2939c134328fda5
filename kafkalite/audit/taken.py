"""Report and collect the ranges of offsets that consumers processed, by stage, cluster and partition.

    topic   kafkalite.audit, as for producers' counts, on the cluster from which the consumer reads
    key     taken/STAGE/TOPIC/PARTITION/FIRST
    value   {"version": 1, "taken": "billing", "cluster": "id of the cluster", "topic": "logs", "partition": 0,
             "ranges": [[first offset, end), …]}                                                             JSON

A stage of consumers consists of the records in these ranges.

A report is sent after its offsets are committed. The commit's metadata can contain the same ranges, up to 4000 bytes.
After a crash between commit and report, the partition's next consumer reads the metadata and sends the report.

Thread rule: one thread at a time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalite.audit.events import INT64_MAX, VERSION, number
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

PREFIX: Final = "kafkalite.audit/1 "
"""The beginning of the metadata of a commit."""
METADATA_SIZE_MAX: Final = 4000
"""Brokers accept 4096 bytes (offset.metadata.max.bytes)."""
RANGES_MAX: Final = 5000
"""The most ranges of a report, about 200 KiB of JSON; further ranges go into the next one."""


class Spans:
    """A set of integers, as ranges [first, end) that neither touch nor overlap."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.ranges: list[tuple[int, int]] = []
        self._waiting: list[tuple[int, int]] = list(ranges)
        self._settle()

    def __bool__(self) -> bool:
        return bool(self.ranges or self._waiting)

    def add(self, first: int, end: int) -> None:
        """Add the numbers from `first` to before `end`."""
        if self._waiting and self._waiting[-1][1] == first:
            self._waiting[-1] = (self._waiting[-1][0], end)
        else:
            self._waiting.append((first, end))
        if len(self._waiting) > RANGES_MAX:
            self._settle()

    def add_offsets(self, offsets: NDArray[np.int64]) -> None:
        """Add sorted numbers."""
        if len(offsets):
            cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
            starts, ends = offsets[np.concatenate(([0], cuts))], offsets[np.concatenate((cuts - 1, [len(offsets) - 1]))]
            for first, last in zip(starts.tolist(), ends.tolist(), strict=True):
                self.add(first, last + 1)

    def all(self) -> list[tuple[int, int]]:
        """Return the ranges in order."""
        self._settle()
        return self.ranges

    def below(self, end: int) -> list[tuple[int, int]]:
        """Return the ranges below `end`."""
        return [(first, min(stop, end)) for first, stop in self.all() if first < end]

    def drop_below(self, end: int) -> None:
        """Remove the numbers below `end`."""
        self.ranges = [(max(first, end), stop) for first, stop in self.all() if stop > end]

    def has(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these numbers are in the set."""
        rows = np.array(self.all(), np.int64).reshape(-1, 2)
        if not len(rows):
            return np.zeros(len(numbers), np.bool_)
        at = np.searchsorted(rows[:, 0], numbers, "right") - 1
        found: NDArray[np.bool_] = (at >= 0) & (numbers < rows[np.maximum(at, 0), 1])
        return found

    def _settle(self) -> None:
        if not self._waiting:
            return
        merged: list[tuple[int, int]] = []
        for first, end in sorted([*self.ranges, *self._waiting]):
            if merged and first <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            elif end > first:
                merged.append((first, end))
        self.ranges, self._waiting = merged, []


# --- the consumer's side ----------------------------------------------------------------------------------------------


class TakenTally:
    """The offsets that one consumer processed, until they are committed and reported.

    `stage`    the name of the stage, by default the group's
    `cluster`  the id of the cluster that is read; None for the cluster that contains the reports
    """

    def __init__(self, stage: str, cluster: str | None = None) -> None:
        if not stage or "=" in stage or stage in {"live", "mirror", "offline", "loaded"}:
            raise ValueError(f"invalid name of a consumer stage: {stage!r}")
        self.stage = stage
        self.cluster = cluster
        self._taken: dict[TopicPartition, Spans] = {}
        self._unsent: list[Record] = []

    def knows(self, key: TopicPartition) -> bool:
        """Return whether `begin` or `took` was called for a partition."""
        return key in self._taken

    def begin(self, key: TopicPartition, metadata: str | None) -> None:
        """Start a newly assigned partition.

        Ranges in the metadata of its last commit are reported again, which is harmless.
        """
        self._taken[key] = Spans()
        self._report(key, spans_of_metadata(metadata))

    def took(self, key: TopicPartition, offsets: NDArray[np.int64]) -> None:
        """Add records that were returned to the program, by their sorted offsets."""
        self._taken.setdefault(key, Spans()).add_offsets(offsets)

    def took_one(self, key: TopicPartition, offset: int) -> None:
        """Add a record that was returned to the program."""
        self._taken.setdefault(key, Spans()).add(offset, offset + 1)

    def took_range(self, key: TopicPartition, first: int, end: int) -> None:
        """Add all records from `first` to before `end`: they were returned to the program."""
        self._taken.setdefault(key, Spans()).add(first, end)

    def metadata(self, key: TopicPartition, offset: int) -> str:
        """Return the metadata for a commit of this offset."""
        return metadata_of(self._taken[key].below(offset)) if key in self._taken else ""

    def committed(self, key: TopicPartition, offset: int) -> None:
        """Store a committed offset. Ranges below it can then be reported."""
        spans = self._taken.get(key)
        if spans is not None:
            self._report(key, spans.below(offset))
            spans.drop_below(offset)

    def reports(self) -> list[Record]:
        """Return the new reports as records for the audit topic, in order. Sending a report twice is harmless."""
        records, self._unsent = self._unsent, []
        return records

    def put_back(self, records: list[Record]) -> None:
        """Take back reports that could not be sent."""
        self._unsent = records + self._unsent

    def _report(self, key: TopicPartition, ranges: list[tuple[int, int]]) -> None:
        for at in range(0, len(ranges), RANGES_MAX):
            part = ranges[at : at + RANGES_MAX]
            fields = {
                "version": VERSION,
                "taken": self.stage,
                "cluster": self.cluster,
                "topic": key.topic,
                "partition": key.partition,
                "ranges": part,
            }
            name = f"taken/{self.stage}/{key.topic}/{key.partition}/{part[0][0]}"
            value = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
            self._unsent.append(Record(-1, -1, name.encode(), value.encode()))


def metadata_of(ranges: list[tuple[int, int]]) -> str:
    """Encode ranges as short text: for each range, the gap before it and its length.

    Ranges beyond the size limit are omitted.
    """
    parts, size, before = [], len(PREFIX), 0
    for first, end in ranges:
        part = f"{first - before}+{end - first}"
        size += len(part) + 1
        if size > METADATA_SIZE_MAX:
            break
        parts.append(part)
        before = end
    return PREFIX + ",".join(parts) if parts else ""


def spans_of_metadata(text: str | None) -> list[tuple[int, int]]:
    """Decode the text of `metadata_of`. For any other text, return an empty list."""
    if text is None or not text.startswith(PREFIX):
        return []
    found, reached = [], 0
    try:
        for part in text.removeprefix(PREFIX).split(","):
            ahead, _, length = part.partition("+")
            first = reached + number(int(ahead))
            reached = first + number(int(length))
            found.append((first, number(reached)))
    except ValueError:
        return []
    return found


# --- the audit's side -------------------------------------------------------------------------------------------------


class Taken:
    """The consumers' reports for some stages: (stage, cluster) → partition → spans. Reports for other stages are
    ignored.

    A record that is read again counts once. A message that is in the log twice has two offsets, so the audit reports
    it as duplicated.
    """

    def __init__(self, stages: Iterable[str]) -> None:
        self._stages = frozenset(stages)
        self.spans: dict[tuple[str, str], dict[TopicPartition, Spans]] = {}

    def add_message(self, value: bytes | None, cluster: str | None) -> bool:
        """Add a message of this cluster's audit topic if it is a report. Return whether it is a valid report."""
        if value is None or b'"taken"' not in value:
            return False
        try:
            fields = json.loads(value)
            key, ranges = report_of(fields)
        except (KeyError, TypeError, ValueError, RecursionError):
            return False
        if fields["taken"] in self._stages:
            about = fields.get("cluster") or cluster or ""
            spans = self.spans.setdefault((fields["taken"], about), {}).setdefault(key, Spans())
            for first, end in ranges:
                spans.add(first, end)
        return True

    def of(self, stage: str, cluster: str | None) -> Mapping[TopicPartition, Spans]:
        """Return the offsets of a cluster that the consumers of a stage processed."""
        return self.spans.get((stage, cluster or ""), {})


def report_of(fields: Any) -> tuple[TopicPartition, list[tuple[int, int]]]:
    """Decode a report's JSON. Raises ValueError, KeyError and TypeError."""
    if fields["version"] != VERSION or not isinstance(fields["taken"], str):
        raise ValueError("the message is not a report")
    ranges = [(number(first), number(end)) for first, end in fields["ranges"]]
    return TopicPartition(str(fields["topic"]), number(fields["partition"], least=0) & INT64_MAX), ranges
