"""What consumers say they took: ranges of offsets, by stage, cluster and partition.

    topic   kafkalite.audit, beside the increments, on the cluster that the consumer reads from
    key     taken/STAGE/TOPIC/PARTITION/FIRST
    value   {"version": 1, "taken": "billing", "cluster": "id of the cluster", "topic": "logs", "partition": 0,
             "ranges": [[first offset, end), …]}                                                             JSON

A stage of consumers is the records that stand in these ranges. Ranges are sets, not counts: a record that was read
again after a crash, or after a seek, is in one of them once more and is there once all the same. A message that stands
twice in the log has two offsets, so it is two records of the stage too: that is duplicated data, and a second reading
is not. A record that a consumer never got, though it got others around it, is in no range.

    took ─▶ spans of offsets ──commit──▶ metadata of the commit: these spans ─▶ committed ─▶ report
                                                       └─ its reader died before that: who follows reports them

Reports are sent when offsets are committed, not before. The commit itself carries the same spans in its metadata, so a
crash between commit and report loses nothing: whoever gets the partition next reads them there, and reports them.

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
"""What the metadata of a commit begins with."""
METADATA_SIZE_MAX: Final = 4000
"""Brokers take 4096 bytes (offset.metadata.max.bytes)."""
RANGES_MAX: Final = 5000
"""Of a report: some 200 KiB of JSON; what is more goes into the next one."""


class Spans:
    """A set of whole numbers, as ranges [first, end) that neither touch nor overlap."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.ranges: list[tuple[int, int]] = []
        self._waiting: list[tuple[int, int]] = list(ranges)
        self._settle()

    def __bool__(self) -> bool:
        return bool(self.ranges or self._waiting)

    def add(self, first: int, end: int) -> None:
        """The numbers from `first` up to, not including, `end`."""
        if self._waiting and self._waiting[-1][1] == first:
            self._waiting[-1] = (self._waiting[-1][0], end)
        else:
            self._waiting.append((first, end))
        if len(self._waiting) > RANGES_MAX:
            self._settle()

    def add_offsets(self, offsets: NDArray[np.int64]) -> None:
        """Numbers in order."""
        if len(offsets):
            cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
            starts, ends = offsets[np.concatenate(([0], cuts))], offsets[np.concatenate((cuts - 1, [len(offsets) - 1]))]
            for first, last in zip(starts.tolist(), ends.tolist(), strict=True):
                self.add(first, last + 1)

    def all(self) -> list[tuple[int, int]]:
        """In order."""
        self._settle()
        return self.ranges

    def below(self, end: int) -> list[tuple[int, int]]:
        """What is less than `end`."""
        return [(first, min(stop, end)) for first, stop in self.all() if first < end]

    def drop_below(self, end: int) -> None:
        """Forgets what is less than `end`."""
        self.ranges = [(max(first, end), stop) for first, stop in self.all() if stop > end]

    def has(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these are in the set."""
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
    """What one consumer took, until it is committed and reported.

    `stage`    the name of the stage, that of the group where nothing else is said
    `cluster`  the id of the cluster that is read from; None: of the cluster where the reports are
    """

    def __init__(self, stage: str, cluster: str | None = None) -> None:
        if not stage or "=" in stage or stage in {"live", "mirror", "offline", "loaded"}:
            raise ValueError(f"invalid name of a consumer stage: {stage!r}")
        self.stage = stage
        self.cluster = cluster
        self._taken: dict[TopicPartition, Spans] = {}
        self._unsent: list[Record] = []

    def knows(self, key: TopicPartition) -> bool:
        """Whether a partition was begun with `begin` or `took`."""
        return key in self._taken

    def begin(self, key: TopicPartition, metadata: str | None) -> None:
        """A partition came to this consumer, and this is the metadata of its last commit; what that says is reported.

        It may have been reported already, which changes nothing.
        """
        self._taken[key] = Spans()
        self._report(key, spans_of_metadata(metadata))

    def took(self, key: TopicPartition, offsets: NDArray[np.int64]) -> None:
        """Records were handed out, at these offsets, in order."""
        self._taken.setdefault(key, Spans()).add_offsets(offsets)

    def took_one(self, key: TopicPartition, offset: int) -> None:
        """A record was handed out."""
        self._taken.setdefault(key, Spans()).add(offset, offset + 1)

    def took_range(self, key: TopicPartition, first: int, end: int) -> None:
        """All records from `first` up to, not including, `end` were handed out."""
        self._taken.setdefault(key, Spans()).add(first, end)

    def metadata(self, key: TopicPartition, offset: int) -> str:
        """What a commit of this offset has to carry."""
        return metadata_of(self._taken[key].below(offset)) if key in self._taken else ""

    def committed(self, key: TopicPartition, offset: int) -> None:
        """The offset is committed: what was taken below it can be reported."""
        spans = self._taken.get(key)
        if spans is not None:
            self._report(key, spans.below(offset))
            spans.drop_below(offset)

    def reports(self) -> list[Record]:
        """What has to be sent to the audit topic, in order; sent twice it counts once. They are handed out once."""
        records, self._unsent = self._unsent, []
        return records

    def put_back(self, records: list[Record]) -> None:
        """These could not be sent."""
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
    """Spans as short text: each as how far behind the one before, and how long. What has no room is left out."""
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
    """What `metadata_of` wrote; nothing for anybody else's text."""
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
    """All reports of some stages, others are left out: (stage, cluster) → partition → spans."""

    def __init__(self, stages: Iterable[str]) -> None:
        self._stages = frozenset(stages)
        self.spans: dict[tuple[str, str], dict[TopicPartition, Spans]] = {}

    def add_message(self, value: bytes | None, cluster: str | None) -> bool:
        """Whether a message of the audit topic of this cluster is a report; one that cannot be understood is none."""
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
        """What consumers of a stage took from a cluster."""
        return self.spans.get((stage, cluster or ""), {})


def report_of(fields: Any) -> tuple[TopicPartition, list[tuple[int, int]]]:
    """Of a report's JSON; ValueError, KeyError, TypeError."""
    if fields["version"] != VERSION or not isinstance(fields["taken"], str):
        raise ValueError("the message is not a report")
    ranges = [(number(first), number(end)) for first, end in fields["ranges"]]
    return TopicPartition(str(fields["topic"]), number(fields["partition"], least=0) & INT64_MAX), ranges
