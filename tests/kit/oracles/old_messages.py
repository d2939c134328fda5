"""Message sets of magic 0 and 1 as brokers of Kafka 0.8 to 0.10 stored them, by kafka-python; and its murmur2."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # in the library's own imports
    from kafka.partitioner.default import murmur2
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

__all__ = ["CODECS", "ITEMS", "STAMP", "message_set", "murmur2"]

STAMP = 1_600_000_000_000
ITEMS = [(b"key", b"value"), (None, b""), (b"", None), (b"k" * 300, b"v" * 5000)]
CODECS = [0, 1, 2, 3]


def message_set(magic: int, codec: int, first: int = 0, count: int = 4) -> bytes:
    """`count` messages from offset `first` on, as a broker stores them: a wrapper's offset is its last message's."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1_000_000)
    for i in range(count):
        key, value = ITEMS[i % len(ITEMS)]
        offset = i if codec and magic else first + i
        assert builder.append(offset, STAMP + i if magic else None, key, value) is not None
    raw = bytearray(builder.build())
    if codec:
        raw[:8] = (first + count - 1).to_bytes(8, "big")
    return bytes(raw)
