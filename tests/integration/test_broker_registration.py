"""A broker's nodes in a real ZooKeeper: made, kept, made again, and refused when another has the id."""

import contextlib
import threading

import pytest
from kazoo.exceptions import ConnectionLoss, KazooException, NodeExistsError, SessionExpiredError

from kafkalite.base.clock import SystemClock
from kafkalite.errors import StartupError
from kafkalite.zookeeper import session
from kafkalite.zookeeper.broker import BrokerRegistration
from tests.kit.processes.broker import wait_until

pytestmark = [pytest.mark.zookeeper, pytest.mark.integration]

WAIT_S = 60.0


@pytest.fixture
def client(zookeeper_client):
    return zookeeper_client


@pytest.fixture
def registration(zookeeper, client):
    """Makes registrations; stops them all."""
    made = []

    def make(broker_id=0, port=9092, topics=None, chroot="", **settings):
        failures = []
        one = BrokerRegistration(
            zookeeper.address + chroot,
            broker_id,
            "127.0.0.1",
            port,
            SystemClock(),
            **{"session_timeout_s": 1.0, "connection_timeout_s": 30.0, "on_fatal": failures.append, **settings},
        )
        one.failures = failures
        one.start(topics or {})
        made.append(one)
        return one

    yield make
    for one in made:
        one.stop()


def value(client, path):
    return client.get(path)[0].decode()


def says(client, path, text):
    """Return False while the node is being recreated."""
    with contextlib.suppress(KazooException):
        return value(client, path) == text
    return False


def is_there(client, path):
    """A look that ZooKeeper did not answer, or that came with an expired session, saw nothing."""
    with contextlib.suppress(KazooException):
        return client.exists(path) is not None
    return False


def appears(client, path):
    wait_until(lambda: is_there(client, path), WAIT_S, f"{path} is there")


def test_broker_and_its_topics_are_there_and_go_with_it(client, registration):
    one = registration(3, topics={"a": 2})
    creator, host, port = value(client, "/brokers/ids/3").split(":")
    assert (host, port) == ("127.0.0.1", "9092")
    assert creator.startswith("127.0.0.1-1")
    appears(client, "/brokers/topics/a/3")
    assert value(client, "/brokers/topics/a/3") == "2"
    one.topic_created("b", 5)
    appears(client, "/brokers/topics/b/3")
    one.topic_deleted("a")
    wait_until(lambda: not client.exists("/brokers/topics/a/3"), WAIT_S, "the topic went")
    one.stop()
    assert client.get_children("/brokers/ids") == []
    assert client.get_children("/brokers/topics/b") == []


def test_connection_that_goes_while_the_broker_registers_is_made_again(client, registration, monkeypatch):
    original, losses = session.create_ephemeral, [ConnectionLoss(), SessionExpiredError()]

    def create(*arguments):
        if losses:
            raise losses.pop()
        return original(*arguments)

    monkeypatch.setattr(session, "create_ephemeral", create)
    registration(6)
    assert is_there(client, "/brokers/ids/6")


def test_connection_loss_during_registration_fails_the_start(registration, monkeypatch):
    def create(*_):
        raise ConnectionLoss

    monkeypatch.setattr(session, "create_ephemeral", create)
    with pytest.raises(StartupError, match="while registering the broker"):
        registration(6, connection_timeout_s=1.0)


def test_more_partitions_are_registered(client, registration):
    one = registration(topics={"a": 2})
    appears(client, "/brokers/topics/a/0")
    one.topic_created("a", 4)
    wait_until(lambda: says(client, "/brokers/topics/a/0", "4"), WAIT_S, "the new count")


def test_id_that_another_broker_has_is_fatal(client, registration):
    registration(7)
    with pytest.raises(StartupError, match=r"broker id 7 is already registered .* another broker\.id"):
        registration(7, port=9093)
    assert value(client, "/brokers/ids/7").endswith(":9092")


