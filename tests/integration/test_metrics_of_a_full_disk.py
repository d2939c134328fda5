"""A broker whose disk is full is alive and not ready."""

import errno

import pytest

from kafkalite import Broker
from kafkalite._native.base import file_ops
from kafkalite.errors import ErrorCode
from tests.kit.harness import seams, wire
from tests.kit.harness.scrape import ask

pytestmark = pytest.mark.own_process

ONE = wire.batch_of([wire.Record(None, b"x" * 100)])


def test_while_the_disk_is_full_the_broker_is_alive_and_not_ready() -> None:
    with Broker(metrics_listeners="http://127.0.0.1:0") as broker:
        url = broker.metrics_urls[0]
        broker.create_topic("a")
        with wire.Connection(broker.port) as client:
            assert client.produce("a", 0, ONE).error == 0
            assert ask(url, "/health/ready").status == 200
            seams.arm(("write",), after=0, error=errno.ENOSPC, sticky=True)
            try:
                assert client.produce("a", 0, ONE).error == ErrorCode.KAFKA_STORAGE_ERROR
                got = ask(url, "/health/ready")
                assert (got.status, got.json["reasons"]) == (503, ["the disk of the data directory is full"])
                assert ask(url, "/health/live").status == 200
            finally:
                file_ops.disarm()
            assert client.produce("a", 0, ONE).error == 0
        assert ask(url, "/health/ready").status == 200
