"""Recompress a batch with the codec of the topic setting `compression.type`.

Only the records, the codec bits, the length and the CRC change. Offsets, timestamps and sequences stay. The batch must
be valid. Recompression takes long: call it on the I/O pool.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kafkalite._native.base.crc32c import crc32c
from kafkalite._native.wire.batch import (
    ATTRIBUTES_AT,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CRC_AT,
    CRC_FROM,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    read_info,
)
from kafkalite.wire.record.compression import Codec, Decompressor, compress

if TYPE_CHECKING:
    from kafkalite.settings.topic_setting_lookup import TopicConfig


def recode(batch: bytes, codec: int, config: TopicConfig, decompressed_size_max: int) -> bytearray:
    """Return the batch with its records compressed by `codec` at the topic's level. CompressionError for an invalid
    batch.
    """
    info = read_info(batch)
    with Decompressor(decompressed_size_max, in_turns=True) as decompressor:
        records = decompressor.decompress(info.codec, memoryview(batch)[HEADER_SIZE:])
        try:
            body = compress(codec, records, level_of(codec, config))
        finally:
            records.release()
    result = bytearray(batch[:HEADER_SIZE]) + body
    struct.pack_into(">i", result, BATCH_LENGTH_AT, len(result) - LENGTH_OVERHEAD)
    struct.pack_into(">h", result, ATTRIBUTES_AT, (info.attributes & ~CODEC_MASK) | codec)
    struct.pack_into(">I", result, CRC_AT, crc32c(memoryview(result)[CRC_FROM:]))
    return result


def level_of(codec: int, config: TopicConfig) -> int | None:
    """Return the topic's compression level for a codec; None if the codec has none."""
    if codec == Codec.GZIP:
        return config.compression_gzip_level
    if codec == Codec.LZ4:
        return config.compression_lz4_level
    return config.compression_zstd_level if codec == Codec.ZSTD else None
