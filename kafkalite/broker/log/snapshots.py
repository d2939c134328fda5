"""Producer state on disk: Kafka's `NNN.snapshot`, and `NNN.producers` beside it with what Kafka's has no room for.

    .snapshot, version 1, big-endian        .producers, JSON lines `crc32c-hex JSON`, one line
      version i16, CRC-32C u32 of the rest    {"version": 1, "producers": {id: [epoch, seen ms, [[first sequence, last
      count i32, then per producer              sequence, first offset, last offset, timestamp], ...], last offset]},
      id i64, epoch i16, last sequence i32,    "aborted": {base offset: [count, CRC-32C]}}
      last offset i64, offset delta i32,
      timestamp i64, coordinator epoch i32,
      transaction first offset i64

Kafka remembers one batch of each producer over a restart; five are needed to recognise every retry of a producer with
five requests in flight, so all of them are kept beside, with what each segment's NNN.txnindex must hold (the companion
of an older release has no such marks: it knew no transactions). NNN is the log end that the state belongs to. A
snapshot without its companion (Kafka wrote it) is good; for a damaged one an older one is used, or the log from its
start. Kafka may also have written another one beside a companion that was there: what that has of a producer counts
where both name the same last batch.

All of it may block.
"""

from __future__ import annotations

import json
import logging
import os
import struct
from typing import TYPE_CHECKING, Any, Final

from kafkalite._native.base import file_ops
from kafkalite._native.base.crc32c import crc32c
from kafkalite.base.logging import fields
from kafkalite.broker.log import disk, files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite._native.log.producers import ProducerEntry, ProducerTable

logger = logging.getLogger(__name__)

VERSION: Final = 1
HEADER: Final = struct.Struct(">hI")
COUNT: Final = struct.Struct(">i")
ENTRY: Final = struct.Struct(">qhiqiqiq")
COMPANION_VERSION: Final = 1
LAST_OFFSET_AT: Final = 3
"""Place of the last offset in a companion's entry; older releases have none."""
KEPT_COUNT: Final = 2
"""Snapshots kept in a directory: the newest may be ahead of a log that a power failure shortened."""


def offsets_in(directory: str) -> list[int]:
    """The offsets of the snapshots in a partition directory, newest first; none before its first append made it."""
    found: list[int] = []
    try:
        names = disk.list_names(directory)
    except FileNotFoundError:
        return found
    for name in names:
        base, suffix = os.path.splitext(name)
        if suffix == files.SNAPSHOT_SUFFIX and files.SEGMENT_STEM.fullmatch(base):
            found.append(int(base))
    return sorted(found, reverse=True)


def encode(
    entries: Iterable[ProducerEntry], aborted: Mapping[int, tuple[int, int]] | None = None
) -> tuple[bytes, bytes]:
    """The bytes of a snapshot and its companion; `aborted`: (count, CRC) of the txnindex of segments that have one."""
    rows = []
    companion: dict[str, list[Any]] = {}
    for entry in entries:
        spans = entry.batches()
        first_offset, last_offset = (spans[-1][2], spans[-1][3]) if spans else (-1, -1)
        rows.append(
            ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                last_offset,
                last_offset - first_offset,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_offset,
            )
        )
        companion[str(entry.producer_id)] = [entry.epoch, entry.seen_ms, spans, entry.last_offset]
    body = COUNT.pack(len(rows)) + b"".join(rows)
    marks = {str(base): mark for base, mark in (aborted or {}).items()}
    values = {"version": COMPANION_VERSION, "producers": companion, "aborted": marks}
    text = json.dumps(values, separators=(",", ":")).encode()
    return HEADER.pack(VERSION, crc32c(body)) + body, b"%08x %s\n" % (crc32c(text), text)


def write(directory: str, offset: int, encoded: tuple[bytes, bytes], *, durable: bool = False) -> None:
    """Saves the state at log end `offset`, removes snapshots no longer needed.

    Unless `durable` it is not synced: as long as nothing was compacted the log can replace it.
    """
    snapshot, companion = encoded
    base = f"{directory}/{files.stem(offset)}"
    files.write_atomically(base + files.PRODUCERS_SUFFIX, companion, durable=durable)
    files.write_atomically(base + files.SNAPSHOT_SUFFIX, snapshot, durable=durable)
    for old in offsets_in(directory)[KEPT_COUNT:]:
        remove(directory, old)


