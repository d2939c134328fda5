"""Groups of 0.7 consumers through a real ZooKeeper: who owns what, and what is delivered while members come and go."""

import contextlib
import threading

import pytest

from kafkalite.classic import connector as connector_module
from kafkalite.classic.config import ConsumerConfig, ProducerConfig
from kafkalite.classic.consumer import Consumer
from kafkalite.classic.errors import ClassicError, ConsumerTimeout, InvalidConfig, RebalanceFailed
from kafkalite.classic.handlers import StringDecoder
from kafkalite.classic.producer import Producer, ProducerData
from kafkalite.zookeeper.nodes import BrokerPartition
from kafkalite.zookeeper.topic_filter import Whitelist
from tests.kit.fakes.classic_broker import ClassicBroker
from tests.kit.processes.broker import wait_until

pytestmark = [pytest.mark.zookeeper, pytest.mark.integration]

SETTLE_S = 60.0


@pytest.fixture
def cluster(zookeeper):
    """Two registered brokers, with three and two partitions of each topic."""
    client = zookeeper.client()
    brokers = [ClassicBroker(0, 3).start(), ClassicBroker(1, 2).start()]
    for broker in brokers:
        broker.register(client, "t")
    yield brokers
    for broker in brokers:
        broker.stop()
    client.stop()
    client.close()


class Member:
    """A consumer whose streams are read by threads; what they got is in `payloads`."""

    def __init__(self, server, name, streams=1, chosen=None, **settings):
        config = ConsumerConfig(
            **{
                "groupid": "g",
                "consumerid": name,
                "zk_connect": server.address,
                "zk_session_timeout_ms": 2000,
                "zk_sync_time_ms": 100,
                "fetcher_backoff_ms": 20,
                "rebalance_retries_max": 30,
                **settings,
            }
        )
        self.connector = Consumer.create(config)
        self.payloads = []
        try:
            if chosen is None:
                made = self.connector.create_message_streams({"t": streams}, StringDecoder())["t"]
            else:
                made = self.connector.create_message_streams_by_filter(chosen, streams, StringDecoder())
        except BaseException:
            self.connector.shutdown()  # its threads would keep looking for a ZooKeeper that is gone
            raise
        self.threads = [threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in made]
        for thread in self.threads:
            thread.start()

    def _read(self, stream):
        with contextlib.suppress(ConsumerTimeout):
            for item in stream:
                self.payloads.append((item.topic, item.message))

    @property
    def owned(self):
        return self.connector.owned.get("t", [])

    def stop(self):
        self.connector.shutdown()
        for thread in self.threads:
            thread.join(SETTLE_S)


@pytest.fixture
def members(zookeeper):
    """Makes members; ends them all."""
    made = []

    def make(name, streams=1, **more):
        made.append(Member(zookeeper, name, streams, **more))
        return made[-1]

    yield make
    for member in made:
        member.stop()


def settled(condition, what="the group settled"):
    return wait_until(condition, SETTLE_S, what)


def produce(server, first, last, topic="t"):
    with Producer(ProducerConfig(zk_connect=server.address)) as producer:
        for number in range(first, last):
            producer.send(ProducerData(topic, [b"%d" % number]))


def wanted(first, last, topic="t"):
    return {(topic, str(number)) for number in range(first, last)}


def owner_nodes(client, group="g", topic="t"):
    path = f"/consumers/{group}/owners/{topic}"
    return {name: client.get(f"{path}/{name}")[0].decode() for name in client.get_children(path)}


@pytest.fixture
def client(zookeeper_client):
    return zookeeper_client


def test_two_consumers_own_what_the_documents_say(cluster, members):
    first = members("c1")
    assert first.owned == ["0-0", "0-1", "0-2", "1-0", "1-1"]
    second = members("c2")
    settled(lambda: first.owned == ["0-0", "0-1", "0-2"] and second.owned == ["1-0", "1-1"])


def test_two_consumers_of_four_streams_each(cluster, members, client):
    first, second = members("c1", 4), members("c2", 4)
    settled(lambda: first.owned == ["0-0", "0-1", "0-2", "1-0"] and second.owned == ["1-1"])
    assert owner_nodes(client) == {"0-0": "g_c1-0", "0-1": "g_c1-1", "0-2": "g_c1-2", "1-0": "g_c1-3", "1-1": "g_c2-0"}


