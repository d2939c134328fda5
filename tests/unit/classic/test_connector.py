"""A consumer's place in its group over a ZooKeeper in memory: claims that fail, lost connections, lost sessions."""

import socket
import threading
import time

import pytest
from kazoo.client import KazooState

from kafkalite.classic import connector as connector_module
from kafkalite.classic import ownership
from kafkalite.classic.config import ConsumerConfig
from kafkalite.classic.connector import ConsumerConnector
from kafkalite.classic.errors import ConsumerTimeout
from kafkalite.classic.handlers import PayloadDecoder
from kafkalite.zookeeper import session as zookeeper
from tests.kit.fakes.classic_broker import ClassicBroker
from tests.kit.fakes.zookeeper import FakeServer
from tests.kit.oracles.classic_oracle import OracleMessage, encode_set, gzip_wrapper
from tests.kit.processes.broker import wait_until

WAIT_S = 60.0
OWNERS = "/consumers/g/owners/t"
DOCUMENTED = {"0-0": "g_c1-0", "0-1": "g_c1-0", "0-2": "g_c1-0", "1-0": "g_c2-0", "1-1": "g_c2-0"}
ALONE = dict.fromkeys(DOCUMENTED, "g_c1-0")


@pytest.fixture
def server(monkeypatch):
    made = FakeServer()
    made.clients = []

    def connect(*_arguments, **_options):
        made.clients.append(made.client())
        return made.clients[-1]

    monkeypatch.setattr(zookeeper, "connect", connect)
    monkeypatch.setattr(connector_module, "RETRY_S", 0.01)
    return made


@pytest.fixture
def brokers(server):
    running = [ClassicBroker(0, 3).start(), ClassicBroker(1, 2).start()]
    for broker in running:
        register(server, broker)
    yield running
    for broker in running:
        broker.stop()


def register(server, broker, topic="t"):
    for path, value in (
        (f"/brokers/ids/{broker.broker_id}", f"c:127.0.0.1:{broker.port}"),
        (f"/brokers/topics/{topic}/{broker.broker_id}", str(broker.partition_count)),
    ):
        for watch in server.put(path, value.encode(), session=-broker.broker_id - 1):
            watch(None)


@pytest.fixture
def join(server):
    """Makes members; ends them."""
    made = []

    def make(name, **settings):
        config = ConsumerConfig(
            **{
                "groupid": "g",
                "consumerid": name,
                "zk_connect": "memory",
                "rebalance_backoff_ms": 5,
                "rebalance_retries_max": 100,
                "fetcher_backoff_ms": 5,
                "consumer_timeout_ms": 20,
                **settings,
            }
        )
        member = ConsumerConnector(config)
        made.append(member)
        (member.stream,) = member.create_message_streams({"t": 1}, PayloadDecoder())["t"]
        member.zookeeper = server.clients[-1]
        return member

    yield make
    for member in made:
        member.shutdown()


def settled(condition, what="the group settled"):
    return wait_until(condition, WAIT_S, what, 0.002)


def owned(member):
    return member.owned.get("t", [])


def take(stream, count):
    """The next messages, waited for."""
    found = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        try:
            found.append(next(stream).message)
        except ConsumerTimeout:
            continue
    return found


@pytest.mark.parametrize("done", [False, True], ids=["not-done", "done-and-not-answered"])
def test_whichever_operation_fails_every_partition_has_its_owner_in_the_end(server, brokers, join, done):
    """The n-th operation of a member's rebalance fails, n = 1, 2, ... up to one that fails nothing any more."""
    first = join("c1")
    for number in range(1, 200):
        before = first.zookeeper.operation_count
        first.zookeeper.fail_at(number, done=done)
        second = join("c2")
        settled(lambda: server.below(OWNERS) == DOCUMENTED)
        settled(lambda second=second: (len(owned(first)), len(owned(second))) == (3, 2))
        used = first.zookeeper.operation_count - before
        second.shutdown()
        settled(lambda: server.below(OWNERS) == ALONE and len(owned(first)) == 5)
        if used < number:
            break
    assert number > 20, "a rebalance has more operations than that"


def test_partition_is_read_on_where_its_owner_before_stored_its_last_offset(server, brokers, join):
    brokers[0].append("t", 0, encode_set([OracleMessage(b"%d" % number) for number in range(10)]))
    first = join("c1")
    taken = take(first.stream, 4)
    stored = []

    def look(operation, path):
        if operation == "create" and path == f"{OWNERS}/0-0":
            stored.append("claim")
        if operation == "get" and path == "/consumers/g/offsets/t/0-0":
            stored.append("offset")

    fresh = server.client

    def client():
        made = fresh()
        made.before = look
        return made

    server.client = client
    second = join("c0")  # sorts before c1, so that it takes 0-0
    settled(lambda: owned(second) == ["0-0", "0-1", "0-2"])
    first_claim = len(stored) - stored[::-1].index("claim") - 1
    assert "offset" in stored[first_claim:], "the offset was read before the partition was ours"
    assert taken + take(second.stream, 6) == [b"%d" % number for number in range(10)]


