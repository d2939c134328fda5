"""A refused Produce names the records that are bad, so that a client knows which of its messages to blame (KIP-467)."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import KafkaError, Message, Producer

from kafkalite import Broker
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.checkers.side_by_side import Side
from tests.kit.harness import wire

NAMED_MAX = 20_000
HOUR_MS = 3_600_000
GZIP = 1
VERSIONS = (8, 9, 11)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"flush.on.acks.all": "false"}) as broker:
        broker.create_topic("compacted", 3, cleanup_policy="compact")
        broker.create_topic("strict", 1, message_timestamp_before_max_ms=HOUR_MS)
        broker.create_topic("plain", 1)
        yield broker


def batch(keys: Sequence[bytes | None], hours: Sequence[int] | None = None, codec: int = 0) -> bytes:
    """Return records with these keys, and timestamps that many hours from now."""
    hours = hours or [0] * len(keys)
    rows = [wire.Record(key, b"v", (), hour * HOUR_MS) for key, hour in zip(keys, hours, strict=True)]
    now = int(time.time() * 1000)
    payload = wire.encode_records(rows)
    return wire.seal_batch(
        gzip.compress(payload) if codec else payload,
        len(rows),
        attributes=codec,
        base_timestamp=now,
        max_timestamp=now + max(hours) * HOUR_MS,
    )


def produce(
    broker: Broker, topic: str, *batches: bytes, version: int = 11, acks: int = 1
) -> list[tuple[str, list[int], str | None]]:
    """Code, indexes of bad records and text of each partition."""
    parts = [PartitionProduceData(index=index, records=data) for index, data in enumerate(batches)]
    request = ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=parts)]
    )
    answer = Side(broker.port).ask(api.PRODUCE, version, request)
    for row in answer.responses[0].partition_responses:
        assert all(error.batch_index_error_message for error in row.record_errors)
    return [
        (ErrorCode(row.error_code).name, [error.batch_index for error in row.record_errors], row.error_message)
        for row in answer.responses[0].partition_responses
    ]


@pytest.mark.parametrize("codec", [0, GZIP], ids=["plain", "gzip"])
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_bad_record_is_named_in_its_own_partition(broker: Broker, version: int, acks: int, codec: int) -> None:
    good = batch([b"k"] * 3, codec=codec)
    first = batch([b"k", None, b"k", None], codec=codec)
    second = batch([None, b"k"], codec=codec)
    told = produce(broker, "compacted", first, good, second, version=version, acks=acks)
    assert told == [
        ("INVALID_RECORD", [1, 3], "2 of 4 records were refused"),
        ("NONE", [], None),
        ("INVALID_RECORD", [0], "1 of 2 records were refused"),
    ]
    assert produce(broker, "compacted", good, version=version, acks=acks) == [("NONE", [], None)]


@pytest.mark.parametrize("codec", [0, GZIP], ids=["plain", "gzip"])
def test_times_out_of_range_are_named(broker: Broker, codec: int) -> None:
    told = produce(broker, "strict", batch([b"k"] * 5, [0, -2, 0, 2, -9], codec))
    assert told == [("INVALID_TIMESTAMP", [1, 3, 4], "3 of 5 records were refused")]
    ahead = produce(broker, "plain", batch([b"k"] * 3, [0, 2, 0], codec))
    assert ahead == [("INVALID_TIMESTAMP", [1], "1 of 3 records were refused")]


def test_a_malformed_record_is_named_alone(broker: Broker) -> None:
    payload = wire.encode_records([wire.Record(value=b"v")] * 3) + b"\xff" * 9
    told = produce(broker, "compacted", wire.seal_batch(payload, 4))
    assert told == [("INVALID_RECORD", [3], "1 of 4 records were refused")]


def test_very_many_bad_records_are_named_up_to_a_limit(broker: Broker) -> None:
    ((code, named, text),) = produce(broker, "compacted", batch([None] * (NAMED_MAX + 5000)))
    assert (code, text) == ("INVALID_RECORD", f"{NAMED_MAX + 5000} of {NAMED_MAX + 5000} records were refused")
    assert named == list(range(NAMED_MAX))


def test_nothing_is_left_for_a_request_that_follows_one_without_an_answer(broker: Broker) -> None:
    parts = [PartitionProduceData(index=0, records=batch([None, None]))]
    topic = TopicProduceData(name="compacted", partition_data=parts)
    assert Side(broker.port).ask(api.PRODUCE, 9, ProduceRequest(acks=0, timeout_ms=1, topic_data=[topic])) == "closed"
    assert produce(broker, "missing", batch([b"k"])) == [("UNKNOWN_TOPIC_OR_PARTITION", [], None)]


def test_librdkafka_blames_the_records_that_are_named(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 2000, "acks": 1})
    codes: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        codes[message.value()] = 0 if error is None else error.code()

    for value, key in ((b"0", b"k"), (b"1", None), (b"2", b"k"), (b"3", None)):
        producer.produce("compacted", value, key, partition=0, on_delivery=delivered)
    producer.flush(30)
    assert codes[b"1"] == codes[b"3"] == KafkaError.INVALID_RECORD
    assert codes[b"0"] == codes[b"2"] == KafkaError._INVALID_DIFFERENT_RECORD
