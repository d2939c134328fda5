"""Every CRC-32 backend against zlib and each other."""

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite._native.base import crc32 as native

SOURCE = random.Random(7).randbytes(300_000)

backends = pytest.mark.parametrize("backend", native.available())


@backends
@pytest.mark.parametrize(
    ("data", "value"),
    [
        pytest.param(b"", 0, id="empty"),
        pytest.param(b"123456789", 0xCBF43926, id="check"),
        pytest.param(b"hello", 0x3610A686, id="hello"),
        pytest.param(b"x" * 100, 0x5E0E5D8F, id="log of 0.6"),
    ],
)
def test_published_vectors(backend: str, data: bytes, value: int) -> None:
    assert native.crc32_by(backend, data) == value
    assert native.native_crc32(data) == value


@backends
def test_every_length_to_1100(backend: str) -> None:
    for size in range(1101):
        data = SOURCE[size : 2 * size]
        assert native.crc32_by(backend, data) == zlib.crc32(data), size


@backends
@pytest.mark.parametrize("size", [15, 16, 17, 31, 47, 63, 64, 65, 127, 200, 1023, 65_535, 65_536, 250_001])
def test_every_misalignment(backend: str, size: int) -> None:
    view = memoryview(SOURCE)
    for start in range(65):
        part = view[start : start + size]
        assert native.crc32_by(backend, part) == zlib.crc32(part), start


@backends
@given(data=st.binary(max_size=3000), value=st.integers(0, 2**32 - 1), cut=st.integers(0, 3000))
def test_continuation_equals_whole(backend: str, data: bytes, value: int, cut: int) -> None:
    whole = native.crc32_by(backend, data, value)
    assert whole == zlib.crc32(data, value)
    assert native.crc32_by(backend, data[cut:], native.crc32_by(backend, data[:cut], value)) == whole


def test_fastest_backend_is_the_chosen_one() -> None:
    names = native.available()
    assert names[-1] == "table"
    assert native.backend == names[0]


def test_unknown_backend_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="'abacus'"):
        native.crc32_by("abacus", b"")
