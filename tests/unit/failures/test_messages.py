"""Messages out of columns, and the other way round: headers keep their bytes, whatever records have in common."""

import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from kafkalite.failures.adapters.columnar import columns_of, common_names, message_of, messages_of
from kafkalite.failures.events import Message
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import BytesColumn, RecordColumns, slice_of

if TYPE_CHECKING:
    from kafkalite.client import Chunk
    from kafkalite.failures.events import Headers

ORDERS = TopicPartition("orders", 3)
SAME: "Headers" = (("dlq.topic", b"orders"), ("dlq.id", None), ("b\udcff", b"\x00"))


def messages(*headers: "Headers") -> list[Message]:
    return [Message(*ORDERS, n, 1_500 + n, b"k%d" % n, b"v", some, 0) for n, some in enumerate(headers)]


def columns(*headers: "Headers") -> RecordColumns:
    found = columns_of(messages(*headers))
    return dataclasses.replace(found, offsets=np.arange(len(headers), dtype=np.int64))


def read(found: RecordColumns) -> list[Message]:
    return messages_of(cast("Chunk", SimpleNamespace(partition=ORDERS, columns=found)))


@pytest.mark.parametrize(
    ("headers", "common"),
    [
        ((SAME, SAME, SAME), True),
        ((SAME, tuple((name, b"other") for name, _ in SAME)), True),
        ((SAME,), True),
        ((SAME, SAME[:2]), False),
        ((SAME[:2], SAME), False),
        ((SAME[:1], SAME), False),  # four headers, two records, and not two each
        ((SAME, SAME[::-1]), False),
        (((("ab", b"1"), ("c", b"2")), (("a", b"1"), ("bc", b"2"))), False),
        (((("a", b"1"),), (("b", b"1"),)), False),
        (((), ()), False),
        (((), (("a", b"1"), ("b", b"2"))), False),
    ],
)
def test_headers_come_back_whatever_records_have_in_common(headers: "tuple[Headers, ...]", common: bool) -> None:
    found = columns(*headers)
    assert found.headers is not None
    assert (common_names(found.headers) is not None) == common
    assert read(found) == messages(*headers)
    assert [message_of(found, ORDERS, row) for row in range(len(headers))] == messages(*headers)


def test_records_that_were_picked_out_of_others_have_their_own_headers() -> None:
    given = messages(*(SAME[:1] for _ in range(4)))
    found = columns(*(SAME[:1] for _ in range(4)))
    assert read(found.chosen(np.array([1, 3]))) == [given[1], given[3]]
    assert read(slice_of(found, 3, 4)) == [given[3]]


def test_names_with_gaps_between_them_are_looked_at_one_by_one() -> None:
    found = columns(SAME, SAME)
    assert found.headers is not None
    keys = found.headers.keys
    apart = BytesColumn(b"." + bytes(keys.data), keys.starts + 1, keys.ends + 1)
    shifted = dataclasses.replace(found, headers=dataclasses.replace(found.headers, keys=apart))
    assert read(shifted) == messages(SAME, SAME)
    gaps = BytesColumn(
        b"".join(bytes(name or b"") + b"-" for name in keys.to_list()),
        keys.starts + np.arange(len(keys)),
        keys.ends + np.arange(len(keys)),
    )
    scattered = dataclasses.replace(found, headers=dataclasses.replace(found.headers, keys=gaps))
    assert common_names(scattered.headers or found.headers) is None
    assert read(scattered) == messages(SAME, SAME)
