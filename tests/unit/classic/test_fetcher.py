"""The fetch thread of a consumer: messages above fetch.size, and one partition's error beside sound ones."""

import pytest

from kafkalite.classic.config import ConsumerConfig
from kafkalite.classic.errors import ConsumerTimeout, InvalidConfig, InvalidMessageSize, InvalidPartition
from kafkalite.classic.fetcher import Fetcher
from kafkalite.classic.handlers import PayloadDecoder
from kafkalite.classic.stream import ChunkQueue, ConsumedPosition, KafkaStream
from kafkalite.zookeeper.nodes import BrokerNode, BrokerPartition
from tests.kit.fakes.classic_broker import FETCH, ClassicBroker
from tests.kit.oracles.classic_oracle import OracleMessage, encode_set

WAIT_MS = 60_000


@pytest.fixture
def broker():
    made = ClassicBroker(0, partition_count=3).start()
    yield made
    made.stop()


@pytest.fixture
def fetch(broker):
    """Starts a fetcher of the first partitions, a stream each; ends it."""
    running = []

    def start(partition_count=3, **settings):
        config = ConsumerConfig(groupid="g", fetcher_backoff_ms=2, **settings)
        streams, positions = [], []
        for number in range(partition_count):
            queue = ChunkQueue(10)
            positions.append(ConsumedPosition("t", BrokerPartition(0, number), 0, queue))
            streams.append(KafkaStream(queue, PayloadDecoder(), timeout_ms=WAIT_MS, shallow=False))
        fetcher = Fetcher(BrokerNode(0, "c", "127.0.0.1", broker.port), positions, config, lambda *_: None)
        running.append((fetcher, positions))
        fetcher.start()
        return streams

    yield start
    for fetcher, positions in running:
        fetcher.interrupt()
        for position in positions:
            position.queue.end()
        fetcher.join()


def put(broker, partition, *payloads):
    broker.append("t", partition, encode_set([OracleMessage(payload) for payload in payloads]))


@pytest.mark.parametrize("fetch_size", [1, 3, 4, 64, 100, 1000, 5009])
def test_message_above_fetch_size_is_fetched_again_with_twice_the_size(broker, fetch, fetch_size):
    put(broker, 0, b"before", b"x" * 5000, b"behind")
    put(broker, 1, b"other")
    streams = fetch(fetch_size=fetch_size)
    assert [next(streams[0]).message for _ in range(3)] == [b"before", b"x" * 5000, b"behind"]
    assert next(streams[1]).message == b"other"
    assert FETCH in broker.requests


def test_each_fetch_begins_with_fetch_size_again(broker, fetch):
    put(broker, 0, b"x" * 300, b"y" * 300)
    streams = fetch(fetch_size=100)
    assert [len(next(streams[0]).message) for _ in range(2)] == [300, 300]
    assert broker.requests.count(FETCH) == 4, "200, 400 for each of the two"


def test_message_above_the_limit_is_an_error_of_its_partition_alone(broker, fetch, caplog):
    put(broker, 0, b"small", b"x" * 5000)
    put(broker, 1, b"a")
    streams = fetch(fetch_size=100, fetch_size_max=5009)
    assert next(streams[0]).message == b"small"
    with pytest.raises(InvalidMessageSize, match=r"offset 15 of t-0-0 is larger than fetch\.size\.max, 5009 bytes"):
        next(streams[0])
    assert next(streams[1]).message == b"a"
    put(broker, 1, b"b")
    put(broker, 2, b"c")
    assert [next(streams[1]).message, next(streams[2]).message] == [b"b", b"c"]
    assert "reading t-0-0 stops" in caplog.text


def test_message_of_exactly_the_limit_is_read(broker, fetch):
    put(broker, 0, b"x" * 5000)
    assert len(next(fetch(fetch_size=100, fetch_size_max=5010)[0]).message) == 5000


def test_fetch_size_above_the_limit_is_the_limit():
    assert ConsumerConfig(groupid="g", fetch_size=200, fetch_size_max=100).fetch_size_limit == 200
    with pytest.raises(InvalidConfig, match=r"fetch\.size\.max must be from 1"):
        ConsumerConfig.from_properties({"groupid": "g", "fetch.size.max": "0"})


def test_size_that_is_none_is_not_fetched_again(broker, fetch):
    broker.append("t", 0, b"\xff\xff\xff\xff" + bytes(100))
    put(broker, 1, b"a")
    streams = fetch()
    with pytest.raises(InvalidMessageSize):
        next(streams[0])
    assert next(streams[1]).message == b"a"
    assert FETCH not in broker.requests


def test_error_of_one_partition_leaves_the_others_alone(broker, fetch):
    put(broker, 0, b"a")
    streams = fetch(partition_count=4)  # one more than the broker has
    with pytest.raises(InvalidPartition):
        next(streams[3])
    assert next(streams[0]).message == b"a"
    put(broker, 0, b"b")
    assert next(streams[0]).message == b"b"


def test_a_reader_of_several_partitions_continues_after_the_error(broker):
    put(broker, 0, b"x" * 5000)
    put(broker, 1, b"a")
    queue = ChunkQueue(10)
    stream = KafkaStream(queue, PayloadDecoder(), timeout_ms=WAIT_MS, shallow=False)
    positions = [ConsumedPosition("t", BrokerPartition(0, number), 0, queue) for number in range(2)]
    config = ConsumerConfig(groupid="g", fetcher_backoff_ms=2, fetch_size=100, fetch_size_max=200)
    fetcher = Fetcher(BrokerNode(0, "c", "127.0.0.1", broker.port), positions, config, lambda *_: None)
    fetcher.start()
    try:
        with pytest.raises(InvalidMessageSize):
            next(stream)
        assert next(stream).message == b"a"
        put(broker, 1, b"b")
        assert next(stream).message == b"b"
        assert positions[0].consumed == 0
    finally:
        fetcher.interrupt()
        queue.end()
        fetcher.join()
    with pytest.raises((ConsumerTimeout, StopIteration)):
        next(stream)
