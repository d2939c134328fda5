"""Show, check and repair log files without a broker: batches, records, checksums, indexes.

  kafkalite log check data
  kafkalite log repair data --dry-run
  kafkalite log dump data/logs-0
  kafkalite log dump data/logs-0/00000000000000000000.log --records
  kafkalite log dump data --summary --json

`dump` reads a segment (.log), a partition's directory, or a data directory, of kafkalite or Apache Kafka. It verifies
every checksum and compares the indexes of offsets and of aborted transactions with the log. Exit status 1 means damage.
The command writes nothing, so the broker may be running. The last batch of a segment may then be incomplete.

`check` and `repair` take data directories or partition directories of a stopped broker. `check` reads everything,
prints one line for each problem, and changes nothing. `repair` rebuilds derived files, truncates a tail that was never
flushed, and removes damaged batches. It names their offsets, and keeps the removed bytes in `.damaged` files. Exit
status: 0 no damage, 1 damage is left, 2 could not begin.
"""

from __future__ import annotations

import struct
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.dataclass import dataclass
from kafkalite.cli import EXIT_FAILURE, Parser, UsageError
from kafkalite.cli.common import quantity
from kafkalite.cli.output import note, on_terminal, print_json, say, write_data
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from kafkalite._native.wire.batch import BatchInfo
    from kafkalite.cli.formats import Format, JsonLines

