"""Map source offsets to target offsets, so that consumer groups can continue in the target.

Transaction markers, aborted records and compaction leave gaps in offsets. So the map consists of runs: sequences of
records whose offsets are consecutive on both sides.

    source   0 1 2 3 M 5 6 7 . . 10 11          M a transaction marker, . compacted away
    target   0 1 2 3   4 5 6 M    8  9          runs (source, target, count): (0, 0, 4)  (5, 4, 3)  (10, 8, 2)

    translate(6) = 5     translate(4) = 4, the next record     translate(12) = 10, the end

A translated offset is never beyond what the group has read. Runs are stored in spans (see Span).

    topic    kafkalite.mirror-offsets.NAME, one partition, cleanup.policy=compact
    key      ["source cluster id", "topic", partition, first source offset of the span]      JSON
    value    {"next": end in the source, "target": first offset in the target, "end": end in the target,
              "ids": [topic id in the source, in the target], "runs": [gap, gap, count, …] or null}

This is version 1 of the format; a reader ignores unknown fields.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafkalite.base.dataclass import dataclass
from kafkalite.client import ColumnReader
from kafkalite.mirror.progress import SETTINGS
from kafkalite.model import TopicPartition, topic_name_error, uuid_bytes, uuid_text
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from kafkalite.client import Client, Producer

PREFIX: Final = "kafkalite.mirror-offsets."
"""Topics with this prefix belong to mirrors and are not mirrored."""
RUNS_FULL: Final = 64
"""A span with this many runs is full: the next transaction starts another."""
RUNS_MAX: Final = 20_000
"""The most runs of a span, so that it fits one record; a larger transaction makes several spans."""
EXACT_SPANS_MAX: Final = 4096
"""The most spans of a partition with runs; older ones keep only their beginning."""
EXACT_SPANS_KEPT: Final = 256
"""Spans that keep their runs although every group is past them, for groups that appear later."""
COARSE_SPANS_MAX: Final = 4096
"""The most spans without runs; beyond that, every second one is merged into its predecessor."""


class Run(NamedTuple):
    """`length` records whose offsets are consecutive on both sides."""

    source: int
    target: int
    length: int


class OffsetUnknown(Exception):
    """The target acknowledged a batch without returning its offset."""


@dataclass(slots=True)
class Span:
    """A mapping of source offsets from `first` to before `next` to target offsets from `target` to before `end`.

    Runs are stored in spans. A span has all runs of a range of source offsets that was copied without a hole. A hole
    arises while a mirror runs without recording offsets. An old span has no runs.
    """

    first: int
    next: int
    target: int
    end: int
    runs: array[int] | None = field(default_factory=lambda: array("q"))
    """Source, target and count of each run, one after the other."""

    def translate(self, offset: int) -> int:
        """Translate a source offset in the span to a target offset."""
        if self.runs is None:
            return self.target
        at = bisect_right(self.runs[::3], offset) - 1
        if at < 0:
            return self.target
        source, target, count = self.runs[3 * at : 3 * at + 3]
        if offset < source + count:
            return target + offset - source
        return self.runs[3 * at + 4] if 3 * at + 4 < len(self.runs) else self.end

    def add(self, runs: Iterable[Run], following: int) -> None:
        """Add the runs of a transaction, which has copied the source up to `following`."""
        assert self.runs is not None, "a span without runs does not grow"
        for run in runs:
            if not self.runs:
                self.target = run.target
            self.runs.extend(run)
            self.end = run.target + run.length
        self.next = following


def runs_to_numbers(span: Span) -> list[int] | None:
    """Encode runs for a value of the topic: for each run, the gaps before it in source and target, and its count."""
    if span.runs is None:
        return None
    found, source, target = [], span.first, span.target
    for at in range(0, len(span.runs), 3):
        run = Run(*span.runs[at : at + 3])
        found += [run.source - source, run.target - target, run.length]
        source, target = run.source + run.length, run.target + run.length
    return found


def runs_from_numbers(numbers: list[int] | None, source: int, target: int) -> array[int] | None:
    """Decode the runs in a value of the topic; `source` and `target` are the span's first offsets."""
    if numbers is None:
        return None
    runs = array("q")
    for at in range(0, len(numbers), 3):
        source += numbers[at]
        target += numbers[at + 1]
        count = numbers[at + 2]
        runs.extend((source, target, count))
        source, target = source + count, target + count
    return runs


