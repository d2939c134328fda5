"""A broker's entry over a ZooKeeper in memory."""

import pytest

from kafkalite.base.clock import SystemClock
from kafkalite.zookeeper import session as zookeeper
from kafkalite.zookeeper.broker import BrokerRegistration
from tests.kit.fakes.zookeeper import FakeServer
from tests.kit.processes.broker import wait_until

WAIT_S = 30.0


@pytest.fixture
def server(monkeypatch):
    made = FakeServer()
    monkeypatch.setattr(zookeeper, "connect", lambda *_arguments, **_options: made.client())
    return made


def test_more_partitions_notify_the_watchers_of_a_topic(server):
    """Consumers watch the brokers of a topic, not each one's number of partitions: the node is recreated."""
    one = BrokerRegistration(
        "memory", 0, "127.0.0.1", 9, SystemClock(), session_timeout_s=1.0, connection_timeout_s=1.0,
        on_fatal=lambda _error: None,
    )  # fmt: skip
    one.start({"t": 2})
    try:
        wait_until(lambda: server.below("/brokers/topics/t") == {"0": "2"}, WAIT_S, "the topic is registered")
        told = []
        server.client().get_children_async("/brokers/topics/t", watch=told.append)
        one.topic_created("t", 4)
        wait_until(lambda: server.below("/brokers/topics/t") == {"0": "4"}, WAIT_S, "the new count")
        assert told
    finally:
        one.stop()