SEGMENT_SUFFIX: Final = ".log"
NATIVE_INDEX_SUFFIX: Final = ".klindex"
KAFKA_INDEX_SUFFIX: Final = ".index"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
KAFKA_INDEX_ENTRY: Final = struct.Struct(">ii")
ZERO_CHECK_SIZE: Final = 1024 * 1024
PROBLEMS_MAX: Final = 20
"""Problems listed for one file; the rest are only counted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    dump = actions.add_parser("dump", help="print and check batches")
    dump.add_argument("paths", metavar="PATH", nargs="+", type=Path)
    dump.add_argument("-r", "--records", action="store_true", help="print records instead of batches")
    dump.add_argument("-s", "--summary", action="store_true", help="print one line per segment")
    dump.add_argument(
        "-f",
        "--format",
        metavar="TEXT",
        default="%o\\t%T\\t%k\\t%s\\n",
        help="format of records, as in `kafkalite consume`; with --records",
    )
    dump.add_argument("--json", action="store_true", help="print one JSON object per batch, record or segment")
    check = actions.add_parser("check", help="check the files of a stopped broker")
    check.add_argument("paths", metavar="DIR", nargs="+", type=Path)
    repair = actions.add_parser(
        "repair", help="repair the files of a stopped broker; set aside the data that is removed"
    )
    repair.add_argument("paths", metavar="DIR", nargs="+", type=Path)
    repair.add_argument("--dry-run", action="store_true", help="only show what would be repaired")


def run(arguments: argparse.Namespace) -> int:
    if arguments.action != "dump":
        from kafkalite.cli import log_check

        return log_check.run(arguments)
    from kafkalite.cli.formats import Format, JsonLines

    if arguments.records and arguments.summary:
        raise UsageError("--records and --summary cannot be used together")
    writer = JsonLines() if arguments.json else Format(arguments.format, terminal=on_terminal())
    sound = True
    for path in segments_of(arguments.paths):
        segment = Segment(path)
        dump(segment, arguments, writer)
        sound = sound and not segment.problem_count
    return 0 if sound else EXIT_FAILURE


def segments_of(paths: list[Path]) -> list[Path]:
    """Return the segment files of the paths, in order. UsageError for a path without segment files."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted([*path.glob(f"*{SEGMENT_SUFFIX}"), *path.glob(f"*-*/*{SEGMENT_SUFFIX}")])
            if not inside:
                raise UsageError(f"{path} contains no segment")
            found += inside
        elif path.suffix != SEGMENT_SUFFIX:
            raise UsageError(f"{path} is neither a segment ({SEGMENT_SUFFIX}) nor a directory")
        elif not path.is_file():
            raise UsageError(f"{path} does not exist")
        else:
            found.append(path)
    return found


class Batch(NamedTuple):
    """A batch of a segment, with its position, header fields and bytes. `crc_ok` is true if its CRC matches."""

    position: int
    info: BatchInfo
    whole: memoryview
    crc_ok: bool

    def as_json(self) -> dict[str, Any]:
        from kafkalite.wire.record.compression import Codec

        info = self.info
        known = info.codec in Codec.__members__.values()
        return {
            "position": self.position,
            "size": info.size,
            "base_offset": info.base_offset,
            "last_offset": info.last_offset,
            "records": info.record_count,
            "codec": Codec(info.codec).name.lower() if known else info.codec,
            "crc_ok": self.crc_ok,
            "leader_epoch": info.leader_epoch,
            "first_timestamp": info.base_timestamp,
            "largest_timestamp": info.max_timestamp,
            "timestamp_type": "LogAppendTime" if info.is_log_append_time else "CreateTime",
            "producer_id": info.producer_id,
            "producer_epoch": info.producer_epoch,
            "base_sequence": info.base_sequence,
            "transactional": info.is_transactional,
            "control": info.is_control,
            "marker": marker_of(self),
        }


def marker_of(batch: Batch) -> str | None:
    """Return `commit` or `abort` for a transaction marker, None for any other batch."""
    from kafkalite.broker.log.markers import marker_type

    return marker_type(batch.whole) if batch.info.is_control and batch.info.producer_id >= 0 else None


@dataclass
class Segment:
    """The statistics and problems of one segment file."""

    path: Path
    batch_count: int = 0
    record_count: int = 0
    first_offset: int = -1
    last_offset: int = -1
    size: int = 0
    preallocated: int = 0
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0
    aborted: list[dict[str, int]] = field(default_factory=list)
    """Entries of the .txnindex."""
    aborts: set[int] = field(default_factory=set)
    """Offsets of abort markers."""
    starts: dict[int, int] = field(default_factory=dict)
    """Position → base offset of every batch, for the indexes."""

    @property
    def key(self) -> TopicPartition:
        """The partition, from the name of the directory: <topic>-<partition>."""
        topic, _, partition = self.path.resolve().parent.name.rpartition("-")
        return TopicPartition(topic, int(partition)) if partition.isdigit() else TopicPartition("", -1)

    @property
    def base_offset(self) -> int:
        return int(self.path.stem) if self.path.stem.isdigit() else 0

    def problem(self, text: str) -> None:
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)

    def as_json(self) -> dict[str, Any]:
        return {
            "segment": str(self.path),
            "size": self.size,
            "batches": self.batch_count,
            "records": self.record_count,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "preallocated": self.preallocated,
            "aborted": self.aborted,
            "problem_count": self.problem_count,
            "problems": self.problems,
        }


def dump(segment: Segment, arguments: argparse.Namespace, writer: Format | JsonLines) -> None:
    """Print one segment in the requested form, and check it."""
    import sys

    from kafkalite.wire.record.compression import Decompressor

    if not arguments.summary and not arguments.json and not arguments.records:
        say(str(segment.path))
    sys.stdout.flush()
    with Decompressor() as decompressor:
        for batch in walk(segment):
            if arguments.records:
                write_data(records_text(segment, batch, writer, decompressor))
            elif not arguments.summary:
                print_batch(batch, as_json=arguments.json)
    check_native_index(segment)
    check_kafka_index(segment)
    check_transaction_index(segment)
    if arguments.json and not arguments.records:
        print_json(segment.as_json())
        return
    if arguments.summary:
        say(summary_text(segment))
    elif not arguments.records:
        if not segment.batch_count:
            say("  no batches")
        for row in segment.aborted:
            say(
                f"  aborted: producer {row['producer_id']}, offsets {row['first_offset']}-{row['marker_offset']}, "
                f"last stable offset {row['last_stable_offset']}"
            )
    for problem in segment.problems:
        note(f"{segment.path}: {problem}")
    hidden = segment.problem_count - len(segment.problems)
    if hidden:
        note(f"{segment.path}: {hidden} more problems")


def walk(segment: Segment) -> Iterator[Batch]:
    """Yield every batch up to the first invalid bytes, and note the problems of the batches.

    A file that is truncated while it is mapped reads as zeros. So each batch is copied from the map, and is used only
    if no page has failed until then. A broker that trims preallocated space removes no batch.
    """
    import os

    from kafkalite._native.base.mapped_faults import MappedFile

    with segment.path.open("rb") as file:
        segment.size = os.fstat(file.fileno()).st_size
        if segment.size == 0:
            return
        mapped = MappedFile(file.fileno())
        segment.size = mapped.size
        position = 0
        with memoryview(mapped) as view:
            for batch in batches_in(segment, view):
                if mapped.failed:
                    break
                note_batch(segment, batch)
                yield batch
                position = batch.position + batch.info.size
        if mapped.failed:
            segment.preallocated = 0
            if os.fstat(file.fileno()).st_size != position:
                segment.problem(
                    f"at {position}: the file was truncated while it was read, or the disk returned an error"
                )


def batches_in(segment: Segment, view: memoryview) -> Iterator[Batch]:
    """Yield copies of the batches. Then check the bytes after the last batch."""
    from kafkalite._native.wire.batch import BatchError, crc_matches, read_info

    position = 0
    while position < segment.size:
        try:
            info = read_info(view, position)
        except BatchError as error:
            note_tail(segment, view[position:], position, str(error))
            return
        if info.size > segment.size - position:
            note_tail(segment, view[position:], position, "batch: ends beyond the file")
            return
        with memoryview(bytes(view[position : position + info.size])) as whole:
            yield Batch(position, info, whole, crc_matches(whole))
        position += info.size


def note_batch(segment: Segment, batch: Batch) -> None:
    info = batch.info
    if not batch.crc_ok:
        segment.problem(f"at {batch.position}: wrong CRC in the batch with offset {info.base_offset}")
    if segment.batch_count and info.base_offset <= segment.last_offset:
        segment.problem(f"at {batch.position}: offset {info.base_offset} follows offset {segment.last_offset}")
    if info.base_offset < segment.base_offset:
        segment.problem(f"at {batch.position}: offset {info.base_offset} is below the base offset in the file's name")
    if segment.first_offset < 0:
        segment.first_offset = info.base_offset
    segment.last_offset = max(segment.last_offset, info.last_offset)
    segment.batch_count += 1
    segment.record_count += max(info.record_count, 0)
    segment.starts[batch.position] = info.base_offset
    if marker_of(batch) == "abort":
        segment.aborts.add(info.base_offset)


def note_tail(segment: Segment, tail: memoryview, position: int, reason: str) -> None:
    """Note the bytes after the last batch as a problem, unless they are preallocated zeros."""
    with tail:
        zeros = bytes(ZERO_CHECK_SIZE)
        for start in range(0, len(tail), ZERO_CHECK_SIZE):
            piece = tail[start : start + ZERO_CHECK_SIZE]
            if piece != zeros[: len(piece)]:
                segment.problem(f"at {position}: {len(tail)} bytes are not a complete batch ({reason})")
                return
        segment.preallocated = len(tail)


def records_text(segment: Segment, batch: Batch, writer: Format | JsonLines, decompressor: Any) -> bytes | memoryview:
    """Return the batch's records in the writer's format. If they cannot be decoded, note a problem and return b""."""
    from kafkalite._native.wire.batch import HEADER_SIZE, BatchError
    from kafkalite._native.wire.columns import ColumnBuilder
    from kafkalite.wire.record.batches import columns_from
    from kafkalite.wire.record.compression import CompressionError

    builder = ColumnBuilder()
    try:
        builder.add(batch.info, decompressor.decompress(batch.info.codec, batch.whole[HEADER_SIZE:]))
    except (BatchError, CompressionError) as error:
        segment.problem(f"at {batch.position}: cannot read the records: {error}")
        return b""
    return writer.write(segment.key, columns_from(builder))


def print_batch(batch: Batch, *, as_json: bool) -> None:
    row = batch.as_json()
    if as_json:
        print_json(row)
        return
    marks = [name for name in ("transactional", "control") if row[name]]
    if row["marker"]:
        marks.append(row["marker"])
    if row["producer_id"] >= 0:
        marks.append(f"producer {row['producer_id']}/{row['producer_epoch']} sequence {row['base_sequence']}")
    if not batch.crc_ok:
        marks.append("WRONG CRC")
    say(
        f"  {row['position']:>12}  {row['size']:>9} B  offsets {row['base_offset']}-{row['last_offset']}  "
        f"{row['records']} records  {row['codec']}  epoch {row['leader_epoch']}  "
        f"time {row['first_timestamp']}-{row['largest_timestamp']} {row['timestamp_type']}"
        f"{''.join(f'  {mark}' for mark in marks)}"
    )


def summary_text(segment: Segment) -> str:
    offsets = f"offsets {segment.first_offset}-{segment.last_offset}" if segment.batch_count else "empty"
    tail = f", {quantity(segment.preallocated, 'B')} preallocated" if segment.preallocated else ""
    wrong = f", {segment.problem_count} PROBLEMS" if segment.problem_count else ""
    return (
        f"{segment.path}: {segment.batch_count} batches, {segment.record_count} records, {offsets}, "
        f"{quantity(segment.size, 'B')}{tail}{wrong}"
    )


def check_native_index(segment: Segment) -> None:
    """Check that each entry of the `.klindex` file points to a batch. (The broker rebuilds an invalid file.)"""
    path = segment.path.with_suffix(NATIVE_INDEX_SUFFIX)
    if not path.is_file():
        return
    import numpy as np

    from kafkalite._native.base.crc32c import crc32c
    from kafkalite.broker.log.index_file import HEADER_SIZE, unpack_header

    data = path.read_bytes()
    header = unpack_header(data)
    if header is None:
        segment.problem(f"{path.name} has no valid header (the broker rebuilds it)")
        return
    entries = data[HEADER_SIZE : HEADER_SIZE + 24 * header.entry_count]
    if len(entries) < 24 * header.entry_count or crc32c(entries) != header.entries_crc:
        segment.problem(f"{path.name} is truncated or damaged (the broker rebuilds it)")
        return
    offsets, positions, _ = np.frombuffer(entries, "<i8").reshape(3, header.entry_count)
    compare_index(segment, path.name, zip(offsets.tolist(), positions.tolist(), strict=True))


def check_kafka_index(segment: Segment) -> None:
    """Check that each entry of Kafka's `.index` file points to a batch.

    An entry is the relative offset of a batch's last record, and the batch's position. Zeros follow the last entry.
    """
    path = segment.path.with_suffix(KAFKA_INDEX_SUFFIX)
    if not path.is_file():
        return
    data = path.read_bytes()
    whole = len(data) - len(data) % KAFKA_INDEX_ENTRY.size
    for _, position in KAFKA_INDEX_ENTRY.iter_unpack(data[:whole]):
        if position and position not in segment.starts:
            segment.problem(f"{path.name}: no batch starts at {position}")


def check_transaction_index(segment: Segment) -> None:
    """Check that each entry of the `.txnindex` file names an abort marker.

    A marker without an entry is valid: the partition had no data of its transaction.
    """
    from kafkalite.broker.log import transaction_index

    path = segment.path.with_suffix(TRANSACTION_INDEX_SUFFIX)
    if not path.is_file():
        return
    rows = transaction_index.decode(path.read_bytes(), segment.base_offset, (1 << 63) - 1)
    if rows is None:
        segment.problem(f"{path.name} is truncated or damaged (the broker rebuilds it)")
        return
    names = ("producer_id", "first_offset", "marker_offset", "last_stable_offset")
    segment.aborted = [dict(zip(names, row, strict=True)) for row in rows]
    for row in rows:
        if row[2] not in segment.aborts:
            segment.problem(f"{path.name}: no abort marker has offset {row[2]}")


def compare_index(segment: Segment, name: str, entries: Iterator[tuple[int, int]]) -> None:
    for offset, position in entries:
        if segment.starts.get(position) != offset:
            segment.problem(f"{name}: offset {offset} is not at {position}")
