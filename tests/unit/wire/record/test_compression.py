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
    is_one_zstd_frame,
)

TEXT = b"".join(b"line %d of a text that repeats itself\n" % i for i in range(5000))
NOISE = random.Random(3).randbytes(100_000)
SKIPPABLE = struct.pack("<II", 0x184D2A50, 3) + b"abc"
"""A frame of user data, which lz4 and zstd have in common."""
REAL = [codec for codec in Codec if codec]

codecs = pytest.mark.parametrize("codec", REAL, ids=lambda codec: codec.name.lower())


def xerial(data: bytes, block_size: int = 32 * 1024) -> bytes:
    blocks = [raw_snappy(data[i : i + block_size]) for i in range(0, len(data), block_size)]
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    return header + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


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
    pytest.param(Codec.ZSTD, zstd_streamed(TEXT), id="zstd-streamed"),
    pytest.param(Codec.ZSTD, zstd_streamed(TEXT[:9000]) + zstd_streamed(TEXT[9000:]), id="zstd-two-streamed"),
    pytest.param(Codec.ZSTD, zstandard.ZstdCompressor().compress(b"") + zstd_streamed(TEXT), id="zstd-after-an-empty"),
    pytest.param(Codec.ZSTD, zstd_streamed(TEXT) + SKIPPABLE, id="zstd-then-skippable"),
    pytest.param(Codec.ZSTD, SKIPPABLE + zstd_streamed(TEXT), id="zstd-after-skippable"),
    pytest.param(Codec.SNAPPY, xerial(TEXT[:70_000]) + xerial(TEXT[70_000:]), id="snappy-two-xerial"),
    pytest.param(Codec.SNAPPY, xerial(b"") + xerial(TEXT) + xerial(b""), id="snappy-empty-xerial"),
]


@pytest.mark.parametrize(("codec", "packed"), FOREIGN)
def test_shapes_of_other_writers(codec: Codec, packed: bytes) -> None:
    assert decompress(codec, packed) == TEXT


# What GZIPInputStream, snappy-java 1.1.10, Kafka 4.1's Lz4BlockInputStream and zstd-jni 1.5.6 do with these bytes.
IGNORED = [
    *(
        pytest.param(Codec.GZIP, gzip.compress(TEXT) + rest, id=f"gzip-{name}")
        for name, rest in {"one-byte": b"g", "zeros": bytes(40), "half-a-header": gzip.compress(b"x")[:9]}.items()
    ),
    pytest.param(Codec.GZIP, gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]) + b"garbage" * 5, id="gzip-two-members"),
    pytest.param(Codec.GZIP, gzip.compress(TEXT) + b"g" * 50_000, id="gzip-much"),
    pytest.param(Codec.SNAPPY, xerial(TEXT) + b"\0\0\0", id="snappy-less-than-a-length"),
    pytest.param(Codec.SNAPPY, xerial(TEXT) + b"\x82SNA" + bytes(12), id="snappy-half-a-magic"),
    *(
        pytest.param(Codec.LZ4, packed + rest, id=f"lz4-{frame}-{name}")
        for frame, packed in {
            "plain": lz4.frame.compress(TEXT, store_size=False),
            "size": lz4.frame.compress(TEXT),
            "checksums": lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True),
        }.items()
        for name, rest in {
            "one-byte": b"g",
            "zeros": bytes(40),
            "second-frame": lz4.frame.compress(b"x"),
            "half-a-frame": lz4.frame.compress(TEXT)[:100],
            "skippable": SKIPPABLE,
        }.items()
    ),
]


@pytest.mark.parametrize(("codec", "packed"), IGNORED)
def test_bytes_that_kafka_ignores(codec: Codec, packed: bytes) -> None:
    assert decompress(codec, packed) == TEXT
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, len(TEXT) - 1)


