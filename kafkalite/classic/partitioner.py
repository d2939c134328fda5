"""Choose the partition of an event: the interface Partitioner, and 0.7's default with Java's hash codes.

A partitioner is any object with `partition(key, partition_count) -> int`. The result is an index into the topic's
sorted list of (broker, partition). Pure, any thread.

Source: Kafka 0.7.2 (`kafkalite.classic`, fact 6).
"""

from __future__ import annotations

import struct
from typing import Any, Final, Protocol

_INT32_SIGN: Final = 1 << 31
_UINT32: Final = (1 << 32) - 1


class Partitioner(Protocol):
    """Chooses the partition of an event (kafka.producer.Partitioner)."""

    def partition(self, key: Any, partition_count: int) -> int:
        """Return a number from 0 to partition_count - 1."""
        ...


class DefaultPartitioner:
    """Chooses by the key's hash code modulo the number of partitions (kafka.producer.DefaultPartitioner)."""

    def partition(self, key: Any, partition_count: int) -> int:
        # 0.7 failed for the one hash code without a positive counterpart; here it gives the first partition.
        value = hash_code(key)
        return (0 if value == -_INT32_SIGN else abs(value)) % partition_count


def hash_code(key: Any) -> int:
    """Return the hashCode of the Java type for a Python key: str, int (Integer, or Long beyond 32 bits), float or bool.

    Raises TypeError for any other type, since Python's own hash differs from run to run.
    """
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int):
        if -_INT32_SIGN <= key < _INT32_SIGN:
            return key
        bits = key & ((1 << 64) - 1)
        return _signed(bits ^ bits >> 32)
    if isinstance(key, str):
        return _string_hash(key)
    if isinstance(key, float):
        (bits,) = struct.unpack(">Q", struct.pack(">d", key))
        return _signed(bits ^ bits >> 32)
    raise TypeError(f"cannot hash keys of type {type(key).__name__}; pass your own partitioner")


def _string_hash(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & _UINT32
    return _signed(value)


def _signed(value: int) -> int:
    value &= _UINT32
    return value - (1 << 32) if value & _INT32_SIGN else value
