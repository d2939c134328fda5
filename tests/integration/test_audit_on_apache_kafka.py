"""An audit of Apache Kafka: its topics and counts, and what a mirror copied of them to kafkalite."""

import json
from collections.abc import Iterator

import pytest

from kafkalite.audit import AuditedConfluentProducer, AuditedProducer
from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.wire.record.columns import Record
from tests.kit.processes.apache_kafka import ApacheKafka
from tests.kit.processes.broker import wait_until

pytestmark = [pytest.mark.compat, pytest.mark.integration, pytest.mark.slow]

STAMP = 1_700_000_040_000


@pytest.fixture
def client(apache_kafka: ApacheKafka) -> Iterator[Client]:
    with Client(apache_kafka.bootstrap, retry_timeout_s=60) as client:
        yield client


@pytest.fixture
def offline() -> Iterator[Broker]:
    with Broker({"flush.on.acks.all": False, "transaction.state.log.num.partitions": 2}) as running:
        yield running


def test_both_producers_and_a_mirror_are_complete(
    apache_kafka: ApacheKafka, client: Client, offline: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    client.admin.create_topic("audited", 2)
    with AuditedProducer(client, server="web1") as producer:
        producer.send("audited", 0, [Record(-1, STAMP + 100 * n, None, b"%d" % n) for n in range(1500)])
    with AuditedConfluentProducer({"bootstrap.servers": apache_kafka.bootstrap}, server="web2") as foreign:
        for number in range(300):
            foreign.produce("audited", b"%d" % number, partition=1, timestamp=STAMP + 1000 * number)
    both = ["--from", apache_kafka.bootstrap, "--to", offline.bootstrap_servers, "--name", "m", "--topics", "audited"]
    assert main(["mirror", *both, "-e", "-q"]) == 0
    with Client(offline.bootstrap_servers) as target:
        for part in range(2):
            wait_until(
                lambda part=part: target.end_offset("audited", part, isolation=1) == target.end_offset("audited", part),
                60,
                "the mirror's markers are there",
            )
    capsys.readouterr()
    stages = ["--live", apache_kafka.bootstrap, "--offline", offline.bootstrap_servers, "--mirror", "m"]
    assert main(["audit", *stages, "--grace", "0", "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["expected"], found["windows"]) == (1800, 5)
    assert {stage["records"] for stage in found["stages"].values()} == {1800}