def test_everything_is_delivered_once_without_failures(cluster, zookeeper, members):
    first = members("c1")
    produce(zookeeper, 0, 300)
    second = members("c2")
    produce(zookeeper, 300, 600)
    settled(lambda: wanted(0, 600) <= set(first.payloads + second.payloads))
    first.stop()
    settled(lambda: len(second.owned) == 5)
    produce(zookeeper, 600, 700)
    settled(lambda: wanted(600, 700) <= set(second.payloads))


def test_the_next_run_resumes_at_the_last_commit(cluster, zookeeper, members):
    produce(zookeeper, 0, 100)
    first = members("c1")
    settled(lambda: len(first.payloads) == 100)
    first.stop()
    produce(zookeeper, 100, 150)
    second = members("c1")
    settled(lambda: len(second.payloads) == 50)
    assert set(second.payloads) == wanted(100, 150)


def test_without_auto_commit_only_a_call_or_a_rebalance_commits(cluster, zookeeper, members, client):
    produce(zookeeper, 0, 50)
    first = members("c1", auto_commit=False)
    settled(lambda: len(first.payloads) == 50)
    first.stop()
    second = members("c1", auto_commit=False)
    settled(lambda: len(second.payloads) == 50, "the same messages came again")
    second.connector.commit_offsets()
    ends = {
        f"{broker.broker_id}-{partition}": len(log) for broker in cluster for (_, partition), log in broker.logs.items()
    }
    stored = {name: int(client.get(f"/consumers/g/offsets/t/{name}")[0]) for name in ends}
    assert stored == ends


def test_consumer_whose_session_expired_comes_back(cluster, zookeeper, members, client):
    first, second = members("c1"), members("c2")
    settled(lambda: len(second.owned) == 2)
    for _ in range(3):
        zookeeper.expire(first.connector._client)
        settled(lambda: len(first.owned) + len(second.owned) == 5 and len(owner_nodes(client)) == 5)
        settled(lambda: first.owned == ["0-0", "0-1", "0-2"] and second.owned == ["1-0", "1-1"])
        assert owner_nodes(client) == {
            "0-0": "g_c1-0",
            "0-1": "g_c1-0",
            "0-2": "g_c1-0",
            "1-0": "g_c2-0",
            "1-1": "g_c2-0",
        }
    produce(zookeeper, 0, 100)
    settled(lambda: wanted(0, 100) <= set(first.payloads + second.payloads))


def test_broker_that_comes_back_is_consumed_again(cluster, zookeeper, members):
    member = members("c1")
    produce(zookeeper, 0, 50)
    settled(lambda: len(member.payloads) == 50)
    cluster[1].stop()
    cluster[1].start()
    produce(zookeeper, 50, 100)
    settled(lambda: wanted(0, 100) <= set(member.payloads))


def test_largest_begins_at_the_end(cluster, zookeeper, members):
    produce(zookeeper, 0, 50)
    member = members("c1", auto_offset_reset="largest")
    produce(zookeeper, 50, 60)
    settled(lambda: len(member.payloads) == 10)
    assert set(member.payloads) == wanted(50, 60)


def test_reset_to_nowhere_fails_the_group(cluster, members):
    with pytest.raises(RebalanceFailed, match=r"autooffset\.reset"):
        members("c1", auto_offset_reset="anything", rebalance_retries_max=2)


def test_offset_out_of_range_is_reset_and_stored(cluster, zookeeper, members, client):
    produce(zookeeper, 0, 49)
    with Producer(ProducerConfig(zk_connect=zookeeper.address)) as producer:  # the fake has no log before a message
        producer.send(ProducerData("t", [b"49"], partition=BrokerPartition(0, 0)))
    client.create("/consumers/g/offsets/t/0-0", b"999999", makepath=True)
    member = members("c1")
    settled(lambda: wanted(0, 50) <= set(member.payloads))
    settled(lambda: 0 <= int(client.get("/consumers/g/offsets/t/0-0")[0]) <= len(cluster[0].logs["t", 0]))


def test_id_that_is_in_use(cluster, members):
    members("c1")
    with pytest.raises(RebalanceFailed, match="in use"):
        members("c1")


