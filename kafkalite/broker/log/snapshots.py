"""Read and write producer state: Kafka's file `NNN.snapshot`, and its companion `NNN.producers` for the rest.

The file `NNN.snapshot`, version 1, big-endian:

    version i16, CRC-32C u32 of the rest, count i32, then per producer:
      id i64, epoch i16, last sequence i32, last offset i64, offset delta i32, timestamp i64, coordinator epoch i32,
      transaction first offset i64

The file `NNN.producers` is one line `crc32c-hex JSON`, with this JSON:

    {"version": 1,
     "producers": {id: [epoch, seen ms,
                        [[first sequence, last sequence, first offset, last offset, timestamp], ...],
                        last offset]},
     "aborted": {base offset: [count, CRC-32C]}}

NNN is the log end at the time of the snapshot. "aborted" has the entry count and CRC of each segment's txnindex file.

Kafka's snapshot has only the last batch of each producer. The companion has the last five, because a producer may retry
five requests in flight.

Everything here may block.
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
"""Index of the last offset in a companion's entry; older releases do not write it."""
KEPT_COUNT: Final = 2
"""Number of snapshots to keep: after a power cut that shortened the log, the newest snapshot may be above the log
end."""


def offsets_in(directory: str) -> list[int]:
    """Return the offsets of the snapshots in a partition directory, newest first. An empty list if there is no
    directory.
    """
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
    """Return the bytes of a snapshot and its companion. `aborted`: base offset → (count, CRC) of each txnindex."""
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
    """Save the state at log end `offset`, and remove old snapshots.

    Unless `durable`, nothing is synced: until a compaction, the state can be rebuilt from the log.
    """
    snapshot, companion = encoded
    base = f"{directory}/{files.stem(offset)}"
    files.write_atomically(base + files.PRODUCERS_SUFFIX, companion, durable=durable)
    files.write_atomically(base + files.SNAPSHOT_SUFFIX, snapshot, durable=durable)
    for old in offsets_in(directory)[KEPT_COUNT:]:
        remove(directory, old)


def remove(directory: str, offset: int) -> None:
    """Remove a snapshot and its companion."""
    for suffix in (files.SNAPSHOT_SUFFIX, files.PRODUCERS_SUFFIX):
        file_ops.unlink(f"{directory}/{files.stem(offset)}{suffix}", missing_ok=True)


def load(directory: str, log_first: int, log_end: int, table: ProducerTable) -> int:
    """Fill `table` from the newest valid snapshot within the log; return its offset, or -1 without a snapshot.

    A damaged snapshot is skipped. A snapshot without a companion is Kafka's, and valid.

    A snapshot below `log_first`, the first base offset, is ignored, as in Kafka's ProducerStateManager. It lacks the
    changes by removed records: sequences would seem out of order, and ended transactions open.

    Kafka may have replaced a snapshot and left our old companion. So a producer's entry in the companion is used only
    if its last batch is the batch in the snapshot.
    """
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
    """Return base offset → (entry count, CRC) of each txnindex file, from a snapshot's companion. None without marks:
    Kafka has no companion, and releases without transactions wrote no marks.
    """
    marks = _companion(directory, offset).get("aborted")
    if marks is None:
        return None
    return {int(base): (count, crc) for base, (count, crc) in marks.items()}


def decode(data: bytes) -> list[tuple[int, ...]] | None:
    """Return the rows of a snapshot file; None if the file is damaged or of an unknown version."""
    if len(data) < HEADER.size + COUNT.size:
        return None
    version, crc = HEADER.unpack_from(data)
    body = data[HEADER.size :]
    (count,) = COUNT.unpack_from(body)
    if version != VERSION or crc32c(body) != crc or len(body) != COUNT.size + count * ENTRY.size:
        return None
    return list(ENTRY.iter_unpack(body[COUNT.size :]))


def _readable(path: str) -> bytes | None:
    """Return the contents of a file; None if the file is missing or unreadable.

    An unreadable file is logged; its contents can be rebuilt from the partition's log.
    """
    try:
        return files.read_bytes(path)
    except OSError as error:
        logger.warning("ignored producer state that cannot be read", extra=fields(path=path, reason=str(error)))
        return None


def _companion(directory: str, offset: int) -> dict[str, Any]:
    """Return the contents of a snapshot's companion; empty if the companion is missing, damaged or of an unknown
    version."""
    data = _readable(f"{directory}/{files.stem(offset)}{files.PRODUCERS_SUFFIX}")
    try:
        if data is None or data[:9] != b"%08x " % crc32c(data[9:-1]):
            return {}
        values: dict[str, Any] = json.loads(data[9:])
        return values if values["version"] == COMPANION_VERSION else {}
    except (ValueError, KeyError):
        return {}


def _restore(table: ProducerTable, row: tuple[int, ...], companion: list[Any] | None) -> None:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, transaction_offset = row
    spans: list[tuple[int, int, int, int, int]] = []
    seen_ms = timestamp
    if last_sequence >= 0:
        first_sequence = last_sequence - delta if last_sequence >= delta else last_sequence - delta + (1 << 31)
        spans = [(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)]
    if companion is not None and companion[0] == epoch:
        kept = [tuple(span) for span in companion[2]]  # our own JSON, with a valid CRC
        if [span[:4] for span in kept[-1:]] == [span[:4] for span in spans]:  # ignore the time, which markers change
            spans, seen_ms = kept, int(companion[1])
            if len(companion) > LAST_OFFSET_AT:
                last_offset = int(companion[LAST_OFFSET_AT])
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
