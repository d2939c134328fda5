"""The broker, 0.7's clients and a real ZooKeeper together: registration, and groups over brokers that come and go."""

import contextlib
import threading

import pytest
from kazoo.exceptions import NoNodeError

from kafkalite import Broker, StartupError
from kafkalite.classic import (
    Consumer,
    ConsumerConfig,
    ConsumerTimeout,
    Producer,
    ProducerConfig,
    ProducerData,
    SimpleConsumer,
)
from tests.kit.processes.broker import wait_until

pytestmark = [pytest.mark.zookeeper, pytest.mark.integration]

SETTLE_S = 60.0


@pytest.fixture
def start(zookeeper, tmp_path):
    """Starts brokers that register; stops them all."""
    running = []

    def make(broker_id=0, **settings):
        overrides = {
            "listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0",
            "zookeeper.connect": zookeeper.address,
            "zk.sessiontimeout.ms": "2000",
            "node.id": str(broker_id),
            "log.dirs": str(tmp_path / f"broker-{broker_id}"),
            "log.flush.interval": "1",
            **settings,
        }
        broker = Broker(overrides)
        broker.start()
        running.append(broker)
        return broker

    yield make
    for broker in running:
        broker.stop()


def value(client, path):
    return client.get(path)[0].decode()


def brokers_of(client, topic):
    """The brokers that have registered a topic."""
    try:
        return sorted(client.get_children(f"/brokers/topics/{topic}"))
    except NoNodeError:
        return []


def settled(condition, what="the group settled"):
    return wait_until(condition, SETTLE_S, what)


def produce(server, first, last, topic="t"):
    with Producer(ProducerConfig(zk_connect=server.address)) as producer:
        for number in range(first, last):
            producer.send(ProducerData(topic, [b"%d" % number]))


class Member:
    def __init__(self, server, name, streams=1):
        config = ConsumerConfig(
            groupid="g", consumerid=name, zk_connect=server.address, zk_session_timeout_ms=2000, zk_sync_time_ms=100,
            fetcher_backoff_ms=20, rebalance_retries_max=30,
        )  # fmt: skip
        self.connector = Consumer.create(config)
        self.numbers = []
        streams = self.connector.create_message_streams({"t": streams})["t"]
        self.threads = [threading.Thread(target=self.read, args=(stream,), daemon=True) for stream in streams]
        for thread in self.threads:
            thread.start()

    def read(self, stream):
        with contextlib.suppress(ConsumerTimeout):
            for item in stream:
                self.numbers.append(int(item.message.payload))

    @property
    def owned(self):
        return self.connector.owned.get("t", [])


@pytest.fixture
def members(zookeeper):
    made = []

    def make(name, streams=1):
        made.append(Member(zookeeper, name, streams))
        return made[-1]

    yield make
    for member in made:
        member.connector.shutdown()


def test_broker_registers_itself_and_what_its_first_message_makes(zookeeper, zookeeper_client, start):
    broker = start(4, **{"num.partitions": "2"})
    creator, host, port = value(zookeeper_client, "/brokers/ids/4").split(":")
    assert (host, int(port)) == ("127.0.0.1", broker.classic_endpoint.port)
    assert creator.startswith("127.0.0.1-")
    broker.create_topic("modern", 3)
    produce(zookeeper, 0, 5)
    settled(lambda: zookeeper_client.exists("/brokers/topics/t/4"))
    assert value(zookeeper_client, "/brokers/topics/t/4") == "2"
    assert zookeeper_client.get_children("/brokers/topics") == ["t"]
    broker.stop()
    assert zookeeper_client.get_children("/brokers/ids") == []
    again = start(4)
    settled(lambda: zookeeper_client.exists("/brokers/topics/t/4"))
    again.delete_topic("t")
    settled(lambda: not zookeeper_client.exists("/brokers/topics/t/4"))


def test_id_in_use_ends_the_start(zookeeper, start, tmp_path):
    start(1)
    with pytest.raises(StartupError, match=r"broker id 1 is already registered"):
        start(1, **{"log.dirs": str(tmp_path / "other")})


def test_without_zookeeper_nothing_is_registered(zookeeper, zookeeper_client, start):
    start(1, **{"enable.zookeeper": "false"})
    assert zookeeper_client.exists("/brokers") is None


def test_zookeeper_that_does_not_answer(start):
    with pytest.raises(StartupError, match="no ZooKeeper server"):
        start(1, **{"zookeeper.connect": "127.0.0.1:1", "zk.connectiontimeout.ms": "200"})


def test_two_brokers_five_partitions_and_the_documents_groups(zookeeper, zookeeper_client, start, members):
    start(0, **{"num.partitions": "3"})
    second_broker = start(1, **{"num.partitions": "2"})
    produce(zookeeper, 0, 50)
    settled(lambda: brokers_of(zookeeper_client, "t") == ["0", "1"])
    first, second = members("c1"), members("c2")
    settled(lambda: first.owned == ["0-0", "0-1", "0-2"] and second.owned == ["1-0", "1-1"])
    produce(zookeeper, 50, 200)
    settled(lambda: set(first.numbers + second.numbers) == set(range(200)))
    # A broker that goes is consumed again when it is back.
    second_broker.stop()
    settled(lambda: first.owned + second.owned and not {"1-0", "1-1"} & set(first.owned + second.owned))
    produce(zookeeper, 200, 250)
    start(1, **{"num.partitions": "2"})
    settled(lambda: sorted(first.owned + second.owned) == ["0-0", "0-1", "0-2", "1-0", "1-1"])
    settled(lambda: brokers_of(zookeeper_client, "t") == ["0", "1"])
    produce(zookeeper, 250, 300)
    settled(lambda: set(first.numbers + second.numbers) == set(range(300)))


def test_lost_zookeeper_stops_neither_produce_nor_fetch(zookeeper, zookeeper_client, start):
    broker = start(0)
    produce(zookeeper, 0, 1)
    address = f"0:127.0.0.1:{broker.classic_endpoint.port}"
    zookeeper.kill()
    try:
        with Producer(ProducerConfig(broker_list=address)) as producer:
            producer.send(ProducerData("t", [b"1", b"2"]))
        with SimpleConsumer("127.0.0.1", broker.classic_endpoint.port) as consumer:
            settled(lambda: payloads(consumer) == [b"0", b"1", b"2"], "the messages are visible")
    finally:
        zookeeper.start()
    settled(lambda: not broker.failed.is_set() and registered(zookeeper_client))


def payloads(consumer):
    return [item.message.payload for item in consumer.fetch("t", 0, 0, 1000)]


def registered(client):
    with contextlib.suppress(Exception):
        return client.exists("/brokers/ids/0") is not None
    return False