def test_more_streams_than_partitions_leave_some_idle(cluster, members):
    members("c1", 5)
    second = members("c2", 5)
    settled(lambda: second.owned == [])


def test_stream_that_timed_out_ends_with_its_connector_whose_streams_are_made_once(cluster, zookeeper):
    config = ConsumerConfig(groupid="g", zk_connect=zookeeper.address, consumer_timeout_ms=50)
    with Consumer.create(config) as connector:
        (stream,) = connector.create_message_streams({"t": 1})["t"]
        with pytest.raises(ConsumerTimeout):
            next(stream)
        with pytest.raises(ClassicError, match="once"):
            connector.create_message_streams({"t": 1})
    assert list(stream) == []


def test_filter_takes_topics_as_they_come(cluster, zookeeper, members, client):
    member = members("c1", 2, chosen=Whitelist("t,new.*"))
    produce(zookeeper, 0, 20)
    cluster[0].append("news", 0, bytes.fromhex("0000000b01003610a68668656c6c6f"))
    client.create("/brokers/topics/news/0", b"3", ephemeral=True, makepath=True)
    client.create("/brokers/topics/old/0", b"3", ephemeral=True, makepath=True)
    settled(lambda: wanted(0, 20) | {("news", "hello")} <= set(member.payloads))
    assert sorted(member.connector.owned) == ["news", "t"]


def test_member_of_a_client_that_writes_a_bare_topic_name_is_counted(cluster, members, client):
    client.create("/consumers/g/ids/host:1", b"t", ephemeral=True, makepath=True)
    member = members("c1")
    settled(lambda: member.owned == ["0-0", "0-1", "0-2"])


@pytest.mark.slow
def test_connection_to_zookeeper_that_is_away(cluster, zookeeper, members):
    member = members("c1", zk_session_timeout_ms=5000)
    produce(zookeeper, 0, 20)
    settled(lambda: len(member.payloads) == 20)
    zookeeper.kill()
    zookeeper.start()
    for broker in cluster:
        assert broker.requests
    settled(lambda: len(member.owned) == 5)


@pytest.mark.slow
def test_shutdown_does_not_wait_for_a_zookeeper_that_is_silent(cluster, zookeeper, members, client, monkeypatch):
    # The session is long, so a member that waited for a response would do so for many seconds.
    monkeypatch.setattr(connector_module, "LEAVE_TIMEOUT_S", 0.1)
    member = members("c1", zk_session_timeout_ms=40_000)
    produce(zookeeper, 0, 20)
    settled(lambda: len(member.payloads) == 20)
    zookeeper.pause()
    try:
        member.stop()  # returns, and the streams have ended
        assert not any(thread.is_alive() for thread in member.threads)
        leaving = [thread for thread in threading.enumerate() if thread.name == "kafkalite-classic-leave"]
        assert len(leaving) == 1, "the group was left without ZooKeeper's answer"
    finally:
        zookeeper.resume()
    leaving[0].join(SETTLE_S)
    assert not leaving[0].is_alive()
    assert client.get_children("/consumers/g/ids") == []
    ends = {(broker.broker_id, number): len(log) for broker in cluster for (_, number), log in broker.logs.items()}
    for (broker_id, number), end in ends.items():
        assert int(client.get(f"/consumers/g/offsets/t/{broker_id}-{number}")[0]) == end


def test_producer_with_keys_and_new_topics(cluster, zookeeper):
    with Producer(ProducerConfig(zk_connect=zookeeper.address)) as producer:
        for _ in range(10):
            producer.send(ProducerData("t", [b"same"], key="hello"))
        for _ in range(40):
            producer.send(ProducerData("unheard-of", [b"new"]))
        settled(lambda: sum(len(log) for broker in cluster for log in broker.logs.values()) == 10 * 14 + 40 * 13)
    used = {(broker.broker_id, key) for broker in cluster for key in broker.logs}
    assert sum(topic == "t" for _, (topic, _) in used) == 1
    assert {(broker, partition) for broker, (topic, partition) in used if topic == "unheard-of"} == {(0, 0), (1, 0)}


@pytest.mark.slow
def test_settings_that_are_missing():
    with pytest.raises(InvalidConfig, match=r"zk\.connect"):
        Consumer.create({"groupid": "g"})
