"""Three brokers and a controller of Apache Kafka's: what clients and Kafka's tools do with topics of one replica."""

from __future__ import annotations

import collections
import contextlib
import itertools
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalite.client.connection import Connection
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.end_txn import EndTxnRequest
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.kit.processes.apache_kafka import run_tool
from tests.kit.processes.broker import REPOSITORY, wait_until
from tests.kit.processes.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.slow

WAIT_S = 120
PARTITIONS = 6
TRANSACTIONS = 900
FEW = {"offsets.topic.num.partitions": "6", "transaction.state.log.num.partitions": "6"}


@pytest.fixture(scope="module")
def cluster(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    assert kafka_jars
    with KafkaCluster(tmp_path_factory.mktemp("cluster"), settings=FEW) as running:
        yield running


@pytest.fixture
def topic(cluster: KafkaCluster) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    make_topic(cluster, name)
    return name


def make_topic(cluster: KafkaCluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(WAIT_S)


def delete_topic(cluster: KafkaCluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # it has to live as long as its futures
    admin.delete_topics([name])[name].result(WAIT_S)


def leaders(cluster: KafkaCluster, name: str) -> dict[int, int]:
    found = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(name, timeout=WAIT_S).topics[name]
    return {number: each.leader for number, each in found.partitions.items()}


def send(cluster: KafkaCluster, name: str, values: list[str], **more: object) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": WAIT_S * 1000, **more})
    failed: list[object] = []
    for at, value in enumerate(values):
        producer.produce(
            name,
            value=value,
            partition=at % PARTITIONS,
            on_delivery=lambda error, _message: failed.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert failed == []


def read_all(cluster: KafkaCluster, name: str, isolation: str = "read_uncommitted") -> list[str]:
    """What all partitions hold now."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(name, number, 0) for number in range(PARTITIONS)])
    found, ended = [], set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(WAIT_S)
        assert message is not None, "the partitions end within the time"
        if message.error() is None:
            found.append(message.value().decode())
        else:
            ended.add(message.partition())
    consumer.close()
    return sorted(found)


def read_committed(cluster: KafkaCluster, name: str, count: int) -> list[str]:
    """Return the committed values once there are `count`: a producer is answered before the markers are written."""
    return wait_until(
        lambda: len(found := read_all(cluster, name, "read_committed")) >= count and found, WAIT_S, f"{count} messages"
    )


def read_by_group(cluster: KafkaCluster, name: str, group: str, count: int, **more: object) -> list[str]:
    """Return `count` messages read by a group member, which commits and leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **more,
        }
    )
    consumer.subscribe([name])
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{len(found)} of {count} messages came"
        if message.error() is None:
            found.append(message.value().decode())
    consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(found)


def texts(stem: str, count: int) -> list[str]:
    return sorted(f"{stem}{number:05d}" for number in range(count))


def test_partitions_are_spread_and_each_leader_serves_its_own(cluster: KafkaCluster, topic: str) -> None:
    assert set(leaders(cluster, topic).values()) == {1, 2, 3}
    for acks in ("all", "1"):
        send(cluster, topic, texts(acks, 600), acks=acks)
    assert read_all(cluster, topic) == sorted(texts("all", 600) + texts("1", 600))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_resume_at_their_offsets(cluster: KafkaCluster, topic: str, protocol: str) -> None:
    group = f"g-{topic}"
    more = {"group.protocol": protocol}
    send(cluster, topic, texts("a", 300))
    assert read_by_group(cluster, topic, group, 300, **more) == texts("a", 300)
    send(cluster, topic, texts("b", 60))
    assert read_by_group(cluster, topic, group, 60, **more) == texts("b", 60)


def test_transactions_reach_all_leaders(cluster: KafkaCluster, topic: str) -> None:
    for at in range(4):  # so that coordinators are on several brokers
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-{at}"})
        producer.init_transactions(WAIT_S)
        for commit in (True, False, True):
            producer.begin_transaction()
            for number in range(2 * PARTITIONS):
                producer.produce(topic, value=f"{at}-{commit}", partition=number % PARTITIONS)
            if commit:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
    wanted = sorted(f"{at}-True" for at in range(4) for _ in range(4 * PARTITIONS))
    assert read_committed(cluster, topic, len(wanted)) == wanted


def test_offsets_are_committed_in_transactions(cluster: KafkaCluster, topic: str) -> None:
    target = f"{topic}-target"
    make_topic(cluster, target)
    send(cluster, topic, texts("m", 120))
    for at in range(3):
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": f"copier-{topic}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([topic])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"copy-{topic}-{at}"})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for _ in range(40):
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            producer.produce(target, value=message.value(), partition=message.partition())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
        producer.commit_transaction(WAIT_S)
        consumer.close()
    assert read_committed(cluster, target, 120) == texts("m", 120)


