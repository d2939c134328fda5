"""Codecs: foreign shapes read, bombs and damage refused, nothing larger than asked."""

import gzip
import random
import struct
import threading

import cramjam
import lz4.frame
import pytest
import zstandard

from kafkalite.wire.record.compression import (
    LARGE_COUNT,
    RETAINED_SIZE,
    Codec,
    CompressionError,
    DecompressedTooLarge,
    Decompressor,
    UnknownCodec,
    compress,
    decompress,
)

TEXT = b"".join(b"line %d of a text that repeats itself\n" % i for i in range(5000))
NOISE = random.Random(3).randbytes(100_000)
REAL = [codec for codec in Codec if codec]

codecs = pytest.mark.parametrize("codec", REAL, ids=lambda codec: codec.name.lower())


def xerial(data: bytes, block_size: int = 32 * 1024) -> bytes:
    blocks = [bytes(cramjam.snappy.compress_raw(data[i : i + block_size])) for i in range(0, len(data), block_size)]
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    return header + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def zstd_streamed(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


@codecs
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE], ids=["empty", "one", "text", "noise"])
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, compress(codec, data), len(data)) == data


FOREIGN = [
    pytest.param(Codec.GZIP, gzip.compress(TEXT[:70_000]) + gzip.compress(TEXT[70_000:]), id="gzip-two-members"),
    pytest.param(Codec.GZIP, gzip.compress(TEXT, 1), id="gzip-fast"),
    pytest.param(Codec.SNAPPY, xerial(TEXT), id="snappy-xerial"),
    pytest.param(Codec.SNAPPY, xerial(TEXT, 1000), id="snappy-xerial-small-blocks"),
    pytest.param(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), id="snappy-raw"),
    pytest.param(Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True), id="lz4-linked"),
    pytest.param(Codec.LZ4, lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True), id="lz4-checksums"),
    pytest.param(Codec.LZ4, lz4.frame.compress(TEXT, store_size=False), id="lz4-no-content-size"),
    pytest.param(Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=True).compress(TEXT), id="zstd-content-size"),
    pytest.param(Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT), id="zstd-checksum"),
    pytest.param(
        Codec.ZSTD,
        zstandard.ZstdCompressor().compress(TEXT[:70_000]) + zstandard.ZstdCompressor().compress(TEXT[70_000:]),
        id="zstd-two-frames",
    ),
    pytest.param(
        Codec.ZSTD,
        zstd_streamed(TEXT),
        id="zstd-streamed",
    ),
]


@pytest.mark.parametrize(("codec", "packed"), FOREIGN)
def test_shapes_of_other_writers(codec: Codec, packed: bytes) -> None:
    assert decompress(codec, packed) == TEXT


def test_other_readers_take_ours() -> None:
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT
    assert lz4.frame.decompress(compress(Codec.LZ4, TEXT)) == TEXT
    assert zstandard.ZstdDecompressor().decompressobj().decompress(compress(Codec.ZSTD, TEXT)) == TEXT
    assert bytes(cramjam.snappy.decompress_raw(compress(Codec.SNAPPY, TEXT))) == TEXT


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    assert lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))["block_linked"] is False


@codecs
def test_one_byte_over_the_limit(codec: Codec) -> None:
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, compress(codec, TEXT), len(TEXT) - 1)


@codecs
def test_a_bomb_stops_at_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(50_000_000))
    assert len(bomb) < 3_000_000
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, bomb, 1_000_000)


def test_xerial_bomb_of_many_blocks_stops_at_the_limit() -> None:
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.SNAPPY, xerial(bytes(2_000_000)), 1_000_000)


def test_snappy_length_that_no_memory_has() -> None:
    with pytest.raises(CompressionError):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 20)


@codecs
def test_cut_at_each_byte(codec: Codec) -> None:
    packed = compress(codec, TEXT[:300])
    with Decompressor(10_000) as decompressor:
        for size in range(len(packed)):
            try:
                got = bytes(decompressor.decompress(codec, packed[:size]))
            except CompressionError:
                continue
            assert codec == Codec.SNAPPY, f"{size} of {len(packed)} bytes gave {len(got)}"
            assert got == b"", "a raw snappy block without bytes holds nothing"


