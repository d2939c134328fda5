"""Compress and decompress record batches with Kafka's five codecs, with a limit on the decompressed size.

    codec      written as                                       read as
    1 gzip     one member                                       members, up to bytes that are not the header of one
    2 snappy   one raw block; large data as a xerial stream     one raw block, or the Java client's xerial streams up to
                                                                fewer bytes than a block's length
    3 lz4      a frame of independent blocks                    the first frame
    4 zstd     one frame without content size                   frames, with or without content size

Kafka reads the same bytes: it ignores bytes after gzip, xerial and lz4 data, and reports an error for bytes after zstd
data and a raw snappy block. Unlike Kafka, this module reads lz4 blocks that depend on each other, and
refuses bytes after an lz4 frame of tiny blocks (LZ4_BLOCK_MEAN_MIN). It reports wrong
content checksums of lz4 and truncated zstd frames after the first.

    library     used for
    zstandard   zstd: compression up to level ZSTD_LEVEL, decompression of most frames up to RETAINED_SIZE
    zlib        gzip: compression, decompression of data that other bytes follow
    cramjam     everything else

zstandard is faster for small batches, because each thread keeps its zstd contexts between calls.

Compressed data may expand to more than the memory (a decompression bomb). So the output buffer has a fixed size, and
larger output raises DecompressedTooLarge. Invalid input raises CompressionError.

Thread rule: functions are pure and run on any thread, without the GIL during (de)compression. A Decompressor belongs to
one thread at a time.
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
"""Default limit of the decompressed size of one batch, in bytes."""

RETAINED_SIZE: Final = 4 * 1024 * 1024
"""Memory that a Decompressor keeps between two batches, in bytes; the rest returns to the system."""

LARGE_COUNT: Final = 2
"""Large batches (above RETAINED_SIZE when decompressed) that a process decompresses at once with `in_turns`."""
_LARGE_TURNS: Final = threading.BoundedSemaphore(LARGE_COUNT)

COMPRESSED_PIECE: Final = 1024 * 1024
"""Bytes passed to lz4 at a time, because each piece is copied."""

LZ4_LEVEL: Final = 0
"""The fast mode, as in other clients; the library's default is five times slower and saves a fifth."""

ZSTD_LEVEL: Final = 3
"""The library's default. Contexts of higher levels are not kept, because they take up to hundreds of MB."""

ZSTD_GUESS: Final = 4
ZSTD_GUESS_MIN: Final = 64 * 1024
"""Output buffer for a frame without content size: a multiple of the frame's size, at least this many bytes. The full
limit would cost a mapping and its page faults for each batch."""

ZSTD_MAGIC: Final[bytes] = b"\x28\xb5\x2f\xfd"
ZSTD_FLAGS_AT: Final = 4
ZSTD_CHECKSUM_FLAG: Final = 0x04
ZSTD_CHECKSUM_SIZE: Final = 4
ZSTD_BLOCK_HEADER_SIZE: Final = 3  # little-endian: one bit for the last block, two for the type, the block's size
ZSTD_LAST_BLOCK: Final = 0x01
ZSTD_BLOCK_TYPE_MASK: Final = 0x06
ZSTD_RLE_BLOCK: Final = 0x02  # one byte, repeated
ZSTD_BLOCK_MEAN_MIN: Final = 1024
"""Bytes per block below which a frame is not searched for its end."""

GZIP_HEADER: Final[bytes] = b"\x1f\x8b\x08"  # the magic and the only method
GZIP_HEADER_SIZE: Final = 10
GZIP_PIECE: Final = 16 * 1024
_GZIP_BITS: Final = 31  # zlib's wbits for deflate in the gzip format

XERIAL_MAGIC: Final[bytes] = b"\x82SNAPPY\x00"
XERIAL_HEADER_SIZE: Final = 16  # the magic, a version and the oldest compatible version
XERIAL_BLOCK_HEADER: Final = struct.Struct(">i")
XERIAL_BLOCK_SIZE: Final = 32 * 1024
"""Input bytes of one block of a snappy-java stream."""
_XERIAL_VERSIONS: Final = b"\x00\x00\x00\x01\x00\x00\x00\x01"

