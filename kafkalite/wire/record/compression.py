"""The five codecs of a record batch, decompressing never more than a given number of bytes.

    codec      written as                                       read as
    1 gzip     one member                                       any number of members
    2 snappy   one raw block; of large data a xerial stream     one raw block, or the xerial stream of the Java client
    3 lz4      a frame of independent blocks                     any frames
    4 zstd     one frame without content size                   any frames, content size or not

Independent lz4 blocks because the Java client refuses others. A compressed block may claim, or turn out, to be far
larger than any memory (a bomb), so output goes into a buffer of fixed size: anonymous memory of which the system hands
out only the pages that are really written. Passing the end of it is DecompressedTooLarge, bytes that are not the
codec's CompressionError.

cramjam makes a new zstd context for each call, which for a batch of 12 KB takes four times as long as unpacking it. So
zstd frames of an ordinary size go through contexts of zstandard that each thread keeps (100 KB to unpack, 1 to 3 MB to
pack). What that path does not take (several frames, damage, large frames, high levels) goes the general way.

A broker unpacks in turns: any number of batches of ordinary size at a time, but at most LARGE_COUNT larger ones, so
that the memory is bounded whatever the number of threads.

Thread rule: functions are pure and may run anywhere, without the GIL while a codec works; a Decompressor belongs to one
thread at a time. The libraries are loaded when the first compressed batch comes by.
"""

from __future__ import annotations

import io
import mmap
import struct
import threading
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Self

from kafkalite._native.wire.batch import CODEC_GZIP, CODEC_LZ4, CODEC_NONE, CODEC_SNAPPY, CODEC_ZSTD

if TYPE_CHECKING:
    from types import TracebackType

    import zstandard
    from typing_extensions import Buffer

DECOMPRESSED_SIZE_MAX: Final = 256 * 1024 * 1024
"""What one batch may grow to unless the caller sets its own limit, in bytes."""

RETAINED_SIZE: Final = 4 * 1024 * 1024
"""Pages that a Decompressor keeps between two batches, in bytes; beyond it they go back to the system."""

LARGE_COUNT: Final = 2
"""Batches of more than RETAINED_SIZE bytes unpacked that a process unpacks in turns at a time."""
_LARGE_TURNS: Final = threading.BoundedSemaphore(LARGE_COUNT)

COMPRESSED_PIECE: Final = 1024 * 1024
"""Bytes that are handed to lz4 at a time, since each piece is copied."""

LZ4_LEVEL: Final = 0
"""The fast mode, as other clients have it; the library's own default is five times slower for a fifth less."""

ZSTD_LEVEL: Final = 3
"""The library's default. Contexts for higher levels are not kept: they take up to hundreds of MB."""

ZSTD_GUESS: Final = 4
ZSTD_GUESS_MIN: Final = 64 * 1024
"""Room given to a frame that does not tell its content's size: so many times its own, at least so many bytes. Asking
for all that is allowed would cost a mapping and its page faults for each batch."""

XERIAL_MAGIC: Final[bytes] = b"\x82SNAPPY\x00"
XERIAL_HEADER_SIZE: Final = 16  # the magic, a version and the oldest version that can read it
XERIAL_BLOCK_HEADER: Final = struct.Struct(">i")
XERIAL_BLOCK_SIZE: Final = 32 * 1024
"""Input of one block of a snappy-java stream, in bytes."""
_XERIAL_VERSIONS: Final = b"\x00\x00\x00\x01\x00\x00\x00\x01"

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
LZ4_FLAGS_AT: Final = 4
LZ4_DESCRIPTOR_SIZE: Final = 2  # flags and block size; the content's size, when told, is 8 more
LZ4_CONTENT_SIZE_FLAG: Final = 0x08
_XXH32: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_MASK: Final = 0xFFFFFFFF


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = CODEC_NONE
    GZIP = CODEC_GZIP
    SNAPPY = CODEC_SNAPPY
    LZ4 = CODEC_LZ4
    ZSTD = CODEC_ZSTD

    @classmethod
    def named(cls, name: str) -> Codec:
        """By Kafka's configuration value, such as "zstd"; ValueError when there is none of that name."""
        for codec in cls:
            if codec.name.lower() == name:
                return codec
        raise ValueError(f"unknown codec {name!r}; expected one of {', '.join(codec.name.lower() for codec in cls)}")


LEVELS: Final[dict[int, tuple[int, int]]] = {Codec.GZIP: (-1, 9), Codec.LZ4: (0, 17), Codec.ZSTD: (-131_072, 22)}
"""Lowest and highest level of the codecs that have any, as in Kafka; for lz4 also 0, the fast mode."""


class CompressionError(ValueError):
    """The bytes are not what their codec writes, or are cut off."""


class DecompressedTooLarge(CompressionError):
    """The content is larger than the limit it was to be kept under."""


