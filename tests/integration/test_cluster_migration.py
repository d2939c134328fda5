"""A standalone broker moves into a cluster of Apache Kafka's controllers: no data is lost, offsets stay."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer

from kafkalite.base.acls import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.base.clock import SystemClock
from kafkalite.broker.log import handover
from kafkalite.broker.migration import migrate
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.client.connection import Connection
from kafkalite.client.security import Security
from kafkalite.errors import StartupError
from kafkalite.model import TopicPartition
from kafkalite.settings.broker import BrokerConfig
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.kit.processes.apache_kafka import KafkaBroker, KafkaController, jars
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until
from tests.kit.processes.kafka_cluster import ONE_REPLICA

pytestmark = pytest.mark.slow

WAIT_S = 120
RECORDS = 300
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SIGN_IN = {
    "listener.security.protocol.map": "IN:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "inter.broker.listener.name": "PLAINTEXT",
}
ALONE = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "3",
}


def in_cluster(controller: KafkaController, **more: str) -> dict[str, str]:
    return {
        **ALONE,
        **ONE_REPLICA,
        "process.roles": "broker",
        "node.id": "7",
        "controller.quorum.bootstrap.servers": controller.address,
        "controller.listener.names": "CONTROLLER",
        **more,
    }


def fill(broker: BrokerProcess) -> None:
    """One of everything that a broker has."""
    with Client(broker.bootstrap) as client:
        client.admin.create_topic("events", 3, configs={"retention.ms": "86400000000", "segment.bytes": "1048576"})
        client.admin.create_topic("results", 1)
        client.admin.alter_broker_configs(client.brokers()[0].node_id, {"log.cleaner.backoff.ms": "20000"})
        client.quotas.alter((("user", "alice"),), {"producer_byte_rate": 1e6})
        rule = Acl(
            ResourceType.TOPIC, "events", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW
        )
        client.acls.create([rule])
        client.users.set_password("alice", "secret", "SCRAM-SHA-256")
        for partition in range(3):
            client.produce("events", partition, [b"%d-%d" % (partition, n) + b"x" * 500 for n in range(RECORDS)])
    write_and_read(broker.bootstrap, "results")
    for protocol in ("classic", "consumer"):
        read_some(broker.bootstrap, f"group-{protocol}", protocol, 100)


def write_and_read(bootstrap: str, topic: str) -> None:
    """A transaction of the transactional id `mover`, that commits."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0)
    producer.commit_transaction(WAIT_S)


def read_some(bootstrap: str, group: str, protocol: str, count: int) -> list[tuple[int, int]]:
    """Read `count` records in a group and commit; return their places."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["events"])
    found: list[tuple[int, int]] = []

    def read() -> bool:
        for message in consumer.consume(count - len(found), timeout=1):
            assert message.error() is None, message.error()
            found.append((message.partition(), message.offset()))
        return len(found) == count

    wait_until(read, WAIT_S, "records of the group")
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def positions(bootstrap: str, group: str) -> dict[int, int]:
    with Client(bootstrap) as client:
        found = client.groups.committed(group)
        return {key.partition: row.offset for key, row in found.items()}


def contents(bootstrap: str) -> dict[TopicPartition, list[tuple[int, bytes | None]]]:
    """Every record of the clients' topics with its offset."""
    with Client(bootstrap) as client:
        found = {}
        for topic in client.topics().values():
            for partition in () if topic.is_internal else topic.partitions:
                rows = found[TopicPartition(topic.name, partition.partition)] = []
                for chunk in client.read(topic.name, partition.partition):
                    rows += zip(chunk.columns.offsets.tolist(), chunk.columns.values, strict=True)
        return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """The directory of a standalone broker that crashed some times and stopped, and its responses."""
    directory = tmp_path_factory.mktemp("alone")
    broker = BrokerProcess(directory / "broker", ALONE)
    broker.start()
    try:
        fill(broker)
        for _ in range(3):
            broker.kill()
            broker.start()
        told = {
            "contents": contents(broker.bootstrap),
            "classic": positions(broker.bootstrap, "group-classic"),
            "consumer": positions(broker.bootstrap, "group-consumer"),
        }
        broker.stop()
    finally:
        broker.close()
    return broker.data_dir, told


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[KafkaController]:
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with KafkaController(tmp_path / "controller", settings=settings) as controller:
        yield controller