LZ4_MAGIC: Final[bytes] = b"\x04\x22\x4d\x18"
LZ4_FLAGS_AT: Final = 4
LZ4_DESCRIPTOR_SIZE: Final = 2  # flags and block size; the optional content size takes 8 more
LZ4_DICTIONARY_FLAG: Final = 0x01
LZ4_CONTENT_CHECKSUM_FLAG: Final = 0x04
LZ4_CONTENT_SIZE_FLAG: Final = 0x08
LZ4_BLOCK_CHECKSUM_FLAG: Final = 0x10
LZ4_CHECKSUM_SIZE: Final = 4
LZ4_BLOCK_HEADER: Final = struct.Struct("<I")
LZ4_BLOCK_SIZE_MASK: Final = 0x7FFFFFFF
LZ4_BLOCK_MEAN_MIN: Final = 64
"""The same for lz4. A full block takes at least 257 bytes: 64 KB compressed to a 255th."""
BLOCK_COUNT_MIN: Final = 32
"""Blocks that are always searched: those of 4 MB in a zstd frame."""
_XXH32: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_MASK: Final = 0xFFFFFFFF


class Codec(IntEnum):
    """The codec of a batch: the low three bits of its attributes."""

    NONE = CODEC_NONE
    GZIP = CODEC_GZIP
    SNAPPY = CODEC_SNAPPY
    LZ4 = CODEC_LZ4
    ZSTD = CODEC_ZSTD

    @classmethod
    def named(cls, name: str) -> Codec:
        """Return the codec with a name of Kafka's settings, such as "zstd". ValueError for an unknown name."""
        for codec in cls:
            if codec.name.lower() == name:
                return codec
        raise ValueError(f"unknown codec {name!r}; expected one of {', '.join(codec.name.lower() for codec in cls)}")


LEVELS: Final[dict[int, tuple[int, int]]] = {Codec.GZIP: (-1, 9), Codec.LZ4: (0, 17), Codec.ZSTD: (-131_072, 22)}
"""Lowest and highest level of the codecs that have levels, as in Kafka; for lz4 also 0, the fast mode."""


class CompressionError(ValueError):
    """Compressed bytes that are invalid or truncated."""


class DecompressedTooLarge(CompressionError):
    """Compressed bytes whose content is larger than the limit."""


class UnknownCodec(CompressionError):
    """Attributes with an undefined codec id: 5, 6 or 7."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress the records block of a batch.

    `level` is the codec's compression level; snappy has none. ValueError if the codec does not have this level
    (LEVELS).
    """
    if codec == Codec.NONE:
        return bytes(data)
    if level is not None:
        check_level(codec, level)
    if codec == Codec.GZIP:
        import zlib

        return zlib.compress(data, -1 if level is None else level, wbits=_GZIP_BITS)
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
    """The zstd contexts that a thread keeps between calls.

    A new context costs four times as much time as decompressing a batch of 12 KB. The kept contexts take 100 KB for
    decompression, and 1 to 3 MB for compression.
    """

    def __init__(self) -> None:
        self._decompressor: zstandard.ZstdDecompressor | None = None
        self._compressor: tuple[int, zstandard.ZstdCompressor] | None = None

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        if self._compressor is None or self._compressor[0] != level:
            import zstandard

            self._compressor = level, zstandard.ZstdCompressor(level=level, write_content_size=False)
        return self._compressor[1]

    def decompress(self, data: Buffer, size_max: int) -> bytes | None:
        """Decompress exactly one zstd frame.

        Return None if the input is anything else or the content exceeds `size_max`.
        """
        import zstandard

        view = memoryview(data).cast("B")
        if self._decompressor is None:
            self._decompressor = zstandard.ZstdDecompressor()
        try:
            if not is_one_zstd_frame(view):
                return None
            size = zstandard.frame_content_size(view)
            if size < 0:
                size = max(ZSTD_GUESS_MIN, ZSTD_GUESS * view.nbytes)
            if size > size_max:
                return None
            return self._decompressor.decompress(view, max_output_size=size)
        except zstandard.ZstdError:
            return None


_CONTEXTS: Final = _Contexts()


def check_level(codec: int, level: int) -> None:
    """Raise ValueError if the codec does not have this compression level."""
    if codec not in LEVELS:
        raise ValueError("this codec has no compression levels")
    lowest, highest = LEVELS[codec]
    if not lowest <= level <= highest:
        raise ValueError(f"compression level of {Codec(codec).name.lower()} must be {lowest} to {highest}")