class UnknownCodec(CompressionError):
    """The attributes name a codec from 5 to 7, which nobody has defined."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """The records block of a batch, compressed. `level` is the codec's own scale; snappy has none.

    ValueError when the level is out of the codec's range (LEVELS).
    """
    if codec == Codec.NONE:
        return bytes(data)
    if level is not None:
        check_level(codec, level)
    if codec == Codec.GZIP:
        import zlib

        return zlib.compress(data, -1 if level is None else level, wbits=31)
    import cramjam

    if codec == Codec.SNAPPY:
        large = memoryview(data).nbytes > RETAINED_SIZE
        return snappy_stream(data) if large else bytes(cramjam.snappy.compress_raw(data))
    if codec == Codec.LZ4:
        frame = cramjam.lz4.Compressor(
            level=LZ4_LEVEL if level is None else level, content_checksum=False, block_linked=False
        )
        view = memoryview(data).cast("B")
        for start in range(0, max(view.nbytes, 1), COMPRESSED_PIECE):
            frame.compress(bytes(view[start : start + COMPRESSED_PIECE]))
        return bytes(frame.finish())
    if codec == Codec.ZSTD:
        if level is None or level <= ZSTD_LEVEL:
            return _CONTEXTS.compressor(ZSTD_LEVEL if level is None else level).compress(memoryview(data))
        return bytes(cramjam.zstd.compress(data, level))
    raise UnknownCodec(f"unknown codec id {codec}")


class _Contexts(threading.local):
    """What zstd keeps between two calls of one thread."""

    def __init__(self) -> None:
        self._decompressor: zstandard.ZstdDecompressor | None = None
        self._compressor: tuple[int, zstandard.ZstdCompressor] | None = None

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        if self._compressor is None or self._compressor[0] != level:
            import zstandard

            self._compressor = level, zstandard.ZstdCompressor(level=level, write_content_size=False)
        return self._compressor[1]

    def decompress(self, data: Buffer, size_max: int) -> bytes | None:
        """The content of exactly one frame; None when that is not what the bytes are, or it is larger."""
        import zstandard

        view = memoryview(data)
        if self._decompressor is None:
            self._decompressor = zstandard.ZstdDecompressor()
        try:
            size = zstandard.frame_content_size(view)
            if size < 0:
                size = max(ZSTD_GUESS_MIN, ZSTD_GUESS * view.nbytes)
            if size > size_max:
                return None
            return self._decompressor.decompress(view, max_output_size=size, allow_extra_data=False)
        except zstandard.ZstdError:
            return None


_CONTEXTS: Final = _Contexts()


def check_level(codec: int, level: int) -> None:
    """ValueError when the codec has no such level."""
    if codec not in LEVELS:
        raise ValueError("this codec has no compression levels")
    lowest, highest = LEVELS[codec]
    if not lowest <= level <= highest:
        raise ValueError(f"compression level of {Codec(codec).name.lower()} must be {lowest} to {highest}")


def decompress(codec: int, data: Buffer, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """The uncompressed records block; for many in a row a Decompressor saves the copy and the page faults."""
    with Decompressor(size_max) as decompressor:
        return bytes(decompressor.decompress(codec, data))


class Decompressor:
    """A reusable output buffer of `size_max` bytes, untouched until used.

    1. What decompress returns is valid until its next call, or until rest or close.
    2. One thread at a time.
    3. `in_turns` it waits until fewer than LARGE_COUNT others hold a large batch, and holds its own until 1.
    """

    def __init__(self, size_max: int = DECOMPRESSED_SIZE_MAX, *, in_turns: bool = False) -> None:
        self.size_max = size_max
        self._size_before_turn = min(size_max, RETAINED_SIZE) if in_turns else size_max
        self._has_turn = False
        self._map: mmap.mmap | None = None
        self._view = memoryview(b"")
        self._dirty_size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives the memory back as soon as the last view of it is gone."""
        self._view = memoryview(b"")
        self._map = None
        self._end_turn()

    def rest(self) -> None:
        """Gives back what a large batch has taken, before a pause."""
        if self._map is not None and self._dirty_size > RETAINED_SIZE:
            self._map.madvise(mmap.MADV_DONTNEED, RETAINED_SIZE)
            self._dirty_size = RETAINED_SIZE
        self._end_turn()

    def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            _LARGE_TURNS.release()

    def decompress(self, codec: int, data: Buffer, *, writable: bool = False) -> memoryview:
        """The uncompressed records block of `data`, at most `size_max` bytes of it. CompressionError.

        If `writable`, the caller may change a block that is larger than RETAINED_SIZE.
        """
        self._end_turn()
        if codec == Codec.NONE:
            return memoryview(data)
        if codec == Codec.ZSTD:
            content = _CONTEXTS.decompress(data, min(self.size_max, RETAINED_SIZE))
            if content is not None:
                return memoryview(content)
        output = self._output()
        try:
            size = self._in_turn(codec, data, output)
        except CompressionError:
            self._dirty_size = self.size_max
            raise
        self._dirty_size = max(self._dirty_size, size)
        return output[:size] if writable else output[:size].toreadonly()

    def _in_turn(self, codec: int, data: Buffer, output: memoryview) -> int:
        """Unpacks what is small at once, and what turns out to be large when it is this one's turn."""
        try:
            return self._into(codec, data, output[: self._size_before_turn])
        except DecompressedTooLarge:
            if self._size_before_turn == self.size_max:
                raise
        _LARGE_TURNS.acquire()
        self._has_turn = True
        return self._into(codec, data, output)

    def _output(self) -> memoryview:
        if self._map is None:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
            self._map = mmap.mmap(-1, max(1, self.size_max), flags=flags)
            self._view = memoryview(self._map)[: self.size_max]
        elif self._dirty_size > RETAINED_SIZE:
            self._map.madvise(mmap.MADV_DONTNEED, RETAINED_SIZE)
        self._dirty_size = 0
        return self._view

    def _into(self, codec: int, data: Buffer, output: memoryview) -> int:
        import cramjam

        try:
            if codec == Codec.GZIP:
                return cramjam.gzip.decompress_into(data, output)
            if codec == Codec.SNAPPY:
                return snappy_into(data, output)
            if codec == Codec.LZ4:
                return cramjam.lz4.decompress_into(data, output)
            if codec == Codec.ZSTD:
                return cramjam.zstd.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            # A full output buffer reaches us as the text of Rust's WriteZero error; a test holds cramjam to it.
            if "whole buffer" in str(error):
                raise DecompressedTooLarge(f"the batch decompresses to more than {self.size_max} bytes") from None
            raise CompressionError(f"invalid {Codec(codec).name.lower()} data: {error}") from None
        raise UnknownCodec(f"unknown codec id {codec}")