def test_kafkas_own_tools_work_with_it(cluster: KafkaCluster, topic: str, tmp_path: Path) -> None:
    servers = ("--bootstrap-server", cluster.bootstrap)
    run_tool(
        "org.apache.kafka.tools.ConsoleProducer", *servers, "--topic", topic, text="one\ntwo\nthree\n", timeout_s=WAIT_S
    )
    told = run_tool(
        *("org.apache.kafka.tools.consumer.ConsoleConsumer", *servers, "--topic", topic, "--from-beginning"),
        *("--max-messages", "3", "--group", f"console-{topic}", "--timeout-ms", str(WAIT_S * 1000)),
        timeout_s=WAIT_S,
    )
    assert sorted(told.split()) == ["one", "three", "two"]
    described = run_tool("org.apache.kafka.tools.TopicCommand", *servers, "--describe", "--topic", topic)
    assert described.count("Leader: ") == PARTITIONS
    assert "none" not in described
    groups = run_tool(
        *("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *servers, "--describe"),
        *("--group", f"console-{topic}"),
    )
    lags = [line.split() for line in groups.splitlines() if topic in line]
    assert sum(int(line[3]) for line in lags if line[3].isdigit()) == 3
    deletion = tmp_path / "deletion.json"
    parts = ",".join(f'{{"topic":"{topic}","partition":{number},"offset":-1}}' for number in range(PARTITIONS))
    deletion.write_text(f'{{"version":1,"partitions":[{parts}]}}')
    run_tool("org.apache.kafka.tools.DeleteRecordsCommand", *servers, "--offset-json-file", str(deletion))
    assert read_all(cluster, topic) == []
    directories = run_tool("org.apache.kafka.tools.LogDirsCommand", *servers, "--describe", "--topic-list", topic)
    assert directories.count(f'"partition":"{topic}-') == PARTITIONS


def test_java_transactions_of_the_second_kind(cluster: KafkaCluster, topic: str) -> None:
    told = run_tool(
        *("org.apache.kafka.tools.ProducerPerformance", "--topic", topic),
        *("--num-records", "3000", "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap}"),
        *("--transactional-id", f"java-{topic}", "--transaction-duration-ms", "20"),
    )
    assert "3000 records sent" in told
    assert len(read_committed(cluster, topic, 3000)) == 3000


def test_topic_is_deleted_and_made_again(cluster: KafkaCluster, topic: str) -> None:
    send(cluster, topic, texts("old", 120))
    delete_topic(cluster, topic)
    wait_until(lambda: not list_directories(cluster, topic), WAIT_S, "no directory has the topic's name")
    make_topic(cluster, topic)
    send(cluster, topic, texts("new", 60))
    assert read_all(cluster, topic) == texts("new", 60)


def list_directories(cluster: KafkaCluster, topic: str) -> list[Path]:
    found = [path for process in cluster.processes for path in process.data_dir.glob(f"{topic}-[0-9]*")]
    return [path for path in found if not path.name.endswith("-delete")]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_what_was_acknowledged_is_there_after_a_restart(cluster: KafkaCluster, topic: str, how: str) -> None:
    group = f"g-{topic}"
    send(cluster, topic, texts("a", 300), acks="all")
    assert read_by_group(cluster, topic, group, 300) == texts("a", 300)
    for process in cluster.processes:
        if how == "killed":
            process.kill()
        else:
            process.stop()
        process.start()
    send(cluster, topic, texts("b", 60), acks="all")
    assert read_all(cluster, topic) == texts("a", 300) + texts("b", 60)
    assert read_by_group(cluster, topic, group, 60) == texts("b", 60)


def test_one_command_starts_a_cluster(kafka_jars: Path) -> None:
    assert kafka_jars
    command = [sys.executable, "-m", "tests.kit.processes.kafka_cluster"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert "is ready: " in ready
        servers = ready.rsplit(" ", 1)[1].strip()
        assert len(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=WAIT_S).brokers) == 3
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0


def coordinator_of(cluster: KafkaCluster, key_type: int, name: str) -> Any:
    """Where a group or a transactional id is coordinated, once it is."""
    host, port = cluster.processes[0].bootstrap.split(":")
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])
    with closing(Connection.connect(host, int(port), client_id="test")) as connection:

        def ask() -> Any:
            answer = connection.request(api.FIND_COORDINATOR, request, version_max=4).coordinators[0]
            return answer if answer.error_code == 0 else None

        return wait_until(ask, WAIT_S, f"a coordinator of {name}")


