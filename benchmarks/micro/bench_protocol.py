"""Measure the message codec in both directions: a Metadata response with many partitions, and small requests."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from kafkalite.wire import protocol
from tests.kit.harness.random_messages import REQUEST, RESPONSE, MessageMaker

METADATA, METADATA_VERSION = 3, 12
SMALL = [
    pytest.param(18, 3, id="ApiVersions"),
    pytest.param(2, 9, id="ListOffsets"),
    pytest.param(3, 12, id="Metadata"),
]


def metadata_answer(partition_count: int) -> object:
    drawn = (MessageMaker(seed).make(METADATA, METADATA_VERSION, RESPONSE) for seed in count())
    answer = next(one for one in drawn if one.topics and one.topics[0].partitions)
    answer.topics = answer.topics[:1]
    answer.topics[0].partitions = answer.topics[0].partitions[:1] * partition_count
    return answer


@pytest.mark.parametrize("partition_count", [10, 10_000])
def test_encode_metadata_answer(benchmark: Callable[..., bytes], partition_count: int) -> None:
    answer = metadata_answer(partition_count)
    assert benchmark(protocol.encode_response, METADATA, METADATA_VERSION, answer)


@pytest.mark.parametrize(("key", "version"), SMALL)
def test_decode_request(benchmark: Callable[..., object], key: int, version: int) -> None:
    data = protocol.encode_request(key, version, MessageMaker(3).make(key, version, REQUEST))
    assert benchmark(protocol.decode_request, key, version, data) is not None
