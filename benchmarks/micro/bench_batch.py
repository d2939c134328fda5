"""Measure the check of a produced batch: header and CRC, then every record."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalite._native.wire import batch as native
from tests.kit.harness.wire import BATCH_HEADER_SIZE

COUNTS = [1, 50, 5000]


@pytest.mark.parametrize("count", COUNTS)
def test_check_header_and_crc(
    benchmark: Callable[..., object], make_batch: Callable[..., bytearray], count: int
) -> None:
    data = make_batch(count, 200)
    info = benchmark(native.check, data)
    assert info.record_count == count


@pytest.mark.parametrize("count", COUNTS)
def test_check_every_record(benchmark: Callable[..., object], make_batch: Callable[..., bytearray], count: int) -> None:
    data = make_batch(count, 200)
    info, records = native.check(data), bytes(data[BATCH_HEADER_SIZE:])
    assert benchmark(native.check_records, info, records)


@pytest.mark.parametrize("count", COUNTS)
def test_stamp_offset_and_epoch(
    benchmark: Callable[..., object], make_batch: Callable[..., bytearray], count: int
) -> None:
    """The time must not depend on the size, because the CRC does not cover these two fields."""
    data = make_batch(count, 200)
    benchmark(native.stamp, data, 12345, 7)
    assert native.read_info(data).base_offset == 12345