def connect(coordinator: Any) -> closing[Connection]:
    return closing(Connection.connect(coordinator.host, coordinator.port, client_id="test"))


def test_offsets_in_transactions_of_another_broker_are_never_refused(cluster: KafkaCluster, topic: str) -> None:
    """TxnOffsetCommit 5 joins the transaction at its coordinator, which waits for the markers of the one before: they
    reach the group's coordinator meanwhile (KIP-890)."""
    group = f"group-{topic}"
    of_group = coordinator_of(cluster, 0, group)
    found = ((name := f"tx-{number}-{topic}", coordinator_of(cluster, 1, name)) for number in itertools.count())
    elsewhere = itertools.islice((each for each in found if each[1].node_id != of_group.node_id), 3)
    with connect(of_group) as to_group, contextlib.ExitStack() as stack:
        producers = []
        for name, coordinator in elsewhere:
            connection = stack.enter_context(connect(coordinator))
            given = wait_until(lambda to=connection, name=name: initialised(to, name), WAIT_S, "a producer id")
            producers.append([name, connection, given.producer_id, given.producer_epoch])
        codes: collections.Counter[ErrorCode] = collections.Counter()
        for number in range(TRANSACTIONS):
            producer = producers[number * len(producers) // TRANSACTIONS]  # one after another, each without a pause
            name, to_coordinator, producer_id, epoch = producer
            commit = offsets_of(topic, group, number, name, producer_id, epoch)
            committed = to_group.request(api.TXN_OFFSET_COMMIT, commit)
            codes[ErrorCode(committed.topics[0].partitions[0].error_code)] += 1
            end = EndTxnRequest(
                transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=number % 5 != 0
            )
            ended = to_coordinator.request(api.END_TXN, end)
            assert ended.error_code == 0, (number, codes)
            producer[2:] = [ended.producer_id, ended.producer_epoch]
    assert codes == {ErrorCode.NONE: TRANSACTIONS}


def initialised(connection: Connection, name: str) -> Any:
    """The answer to InitProducerId, None where it is to be asked again."""
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    answer = connection.request(api.INIT_PRODUCER_ID, request)
    return answer if answer.error_code == 0 else None


def offsets_of(topic: str, group: str, offset: int, name: str, producer_id: int, epoch: int) -> TxnOffsetCommitRequest:
    """Return a TxnOffsetCommit of one partition, without a member."""
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic, partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
            )
        ],
    )