class PartitionOffsets:
    """The spans of one partition, in order. `ids` are the topic ids in the source and in the target."""

    def __init__(self, ids: tuple[bytes, bytes], spans: Iterable[Span] = ()) -> None:
        self.ids = ids
        self.spans = sorted(spans, key=lambda span: span.first)
        self._exact_from = next((i for i, span in enumerate(self.spans) if span.runs is not None), len(self.spans))

    def translate(self, offset: int) -> int | None:
        """Translate a source offset to the target offset of the first copied record at or after it.

        In an old span without runs, the result is the span's beginning. In a hole, it is the beginning of the hole.
        Returns None before the first span.
        """
        at = bisect_right(self.spans, offset, key=lambda span: span.first) - 1
        if at < 0:
            return None
        span = self.spans[at]
        return span.translate(offset) if offset < span.next else span.end

    def forgets(self, below: int) -> Iterator[tuple[Span, bool]]:
        """Drop the runs of old spans that no group needs or that exceed the limit, and merge spans without runs.

        Groups need offsets from `below` on. Yield each changed span, and whether the whole span was dropped.
        """
        while (exact := len(self.spans) - self._exact_from) > EXACT_SPANS_KEPT:
            span = self.spans[self._exact_from]
            if span.next > below and exact <= EXACT_SPANS_MAX:
                break
            span.runs = None
            self._exact_from += 1
            yield span, False
        if self._exact_from > COARSE_SPANS_MAX:
            coarse, rest = self.spans[: self._exact_from], self.spans[self._exact_from :]
            for kept, gone in zip(coarse[::2], coarse[1::2], strict=False):
                kept.next, kept.end = gone.next, gone.end
                yield kept, False
                yield gone, True
            self.spans = coarse[::2] + rest
            self._exact_from = len(self.spans) - len(rest)


