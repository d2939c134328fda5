"""Our client and our command line against Apache Kafka itself: what we send is what Kafka means.

Kafka decompresses and walks every batch it is sent, with Java's codecs, so that it accepts them is the proof of our
encoder; its dump tool then reads them once more.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.cli import main
from kafkalite.client import Client, DeliveryFailed
from kafkalite.errors import (
    InvalidConfig,
    InvalidPartitions,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, OFFSET_MAX_TIMESTAMP, TopicPartition
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import Codec
from tests.kit.processes.apache_kafka import ApacheKafka, dump_log

pytestmark = [pytest.mark.compat, pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def client(apache_kafka: ApacheKafka) -> Iterator[Client]:
    with Client(apache_kafka.bootstrap) as client:
        yield client


def records(count: int) -> list[Record]:
    return [
        Record(
            -1,
            1_700_000_000_000 + i,
            b"k%d" % i if i % 3 else None,
            b"value %d " % i * (i % 7),
            (("h", b"%d" % i), ("n", None)),
        )
        for i in range(count)
    ]


def read(client: Client, topic: str, partition: int = 0, **options: object) -> list[Record]:
    return [record for chunk in client.read(topic, partition, **options) for record in chunk.columns.records()]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_every_codec_is_accepted_and_comes_back(apache_kafka: ApacheKafka, client: Client, codec: Codec) -> None:
    topic = f"codec-{codec.name.lower()}"
    client.admin.create_topic(topic, 1)
    sent = records(5000)
    delivery = client.produce(topic, 0, RecordColumns.from_records(sent), codec=codec, batch_size=50_000)
    assert (delivery.first_offset, delivery.end_offset) == (0, 5000)
    assert [record._replace(offset=-1) for record in read(client, topic)] == sent
    assert [record.offset for record in read(client, topic, start=1234, end=1240)] == list(range(1234, 1240))
    (segment,) = (apache_kafka.data_dir / f"{topic}-0").glob("*.log")
    text = dump_log(segment)
    assert f"compresscodec: {codec.name.lower()}" in text
    assert text.count("| offset: ") == 5000
    assert "isvalid: false" not in text


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(client: Client, acks: int) -> None:
    topic = f"acks{acks}"
    client.admin.create_topic(topic, 3)
    for partition in range(3):  # a leader that is not ready yet would refuse, and with acks=0 without an error
        client.produce(topic, partition, [b"first"], acks=1)
    with client.producer(acks=acks, batch_size=1000) as producer:
        for partition in range(3):
            producer.send(topic, partition, [b"%d" % i for i in range(3000)])
    for partition in range(3):
        stored = [record.value for record in read(client, topic, partition)]
        assert stored == [b"first", *(b"%d" % i for i in range(3000))]


def test_look_ups(client: Client) -> None:
    client.admin.create_topic("look", 1)
    key = TopicPartition("look", 0)
    client.produce("look", 0, RecordColumns.from_records(records(100)))
    for timestamp, offset in [
        (OFFSET_EARLIEST, 0),
        (OFFSET_LATEST, 100),
        (OFFSET_MAX_TIMESTAMP, 99),
        (1_700_000_000_042, 42),
        (1_800_000_000_000, -1),
    ]:
        assert client.list_offsets({key: timestamp})[key].offset == offset
    assert client.admin.delete_records({key: 30}) == {key: 30}
    assert client.start_offset("look", 0) == 30
    with pytest.raises(OffsetOutOfRange):
        read(client, "look", start=3)
    assert len(read(client, "look", start=3, reset="earliest")) == 70


def test_administration(client: Client) -> None:
    admin = client.admin
    admin.create_topic("admin", 2, configs={"retention.ms": "5000"})
    with pytest.raises(TopicAlreadyExists):
        admin.create_topic("admin")
    with pytest.raises(InvalidConfig):
        admin.create_topic("bad", configs={"retention.ms": "soon"})
    admin.create_topic("dry", validate_only=True)
    with pytest.raises(UnknownTopicOrPartition):
        client.topic("dry")
    admin.add_partitions("admin", 4)
    assert client.partitions("admin") == [0, 1, 2, 3]
    with pytest.raises(InvalidPartitions):
        admin.add_partitions("admin", 4)
    admin.alter_topic_configs("admin", {"segment.bytes": "2000000", "retention.ms": None})
    entries = {entry.name: entry for entry in admin.describe_topic_configs("admin")}
    assert (entries["segment.bytes"].value, entries["segment.bytes"].source) == ("2000000", "topic")
    assert entries["retention.ms"].source == "default"
    assert entries["retention.ms"].documentation
    (broker,) = client.brokers()
    assert "num.partitions" in {entry.name for entry in admin.describe_broker_configs(broker.node_id)}
    admin.delete_topic("admin")
    assert "admin" not in client.topics()


def test_a_batch_too_large_is_halved_until_it_fits(client: Client) -> None:
    client.admin.create_topic("small", 1, configs={"max.message.bytes": "10000"})
    sent = [b"x" * 900 for _ in range(1000)]
    client.produce("small", 0, sent)
    assert [record.value for record in read(client, "small")] == sent
    with pytest.raises(DeliveryFailed, match="MESSAGE_TOO_LARGE"):
        client.produce("small", 0, [bytes(20_000)])


def test_read_committed_leaves_out_aborted_records(apache_kafka: ApacheKafka, client: Client) -> None:
    from confluent_kafka import Producer

    client.admin.create_topic("transactions", 1)
    producer = Producer({"bootstrap.servers": apache_kafka.bootstrap, "transactional.id": "test"})
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        for i in range(10):
            producer.produce("transactions", b"%d-%d" % (number, i))
        producer.flush()
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    committed = [b"%d-%d" % (number, i) for number in (0, 2, 4) for i in range(10)]
    assert [record.value for record in read(client, "transactions", isolation=1)] == committed
    assert len(read(client, "transactions")) == 60


def test_command_line(apache_kafka: ApacheKafka, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"key%d\tline %d\n" % (i % 50, i) for i in range(20_000)))
    address = ["-b", apache_kafka.bootstrap]
    assert main(["topics", "create", *address, "lines", "-p", "3"]) == 0
    assert main(["produce", *address, "-t", "lines", "-K", "\\t", "-z", "zstd", str(path)]) == 0
    assert main(["consume", *address, "-t", "lines", "-o", "beginning", "-e", "-f", "%p %k %s\\n"]) == 0
    assert main(["topics", "describe", *address, "lines", "--json"]) == 0
    assert main(["configs", "describe", *address, "broker", "--json"]) == 0
    *lines, topics, configs = capfd.readouterr().out.splitlines()[1:]
    assert sorted(line.split(" ", 1)[1] for line in lines) == sorted(
        line.replace("\t", " ") for line in path.read_text().splitlines()
    )
    (topic,) = json.loads(topics)
    assert sum(row["end"] for row in topic["partitions"]) == 20_000
    assert {row["name"] for row in json.loads(configs)} >= {"log.dirs", "node.id"}
    assert main(["log", "dump", str(apache_kafka.data_dir / "lines-0"), "-s"]) == 0
    assert "records" in capfd.readouterr().out


def test_produce_waits_for_the_topic_that_kafka_makes(
    apache_kafka: ApacheKafka, client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n")
    address = ["produce", "-b", apache_kafka.bootstrap, "-t"]
    assert main([*address, "not-made", "--no-create", str(path)]) == 1
    assert main([*address, "made", str(path)]) == 0
    assert [record.value for record in read(client, "made")] == [b"one"]
    assert "not-made" not in client.topics()


def test_top_shows_offsets_and_lag(
    apache_kafka: ApacheKafka, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.admin.create_topic("topped", 2)
    client.produce("topped", 1, RecordColumns.from_records(records(5)))
    client.groups.commit("top-readers", {TopicPartition("topped", 1): 2})
    assert main(["top", "-b", apache_kafka.bootstrap, "--interval", "0.2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"topic": "topped", "offsets_per_s": 0.0} in told["topics"]
    assert {"group": "top-readers", "topic": "topped", "lag": 3, "state": "Empty"} in told["groups"]
