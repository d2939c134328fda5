"""Controllers of later releases of Apache Kafka than this one knows: refused in words, and what those say helps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.kit.harness.load import quiet
from tests.kit.processes.apache_kafka import KafkaController, NotAvailable, jars
from tests.kit.processes.broker import BrokerDidNotStart, running, wait_until
from tests.kit.processes.mixed_cluster import JAVA, OURS, START_S, MixedCluster

pytestmark = pytest.mark.slow

NEWER = ("4.3.1", "4.4.0")
ADVICE = re.compile(r"formatted with (--release-version .*) take it")
TOPIC = "orders"
RECORDS = 300


@pytest.fixture(params=NEWER)
def version(request: pytest.FixtureRequest) -> str:
    found = str(request.param)
    try:
        jars(found)
    except NotAvailable as missing:
        pytest.skip(f"NOT HELD AGAINST APACHE KAFKA {found}: {missing}")
    return found


def test_newest_metadata_is_refused_by_a_sentence_that_helps(version: str, tmp_path: Path) -> None:
    with KafkaController(tmp_path / "controller", version=version) as controller:
        settings = {
            "process.roles": "broker",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": controller.address,
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:0",
        }
        with pytest.raises(BrokerDidNotStart) as ended, running(tmp_path / "broker", settings=settings):
            pass
        assert controller.alive
    assert ended.value.status == 2  # systemd does not start it again: nothing but a change helps
    advised = [found[1] for line in ended.value.log.splitlines() if (found := ADVICE.search(line))]
    assert advised, ended.value.log
    options = advised[-1].split()
    with MixedCluster(tmp_path / "cluster", (OURS, JAVA), format_options=options, version=version) as cluster:
        lead_and_follow(cluster)


def lead_and_follow(cluster: MixedCluster) -> None:
    """Each of two brokers leads a partition that the other one follows; what is acknowledged both have."""
    wanted = NewTopic(TOPIC, 2, replica_assignment=[[1, 2], [2, 1]], config={"min.insync.replicas": "2"})
    admin = cluster.admin()
    admin.create_topics([wanted])[TOPIC].result(START_S)
    cluster.wait_in_sync(TOPIC)
    assert [leader for leader, _, _ in cluster.isr(TOPIC).values()] == [1, 2]
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}, logger=quiet)
    for number in range(RECORDS):
        producer.produce(
            TOPIC,
            b"%d" % number,
            partition=number % 2,
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
    assert producer.flush(START_S) == 0
    assert not failures
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"}, logger=quiet)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(2)])
    seen: list[int] = []

    def read() -> bool:
        seen.extend(int(message.value() or b"") for message in consumer.consume(RECORDS, 1) if not message.error())
        return len(seen) >= RECORDS

    wait_until(read, START_S, "all records")
    consumer.commit(
        offsets=[TopicPartition(TOPIC, partition, RECORDS // 2) for partition in range(2)], asynchronous=False
    )
    consumer.close()
    assert sorted(seen) == list(range(RECORDS))
    cluster.brokers[1].stop()
    wait_until(lambda: {leader for leader, _, _ in cluster.isr(TOPIC).values()} == {2}, START_S, "the other one leads")
    cluster.start(1)
    cluster.wait_in_sync(TOPIC)