class OffsetMap:
    """The offsets of all partitions, and the additions of the open transaction; see the module.

    For each batch, call `sent_run` or `sent_offsets`, and then `acknowledged`. `write` adds the offsets to the
    transaction. After the transaction, call `settle` if it was committed, and `forget` if it was aborted.
    """

    def __init__(self, target: Client, name: str, source_id: str) -> None:
        """Raises ValueError for an invalid mirror name."""
        self.topic = f"{PREFIX}{name}"
        wrong = topic_name_error(self.topic)
        if wrong is not None:
            raise ValueError(f"{name!r} is not a valid mirror name: {wrong}")
        self._target = target
        self._source_id = source_id
        self.partitions: dict[TopicPartition, PartitionOffsets] = {}
        self._sent: dict[TopicPartition, deque[tuple[int, int]]] = {}
        self._runs: dict[TopicPartition, list[Run]] = {}
        self._written: dict[TopicPartition, list[Span]] = {}
        self._unknown = False
        self._thinned: list[Record] = []

    def create(self) -> None:
        """Create the topic if it is missing."""
        self._target.admin.create_topic_if_missing(self.topic, 1, configs=SETTINGS)

    def load(self) -> None:
        """Load the offsets as of the last transaction.

        Initialize the transactional id first, so that no other mirror writes.
        """
        end = self._target.end_offset(self.topic, 0)
        reader = ColumnReader(self._target, isolation_level="read_committed", columns=["key", "value"])
        batches = reader.read_numpy(self.topic, 0, self._target.start_offset(self.topic, 0), end)
        self.restore(pair for columns in batches for pair in zip(columns.keys, columns.values, strict=True))

    def restore(self, rows: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Load from keys and values of the topic."""
        found: dict[TopicPartition, dict[int, tuple[tuple[bytes, bytes], Span]]] = {}
        for key, value in rows:
            source_id, topic, partition, first = json.loads(key or b"[null, null, null, null]")
            if source_id != self._source_id:
                continue
            spans = found.setdefault(TopicPartition(topic, partition), {})
            spans.pop(first, None)
            if value is not None:
                spans[first] = span_from(first, value)
        self.partitions = {}
        for where, kept in found.items():
            if kept:
                ids = next(reversed(kept.values()))[0]  # the last written entry belongs to the present topic
                self.partitions[where] = PartitionOffsets(ids, [span for own, span in kept.values() if own == ids])

    def begin(self, key: TopicPartition, offset: int, ids: tuple[bytes, bytes], end: int, *, from_start: bool) -> None:
        """Start recording a partition at this source offset.

        `end` is the end of the target's partition: the next copied record gets this offset or a later one. `from_start`
        says that the source has no earlier records.
        """
        known = self.partitions.get(key)
        if known is not None and (known.ids != ids or (known.spans and known.spans[-1].next > offset)):
            known = None  # another topic of the name, or reverted progress: the known offsets are of other records
        if known is None:
            known = self.partitions[key] = PartitionOffsets(ids)
        if not known.spans or known.spans[-1].next != offset:
            known.spans.append(Span(0 if from_start and not known.spans else offset, offset, end, end))

    # --- a transaction ------------------------------------------------------------------------------------------------

    def sent_run(self, key: TopicPartition, first: int, count: int) -> None:
        """Note that `count` records with consecutive source offsets from `first` on were passed to the producer."""
        self._sent.setdefault(key, deque()).append((first, count))

    def sent_offsets(self, key: TopicPartition, offsets: NDArray[np.int64]) -> None:
        """Note that records with these source offsets were passed to the producer."""
        ends = np.flatnonzero(np.diff(offsets) != 1) + 1
        starts = [0, *ends.tolist()]
        queue = self._sent.setdefault(key, deque())
        for start, end in zip(starts, [*starts[1:], len(offsets)], strict=True):
            queue.append((int(offsets[start]), end - start))

    def acknowledged(self, key: TopicPartition, base_offset: int, count: int) -> None:
        """Store the target offset of an acknowledged batch. A batch that was not noted as sent is ignored."""
        queue = self._sent.get(key)
        if queue is None:
            return
        if base_offset < 0:
            self._unknown = True
            return
        runs = self._runs.setdefault(key, [])
        while count:
            first, left = queue.popleft()
            taken = min(left, count)
            if taken < left:
                queue.appendleft((first + taken, left - taken))
            last = runs[-1] if runs else None
            if last and (last.source + last.length, last.target + last.length) == (first, base_offset):
                runs[-1] = last._replace(length=last.length + taken)
            else:
                runs.append(Run(first, base_offset, taken))
            base_offset += taken
            count -= taken

    def write(self, producer: Producer, reached: Mapping[TopicPartition, int]) -> None:
        """Write the offsets of the open transaction's records, after all its batches were acknowledged.

        The last span is rewritten with each transaction until it is full.

        Raises OffsetUnknown if a batch's offset is unknown; then the transaction must be repeated.
        """
        if self._unknown:
            raise OffsetUnknown
        records = []
        for key, following in reached.items():
            known = self.partitions[key]
            last = known.spans[-1]
            spans = self._written[key] = grown(last, self._runs.get(key, []), following)
            records += [self._record(key, known.ids, span) for span in spans if span is not last]
        records += self._thinned
        producer.send(self.topic, 0, records)

    def settle(self) -> None:
        """Apply the offsets of the transaction, after its commit."""
        for key, spans in self._written.items():
            known = self.partitions[key].spans
            known[-1:] = spans
        self._thinned.clear()
        self.forget()

    def forget(self) -> None:
        """Forget the offsets of the transaction, after its abort."""
        self._sent.clear()
        self._runs.clear()
        self._written.clear()
        self._unknown = False

    def thin(self, lowest: Mapping[TopicPartition, int]) -> None:
        """Drop offsets below `lowest`, which no group needs. The next transaction writes the change."""
        for key, known in self.partitions.items():
            for span, gone in known.forgets(lowest.get(key, known.spans[-1].next)):
                record = self._record(key, known.ids, span)
                self._thinned.append(record._replace(value=None) if gone else record)

    def _record(self, key: TopicPartition, ids: tuple[bytes, bytes], span: Span) -> Record:
        name = [self._source_id, key.topic, key.partition, span.first]
        value = {
            "next": span.next,
            "target": span.target,
            "end": span.end,
            "ids": [uuid_text(part) for part in ids],
            "runs": runs_to_numbers(span),
        }
        return Record(-1, -1, as_json(name), as_json(value))


def grown(last: Span, runs: list[Run], following: int) -> list[Span]:
    """Return the last span extended by these runs. If it becomes full, return further spans too."""
    held = 0 if last.runs is None else len(last.runs) // 3
    if last.runs is None or held >= RUNS_FULL:
        spans = [last, Span(last.next, last.next, last.end, last.end)]
    else:
        spans = [Span(last.first, last.next, last.target, last.end, last.runs[:])]
    while True:
        present = spans[-1].runs
        assert present is not None, "made here, with runs"
        room = RUNS_MAX - len(present) // 3
        part, runs = runs[:room], runs[room:]
        end = runs[0].source if runs else following
        spans[-1].add(part, end)
        if not runs:
            return spans
        spans.append(Span(end, end, spans[-1].end, spans[-1].end))


def span_from(first: int, value: bytes) -> tuple[tuple[bytes, bytes], Span]:
    """Decode a value of the topic; return the topic ids and the span."""
    fields = json.loads(value)
    runs = runs_from_numbers(fields["runs"], first, fields["target"])
    source_id, target_id = fields["ids"]
    return (uuid_bytes(source_id), uuid_bytes(target_id)), Span(
        first, fields["next"], fields["target"], fields["end"], runs
    )


def as_json(value: object) -> bytes:
    """Encode a value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()