def copy_of(source: Path, tmp_path: Path, controller: KafkaController, **more: str) -> BrokerProcess:
    """A broker in the cluster, not started, on a copy of a directory that may still be that of one alone."""
    port = free_port()
    settings = in_cluster(controller, listeners=f"PLAINTEXT://127.0.0.1:{port}", **more)
    broker = BrokerProcess(tmp_path / "broker", settings, port)
    broker.directory.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, broker.data_dir)
    return broker


def flags(broker: BrokerProcess) -> list[str]:
    settings = {**broker.settings, "log.dirs": str(broker.data_dir)}
    return [part for key, text in settings.items() for part in ("--set", f"{key}={text}")]


def ended(broker: BrokerProcess, transactional_id: str) -> str:
    """How a transaction has ended, as soon as all its markers are written."""

    def state() -> str:
        with Client(broker.bootstrap) as client:
            (row,) = [each for each in client.transactions.list() if each.transactional_id == transactional_id]
            return row.state if row.state.startswith("Complete") else ""

    return str(wait_until(state, WAIT_S, "the transaction has ended"))


def check(broker: BrokerProcess, told: dict[str, object]) -> None:
    """Check that the broker, in the cluster, has everything and takes new records."""
    before = told["contents"]
    assert contents(broker.bootstrap) == before
    assert positions(broker.bootstrap, "group-classic") == told["classic"]
    assert positions(broker.bootstrap, "group-consumer") == told["consumer"]
    with Client(broker.bootstrap) as client:
        assert client.quotas.list_all() == {(("user", "alice"),): {"producer_byte_rate": 1e6}}
        assert [rule.principal for rule in client.acls.find()] == ["User:alice"]
        own = {row.name: row.value for row in client.admin.describe_topic_configs("events") if row.source == "topic"}
        assert own == {"retention.ms": "86400000000", "segment.bytes": "1048576"}
        changed = [
            row.value
            for row in client.admin.describe_broker_configs(7)
            if row.name == "log.cleaner.backoff.ms" and row.source == "broker, changed while running"
        ]
        assert changed == ["20000"]
        client.produce("events", 0, [b"after"])
        assert client.end_offset("events", 0) == RECORDS + 1
    for protocol in ("classic", "consumer"):
        seen = read_some(broker.bootstrap, f"group-{protocol}", protocol, 50)
        for partition, offset in seen:
            assert offset >= told[protocol].get(partition, 0)  # type: ignore[attr-defined]
    write_and_read(broker.bootstrap, "results")
    assert ended(broker, "mover") == "CompleteCommit"
    with Client(broker.bootstrap) as client:
        assert client.end_offset("results", 0) == 22