@codecs
def test_damage_is_bytes_or_our_error(codec: Codec) -> None:
    source = random.Random(11)
    packed = compress(codec, TEXT[:3000])
    with Decompressor(100_000) as decompressor:
        for _ in range(2000):
            bad = bytearray(packed)
            bad[source.randrange(len(bad))] = source.randrange(256)
            try:
                decompressor.decompress(codec, bytes(bad))
            except CompressionError:
                continue


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"\x82SNAPPY\x00", id="inside-the-header"),
        pytest.param(b"\x82SNAPPY\x00" + bytes(8) + b"\0\0", id="inside-a-block-header"),
        pytest.param(b"\x82SNAPPY\x00" + bytes(8) + b"\0\0\0\x09abc", id="inside-a-block"),
        pytest.param(b"\x82SNAPPY\x00" + bytes(8) + b"\xff\xff\xff\xffabc", id="negative-block"),
    ],
)
def test_xerial_streams_that_end_too_early(stream: bytes) -> None:
    with pytest.raises(CompressionError, match="xerial"):
        decompress(Codec.SNAPPY, stream)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec: int) -> None:
    with pytest.raises(UnknownCodec):
        compress(codec, b"x")
    with pytest.raises(UnknownCodec):
        decompress(codec, b"x")


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_higher_levels_pack_tighter(codec: Codec) -> None:
    words = random.Random(5).choices([b"offset", b"batch", b"leader", b"epoch", b"topic", b"log"], k=30_000)
    text = b" ".join(words)
    assert len(compress(codec, text, 9)) < len(compress(codec, text, 1))


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (-1, 9)), (Codec.LZ4, (0, 17)), (Codec.ZSTD, (-131_072, 22))]
)
def test_levels_at_their_bounds(codec: Codec, levels: tuple[int, int]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level)) == TEXT
    for level in (levels[0] - 1, levels[1] + 1):
        with pytest.raises(ValueError, match="compression level of"):
            compress(codec, TEXT, level)
    with pytest.raises(ValueError, match="no compression levels"):
        compress(Codec.SNAPPY, TEXT, 1)


def test_a_decompressor_is_used_again_after_large_and_failed_blocks() -> None:
    large = bytes(20_000_000)
    with Decompressor(20_000_000) as decompressor:
        for _ in range(3):
            assert bytes(decompressor.decompress(Codec.ZSTD, compress(Codec.ZSTD, TEXT))) == TEXT
            assert len(decompressor.decompress(Codec.ZSTD, compress(Codec.ZSTD, large))) == len(large)
            with pytest.raises(CompressionError):
                decompressor.decompress(Codec.LZ4, b"not lz4")


def test_names() -> None:
    assert [Codec.named(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == list(Codec)
    for bad in ("GZIP", "", "brotli"):
        with pytest.raises(ValueError, match="none, gzip, snappy, lz4, zstd"):
            Codec.named(bad)


@codecs
def test_large_batches_are_unpacked_a_few_at_a_time_and_small_ones_always(codec: Codec) -> None:
    large, small = bytes(RETAINED_SIZE + 1), bytes(1000)
    packed = compress(codec, large)
    holders = [Decompressor(2 * RETAINED_SIZE, in_turns=True) for _ in range(LARGE_COUNT)]
    for holder in holders:
        assert holder.decompress(codec, packed) == large
    waiting, done = Decompressor(2 * RETAINED_SIZE, in_turns=True), threading.Event()
    assert waiting.decompress(codec, compress(codec, small)) == small

    def unpack() -> None:
        if waiting.decompress(codec, packed) == large:
            done.set()

    thread = threading.Thread(target=unpack)
    thread.start()
    assert not done.wait(0.05)
    holders[0].rest()
    assert done.wait(60)
    thread.join()
    for each in (*holders, waiting):
        each.close()


@codecs
def test_batch_beyond_the_limit_is_refused_in_turns_too_and_the_turn_ends(codec: Codec) -> None:
    packed = compress(codec, bytes(RETAINED_SIZE * 2))
    for _ in range(LARGE_COUNT + 1):
        with Decompressor(RETAINED_SIZE + 10, in_turns=True) as decompressor, pytest.raises(DecompressedTooLarge):
            decompressor.decompress(codec, packed)