def decompress(codec: int, data: Buffer, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """Decompress the records block of a batch. For many batches, use a Decompressor, which reuses its buffer.

    DecompressedTooLarge if the content exceeds `size_max` bytes; CompressionError if the block is invalid.
    """
    with Decompressor(size_max) as decompressor:
        return bytes(decompressor.decompress(codec, data))


class Decompressor:
    """A decompressor with a reusable output buffer of `size_max` bytes.

    The system allocates pages when they are written. The result of `decompress` is valid until the next call of
    `decompress`, `rest` or `close`. With `in_turns`, as in a broker, a large batch waits while LARGE_COUNT other large
    results are valid. Small batches never wait.

    Thread rule: one thread at a time.
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
        """Release the buffer. Its memory is freed when no view of it is left."""
        self._view = memoryview(b"")
        self._map = None
        self._end_turn()

    def rest(self) -> None:
        """Free the memory beyond RETAINED_SIZE, for a pause between batches. Results become invalid."""
        if self._map is not None and self._dirty_size > RETAINED_SIZE:
            self._map.madvise(mmap.MADV_DONTNEED, RETAINED_SIZE)
            self._dirty_size = RETAINED_SIZE
        self._end_turn()

    def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            _LARGE_TURNS.release()

    def decompress(self, codec: int, data: Buffer, *, writable: bool = False) -> memoryview:
        """Decompress a records block of at most `size_max` bytes. CompressionError if it is larger or invalid.

        If `writable`, the caller may modify a result that is larger than RETAINED_SIZE.
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
        """Decompress a small batch at once. A large batch waits for its turn."""
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
                return gzip_into(data, output)
            if codec == Codec.SNAPPY:
                return snappy_into(data, output)
            if codec == Codec.LZ4:
                return cramjam.lz4.decompress_into(first_lz4_frame(data), output)
            if codec == Codec.ZSTD:
                return cramjam.zstd.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            # cramjam reports a full output buffer as the text of Rust's WriteZero error; a test checks that.
            if "whole buffer" in str(error):
                raise DecompressedTooLarge(f"the batch decompresses to more than {self.size_max} bytes") from None
            raise CompressionError(f"invalid {Codec(codec).name.lower()} data: {error}") from None
        raise UnknownCodec(f"unknown codec id {codec}")


def is_one_zstd_frame(view: memoryview) -> bool:
    """Return whether zstd data ends with its first frame. ZstdError if the header is invalid.

    False also for a frame of tiny blocks, because this loop would take long and holds the GIL. The package zstandard
    cannot report the end: it ignores bytes after a frame without content size.
    """
    import zstandard

    if view[: len(ZSTD_MAGIC)] != ZSTD_MAGIC:
        return False
    position = zstandard.frame_header_size(view)
    is_last = False
    left = len(view) // ZSTD_BLOCK_MEAN_MIN + BLOCK_COUNT_MIN
    while not is_last:
        if not left or len(view) - position < ZSTD_BLOCK_HEADER_SIZE:
            return False
        left -= 1
        header = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        is_last = bool(header & ZSTD_LAST_BLOCK)
        position += ZSTD_BLOCK_HEADER_SIZE + (1 if header & ZSTD_BLOCK_TYPE_MASK == ZSTD_RLE_BLOCK else header >> 3)
    if view[ZSTD_FLAGS_AT] & ZSTD_CHECKSUM_FLAG:
        position += ZSTD_CHECKSUM_SIZE
    return position == len(view)


def first_lz4_frame(data: Buffer) -> memoryview:
    """Return the first lz4 frame; all bytes if it is truncated. CompressionError if the data begins otherwise.

    A frame of tiny blocks is not searched to its end, because this loop would take long and holds the GIL. The result
    is then all bytes, or CompressionError if they may contain a second frame: cramjam would read it, Kafka does not.
    """
    view = memoryview(data).cast("B")
    if view[: len(LZ4_MAGIC)] != LZ4_MAGIC:
        raise CompressionError("invalid lz4 data: it does not begin with a frame")
    flags = view[LZ4_FLAGS_AT] if len(view) > LZ4_FLAGS_AT else 0
    position = LZ4_FLAGS_AT + LZ4_DESCRIPTOR_SIZE + 1  # a checksum follows the descriptor
    position += 8 if flags & LZ4_CONTENT_SIZE_FLAG else 0
    position += 4 if flags & LZ4_DICTIONARY_FLAG else 0
    checksum_size = LZ4_CHECKSUM_SIZE if flags & LZ4_BLOCK_CHECKSUM_FLAG else 0
    left = len(view) // LZ4_BLOCK_MEAN_MIN + BLOCK_COUNT_MIN
    while len(view) - position >= LZ4_BLOCK_HEADER.size:
        if not left:
            if LZ4_MAGIC in bytes(view[position:]):
                raise CompressionError("invalid lz4 data: a frame of tiny blocks, and possibly a second frame")
            return view
        left -= 1
        size = LZ4_BLOCK_HEADER.unpack_from(view, position)[0] & LZ4_BLOCK_SIZE_MASK
        position += LZ4_BLOCK_HEADER.size
        if not size:
            return view[: position + (LZ4_CHECKSUM_SIZE if flags & LZ4_CONTENT_CHECKSUM_FLAG else 0)]
        position += size + checksum_size
    return view


def gzip_into(data: Buffer, output: memoryview) -> int:
    """Decompress gzip members into `output`. Return the decompressed size."""
    import cramjam

    try:
        return cramjam.gzip.decompress_into(data, output)
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise
        return _gzip_members_into(memoryview(data).cast("B"), output)  # other bytes may follow the last member


def _gzip_members_into(view: memoryview, output: memoryview) -> int:
    """Decompress gzip members up to bytes that are not the header of one, as Java does.

    This is slower than cramjam, which does not report the end of a member.
    """
    import zlib

    position = size = 0
    while True:
        member = zlib.decompressobj(wbits=_GZIP_BITS)
        rest: bytes | memoryview = b""
        while not member.eof:
            if not rest:
                rest = view[position : position + GZIP_PIECE]
                position += len(rest)
            is_end = not rest
            try:
                content = member.decompress(rest, GZIP_PIECE)
            except zlib.error as error:
                raise CompressionError(f"invalid gzip data: {error}") from None
            if is_end and not content and not member.eof:
                raise CompressionError("invalid gzip data: it is truncated")
            if len(content) > len(output) - size:
                raise DecompressedTooLarge(f"a gzip member decompresses to more than {len(output)} bytes")
            output[size : size + len(content)] = content
            size += len(content)
            rest = member.unconsumed_tail
        position -= len(member.unused_data)
        following = view[position : position + GZIP_HEADER_SIZE]
        if len(following) < GZIP_HEADER_SIZE or following[: len(GZIP_HEADER)] != GZIP_HEADER:
            return size


def snappy_stream(data: Buffer) -> bytes:
    """Compress with snappy into the xerial format, the stream format of snappy-java."""
    view = memoryview(data).cast("B")
    stream = io.BytesIO()
    stream.write(XERIAL_MAGIC + _XERIAL_VERSIONS)
    for start in range(0, view.nbytes, XERIAL_BLOCK_SIZE):
        block = compress(Codec.SNAPPY, view[start : start + XERIAL_BLOCK_SIZE])
        stream.write(XERIAL_BLOCK_HEADER.pack(len(block)))
        stream.write(block)
    return stream.getvalue()


def snappy_into(data: Buffer, output: memoryview) -> int:
    """Decompress a raw snappy block or xerial streams into `output`. Return the decompressed size."""
    view = memoryview(data).cast("B")
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return snappy_block_into(view, output)
    position = size = 0
    while len(view) - position >= XERIAL_BLOCK_HEADER.size:
        if view[position : position + XERIAL_BLOCK_HEADER.size] == XERIAL_MAGIC[: XERIAL_BLOCK_HEADER.size]:
            if len(view) - position < XERIAL_HEADER_SIZE:
                raise CompressionError("a xerial snappy stream is truncated in its header")
            if view[position : position + len(XERIAL_MAGIC)] != XERIAL_MAGIC:
                break
            position += XERIAL_HEADER_SIZE
            continue
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
    """Decompress one raw snappy block into `output`. Return the decompressed size."""
    import cramjam

    size = cramjam.snappy.decompress_raw_len(block)
    if not size and len(block) != 1:  # the length itself takes one byte
        raise CompressionError(f"invalid snappy data: an empty block of {len(block)} bytes")
    if size > len(output):
        raise DecompressedTooLarge(f"a snappy block decompresses to {size} bytes, but only {len(output)} are allowed")
    return cramjam.snappy.decompress_raw_into(block, output[:size]) if size else 0


def mend_old_lz4(data: Buffer) -> Buffer:
    """Correct the header checksum of an lz4 frame in a message of magic 0.

    Old clients compute the checksum incorrectly (KAFKA-3160).
    """
    frame = bytearray(data)
    if len(frame) <= LZ4_FLAGS_AT + LZ4_DESCRIPTOR_SIZE or frame[:LZ4_FLAGS_AT] != LZ4_MAGIC:
        return data
    end = LZ4_FLAGS_AT + LZ4_DESCRIPTOR_SIZE + (8 if frame[LZ4_FLAGS_AT] & LZ4_CONTENT_SIZE_FLAG else 0)
    if len(frame) <= end:
        return data
    frame[end] = xxh32_short(bytes(frame[LZ4_FLAGS_AT:end])) >> 8 & 0xFF
    return frame


def xxh32_short(data: bytes) -> int:
    """Return the hash XXH32 with seed 0. Supports at most 15 bytes, which is enough for a frame's header."""
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
    """Rotate a 32-bit number to the left by `bits`."""
    return (value << bits | value >> 32 - bits) & _MASK
