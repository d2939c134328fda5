"""The 0.7 simple consumer against a small 0.7 broker in Python."""

import pytest

from kafkalite.classic import wire
from kafkalite.classic.errors import (
    ClassicError,
    ConnectionFailed,
    InvalidMessageSize,
    InvalidPartition,
    OffsetOutOfRange,
    UnknownError,
)
from kafkalite.classic.messages import Message, encode_message_set
from kafkalite.classic.simple_consumer import SimpleConsumer
from kafkalite.classic.wire import FetchRequest, ProduceRequest
from tests.kit.fakes.classic_broker import ClassicBroker

HELLO = bytes.fromhex("0000000b01003610a68668656c6c6f")


@pytest.fixture
def broker():
    made = ClassicBroker(0, partition_count=2).start()
    yield made
    made.stop()


@pytest.fixture
def consumer(broker):
    with SimpleConsumer("127.0.0.1", broker.port, connect_timeout_s=0.05) as made:
        yield made


def test_frames_are_those_of_the_specification():
    assert wire.encode_produce(ProduceRequest("test", 0, HELLO)).hex() == (
        "0000001f0000000474657374000000000000000f" + HELLO.hex()
    )
    assert wire.encode_multiproduce([ProduceRequest("test", 0, HELLO)]).hex() == (
        "0000002100030001000474657374000000000000000f" + HELLO.hex()
    )
    assert wire.encode_fetch(FetchRequest("test", 0, 0, 1048576)).hex() == (
        "0000001800010004746573740000000000000000000000000010" + "0000"
    )
    assert wire.encode_multifetch([FetchRequest("test", 0, 0, 300), FetchRequest("test", 1, 0, 300)]).hex() == (
        "00000030000200020004746573740000000000000000000000000000012c0004746573740000000100000000000000000000012c"
    )
    assert wire.encode_offsets("test", 0, wire.LATEST, 2).hex() == (
        "00000018000400047465737400000000ffffffffffffffff00000002"
    )


def test_messages_and_the_offsets_behind_them(broker, consumer):
    broker.append("t", 0, encode_message_set([Message(b"a"), Message(b"bb")]))
    found = list(consumer.fetch("t", 0, 0, 1000))
    assert [(item.message.payload, item.offset) for item in found] == [(b"a", 11), (b"bb", 23)]
    assert [item.message.payload for item in consumer.fetch("t", 0, 11, 1000)] == [b"bb"]
    assert list(consumer.fetch("t", 0, 23, 1000)) == []


def test_a_message_larger_than_the_fetch_size(broker, consumer):
    broker.append("t", 0, encode_message_set([Message(b"x" * 100)]))
    with pytest.raises(InvalidMessageSize):
        list(consumer.fetch("t", 0, 0, 50))


def test_errors_of_one_partition_do_not_touch_the_others(broker, consumer):
    broker.append("t", 0, encode_message_set([Message(b"a")]))
    requests = [FetchRequest("t", 0, 0, 100), FetchRequest("t", 0, 99, 100), FetchRequest("t", 7, 0, 100)]
    good, beyond, wrong = consumer.multifetch(requests)
    assert not isinstance(good, ClassicError)
    assert [item.message.payload for item in good] == [b"a"]
    assert isinstance(beyond, OffsetOutOfRange)
    assert isinstance(wrong, InvalidPartition)
    with pytest.raises(OffsetOutOfRange):
        consumer.fetch("t", 0, 99, 100)


def test_offsets_before_a_time(broker, consumer):
    assert consumer.get_offsets_before("t", 0, wire.LATEST, 10) == [0]
    broker.append("t", 0, encode_message_set([Message(b"a")]))
    assert consumer.get_offsets_before("t", 0, wire.LATEST, 10) == [11, 0]
    assert consumer.get_offsets_before("t", 0, wire.EARLIEST, 1) == [0]


def test_a_lost_connection_is_reopened_once(broker, consumer):
    assert list(consumer.fetch("t", 0, 0, 100)) == []
    broker.stop()
    broker.start()
    assert list(consumer.fetch("t", 0, 0, 100)) == []
    broker.stop()
    with pytest.raises(ConnectionFailed):
        consumer.fetch("t", 0, 0, 100)


def test_closed_consumer(consumer):
    consumer.close()
    with pytest.raises(ConnectionFailed, match="is closed"):
        consumer.fetch("t", 0, 0, 100)


REQUEST = FetchRequest("t", 0, 0, 100)


@pytest.mark.parametrize("body", ["", "00", "0000", "00000000", "0000000000010000", "0000000000630000"])
def test_answer_that_follows_no_schema(body):
    with pytest.raises(UnknownError):
        wire.decode_multifetch(memoryview(bytes.fromhex(body)), [REQUEST])


@pytest.mark.parametrize("body", ["", "0000", "0000ffffffff", "0000000000020000000000000000"])
def test_offsets_that_follow_no_schema(body):
    with pytest.raises(UnknownError):
        wire.decode_offsets(memoryview(bytes.fromhex(body)))