def test_a_full_migration_and_clients_continue(
    filled: tuple[Path, dict[str, object]],
    tmp_path: Path,
    controller: KafkaController,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, told = filled
    broker = copy_of(source, tmp_path, controller)
    assert main(["cluster", "migrate", *flags(broker), "--dry-run", "--json"]) == 0
    looked = json.loads(capsys.readouterr().out)
    assert main(["cluster", "migrate", *flags(broker), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {**looked, "migrated": True, "size": 0} == {**report, "size": 0}
    assert report["topics"] == 4
    assert report["partitions"] == 3 + 1 + 4 + 3
    assert report["records"] == 3 * RECORDS + 11
    assert report["groups"] == 2
    assert report["positions"] == len(told["classic"]) + len(told["consumer"])  # type: ignore[arg-type]
    assert (report["rules"], report["quotas"], report["settings"]) == (1, 1, report["settings"])
    assert ["alice" in line for line in report["not_taken"]] == [True]
    try:
        broker.start()
        check(broker, told)
        broker.stop()
        broker.start()
        assert contents(broker.bootstrap)[TopicPartition("events", 0)][-1] == (RECORDS, b"after")
    finally:
        broker.close()
    assert main(["cluster", "migrate", *flags(broker)]) == 2
    assert "in the cluster" in capsys.readouterr().err


def _dying(settings: dict[str, str], dies_at: int | str, steps: object) -> None:
    """Migrate, and die when `count` steps have begun, or one with that name."""
    count = 0

    def told(step: str) -> None:
        nonlocal count
        count += 1
        steps.value = count  # type: ignore[attr-defined]
        if count == dies_at or (isinstance(dies_at, str) and step.startswith(dies_at)):
            os.kill(os.getpid(), signal.SIGKILL)

    migrate(BrokerConfig.load(None, settings), SystemClock(), told)


def test_a_killed_migration_completes_when_repeated(
    filled: tuple[Path, dict[str, object]], tmp_path: Path, controller: KafkaController
) -> None:
    source, told = filled
    broker = copy_of(source, tmp_path, controller)
    settings = {**broker.settings, "log.dirs": str(broker.data_dir)}
    spawn = multiprocessing.get_context("spawn")
    killed = 0
    for dies_at in range(1, 40):
        steps = spawn.Value("i", 0)
        process = spawn.Process(target=_dying, args=(settings, dies_at, steps))
        process.start()
        process.join(WAIT_S)
        assert process.exitcode is not None
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL, f"killed at {dies_at}, it ended with {process.exitcode}"
        killed += 1
    else:
        raise AssertionError("it never ended")
    assert killed >= 5
    try:
        broker.start()
        check(broker, told)
    finally:
        broker.close()


def test_what_is_set_between_two_attempts_counts(
    filled: tuple[Path, dict[str, object]], tmp_path: Path, controller: KafkaController
) -> None:
    broker = copy_of(filled[0], tmp_path, controller)
    spawn = multiprocessing.get_context("spawn")
    settings = {**broker.settings, "log.dirs": str(broker.data_dir)}
    steps = spawn.Value("i", 0)
    process = spawn.Process(target=_dying, args=(settings, "raising leader epochs", steps))
    process.start()
    process.join(WAIT_S)
    assert process.exitcode == -signal.SIGKILL
    alone = BrokerProcess(broker.directory, ALONE)
    try:
        alone.start()
        with Client(alone.bootstrap) as client:
            client.admin.alter_topic_configs("events", {"retention.ms": "-1", "segment.bytes": None})
            client.admin.alter_topic_configs("results", {"cleanup.policy": "compact"})
        alone.stop()
    finally:
        alone.close()
    assert main(["cluster", "migrate", *flags(broker)]) == 0
    try:
        broker.start()
        with Client(broker.bootstrap) as client:
            for topic, own in (("events", {"retention.ms": "-1"}), ("results", {"cleanup.policy": "compact"})):
                rows = client.admin.describe_topic_configs(topic)
                assert {row.name: row.value for row in rows if row.source == "topic"} == own
    finally:
        broker.close()


def _dying_with_an_answer(settings: dict[str, str]) -> None:
    """Is killed when a block of producer ids was given, before that is written down."""
    real = handover.write

    def write(root: str, begun: handover.Handover) -> None:
        before = handover.read(root)
        if before is not None and begun.producer_ids_clear > before.producer_ids_clear:
            os.kill(os.getpid(), signal.SIGKILL)
        real(root, begun)

    handover.write = write
    migrate(BrokerConfig.load(None, settings), SystemClock(), lambda _step: None)


def killed(function: object, *arguments: object) -> None:
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)  # type: ignore[arg-type]
    process.start()
    process.join(WAIT_S)
    assert process.exitcode == -signal.SIGKILL


def test_what_is_removed_between_two_attempts_is_removed_in_the_cluster(
    filled: tuple[Path, dict[str, object]], tmp_path: Path, controller: KafkaController
) -> None:
    broker = copy_of(filled[0], tmp_path, controller)
    settings = {**broker.settings, "log.dirs": str(broker.data_dir)}
    steps = multiprocessing.get_context("spawn").Value("i", 0)
    killed(_dying, settings, "raising leader epochs", steps)
    alone = BrokerProcess(broker.directory, ALONE)
    try:
        alone.start()
        with Client(alone.bootstrap) as client:
            client.admin.delete_topic("results")
            client.admin.add_partitions("events", 4)
            client.admin.alter_broker_configs(client.brokers()[0].node_id, {"log.cleaner.backoff.ms": None})
            client.quotas.alter((("user", "alice"),), {"producer_byte_rate": None, "consumer_byte_rate": 2e6})
            assert len(client.acls.delete([AclFilter()])) == 1
            client.acls.create(
                [
                    Acl(
                        *(ResourceType.GROUP, "g", PatternType.LITERAL, "User:bob", "*"),
                        *(AclOperation.READ, AclPermission.ALLOW),
                    )
                ]
            )
        alone.stop()
    finally:
        alone.close()
    killed(_dying_with_an_answer, settings)
    assert main(["cluster", "migrate", *flags(broker)]) == 0
    try:
        broker.start()
        with Client(broker.bootstrap) as client:
            topics = client.topics()
            assert "results" not in topics
            assert len(topics["events"].partitions) == 4
            assert client.quotas.list_all() == {(("user", "alice"),): {"consumer_byte_rate": 2e6}}
            assert [rule.principal for rule in client.acls.find()] == ["User:bob"]
            rows = client.admin.describe_broker_configs(7)
            assert not [row for row in rows if row.source == "broker, changed while running"]
            assert client.end_offset("events", 0) == RECORDS
    finally:
        broker.close()


def another(controller: KafkaController, directory: Path) -> BrokerProcess:
    """Broker 8 of the cluster, not started."""
    port = free_port()
    more = {"node.id": "8", "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    return BrokerProcess(directory, in_cluster(controller, **more), port)


def has_producer_id(broker: BrokerProcess) -> bool:
    """Whether an idempotent producer gets one."""
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    with contextlib.closing(Connection.connect("127.0.0.1", broker.port, client_id="test")) as connection:
        return bool(connection.request(api.INIT_PRODUCER_ID, asked).error_code == 0)


def test_producer_ids_that_another_broker_gets_meanwhile_are_refused(
    filled: tuple[Path, dict[str, object]], tmp_path: Path, controller: KafkaController
) -> None:
    broker, other = copy_of(filled[0], tmp_path, controller), another(controller, tmp_path / "other")
    config = BrokerConfig.load(None, {**broker.settings, "log.dirs": str(broker.data_dir)})
    steps: list[str] = []

    def told(step: str) -> None:
        if step.startswith("raising producer ids") and not any(each.startswith(step) for each in steps):
            other.start()
            wait_until(lambda: has_producer_id(other), WAIT_S, "a producer of the cluster has an id")
        steps.append(step)

    try:
        with pytest.raises(StartupError, match=r"the cluster has allocated the producer ids 0 to \d+ in the meantime"):
            migrate(config, SystemClock(), told)
        with pytest.raises(StartupError, match=r"the cluster has allocated the producer ids 0 to \d+ in the meantime"):
            migrate(config, SystemClock(), steps.append)
    finally:
        other.close()
    alone = BrokerProcess(broker.directory, ALONE)
    try:
        alone.start()
        assert contents(alone.bootstrap) == filled[1]["contents"]
    finally:
        alone.close()


def set_for_all(broker: BrokerProcess, text: str) -> None:
    """A setting of all brokers."""
    change = AlterableConfig(name="log.cleaner.backoff.ms", config_operation=0, value=text)
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
    with contextlib.closing(Connection.connect("127.0.0.1", broker.port, client_id="test")) as connection:
        asked = IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = connection.request(api.INCREMENTAL_ALTER_CONFIGS, asked).responses
    assert answer.error_code == 0, answer.error_message


def test_what_the_cluster_has_is_not_overwritten(
    tmp_path: Path, controller: KafkaController, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    alone = BrokerProcess(tmp_path / "broker", ALONE, port)
    broker = BrokerProcess(tmp_path / "broker", in_cluster(controller, listeners=f"PLAINTEXT://127.0.0.1:{port}"), port)
    other = another(controller, tmp_path / "other")
    alice = (("user", "alice"),)
    try:
        alone.start()
        with Client(alone.bootstrap) as client:
            client.admin.create_topic("events", 1)
            set_for_all(alone, "20000")
            client.quotas.alter(alice, {"producer_byte_rate": 1e6})
        alone.stop()
        other.start()
        with Client(other.bootstrap) as client:
            set_for_all(other, "30000")
            client.quotas.alter(alice, {"producer_byte_rate": 2e6})
            for resource, why in (("quotas", "producer_byte_rate=2e+06 of user alice"), ("settings", "all brokers")):
                assert main(["cluster", "migrate", *flags(broker)]) == 2
                said = capsys.readouterr().err.splitlines()[-1]
                assert f"the cluster's {resource} differ" in said
                assert why in said
                assert "events" not in client.topics()
                client.quotas.alter(alice, {"producer_byte_rate": 1e6})
            assert client.quotas.list_all() == {alice: {"producer_byte_rate": 1e6}}
            set_for_all(other, "20000")
        assert main(["cluster", "migrate", *flags(broker)]) == 0
    finally:
        for process in (alone, broker, other):
            process.close()


class Java:
    """A producer and a consumer of Apache Kafka's that stay."""

    def __init__(self, bootstrap: str, topic: str, log: Path) -> None:
        program = Path(__file__).with_name("LongLived.java")
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            ["java", "-Xmx128m", "-cp", f"{jars()}/*", str(program), bootstrap, topic, "java"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, command: str) -> list[int]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return [int(offset) for offset in self._process.stdout.readline().split()]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()


class Librdkafka:
    """A producer and a consumer of librdkafka's that stay."""

    def __init__(self, bootstrap: str) -> None:
        self.failed: list[object] = []
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "topic.metadata.refresh.interval.ms": 1000,
                "message.timeout.ms": 600_000,
                "error_cb": lambda error: self.failed.append(error) if error.fatal() else None,
            }
        )
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "stays",
                "topic.metadata.refresh.interval.ms": 1000,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.consumer.subscribe(["live"])


def test_clients_that_stay_go_on_at_their_offsets_and_replicas_are_added(
    tmp_path: Path, controller: KafkaController
) -> None:
    port = free_port()
    alone = BrokerProcess(tmp_path / "broker", ALONE, port)
    with contextlib.ExitStack() as stack:
        stack.callback(alone.close)
        alone.start()
        with Client(alone.bootstrap) as client:
            client.admin.create_topic("live", 1)
        for _ in range(2):  # so that leader epochs are not 0
            alone.kill()
            alone.start()
        java = Java(alone.bootstrap, "live", tmp_path / "java.log")
        stack.callback(java.close)
        c = Librdkafka(alone.bootstrap)
        stack.callback(c.consumer.close)
        assert java.ask("send 10") == list(range(10))
        assert send(c.producer, 10) == list(range(10, 20))
        assert java.ask("read 20") == list(range(20))
        assert read(c.consumer, 20) == list(range(20))
        alone.stop()

        broker = BrokerProcess(
            tmp_path / "broker", in_cluster(controller, listeners=f"PLAINTEXT://127.0.0.1:{port}"), port
        )
        stack.callback(broker.close)
        assert main(["cluster", "migrate", *flags(broker)]) == 0
        broker.start()
        assert java.ask("send 5") == list(range(20, 25))
        assert send(c.producer, 5) == list(range(25, 30))
        assert java.ask("read 10") == list(range(20, 30))
        assert read(c.consumer, 10) == list(range(20, 30))
        assert c.failed == []
        lines = (broker.data_dir / "live-0" / "leader-epoch-checkpoint").read_text().split("\n")[2:-1]
        epochs = [int(line.split()[0]) for line in lines]
        assert epochs == sorted(set(epochs))
        assert len(epochs) >= 2

        add_replicas(stack, tmp_path, controller, broker)
        assert java.ask("send 5") == list(range(30, 35))
        broker.stop()
        assert java.ask("send 5") == list(range(35, 40))
        assert read(c.consumer, 10) == list(range(30, 40))


def add_replicas(
    stack: contextlib.ExitStack, tmp_path: Path, controller: KafkaController, broker: BrokerProcess
) -> None:
    """Two brokers of Apache Kafka's join, and have replicas of everything, in sync."""
    for number in (8, 9):
        other = KafkaBroker(
            tmp_path / f"java-{number}",
            node_id=number,
            controller_port=controller.controller_port,
            cluster_id=controller.cluster_id,
            settings={"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"},
            java_options=("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        )
        stack.enter_context(other)
    assert main(["cluster", "move", "-b", broker.bootstrap, "--replication-factor", "3", "--throttle", "90000000"]) == 0
    with Client(broker.bootstrap) as client:
        for topic in client.topics().values():
            for partition in topic.partitions:
                assert sorted(partition.in_sync) == [7, 8, 9], f"{topic.name}-{partition.partition}"


def send(producer: Producer, count: int) -> list[int]:
    offsets: list[int] = []

    def delivered(error: object, message: Message) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for _ in range(count):
        producer.produce("live", b"librdkafka", partition=0, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    return offsets


def read(consumer: Consumer, count: int) -> list[int]:
    offsets: list[int] = []

    def done() -> bool:
        found = consumer.consume(count - len(offsets), timeout=1)
        offsets.extend(message.offset() for message in found if message.error() is None)
        return len(offsets) == count

    wait_until(done, WAIT_S, "records")
    consumer.commit(asynchronous=False)
    return offsets


def test_what_cannot_go_is_refused_and_nothing_is_changed(
    tmp_path: Path, controller: KafkaController, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    alone = BrokerProcess(tmp_path / "broker", ALONE, port)
    broker = BrokerProcess(tmp_path / "broker", in_cluster(controller, listeners=f"PLAINTEXT://127.0.0.1:{port}"), port)

    def refused(why: str) -> None:
        assert main(["cluster", "migrate", *flags(broker)]) == 2
        assert why in capsys.readouterr().err

    try:
        alone.start()
        refused("is in use by another broker")
        with Client(alone.bootstrap) as client:
            client.admin.create_topic("old", 1, configs={"message.format": "classic"})
        alone.stop()
        refused("Kafka 0.7's format cannot move into a cluster: old")

        alone.start()
        producer = Producer({"bootstrap.servers": alone.bootstrap, "transactional.id": "opened"})
        with Client(alone.bootstrap) as client:
            client.admin.delete_topic("old")
            client.admin.create_topic("events", 1)
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce("events", b"x")
        producer.flush(WAIT_S)
        alone.stop()
        refused("transactions are open in events-0")
        alone.start()
        producer.abort_transaction(WAIT_S)
        assert ended(alone, "opened") == "CompleteAbort"
        alone.stop()

        made = BrokerProcess(
            tmp_path / "other", in_cluster(controller, **{"node.id": "8", "log.cleaner.backoff.ms": "1000"})
        )
        made = BrokerProcess(
            tmp_path / "other",
            {**made.settings, "listeners": f"PLAINTEXT://127.0.0.1:{made.port}"},
            made.port,
        )
        made.start()
        try:
            with Client(made.bootstrap) as client:
                client.admin.create_topic("events", 1)
            refused("the cluster already has topics with these names: events")
            with Client(made.bootstrap) as client:
                client.admin.delete_topic("events")
            refused("the cluster has already allocated the producer ids below")
        finally:
            made.close()
        alone.start()
        with Client(alone.bootstrap) as client:
            assert client.end_offset("events", 0) == 2
        alone.stop()
        assert main(["cluster", "migrate", *flags(alone)]) == 2
        assert "process.roles must be broker" in capsys.readouterr().err
    finally:
        alone.close()
        broker.close()


def test_users_go_to_controllers_before_their_first_start(
    filled: tuple[Path, dict[str, object]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, _ = filled
    controller = KafkaController(
        tmp_path / "controller", settings={"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    )
    controller.prepare()
    copy = ["users", "copy", "--from-dir", str(source), "--controller-dir", str(controller.data_dir), "--json"]
    alice = {"user": "alice", "mechanism": "SCRAM-SHA-256"}
    for expected in ({"copied": [alice], "kept": []}, {"copied": [], "kept": [alice]}):
        assert main(copy) == 0
        assert json.loads(capsys.readouterr().out) == expected
    broker = copy_of(source, tmp_path, controller)
    with controller:
        assert main(["cluster", "migrate", *flags(broker), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["users"], report["not_taken"]) == (1, [])
        try:
            broker.start({"listeners": f"IN://127.0.0.1:{broker.port},PLAINTEXT://127.0.0.1:0", **SIGN_IN})
            client_settings = tmp_path / "alice.properties"
            client_settings.write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
                "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
                ' username="alice" password="secret";\n'
            )
            with Client(broker.bootstrap, security=Security.from_file(client_settings)) as client:
                assert client.end_offset("events", 0) == RECORDS
        finally:
            broker.close()
    assert main(copy) == 2
    assert "has been started" in capsys.readouterr().err
