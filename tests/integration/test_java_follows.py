"""Apache Kafka's brokers follow a leader of this project: their logs become its log byte for byte, who lags leaves."""

from __future__ import annotations

import functools
import json
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalite.broker import Broker
from tests.kit.harness.clustered import cluster_settings
from tests.kit.processes.apache_kafka import KafkaBroker, KafkaController, run_tool
from tests.kit.processes.broker import wait_until

OWN = 7
WAIT_S = 120
SEED = 20261123
LAG_MS = 4000


@contextmanager
def cluster(directory: Path, followers: int, **more: object) -> Iterator[tuple[Broker, list[KafkaBroker]]]:
    """A controller, this project's broker 7 and `followers` brokers of Kafka's, numbered from 1."""
    with ExitStack() as stack:
        controller = stack.enter_context(KafkaController(directory / "controller"))
        settings = cluster_settings(
            controller.address,
            directory / "own",
            replica_lag_time_max_ms=LAG_MS,
            transaction_state_log_replication_factor=1,
            transaction_state_log_min_isr=1,
            **more,
        )
        javas = [
            KafkaBroker(
                directory / f"java-{number}",
                controller_port=controller.controller_port,
                cluster_id=controller.cluster_id,
                node_id=number,
                java_options=("-Xmx256m", "-XX:TieredStopAtLevel=1"),
            )
            for number in range(1, followers + 1)
        ]
        for each in javas:
            each.prepare()
        broker = stack.enter_context(Broker(settings))
        for each in javas:
            stack.enter_context(each)
        yield broker, javas


def create(broker: Broker, name: str, followers: list[KafkaBroker], partitions: int = 1, **config: str) -> None:
    """A topic that broker 7 leads and the others follow."""
    replicas = [OWN, *(each.node_id for each in followers)]
    topic = NewTopic(
        name,
        num_partitions=partitions,
        replica_assignment=[replicas] * partitions,
        config={key.replace("_", "."): value for key, value in config.items()},
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([topic])[name].result(WAIT_S)
    wait_until(lambda: name in broker.logs.topics, WAIT_S, "the topic is here")


def in_sync(broker: Broker, name: str, partition: int = 0) -> set[int]:
    """Return the in-sync replicas from the cluster's metadata."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return set(admin.list_topics(name, timeout=WAIT_S).topics[name].partitions[partition].isrs)


def wait_in_sync(broker: Broker, name: str, *expected: int) -> None:
    wait_until(lambda: in_sync(broker, name) == {*expected}, WAIT_S, f"{expected} are in sync", 0.2)


def log_bytes(directory: Path, name: str, partition: int = 0) -> bytes:
    """Return the bytes of a partition's segments, in order."""
    return b"".join(path.read_bytes() for path in sorted((directory / f"{name}-{partition}").glob("*.log")))


def produce_storm(broker: Broker, name: str, partitions: int, rounds: int) -> int:
    """Batches of many kinds, acknowledged by all in sync; how many records of them are committed."""
    draw = random.Random(SEED)
    count = 0
    for number in range(rounds):
        settings: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap_servers,
            "acks": "all",
            "compression.type": draw.choice(["none", "gzip", "lz4", "zstd"]),
            "enable.idempotence": draw.random() < 0.7,
            "batch.num.messages": draw.choice([1, 10, 1000]),
            "linger.ms": 5,
        }
        transactional = draw.random() < 0.3
        if transactional:
            settings |= {"transactional.id": f"storm-{number}", "enable.idempotence": True}
        producer = Producer(settings)
        if transactional:
            producer.init_transactions(WAIT_S)
            producer.begin_transaction()
        told: list[object] = []
        for _ in range(draw.randint(1, 300)):
            producer.produce(
                name,
                key=str(draw.randrange(50)),
                value=draw.randbytes(draw.randrange(2000)),
                partition=draw.randrange(partitions),
                on_delivery=functools.partial(lambda kept, error, _message: kept.append(error), told),
            )
            count += 1
        assert producer.flush(WAIT_S) == 0
        assert {*told} == {None}
        if transactional:
            end = producer.commit_transaction if draw.random() < 0.6 else producer.abort_transaction
            end(WAIT_S)
    return count