def remove(directory: str, offset: int) -> None:
    """Removes the snapshot of one offset."""
    for suffix in (files.SNAPSHOT_SUFFIX, files.PRODUCERS_SUFFIX):
        file_ops.unlink(f"{directory}/{files.stem(offset)}{suffix}", missing_ok=True)


def load(directory: str, log_first: int, log_end: int, table: ProducerTable) -> int:
    """Fills `table` from the newest good snapshot within the log; its offset, or -1 where there is none.

    One below `log_first`, where the first segment begins, does not know what records that are gone have changed since:
    sequences would seem out of order, and transactions open (Kafka's ProducerStateManager drops it too)."""
    for offset in offsets_in(directory):
        if not log_first <= offset <= log_end:
            continue
        base = f"{directory}/{files.stem(offset)}"
        data = _readable(base + files.SNAPSHOT_SUFFIX)
        rows = decode(data) if data is not None else None
        if rows is None:
            logger.warning("ignored a damaged producer snapshot", extra=fields(directory=directory, offset=offset))
            continue
        producers = _companion(directory, offset).get("producers", {})
        for row in rows:
            _restore(table, row, producers.get(str(row[0])))
        return offset
    return -1


def aborted_marks(directory: str, offset: int) -> dict[int, tuple[int, int]] | None:
    """Base offset → (count, CRC) of the txnindex files that a snapshot counts on; None: it does not say."""
    marks = _companion(directory, offset).get("aborted")
    if marks is None:
        return None
    return {int(base): (count, crc) for base, (count, crc) in marks.items()}


def decode(data: bytes) -> list[tuple[int, ...]] | None:
    """The rows of a snapshot as they stand in the file; None when it is damaged or of an unknown version."""
    if len(data) < HEADER.size + COUNT.size:
        return None
    version, crc = HEADER.unpack_from(data)
    body = data[HEADER.size :]
    (count,) = COUNT.unpack_from(body)
    if version != VERSION or crc32c(body) != crc or len(body) != COUNT.size + count * ENTRY.size:
        return None
    return list(ENTRY.iter_unpack(body[COUNT.size :]))


def _readable(path: str) -> bytes | None:
    """What a file holds; None when it is missing, or cannot be read, which is reported: the log has it too."""
    try:
        return files.read_bytes(path)
    except OSError as error:
        logger.warning("ignored producer state that cannot be read", extra=fields(path=path, reason=str(error)))
        return None


def _companion(directory: str, offset: int) -> dict[str, Any]:
    """What stands beside a snapshot; nothing when it is missing, damaged, or of an unknown version."""
    data = _readable(f"{directory}/{files.stem(offset)}{files.PRODUCERS_SUFFIX}")
    try:
        if data is None or data[:9] != b"%08x " % crc32c(data[9:-1]):
            return {}
        values: dict[str, Any] = json.loads(data[9:])
        return values if values["version"] == COMPANION_VERSION else {}
    except (ValueError, KeyError):
        return {}


def _restore(table: ProducerTable, row: tuple[int, ...], beside: list[Any] | None) -> None:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, transaction_offset = row
    spans: list[tuple[int, int, int, int, int]] = []
    seen_ms = timestamp
    if last_sequence >= 0:
        first_sequence = last_sequence - delta if last_sequence >= delta else last_sequence - delta + (1 << 31)
        spans = [(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)]
    if beside is not None and beside[0] == epoch:
        kept = [tuple(span) for span in beside[2]]  # JSON we wrote, its CRC is right
        if [span[:4] for span in kept[-1:]] == [span[:4] for span in spans]:  # all but the time, which markers move
            spans, seen_ms = kept, int(beside[1])
            if len(beside) > LAST_OFFSET_AT:
                last_offset = int(beside[LAST_OFFSET_AT])
    table.restore(
        producer_id,
        epoch,
        spans,
        coordinator_epoch=coordinator_epoch,
        transaction_offset=transaction_offset,
        last_offset=last_offset,
        last_timestamp=timestamp,
        seen_ms=seen_ms,
    )
