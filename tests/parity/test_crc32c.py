"""Every CRC-32C backend against the published vectors, the `crc32c` package, and each other."""

import random

import crc32c as package
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite._native.base import crc32c as native

# RFC 3720 appendix B.4 and the customary check string.
VECTORS = [
    pytest.param(b"", 0x00000000, id="empty"),
    pytest.param(b"123456789", 0xE3069283, id="check"),
    pytest.param(bytes(32), 0x8A9136AA, id="32-zeros"),
    pytest.param(b"\xff" * 32, 0x62A8AB43, id="32-ones"),
    pytest.param(bytes(range(32)), 0x46DD794E, id="32-ascending"),
    pytest.param(bytes(reversed(range(32))), 0x113FDB5C, id="32-descending"),
    pytest.param(
        bytes.fromhex(
            "01c000000000000000000000000000001400000000000400000000140000001828000000000000000200000000000000"
        ),
        0xD9963A56,
        id="iscsi-read",
    ),
]

SOURCE = random.Random(20).randbytes(300_000)

backends = pytest.mark.parametrize("backend", native.available())


@backends
@pytest.mark.parametrize(("data", "value"), VECTORS)
def test_published_vectors(backend: str, data: bytes, value: int) -> None:
    assert native.crc32c_by(backend, data) == value
    assert native.crc32c(data) == value


@backends
def test_every_length_to_1100(backend: str) -> None:
    for size in range(1101):
        data = SOURCE[size : 2 * size]
        assert native.crc32c_by(backend, data) == package.crc32c(data), size


@backends
@pytest.mark.parametrize("size", [7, 48, 200, 511, 512, 767, 3071, 3072, 3073, 6144, 65_535, 65_536, 250_001])
def test_every_misalignment(backend: str, size: int) -> None:
    view = memoryview(SOURCE)
    for start in range(65):
        part = view[start : start + size]
        assert native.crc32c_by(backend, part) == package.crc32c(part), start


@backends
@given(data=st.binary(max_size=3000), value=st.integers(0, 2**32 - 1), cut=st.integers(0, 3000))
def test_continuation_equals_whole(backend: str, data: bytes, value: int, cut: int) -> None:
    whole = native.crc32c_by(backend, data, value)
    assert whole == package.crc32c(data, value)
    assert native.crc32c_by(backend, data[cut:], native.crc32c_by(backend, data[:cut], value)) == whole


def test_fastest_backend_is_the_chosen_one() -> None:
    names = native.available()
    assert names[-1] == "table"
    assert native.backend in (names[0], "package")


def test_unknown_backend_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="'abacus'"):
        native.crc32c_by("abacus", b"")


@pytest.mark.parametrize("bad", [None, "text", 5])
def test_not_a_buffer(bad: object) -> None:
    with pytest.raises(TypeError):
        native.crc32c(bad)  # type: ignore[arg-type]


def test_writable_and_read_only_buffers() -> None:
    assert native.crc32c(bytearray(b"123456789")) == native.crc32c(memoryview(b"123456789")) == 0xE3069283
