"""How many records a second become columns, and columns records? (What the client, Spark and the tools stand on.)"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalite._native import lines
from kafkalite.record import batches
from kafkalite.record.compression import Codec


@pytest.mark.parametrize("count", [50, 5000])
def test_decode_batch_to_columns(
    benchmark: Callable[..., object], make_batch: Callable[..., bytearray], count: int
) -> None:
    data = bytes(make_batch(count, 200))
    assert len(benchmark(batches.decode, data).offsets) == count


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_encode_columns_to_a_batch(
    benchmark: Callable[..., object], make_batch: Callable[..., bytearray], codec: str
) -> None:
    """Records of 200 bytes, 1 MiB of them a batch: what a producer spends before the network."""
    columns = batches.decode(bytes(make_batch(4000, 200)))
    raw, count = benchmark(batches.encode_batch, columns, codec=Codec.named(codec))
    assert count == 4000
    assert len(raw) > 61


def test_split_lines(benchmark: Callable[..., object]) -> None:
    """Where are the lines of 4 MiB of text? The command line does this to all it sends."""
    text = b"a line of a log, about as long as they are, 1234567890\n" * 80_000
    starts, _, consumed = benchmark(lines.split_lines, text, b"\n")
    assert (len(starts), consumed) == (80_000, len(text))


def test_render_values(benchmark: Callable[..., object], make_batch: Callable[..., bytearray]) -> None:
    """Values and line ends, as `kafkalite consume` prints them."""
    columns = batches.decode(bytes(make_batch(5000, 200)))
    steps = [(lines.OPERATIONS["value"], b""), (lines.OPERATIONS["literal"], b"\n")]
    assert len(benchmark(lines.render, columns, steps, b"")) >= 5000 * 200