REFUSED = [
    pytest.param(Codec.GZIP, b"", id="gzip-empty"),
    pytest.param(Codec.GZIP, gzip.compress(TEXT) + gzip.compress(TEXT)[:40], id="gzip-second-member-truncated"),
    pytest.param(Codec.GZIP, gzip.compress(TEXT)[:-8] + bytes(8), id="gzip-wrong-checksum"),
    pytest.param(Codec.SNAPPY, b"", id="snappy-empty"),
    pytest.param(Codec.SNAPPY, raw_snappy(b"") + raw_snappy(TEXT), id="snappy-two-raw-blocks-first-empty"),
    pytest.param(Codec.SNAPPY, raw_snappy(TEXT) + raw_snappy(TEXT), id="snappy-two-raw-blocks"),
    pytest.param(Codec.SNAPPY, xerial(TEXT) + bytes(4), id="snappy-block-without-bytes"),
    pytest.param(Codec.SNAPPY, xerial(TEXT) + xerial(TEXT)[:12], id="snappy-second-header-truncated"),
    pytest.param(Codec.LZ4, b"", id="lz4-empty"),
    pytest.param(Codec.LZ4, SKIPPABLE + lz4.frame.compress(TEXT), id="lz4-after-skippable"),
    *(
        pytest.param(Codec.ZSTD, packed + rest, id=f"zstd-{frame}-{name}")
        for frame, packed in {
            "streamed": zstd_streamed(TEXT[:9000]),
            "size": zstandard.ZstdCompressor().compress(TEXT[:9000]),
        }.items()
        for name, rest in {"one-byte": b"g", "zeros": bytes(40), "half-a-frame": zstd_streamed(TEXT)[:20]}.items()
    ),
]


@pytest.mark.parametrize(("codec", "packed"), REFUSED)
def test_bytes_that_are_refused(codec: Codec, packed: bytes) -> None:
    with pytest.raises(CompressionError):
        decompress(codec, packed)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD], ids=["gzip", "snappy", "zstd"])
def test_a_bomb_of_many_frames_stops_at_the_limit(codec: Codec) -> None:
    packed = compress(codec, bytes(RETAINED_SIZE + 1)) * 20
    for end in (b"", b"g"):
        with pytest.raises(DecompressedTooLarge):
            decompress(codec, packed + end, 10_000_000)


def lz4_of_bytes(text: bytes) -> bytes:
    """An lz4 frame with one uncompressed block per byte."""
    empty = lz4.frame.compress(b"", store_size=False, block_linked=False)
    return empty[:-4] + b"".join(b"\x01\0\0\x80%c" % byte for byte in text) + empty[-4:]


def zstd_of_empty_blocks(text: bytes, count: int) -> bytes:
    """A zstd frame whose last block, of at most 1 KB, follows `count` empty ones."""
    header = zstandard.ZstdCompressor(write_content_size=False).compress(b"")[:-3]
    return header + bytes(3 * count) + (len(text) << 3 | 1).to_bytes(3, "little") + text


def test_frames_of_tiny_blocks() -> None:
    assert decompress(Codec.LZ4, lz4_of_bytes(TEXT)) == TEXT
    assert decompress(Codec.LZ4, lz4_of_bytes(TEXT) + SKIPPABLE) == TEXT
    frame = zstd_of_empty_blocks(TEXT[:1000], 5000)
    assert not is_one_zstd_frame(memoryview(frame))
    assert decompress(Codec.ZSTD, frame) == TEXT[:1000]
    assert is_one_zstd_frame(memoryview(zstd_of_empty_blocks(TEXT[:1000], 5)))


@pytest.mark.parametrize("rest", [lz4.frame.compress(TEXT), b"g", bytes(40)], ids=["frame", "one-byte", "zeros"])
def test_bytes_after_an_lz4_frame_of_tiny_blocks_are_refused(rest: bytes) -> None:
    with pytest.raises(CompressionError, match="invalid lz4 data"):
        decompress(Codec.LZ4, lz4_of_bytes(TEXT) + rest)


def test_highly_compressible_lz4_data_is_searched_to_its_end() -> None:
    """Their blocks are the smallest of a writer that fills its blocks."""
    text = bytes(20_000_000)
    for packed in (compress(Codec.LZ4, text), lz4.frame.compress(text, block_size=lz4.frame.BLOCKSIZE_MAX64KB)):
        assert decompress(Codec.LZ4, packed + packed) == text


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
            pytest.fail(f"{size} of {len(packed)} bytes gave {len(got)}")


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