def snappy_stream(data: Buffer) -> bytes:
    """What snappy-java's output stream writes: the xerial format."""
    view = memoryview(data).cast("B")
    stream = io.BytesIO()
    stream.write(XERIAL_MAGIC + _XERIAL_VERSIONS)
    for start in range(0, view.nbytes, XERIAL_BLOCK_SIZE):
        block = compress(Codec.SNAPPY, view[start : start + XERIAL_BLOCK_SIZE])
        stream.write(XERIAL_BLOCK_HEADER.pack(len(block)))
        stream.write(block)
    return stream.getvalue()


def snappy_into(data: Buffer, output: memoryview) -> int:
    """Decompresses a raw block or a xerial stream; returns the size."""
    view = memoryview(data).cast("B")
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return snappy_block_into(view, output)
    if len(view) < XERIAL_HEADER_SIZE:
        raise CompressionError("a xerial snappy stream is truncated in its header")
    position = XERIAL_HEADER_SIZE
    size = 0
    while position < len(view):
        if len(view) - position < XERIAL_BLOCK_HEADER.size:
            raise CompressionError("a xerial snappy stream is truncated in a block header")
        (block_size,) = XERIAL_BLOCK_HEADER.unpack_from(view, position)
        position += XERIAL_BLOCK_HEADER.size
        if block_size < 0 or block_size > len(view) - position:
            raise CompressionError(
                f"a xerial snappy block claims {block_size} bytes, but {len(view) - position} are left"
            )
        size += snappy_block_into(view[position : position + block_size], output[size:])
        position += block_size
    return size


def snappy_block_into(block: memoryview, output: memoryview) -> int:
    """Decompresses one raw block, whose first bytes tell its size."""
    import cramjam

    size = cramjam.snappy.decompress_raw_len(block)
    if size > len(output):
        raise DecompressedTooLarge(f"a snappy block decompresses to {size} bytes, but only {len(output)} are allowed")
    return cramjam.snappy.decompress_raw_into(block, output[:size]) if size else 0


def mend_old_lz4(data: Buffer) -> Buffer:
    """A frame out of a message of magic 0, whose header's checksum covers the wrong bytes (KAFKA-3160), put right."""
    frame = bytearray(data)
    if len(frame) <= LZ4_FLAGS_AT + LZ4_DESCRIPTOR_SIZE or frame[:LZ4_FLAGS_AT] != LZ4_MAGIC:
        return data
    end = LZ4_FLAGS_AT + LZ4_DESCRIPTOR_SIZE + (8 if frame[LZ4_FLAGS_AT] & LZ4_CONTENT_SIZE_FLAG else 0)
    if len(frame) <= end:
        return data
    frame[end] = xxh32_short(bytes(frame[LZ4_FLAGS_AT:end])) >> 8 & 0xFF
    return frame


def xxh32_short(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes, which is all that a frame's header has."""
    assert len(data) < 16, "longer input goes through four lanes"
    prime1, prime2, prime3, prime4, prime5 = _XXH32
    value = prime5 + len(data) & _MASK
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = rotated(value + word * prime3 & _MASK, 17) * prime4 & _MASK
    for byte in data[whole:]:
        value = rotated(value + byte * prime5 & _MASK, 11) * prime1 & _MASK
    value = (value ^ value >> 15) * prime2 & _MASK
    value = (value ^ value >> 13) * prime3 & _MASK
    return value ^ value >> 16


def rotated(value: int, bits: int) -> int:
    """A 32 bit number, rotated to the left."""
    return (value << bits | value >> 32 - bits) & _MASK
