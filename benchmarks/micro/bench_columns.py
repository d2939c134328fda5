"""Measure how many records per second become columns, and the reverse. The client, Spark and the tools rely on this."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalite._native.base.crc32c import crc32c
from kafkalite._native.wire import lines
from kafkalite._native.wire.aborted_filter import AbortedFilter
from kafkalite.client.columns.arrow import COLUMNS, FIELDS, ArrowExporter
from kafkalite.model import TopicPartition
from kafkalite.wire.record import batches
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import Codec


@pytest.mark.parametrize("count", [50, 5000])
def test_decode_batch_to_columns(
    benchmark: Callable[..., object], make_batch: Callable[..., bytearray], count: int
) -> None:
    data = bytes(make_batch(count, 200))
    assert len(benchmark(batches.decode, data).offsets) == count


@pytest.mark.parametrize("columns", ["all", "offset,value", "offset"])
def test_decode_to_arrow(benchmark: Callable[..., object], make_batch: Callable[..., bytearray], columns: str) -> None:
    """Decode 10,000 records of 200 bytes in batches of 2,500 to a record batch, with CRC checks. Target: 2 ms on one
    core."""
    chosen = COLUMNS if columns == "all" else tuple(columns.split(","))
    raw = bytearray()
    for number in range(4):
        batch = make_batch(2500, 200)
        batch[:8] = (2500 * number).to_bytes(8, "big")
        raw += batch
    exporter = ArrowExporter(chosen, 10_000, 1 << 30)
    fields = [FIELDS[name] for name in chosen if name in FIELDS]

    def read() -> int:
        with batches.BatchReader(fields=fields) as reader:
            assert reader.read(raw, 0) == 10_000
            return sum(batch.num_rows for batch in exporter.batches(TopicPartition("t", 0), reader.take()))

    assert benchmark(read) == 10_000


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_encode_columns_to_a_batch(
    benchmark: Callable[..., object], make_batch: Callable[..., bytearray], codec: str
) -> None:
    """Encode records of 200 bytes in batches of 1 MiB: the cost for a producer before the network."""
    columns = batches.decode(bytes(make_batch(4000, 200)))
    raw, count = benchmark(batches.encode_batch, columns, codec=Codec.named(codec))
    assert count == 4000
    assert len(raw) > 61


def test_split_lines(benchmark: Callable[..., object]) -> None:
    """Find the lines in 4 MiB of text, as the command line does with everything that it sends."""
    text = b"a line of a log, about as long as they are, 1234567890\n" * 80_000
    starts, _, consumed = benchmark(lines.split_lines, text, b"\n")
    assert (len(starts), consumed) == (80_000, len(text))


def test_render_values(benchmark: Callable[..., object], make_batch: Callable[..., bytearray]) -> None:
    """Render values and line ends, as `kafkalite consume` prints them."""
    columns = batches.decode(bytes(make_batch(5000, 200)))
    steps = [(lines.OPERATIONS["value"], b""), (lines.OPERATIONS["literal"], b"\n")]
    assert len(benchmark(lines.render, columns, steps, b"")) >= 5000 * 200


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
def test_decode_transactions_of_one_record(benchmark: Callable[..., object], isolation: str) -> None:
    """Decode 10,000 transactions of one record, of which every third is aborted: the cost of dropping a batch."""
    columns = RecordColumns.from_records([Record(-1, 0, b"key", bytes(200))])
    raw, aborted = bytearray(), []
    for number in range(10_000):
        who = batches.Producer(number % 7, 0, 0, transactional=True)
        raw += batches.encode_batch(columns, base_offset=2 * number, producer=who)[0]
        raw += marker(2 * number + 1, number % 7, commit=number % 3 != 0)
        if number % 3 == 0:
            aborted.append((number % 7, 2 * number))

    def read() -> int:
        dropping = AbortedFilter(aborted) if isolation == "committed" else None
        with batches.BatchReader() as reader:
            assert reader.read(raw, 0, aborted=dropping) == 20_000
            return len(reader.take())

    assert benchmark(read) == (10_000 if isolation == "uncommitted" else 6_666)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytearray:
    """Return a control batch."""
    key = bytes([0, 0, 0, commit])
    columns = RecordColumns.from_records([Record(-1, 0, key, bytes(6))])
    raw = batches.encode_batch(columns, base_offset=offset, producer=batches.Producer(producer_id, 0, -1))[0]
    raw[22] |= 0x30
    raw[17:21] = crc32c(raw[21:]).to_bytes(4, "big")
    return raw
