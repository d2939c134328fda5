"""A partition directory travels between Apache Kafka 4.1 and kafkalite, both ways, and each serves the other's records.

    Kafka writes ─▶ kafkalite reads, appends ─▶ Kafka reads, appends ─▶ kafkalite reads
    kafkalite writes (its own topic) ─▶ Kafka reads, appends; kafka-dump-log reads every segment

Both are stopped cleanly before a directory moves, and it keeps its topic id. Slow: Kafka takes seconds to start.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkalite.errors import ErrorCode
from tests.kit.harness import wire
from tests.kit.harness.load import create_topic, unpack
from tests.kit.processes.apache_kafka import ApacheKafka, dump_log, replace_partition
from tests.kit.processes.broker import BrokerProcess, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]
TOPIC = "travels"
PARTITION_COUNT = 2
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Record = tuple[int, int, bytes | None, bytes | None]


@pytest.fixture
def kafka(tmp_path: Path, kafka_jars: Path) -> Iterator[ApacheKafka]:
    kafka = ApacheKafka(tmp_path / "kafka")
    yield kafka
    kafka.close()


@pytest.fixture
def kafkalite(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "kafkalite")
    yield broker
    broker.close()
    print(broker.log()[-4000:])


def produce(bootstrap: str, label: str, *, idempotent: bool = True, per_codec: int = 60) -> None:
    """Every codec, both partitions; small batches, so that there are many.

    Two clusters give out the same producer ids, so a moved partition may know a producer that the new one has not made
    yet: kafkalite steps over the ids it finds, Kafka does not.
    """
    for codec in CODECS:
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "enable.idempotence": idempotent}
        producer = Producer({**settings, "compression.type": codec, "batch.num.messages": 7, "linger.ms": 1})
        for number in range(per_codec):
            value = f"{label} {codec} {number} ".encode() * (number % 40)
            producer.produce(TOPIC, value, f"key-{number}", number % PARTITION_COUNT, headers=[("from", label)])
        assert producer.flush(30) == 0


def batches(port: int) -> dict[int, list[wire.Batch]]:
    """Every batch as stored; CRCs checked."""
    found: dict[int, list[wire.Batch]] = {}
    with wire.Connection(port) as connection:
        for partition in range(PARTITION_COUNT):
            offset, end = 0, connection.list_offset(TOPIC, partition, -1)[2]
            found[partition] = []
            while offset < end:
                answer = connection.fetch(TOPIC, partition, offset)
                assert answer.error == 0, answer.error
                for batch in wire.split_batches(answer.records):
                    assert batch.crc_is_right
                    found[partition].append(batch)
                    offset = batch.next_offset
    return found


def records(stored: dict[int, list[wire.Batch]]) -> list[Record]:
    rows: list[Record] = []
    for partition, of_partition in stored.items():
        for batch in of_partition:
            rows += [(partition, *row) for row in wire.decode_records(unpack(batch))]
    return rows


def wait_for_leader(port: int) -> None:
    """Kafka answers before it leads the partitions."""

    def ready() -> bool:
        with wire.Connection(port) as connection:
            return all(connection.list_offset(TOPIC, partition, -1)[0] == 0 for partition in range(PARTITION_COUNT))

    wait_until(ready, 30, "leaders")


def move(source: Path, target: Path) -> None:
    for partition in range(PARTITION_COUNT):
        place = target / f"{TOPIC}-{partition}"
        if place.exists():
            replace_partition(source / place.name, place)
        else:
            shutil.copytree(source / place.name, place)


def test_kafkas_partitions_served_by_kafkalite_and_back(kafka: ApacheKafka, kafkalite: BrokerProcess) -> None:
    kafka.start()
    create_topic(kafka.port, TOPIC, PARTITION_COUNT)
    wait_for_leader(kafka.port)
    produce(kafka.bootstrap, "kafka")
    by_kafka = batches(kafka.port)
    kafka.stop()

    kafkalite.start()
    kafkalite.stop()
    move(kafka.data_dir, kafkalite.data_dir)
    kafkalite.start()
    assert batches(kafkalite.port) == by_kafka, "kafkalite serves other bytes than Kafka did"
    produce(kafkalite.bootstrap, "kafkalite")
    by_kafkalite = batches(kafkalite.port)
    assert len(records(by_kafkalite)) == 2 * len(records(by_kafka))
    kafkalite.stop()

    move(kafkalite.data_dir, kafka.data_dir)
    kafka.start()
    wait_for_leader(kafka.port)
    assert batches(kafka.port) == by_kafkalite, f"Kafka serves other bytes than kafkalite did\n{kafka.log()[-2000:]}"
    produce(kafka.bootstrap, "kafka again")
    again = batches(kafka.port)
    kafka.stop()

    move(kafka.data_dir, kafkalite.data_dir)
    kafkalite.start()
    assert batches(kafkalite.port) == again


def test_kafkalites_own_topic_served_by_kafka(kafka: ApacheKafka, kafkalite: BrokerProcess) -> None:
    """A topic born in kafkalite, with many segments; Kafka's own empty partition gives way to it and lends its id."""
    kafkalite.start()
    create_topic(kafkalite.port, TOPIC, PARTITION_COUNT, {"segment.bytes": "4000"})
    produce(kafkalite.bootstrap, "kafkalite")
    by_kafkalite = batches(kafkalite.port)
    kafkalite.stop()
    segments = sorted(kafkalite.data_dir.glob(f"{TOPIC}-*/*.log"))
    assert len(segments) > 4 * PARTITION_COUNT

    listing = dump_log(*segments)
    assert listing.count("isvalid: true") == sum(len(of_partition) for of_partition in by_kafkalite.values())
    assert "isvalid: false" not in listing
    assert listing.count("| offset:") == len(records(by_kafkalite))

    kafka.start()
    create_topic(kafka.port, TOPIC, PARTITION_COUNT)
    wait_for_leader(kafka.port)
    kafka.stop()
    names = [f"{TOPIC}-{partition}/partition.metadata" for partition in range(PARTITION_COUNT)]
    identities = [(kafka.data_dir / name).read_text() for name in names]
    move(kafkalite.data_dir, kafka.data_dir)
    for name, identity in zip(names, identities, strict=True):
        (kafka.data_dir / name).write_text(identity)
    kafka.start()
    wait_for_leader(kafka.port)
    assert batches(kafka.port) == by_kafkalite, kafka.log()[-2000:]
    produce(kafka.bootstrap, "kafka", idempotent=False)
    assert len(records(batches(kafka.port))) == 2 * len(records(by_kafkalite))


