"""Each client writes and reads in a group while the brokers of its cluster are restarted, one after the other.

Three replicas, two of which have to be in sync; two brokers are stopped as an operator does, the third is killed.
Nothing that was acknowledged is lost, nothing is there twice, each key keeps its order, and the group skips nothing.

KAFKALITE_COMPAT_KIND=java has brokers of Apache Kafka's instead, to tell a fault of ours from a habit of the client.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkalite.client import Client
from tests.compat.matrix import CLIENTS
from tests.compat.members import COMMANDS, Program, Taken, Written
from tests.compat.toolchains import NotAvailable
from tests.kit.harness.load import quiet
from tests.kit.processes.broker import wait_until
from tests.kit.processes.mixed_cluster import OURS, MixedCluster

pytestmark = pytest.mark.slow

PARTITION_COUNT = 6
WAIT_S = 180
GROUPS = {"classic": "RangeAssignor", "KIP-848": "next"}
"""What its members speak → what the programs call it."""
CLASSIC_NAMES = {"franz_go": "range"}
CASES = [
    pytest.param(folder, protocol, id=f"{folder}-{protocol}")
    for folder, client in CLIENTS.items()
    for protocol in GROUPS
    if protocol not in client.absent
]


@pytest.fixture(scope="module")
def cluster(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    assert kafka_jars
    kinds = (os.environ.get("KAFKALITE_COMPAT_KIND", OURS),) * 3
    settings = {"offsets.topic.num.partitions": "6"}
    with MixedCluster(tmp_path_factory.mktemp("restarted"), kinds, settings) as running:
        yield running


def in_sync(cluster: MixedCluster) -> bool:
    """Whether every replica of every partition is, coordinators' too."""
    with Client(cluster.bootstrap) as client:
        topics = client.topics().values()
        return all(len(each.in_sync) == len(each.replicas) == 3 for topic in topics for each in topic.partitions)


@pytest.mark.parametrize(("folder", "protocol"), CASES)
def test_what_is_acknowledged_is_there_once_in_order_and_read(
    cluster: MixedCluster,
    topic: str,
    not_run: Callable[[str, str], NoReturn],
    tmp_path: Path,
    folder: str,
    protocol: str,
) -> None:
    try:
        command = COMMANDS[folder]()
    except (NotAvailable, FileNotFoundError, subprocess.CalledProcessError) as missing:
        not_run(f"{folder} while brokers restart", str(missing))
    begin(cluster, topic)
    taken, written = Taken(), Written()
    member = CLASSIC_NAMES.get(folder, GROUPS[protocol]) if protocol == "classic" else GROUPS[protocol]
    began = time.monotonic()
    programs = [
        Program(
            [*command, cluster.bootstrap, "written", topic, str(PARTITION_COUNT)], written.line, tmp_path / "writer.log"
        ),
        *(
            Program([*command, cluster.bootstrap, "rolled", topic, member], taken.line, tmp_path / f"member-{number}")
            for number in range(2)
        ),
    ]

    def wait(condition: Callable[[], bool], what: str) -> None:
        def goes_on() -> bool:
            for program in programs:
                program.check()
            return condition()

        wait_until(goes_on, WAIT_S, f"{what}; {[program.said() for program in programs]}")

    def both_go_on(when: str) -> None:
        wait(written.written_on(50), f"more is acknowledged {when}")
        wait(taken.read_on(partitions_of(cluster, topic)), f"each partition is read on {when}")

    try:
        both_go_on("at first")
        for number, broker in cluster.brokers.items():
            killed = number == len(cluster.brokers)
            (broker.close if killed else broker.stop)()
            both_go_on(f"while broker {number} is away, killed: {killed}")
            cluster.start(number)
            wait(lambda: in_sync(cluster), f"all are in sync with broker {number}")
            both_go_on(f"when broker {number} is back")
        programs[0].close()
        written_s = time.monotonic() - began
        rows = stored(cluster, topic)
        whole = {number: set(range(len(each))) for number, each in rows.items()}
        del programs[0]
        wait(lambda: all(taken.offsets[number] >= each for number, each in whole.items()), "everything read")
        for program in programs:
            program.close()
    finally:
        for program in programs:
            program.kill()
    judge(written, rows)
    print(
        f"{folder}, {protocol}: {len(written.numbers)} records in {written_s:.0f} s; no partition was unread for"
        f" {taken.longest_s:.1f} s"
    )


def begin(cluster: MixedCluster, topic: str) -> None:
    """All brokers are up, and the topic is there."""
    for number, broker in cluster.brokers.items():
        if not broker.alive:
            cluster.start(number)
    with Client(cluster.bootstrap) as client:
        client.admin.create_topic(topic, PARTITION_COUNT, replication_factor=3, configs={"min.insync.replicas": "2"})


def judge(written: Written, rows: dict[int, list[tuple[bytes, int]]]) -> None:
    """What was acknowledged is there once, in its key's order."""
    keys: dict[bytes, list[int]] = defaultdict(list)
    for each in rows.values():
        for key, value in each:
            keys[key].append(value)
    assert {key: sorted(set(values)) for key, values in keys.items()} == keys, "the order of a key, and each once"
    lost = written.numbers - {value for values in keys.values() for value in values}
    assert not lost, f"{len(lost)} that were acknowledged are lost: {sorted(lost)[:10]}"
    assert written.numbers, "the writer told what was acknowledged"


def partitions_of(cluster: MixedCluster, topic: str) -> list[int]:
    """Those that have records; kcat chooses by key."""
    with Client(cluster.bootstrap) as client:
        return [number for number in range(PARTITION_COUNT) if client.end_offset(topic, number) > 0]


def stored(cluster: MixedCluster, topic: str) -> dict[int, list[tuple[bytes, int]]]:
    """(key, number) of every record, as librdkafka reads them with CRC checks; offsets have no gap."""
    with Client(cluster.bootstrap) as client:
        ends = {number: client.end_offset(topic, number) for number in range(PARTITION_COUNT)}
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "judge", "enable.auto.commit": False}
    consumer = Consumer({**settings, "check.crcs": True}, logger=quiet)
    consumer.assign([TopicPartition(topic, number, 0) for number in ends])
    found: dict[int, list[tuple[bytes, int]]] = {number: [] for number in ends}

    def read() -> bool:
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            rows = found[message.partition() or 0]
            assert message.offset() == len(rows)
            rows.append((message.key() or b"", int(message.value() or b"")))
        return all(len(found[number]) >= end for number, end in ends.items())

    wait_until(read, WAIT_S, "the judge has read everything")
    consumer.close()
    return found