def same_logs(broker: Broker, javas: list[KafkaBroker], name: str, partitions: int) -> bool:
    """Whether the followers' files hold what the leader's do, but for zeros that are written ahead."""
    for partition in range(partitions):
        segments = broker.logs.topics[name].partitions[partition].segments
        expected = b"".join(Path(each.path).read_bytes()[: each.size] for each in segments if each.size)
        if any(log_bytes(java.data_dir, name, partition) != expected for java in javas):
            return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("followers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_followers_of_kafkas_have_the_leaders_bytes_after_a_storm(
    kafka_jars: Path, tmp_path: Path, followers: int
) -> None:
    assert kafka_jars
    partitions = 3
    with cluster(tmp_path, followers) as (broker, javas):
        create(broker, "storm", javas, partitions, segment_bytes=str(1 << 20))
        wait_in_sync(broker, "storm", OWN, *range(1, followers + 1))
        count = produce_storm(broker, "storm", partitions, 30)
        logs = broker.logs.topics["storm"].partitions
        assert sum(log.log_end_offset for log in logs) >= count
        wait_until(lambda: same_logs(broker, javas, "storm", partitions), WAIT_S, "the logs are the same", 0.5)
        assert in_sync(broker, "storm") == {OWN, *range(1, followers + 1)}
        assert max(len(log.segments) for log in logs) > 1
        assert all(log.high_watermark == log.log_end_offset for log in logs)


@pytest.mark.slow
def test_a_stalled_follower_leaves_the_isr_and_returns(kafka_jars: Path, tmp_path: Path) -> None:
    assert kafka_jars
    with cluster(tmp_path, 1) as (broker, javas):
        create(broker, "lags", javas)
        wait_in_sync(broker, "lags", OWN, 1)
        process = javas[0].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
        told: list[object] = []
        producer.produce("lags", b"while it stands still", on_delivery=lambda error, _message: told.append(error))
        assert producer.flush(WAIT_S) == 0
        assert told == [None]
        assert in_sync(broker, "lags") == {OWN}
        process.send_signal(signal.SIGCONT)
        wait_in_sync(broker, "lags", OWN, 1)
        wait_until(lambda: same_logs(broker, javas, "lags", 1), WAIT_S, "the logs are the same", 0.5)


@pytest.mark.slow
def test_too_few_in_sync_refuse_writes_until_a_follower_is_back(kafka_jars: Path, tmp_path: Path) -> None:
    assert kafka_jars
    with cluster(tmp_path, 1) as (broker, javas):
        create(broker, "safe", javas, min_insync_replicas="2")
        wait_in_sync(broker, "safe", OWN, 1)
        bootstrap = ["--bootstrap-server", broker.bootstrap_servers]
        sent = run_tool(
            "org.apache.kafka.tools.VerifiableProducer",
            *bootstrap,
            *("--topic", "safe", "--max-messages", "500", "--acks", "-1"),
        )
        events = [json.loads(line) for line in sent.splitlines() if line.startswith("{")]
        assert sum(event["name"] == "producer_send_success" for event in events) == 500
        javas[0].stop()
        wait_in_sync(broker, "safe", OWN)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "retries": 0})
        told: list[Any] = []
        producer.produce("safe", b"refused", on_delivery=lambda error, _message: told.append(error))
        assert producer.flush(WAIT_S) == 0
        assert told[0].code() == KafkaError.NOT_ENOUGH_REPLICAS
        end = broker.logs.topics["safe"].partitions[0].log_end_offset
        assert end == 500
        javas[0].start()
        wait_in_sync(broker, "safe", OWN, 1)
        producer.produce("safe", b"taken", on_delivery=lambda error, _message: told.append(error))
        assert producer.flush(WAIT_S) == 0
        assert told[1] is None
        assert read_all(broker, "safe") == 501


@pytest.mark.slow
def test_a_follower_of_kafkas_and_one_of_this_project_have_the_same(kafka_jars: Path, tmp_path: Path) -> None:
    assert kafka_jars
    with cluster(tmp_path, 1) as (broker, javas):
        settings = cluster_settings(f"127.0.0.1:{javas[0].controller_port}", tmp_path / "two", node_id=8)
        with Broker(settings) as second:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            replicas = [OWN, 8, javas[0].node_id]
            topic = NewTopic("both", num_partitions=2, replica_assignment=[replicas] * 2)
            admin.create_topics([topic])["both"].result(WAIT_S)
            wait_until(lambda: "both" in broker.logs.topics and "both" in second.logs.topics, WAIT_S, "it is here")
            wait_in_sync(broker, "both", *replicas)
            produce_storm(broker, "both", 2, 12)
            wait_until(lambda: same_logs(broker, javas, "both", 2), WAIT_S, "the logs are the same", 0.5)
            led, followed = (each.logs.topics["both"].partitions for each in (broker, second))
            for one, other in zip(led, followed, strict=True):
                wait_until(lambda: other.high_watermark == one.high_watermark, WAIT_S, "it is told")  # noqa: B023
                assert one.log_end_offset == other.log_end_offset > 0
                assert one.epochs.entries == other.epochs.entries
                segments = [
                    b"".join(Path(each.path).read_bytes()[: each.size] for each in log.segments) for log in (one, other)
                ]
                assert segments[0] == segments[1]


def read_all(broker: Broker, name: str) -> int:
    """How many records a consumer finds."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([name])
    count = 0
    try:
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None, "nothing more came"
            if message.error() is None:
                count += 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return count
            else:
                raise KafkaException(message.error())
    finally:
        consumer.close()