def test_lost_connection_stops_nothing_until_the_session_must_be_over(server, brokers, join):
    member = join("c1", zk_session_timeout_ms=600_000)
    brokers[0].append("t", 0, encode_set([OracleMessage(b"1")]))
    assert take(member.stream, 1) == [b"1"]
    before = member.zookeeper.operation_count
    member.zookeeper.lose_connection()
    brokers[0].append("t", 0, encode_set([OracleMessage(b"2"), OracleMessage(b"3")]))
    assert take(member.stream, 2) == [b"2", b"3"]
    member.commit_offsets()
    assert member.zookeeper.operation_count == before, "ZooKeeper was asked while it was away"
    member.zookeeper.tell(KazooState.CONNECTED)
    settled(lambda: member.zookeeper.operation_count > before and len(owned(member)) == 5)


def test_connection_that_stays_away_for_a_session_ends_what_is_handed_out(server, brokers, join):
    member = join("c1", zk_session_timeout_ms=50)
    member.zookeeper.lose_connection()
    settled(lambda: owned(member) == [])
    brokers[0].append("t", 0, encode_set([OracleMessage(b"1")]))
    with pytest.raises(ConsumerTimeout):
        next(member.stream)
    member.zookeeper.tell(KazooState.CONNECTED)
    assert take(member.stream, 1) == [b"1"]


def test_rebalance_that_failed_for_good_is_begun_again(server, brokers, join):
    first = join("c1", rebalance_retries_max=2)
    settled(lambda: server.below(OWNERS) == ALONE)
    blocker = server.client()
    blocker.create_async("/consumers/g/owners/t/0-9", b"x")
    # Broker 0 gets more partitions, one of which somebody outside the group holds for longer than two attempts.
    brokers[0].partition_count = 10
    register(server, brokers[0])
    settled(lambda: owned(first) == [])
    for _ in range(3):
        before = first.zookeeper.operation_count
        settled(lambda before=before: first.zookeeper.operation_count > before + 60)
        assert server.below(OWNERS).get("0-0") in {None, "g_c1-0"}
    blocker.delete_async("/consumers/g/owners/t/0-9")
    settled(lambda: len(owned(first)) == 12)


def test_claims_made_in_the_session_after_the_lost_one_are_given_back(server, brokers, join):
    """The session ends in the middle of an attempt: what it claims after that is the new session's."""
    first = join("c1")
    again = threading.Event()

    def expire(operation, path):
        if operation == "create" and path == f"{OWNERS}/0-1" and not again.is_set():
            again.set()
            server.expire(first.zookeeper)

    first.zookeeper.before = expire
    second = join("c2")
    settled(lambda: server.below(OWNERS) == DOCUMENTED and (len(owned(first)), len(owned(second))) == (3, 2))
    assert again.is_set()
    third = join("c0")
    settled(lambda: [len(owned(member)) for member in (third, first, second)] == [2, 2, 1])


def test_broker_that_registers_while_partitions_are_read_is_fetched_from(server, brokers, join):
    late = ClassicBroker(2, 1).start()
    late.append("t", 0, encode_set([OracleMessage(b"late")]))
    try:
        fresh = server.client

        def client():
            made = fresh()
            seen = []

            def before(operation, path):
                if operation == "children" and path == "/brokers/topics/t" and not seen:
                    seen.append(path)
                    register(server, late)

            made.before = before
            return made

        server.client = client
        member = join("c1")
        assert take(member.stream, 1) == [b"late"]
    finally:
        late.stop()


def test_clean_end_hands_out_nothing_behind_the_last_commit(server, brokers, join):
    inner = [OracleMessage(b"%d" % number) for number in range(50)]
    brokers[0].append("t", 0, encode_set(inner[:25]) + gzip_wrapper(inner[25:]).encode())
    member = join("c1")
    assert take(member.stream, 10) == [b"%d" % number for number in range(10)]
    member.shutdown()
    assert list(member.stream) == []
    assert server.nodes["/consumers/g/offsets/t/0-0"][0] == b"%d" % len(encode_set(inner[:10]))


def test_commit_that_a_rebalance_overtakes_stores_nothing_more(brokers, join, monkeypatch):
    """The partitions may be another's by now, who has stored an offset behind ours."""
    member = join("c1", auto_commit=False)
    assert len(owned(member)) == 5
    stored = []

    def store(_topic, partition, _offset):
        stored.append(partition)
        member._positions = {}

    monkeypatch.setattr(member, "_store", store)
    member.commit_offsets()
    assert len(stored) == 1


def test_frozen_broker_is_not_waited_for_when_offsets_are_looked_up(server, join, monkeypatch):
    """It accepts connections and says nothing, as one that is stopped by a signal."""
    monkeypatch.setattr(ownership, "ASK_TIMEOUT_S", 0.05)
    silent = socket.create_server(("127.0.0.1", 0))
    broker = ClassicBroker(0, 40)
    broker.port = silent.getsockname()[1]
    register(server, broker)
    try:
        member = join("c1")
        assert len(owned(member)) == 40
    finally:
        silent.close()
