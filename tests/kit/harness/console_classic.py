"""A broker that Kafka 0.7's clients use, a ZooKeeper, and a group that has read a part."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.broker import Broker
from kafkalite.classic import Consumer, ConsumerConfig, Producer, ProducerConfig, ProducerData
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from kafkalite.classic import ConsumerConnector

WAIT_S = 60.0
SIZE = 90
"""Of a payload: a message has ten bytes more."""


class ClassicScene(NamedTuple):
    """The broker, and the member of the group reports that has read one message of three, and stored that."""

    broker: Broker
    connector: ConsumerConnector


@contextlib.contextmanager
def classic_scene(client: KazooClient, address: str) -> Iterator[ClassicScene]:
    """`client` is a session with the ZooKeeper at that address."""
    settings = {
        "listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0",
        "zookeeper.connect": address,
        "log.flush.interval": "1",
        "num.partitions": "2",
        "flush.on.acks.all": "false",
    }
    with Broker(settings) as broker:
        produce(address, b"1" * SIZE)
        wait_until(lambda: client.exists("/brokers/topics/visits/1") is not None, WAIT_S, "the topic is registered")
        config = ConsumerConfig(groupid="reports", consumerid="c1", zk_connect=address)
        with Consumer.create(config) as connector:
            (stream,) = connector.create_message_streams({"visits": 1})["visits"]
            next(stream)
            connector.commit_offsets()
            produce(address, b"2" * SIZE, b"3" * SIZE)
            client.create("/consumers/old/offsets/visits/1-0", b"nonsense", makepath=True)
            client.create("/consumers/old/offsets/gone/7-0", b"50", makepath=True)
            yield ClassicScene(broker, connector)


def produce(address: str, *payloads: bytes) -> None:
    """Into partition 0."""
    with Producer(ProducerConfig(zk_connect=address)) as producer:
        producer.send(ProducerData("visits", list(payloads), partition=0))
