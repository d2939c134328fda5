"""A producer's view of the brokers in ZooKeeper: kept while the connection is away, read again when it is back."""

import pytest
from kazoo.client import KazooState
from kazoo.exceptions import ConnectionLoss

from kafkalite.classic.brokers import Address, ZooKeeperBrokers
from kafkalite.classic.config import ProducerConfig
from kafkalite.classic.errors import NoBrokersForPartition
from kafkalite.zookeeper import session as zookeeper
from kafkalite.zookeeper.nodes import BrokerPartition
from tests.kit.fakes.zookeeper import FakeServer, call


@pytest.fixture
def server():
    made = FakeServer()
    made.put("/brokers/ids/0", b"c:host:9", session=-1)
    made.put("/brokers/topics/t/0", b"2", session=-1)
    return made


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def brokers(client, monkeypatch):
    monkeypatch.setattr(zookeeper, "connect", lambda *_arguments, **_options: client)
    return ZooKeeperBrokers(ProducerConfig(zk_connect="memory"))


def unreachable(operation, path):
    raise ConnectionLoss


def test_answers_are_kept_while_the_connection_is_away(brokers, client):
    known = brokers.partitions("t")
    assert known == [BrokerPartition(0, 0), BrokerPartition(0, 1)]
    assert brokers.address(0) == Address(0, "host", 9)
    client.before = unreachable
    client.lose_connection()
    assert brokers.partitions("t") == known
    assert brokers.address(0) == Address(0, "host", 9)


def test_everything_is_read_again_when_the_connection_is_back(brokers, client, server):
    brokers.partitions("t")
    brokers.address(0)
    client.lose_connection()
    server.put("/brokers/topics/t/0", b"3", session=-1)  # a watch of the old connection notifies no client any more
    client.tell(KazooState.CONNECTED)
    assert len(brokers.partitions("t")) == 3


def test_change_is_seen(brokers, server):
    brokers.partitions("t")
    brokers.address(1)
    call(server.put("/brokers/ids/1", b"c:other:9", session=-2))
    call(server.put("/brokers/topics/t/1", b"1", session=-2))
    assert BrokerPartition(1, 0) in brokers.partitions("t")
    assert brokers.address(1) == Address(1, "other", 9)


def test_zookeeper_that_cannot_be_asked_is_an_error_of_the_0_7_api(brokers, client):
    client.before = unreachable
    with pytest.raises(NoBrokersForPartition, match="topic 't'"):
        brokers.partitions("t")
    with pytest.raises(NoBrokersForPartition, match="cannot read the live brokers"):
        brokers.address(0)
