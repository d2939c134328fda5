"""A model of a log after compaction, in plain Python: lists and a dict.

The model knows batches only as far as Kafka's rules do: a delete horizon belongs to a batch, and a tombstone is removed
when the horizon of its batch has passed. The pass itself reports which offsets its key map had (`mapped_end`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalite.wire.record.compression import Codec, compress, decompress
from tests.kit.oracles.record_oracle import (
    HEADER,
    OracleBatch,
    OracleRecord,
    decode_records,
    encode_batch,
    encode_records,
)

DELETE_HORIZON = 0x40


class ModelRecord(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass
class ModelBatch:
    base: int
    end: int
    records: list[ModelRecord]
    horizon: int | None = None


@dataclass
class CompactedModel:
    """The batches of a log, and what compaction does to them."""

    batches: list[ModelBatch] = field(default_factory=list)

    def append(self, base: int, records: list[ModelRecord], count: int) -> None:
        self.batches.append(ModelBatch(base, base + count, [r._replace(offset=base + r.offset) for r in records]))

    @property
    def records(self) -> list[ModelRecord]:
        return [record for batch in self.batches for record in batch.records]

    def compact(
        self, first_dirty: int, mapped_end: int, written_end: int, *, now_ms: int, delete_retention_ms: int
    ) -> None:
        """Apply a pass that mapped [first_dirty, mapped_end) and rewrote every batch below written_end."""
        newest: dict[bytes, int] = {}
        for record in self.records:
            if record.key is not None and first_dirty <= record.offset < mapped_end:
                newest[record.key] = record.offset
        for batch in self.batches:
            if batch.base >= written_end:
                continue
            kept = []
            reached_tombstone = False
            for record in batch.records:
                if record.offset < mapped_end:
                    if record.key is None or newest.get(record.key, -1) > record.offset:
                        continue
                    if record.value is None:
                        if batch.horizon is not None and now_ms >= batch.horizon:
                            continue
                        reached_tombstone = True
                kept.append(record)
            batch.records = kept
            if reached_tombstone and batch.horizon is None:
                batch.horizon = now_ms + delete_retention_ms


def keyed_batch(
    records: list[tuple[bytes | None, bytes | None]],
    *,
    timestamp: int,
    codec: int = Codec.NONE,
    attributes: int = 0,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
) -> tuple[bytes, list[ModelRecord]]:
    """A batch of (key, value) records as a producer sends it, one ms apart, and what the model needs of it."""
    oracle = [OracleRecord(i, i, key, value) for i, (key, value) in enumerate(records)]
    block = encode_records(oracle)
    batch = encode_batch(
        OracleBatch(
            oracle,
            attributes=attributes | codec,
            base_timestamp=timestamp,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            block=block if codec == Codec.NONE else compress(codec, block),
        )
    )
    return batch, [ModelRecord(i, timestamp + i, key, value) for i, (key, value) in enumerate(records)]


def read_records(data: bytes) -> list[ModelRecord]:
    """The records of stored batches, by the oracle's decoder; asserts on everything that a header must say."""
    found = []
    position = 0
    while position < len(data):
        fields = HEADER.unpack_from(data, position)
        base, length, attributes, last_delta, base_timestamp, max_timestamp = (fields[i] for i in (0, 1, 5, 6, 7, 8))
        count = fields[12]
        end = position + 12 + length
        records = decode_records(decompress(attributes & 7, data[position + HEADER.size : end]), count)
        for record in records:
            assert 0 <= record.offset_delta <= last_delta
            timestamp = max_timestamp if attributes & 8 else base_timestamp + record.timestamp_delta
            found.append(ModelRecord(base + record.offset_delta, timestamp, record.key, record.value))
        if records:
            assert max_timestamp == max(record.timestamp for record in found[-len(records) :])
        position = end
    return found


def marker(*, commit: bool, producer_id: int, epoch: int, timestamp: int) -> bytes:
    """A transaction marker as Kafka's broker writes it."""
    record = OracleRecord(0, 0, struct.pack(">hh", 0, 1 if commit else 0), struct.pack(">hi", 0, 0))
    return encode_batch(
        OracleBatch([record], attributes=0x30, base_timestamp=timestamp, producer_id=producer_id, producer_epoch=epoch)
    )
