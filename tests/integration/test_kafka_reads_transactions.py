"""Transactions on the disk, between Apache Kafka and kafkalite.

quick   segments with markers, .txnindex and .snapshot as kafkalite writes them, read by Kafka's own kafka-dump-log
slow    a partition written by Kafka in transactions, read and continued by kafkalite, then by Kafka again: a
        read_committed consumer gets the same records from both, and the aborted transactions are named alike
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkalite._native.log.log_append import append_batch
from tests.kit.harness import wire
from tests.kit.harness.load import create_topic
from tests.kit.harness.log_harness import LogHarness, make_batch
from tests.kit.processes.apache_kafka import ApacheKafka, replace_partition, run_tool
from tests.kit.processes.broker import BrokerProcess, wait_until

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog

pytestmark = pytest.mark.usefixtures("kafka_jars")

TOPIC = "payments"
READ_COMMITTED = 1
ENTRY = re.compile(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)")
MARKER = re.compile(r"offset: (\d+) .*endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: (-?\d+)")


def put(log: PartitionLog, producer_id: int, sequence: int) -> None:
    batch = make_batch(2, producer_id=producer_id, epoch=3, sequence=sequence, attributes=0x10)
    assert append_batch(log.core, batch, admitted=log.core.marker_count())[1] == 0


def test_kafkas_dump_tool_reads_markers_aborted_transactions_and_snapshots(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, segment_bytes=1000)
    log = harness.open()
    log.ensure_producers()
    put(log, 900, 0)  # open to the end
    for number in range(30):
        put(log, 1000 + number % 3, 2 * (number // 3))
        log.append_marker(1000 + number % 3, 3, 11, commit=number % 2 == 0)
    aborted = log.ensure_producers().aborted.rows()
    assert len(aborted) == 15
    log.close()
    segments, indexes = harness.files(".log"), harness.files(".txnindex")
    assert len(segments) > 3
    assert len(indexes) > 3
    text = run_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, segments)))
    assert "isvalid: false" not in text
    markers = [(int(offset), kind, int(epoch)) for offset, kind, epoch in MARKER.findall(text)]
    assert markers == [(4 + 3 * number, "COMMIT" if number % 2 == 0 else "ABORT", 11) for number in range(30)]
    text = run_tool("kafka.tools.DumpLogSegments", "--files", ",".join(map(str, indexes)))
    assert [tuple(map(int, row)) for row in ENTRY.findall(text)] == aborted
    text = run_tool("kafka.tools.DumpLogSegments", "--files", str(harness.files(".snapshot")[-1]))
    states = re.findall(
        r"producerId: (\d+) producerEpoch: 3 coordinatorEpoch: (-?\d+) currentTxnFirstOffset: (\S+)", text
    )
    assert sorted(states) == [
        ("1000", "11", "OptionalLong.empty"),
        ("1001", "11", "OptionalLong.empty"),
        ("1002", "11", "OptionalLong.empty"),
        ("900", "-1", "OptionalLong[0]"),
    ]


# ---- slow: directories that change hands ----------------------------------------------------------------------------


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    kafka = ApacheKafka(tmp_path / "kafka")
    yield kafka
    kafka.close()


@pytest.fixture
def kafkalite(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "kafkalite")
    yield broker
    broker.close()
    print(broker.log()[-4000:])


def run_transactions(bootstrap: str, label: str, count: int = 12) -> None:
    """A third of them aborted; each writes to the one partition."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": label, "linger.ms": 0, "batch.num.messages": 2}
    )
    producer.init_transactions(60)
    for number in range(count):
        producer.begin_transaction()
        for record in range(5):
            producer.produce(TOPIC, f"{label} {number} {record}", partition=0)
        producer.flush(30)
        if number % 3 == 0:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def committed(bootstrap: str, end: int) -> list[tuple[int, bytes]]:
    """Return the records that a read_committed consumer gets of the partition below `end`."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    seen: list[tuple[int, bytes]] = []

    def done() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen.append((message.offset(), message.value()))
        return message is not None and message.error() is not None

    wait_until(done, 60, "the end of the partition")
    consumer.close()
    return [row for row in seen if row[0] < end]


def aborted_lists(port: int) -> list[list[tuple[int, int]]]:
    """Return the aborted transactions in the response to a fetch from each offset up to the end."""
    with wire.Connection(port) as connection:

        def ended() -> bool:
            stable = connection.list_offset(TOPIC, 0, -1, isolation=READ_COMMITTED)[2]
            return stable == connection.list_offset(TOPIC, 0, -1)[2]

        wait_until(ended, 60, "the last marker")
        end = connection.list_offset(TOPIC, 0, -1)[2]
        answers = [connection.fetch(TOPIC, 0, offset, isolation=READ_COMMITTED) for offset in range(end)]
        assert all(answer.last_stable_offset == end for answer in answers)
        return [sorted(answer.aborted or []) for answer in answers]


def wait_for_leader(port: int) -> None:
    def ready() -> bool:
        with wire.Connection(port) as connection:
            return connection.list_offset(TOPIC, 0, -1)[0] == 0

    wait_until(ready, 60, "a leader")


def move(source: Path, target: Path) -> None:
    name = f"{TOPIC}-0"
    if (target / name).exists():
        replace_partition(source / name, target / name)
    else:
        shutil.copytree(source / name, target / name)


@pytest.mark.slow
@pytest.mark.integration
def test_partition_with_transactions_changes_hands(kafka: ApacheKafka, kafkalite: BrokerProcess) -> None:
    kafka.start()
    create_topic(kafka.port, TOPIC, 1)
    wait_for_leader(kafka.port)
    run_transactions(kafka.bootstrap, "kafka")
    told = aborted_lists(kafka.port)
    seen = committed(kafka.bootstrap, len(told))
    assert len(seen) == 8 * 5
    kafka.stop()

    kafkalite.start()
    kafkalite.stop()
    move(kafka.data_dir, kafkalite.data_dir)
    kafkalite.start()
    assert aborted_lists(kafkalite.port) == told
    assert committed(kafkalite.bootstrap, len(told)) == seen
    run_transactions(kafkalite.bootstrap, "kafkalite")
    told = aborted_lists(kafkalite.port)
    seen = committed(kafkalite.bootstrap, len(told))
    assert len(seen) == 16 * 5
    kafkalite.stop()

    move(kafkalite.data_dir, kafka.data_dir)
    kafka.start()
    wait_for_leader(kafka.port)
    assert committed(kafka.bootstrap, len(told)) == seen, kafka.log()[-2000:]
    assert aborted_lists(kafka.port) == told