def test_a_producer_continues_across_the_move(kafka: ApacheKafka, kafkalite: BrokerProcess) -> None:
    """Producer state travels with the directory: Kafka knows the last batch kafkalite took, and refuses a gap.

    The last one only: Kafka's snapshot, which we write in its place, has room for no more.
    """
    kafka.start()
    create_topic(kafka.port, TOPIC, PARTITION_COUNT)
    wait_for_leader(kafka.port)
    kafka.stop()
    kafkalite.start()
    kafkalite.stop()
    move(kafka.data_dir, kafkalite.data_dir)
    kafkalite.start()
    with wire.Connection(kafkalite.port) as connection:
        producer_id, epoch = connection.producer_id()
        for number in range(7):
            assert connection.produce(TOPIC, 0, _batch(producer_id, epoch, number * 3)).base_offset == number * 3
    kafkalite.stop()
    move(kafkalite.data_dir, kafka.data_dir)
    kafka.start()
    wait_for_leader(kafka.port)
    with wire.Connection(kafka.port) as connection:
        again = connection.produce(TOPIC, 0, _batch(producer_id, epoch, 18))
        assert (again.error, again.base_offset) == (0, 18)
        assert (
            connection.produce(TOPIC, 0, _batch(producer_id, epoch, 30)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )
        assert connection.produce(TOPIC, 0, _batch(producer_id, epoch, 21)).base_offset == 21


def _batch(producer_id: int, epoch: int, sequence: int) -> bytes:
    rows = [wire.Record(None, b"%d" % (sequence + number)) for number in range(3)]
    return wire.batch_of(rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