def test_node_of_a_killed_run_of_the_same_broker_is_waited_for(zookeeper, client, registration):
    killed = zookeeper.client()
    killed.create("/brokers/ids/0", b"old:127.0.0.1:9092", ephemeral=True, makepath=True)
    killed.create("/brokers/topics/a/0", b"1", ephemeral=True, makepath=True)
    with pytest.raises(StartupError):
        registration(0)
    threading.Timer(0.5, zookeeper.expire, (killed,)).start()
    registration(0, topics={"a": 1}, session_timeout_s=10.0)
    appears(client, "/brokers/topics/a/0")
    assert not value(client, "/brokers/ids/0").startswith("old")
    killed.stop()
    killed.close()


def test_topic_node_that_an_earlier_run_left_is_replaced(zookeeper, client, registration):
    earlier = zookeeper.client()
    earlier.create("/brokers/topics/a/0", b"1", ephemeral=True, makepath=True)
    registration(0, topics={"a": 1})
    wait_until(
        lambda: (
            (client.exists("/brokers/topics/a/0") or [None])
            and owner_of(client, "/brokers/topics/a/0") not in (None, earlier.client_id[0])
        ),
        WAIT_S,
        "the node is the new session's",
    )
    earlier.stop()
    earlier.close()
    assert client.exists("/brokers/topics/a/0")


def owner_of(client, path):
    stat = client.exists(path)
    return None if stat is None else stat.ephemeralOwner


def test_expired_session_registers_everything_again(zookeeper, client, registration):
    one = registration(0, topics={"a": 1, "b": 2})
    appears(client, "/brokers/topics/b/0")
    for _ in range(3):
        before = owner_of(client, "/brokers/ids/0")
        creator = value(client, "/brokers/ids/0")
        zookeeper.expire(one._client)
        wait_until(lambda before=before: owner_of(client, "/brokers/ids/0") not in (None, before), WAIT_S, "a new node")
        assert value(client, "/brokers/ids/0") != creator
        for topic in ("a", "b"):
            appears(client, f"/brokers/topics/{topic}/0")
    assert one.failures == []


def test_id_that_was_taken_while_the_session_was_lost_is_fatal(zookeeper, client, registration):
    one = registration(0, session_timeout_s=0.5)
    thief = zookeeper.client()
    # Between the end of the session and its renewal somebody else takes the id; the broker would need luck to win.
    one._register_id = lambda _client, deadline: (thief_takes(thief), original(_client, deadline))[1]
    original = type(one)._register_id.__get__(one)
    zookeeper.expire(one._client)
    wait_until(lambda: one.failures, WAIT_S, "the broker says that it cannot go on")
    assert "already registered" in str(one.failures[0])
    thief.stop()
    thief.close()


def thief_takes(thief):
    with contextlib.suppress(NodeExistsError):
        thief.create("/brokers/ids/0", b"thief:10.0.0.1:1", ephemeral=True)


@pytest.mark.slow
def test_zookeeper_that_is_restarted(zookeeper, client, registration):
    one = registration(0, topics={"a": 1}, session_timeout_s=30.0)
    appears(client, "/brokers/topics/a/0")
    zookeeper.kill()
    one.topic_created("b", 1)
    zookeeper.start()
    appears(client, "/brokers/topics/b/0")
    assert one.failures == []


def test_chroot_is_made(client, registration):
    registration(0, chroot="/kafka/seven")
    assert client.get_children("/kafka/seven/brokers/ids") == ["0"]


def test_without_a_zookeeper_server_the_start_fails():
    one = BrokerRegistration(
        "127.0.0.1:1", 0, "127.0.0.1", 1, SystemClock(), session_timeout_s=1.0, connection_timeout_s=0.2,
        on_fatal=lambda _error: None,
    )  # fmt: skip
    with pytest.raises(StartupError, match=r"no ZooKeeper server at 127\.0\.0\.1:1 answered"):
        one.start({})
    one.stop()


@pytest.mark.slow
def test_host_that_cannot_be_registered(zookeeper):
    one = BrokerRegistration(
        zookeeper.address, 0, "::1", 1, SystemClock(), session_timeout_s=1.0, connection_timeout_s=30.0,
        on_fatal=lambda _error: None,
    )  # fmt: skip
    with pytest.raises(StartupError, match="not contain a colon"):
        one.start({})
    one.stop()
