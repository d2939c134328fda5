"""A broker in which a transaction hangs: a partition has it open, and its coordinator knows nothing of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from kafkalite.broker import Broker
from kafkalite.client import Client


@contextlib.contextmanager
def broker_that_forgot(directory: Path, fill: Callable[[Client], object]) -> Iterator[Broker]:
    """In topic `moves`, from offset 0 on, two records of `forgotten`, whose coordinator lost its log."""
    settings = {"log.dirs": str(directory), "flush.on.acks.all": "false", "offsets.topic.num.partitions": "2"}
    settings |= {"metrics.listeners": "http://127.0.0.1:0"}
    with Broker(settings) as first, Client(first.bootstrap_servers) as client:
        fill(client)
        client.admin.create_topic("moves", 1)
        producer = client.producer(transactional_id="forgotten")
        producer.begin_transaction()
        producer.send("moves", 0, [b"a", b"b"])
        producer.flush()
    for lost in directory.glob("__transaction_state-*"):
        for file in lost.glob("*"):
            file.unlink()
        lost.rmdir()
    with Broker(settings) as again:
        yield again
