"""Fetched batches on their way to the target: what is reported of a batch that cannot be read."""

from __future__ import annotations

import pytest

from kafkalite.errors import CorruptMessage
from kafkalite.mirror.mirror import Copier, Fetched
from kafkalite.model import TopicPartition
from kafkalite.wire.record.batches import encode_batch
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import Codec

KEY = TopicPartition("t", 0)


class Target:
    """Takes what a producer is given."""

    def __init__(self) -> None:
        self.count = 0

    def send(self, _topic: str, _partition: int, columns: RecordColumns, codec: int) -> None:
        self.count += len(columns)

    def send_batch(self, _topic: str, _partition: int, _batch: memoryview) -> int:
        raise AssertionError("no batch is large enough to be sent alone")


def batch(first: int, codec: Codec) -> bytearray:
    columns = RecordColumns.from_records(Record(n, n, b"k", b"value %d" % n) for n in range(first, first + 10))
    return encode_batch(columns, codec=codec, base_offset=first)[0]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=["plain", "zstd"])
def test_a_corrupt_batch_is_named_by_its_own_offset(codec: Codec) -> None:
    batches = [batch(first, codec) for first in (0, 10, 20)]
    batches[1][-1] ^= 1
    target = Target()
    copier = Copier(target, None, str)  # type: ignore[arg-type]  # all of a producer that it uses
    with pytest.raises(CorruptMessage, match="cannot read the batch at offset 10: "):
        copier.copy(Fetched(KEY, memoryview(b"".join(batches)), 0, 30, None))
    copier.close()
    assert target.count == 0
