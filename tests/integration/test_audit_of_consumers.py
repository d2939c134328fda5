"""Consumers as a stage of the audit: each message they took counts once despite crashes, and missed ones are named."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from kafkalite.audit import (
    AuditedAioKafkaConsumer,
    AuditedConfluentConsumer,
    AuditedGroupReader,
    AuditedKafkaPythonConsumer,
    AuditedProducer,
)
from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client, GroupReader
from kafkalite.wire.record.columns import Record
from tests.kit.processes.broker import wait_until

pytestmark = [
    pytest.mark.integration,
    # so kafka-python reads schemas
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]

STAMP = 1_700_000_040_000
COUNT = 300


@pytest.fixture(scope="module")
def live() -> Iterator[Broker]:
    with Broker({"flush.on.acks.all": False, "offsets.topic.num.partitions": 1}) as running:
        yield running


@pytest.fixture
def client(live: Broker) -> Iterator[Client]:
    with Client(live.bootstrap_servers) as one:
        yield one


def fill(client: Client, topic: str) -> None:
    """COUNT messages in three partitions, a hundred a minute."""
    client.admin.create_topic(topic, 3)
    with AuditedProducer(client, server="web1") as producer:
        for partition in range(3):
            rows = [Record(-1, STAMP + 600 * at, None, b"v") for at in range(COUNT // 3)]
            producer.send(topic, partition, rows)


def audit(live: Broker, capsys: pytest.CaptureFixture[str], stage: str, topic: str) -> tuple[int, Any]:
    capsys.readouterr()
    options = ["--consumer", stage, "--topics", topic, "--json", "-q", "--grace", "0"]
    status = main(["audit", "--live", live.bootstrap_servers, *options])
    return status, json.loads(capsys.readouterr().out)


def test_a_group_of_ours_that_takes_all_is_complete(
    live: Broker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(client, "whole")
    with AuditedGroupReader(client, "whole-group", "whole", stage="billing", reset="earliest") as reader:
        taken = 0
        while taken < COUNT:
            taken += sum(len(chunk.columns) for chunk in reader.poll(1.0))
            reader.commit()
    status, found = audit(live, capsys, "billing", "whole")
    assert (status, list(found["stages"])) == (0, ["live", "billing"])
    assert found["stages"]["billing"]["records"] == COUNT


def test_what_is_read_again_after_a_crash_is_not_doubled_and_a_lost_report_is_made_up_for(
    live: Broker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(client, "crash")
    with Client(live.bootstrap_servers) as other:
        first = AuditedGroupReader(other, "crash-group", "crash", reset="earliest", session_timeout_s=6)
        chunks: list[Any] = []
        while sum(len(chunk.columns) for chunk in chunks) < COUNT:
            chunks += first.poll(1.0)
        half = {chunk.partition: int(chunk.columns.offsets[49]) + 1 for chunk in chunks}
        GroupReader.commit(first, half)  # it dies before its report
        assert first.tally.reports()
        first.close()
    with AuditedGroupReader(client, "crash-group", "crash", reset="earliest") as second:
        again = 0
        while again < COUNT // 2:
            again += sum(len(chunk.columns) for chunk in second.poll(1.0))
        second.commit()
    assert again == COUNT // 2
    status, found = audit(live, capsys, "crash-group", "crash")
    assert (status, found["differences"]) == (0, [])


def test_what_a_consumer_passed_over_is_missing_by_number_and_a_seek_back_doubles_nothing(
    live: Broker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(client, "passed")
    config = {"bootstrap.servers": live.bootstrap_servers, "group.id": "passing", "enable.auto.commit": False}
    with AuditedConfluentConsumer(config) as consumer:
        consumer.assign([ConfluentPartition("passed", part, 0) for part in range(3)])
        reached = dict.fromkeys(range(3), 0)

        def read(until: Callable[[], bool]) -> None:
            while not until():
                message = consumer.poll(1.0)
                if message is not None:
                    assert message.error() is None
                    reached[message.partition()] = message.offset() + 1

        read(lambda: min(reached.values()) == 100)
        consumer.commit(asynchronous=False)
        consumer.seek(ConfluentPartition("passed", 1, 40))
        reached[1] = 0
        read(lambda: reached[1] == 100)
        consumer.commit(asynchronous=False)
    assert audit(live, capsys, "passing", "passed")[0] == 0
    with AuditedConfluentConsumer(config, stage="hasty") as consumer:
        starts = {0: 0, 1: 7, 2: 0}
        consumer.assign([ConfluentPartition("passed", part, start) for part, start in starts.items()])
        reached = dict.fromkeys(starts, 0)
        read(lambda: min(reached.values()) == 100)
        consumer.commit()  # its answer comes with a later poll
        wait_until(lambda: consumer.poll(0.1) is None and len(consumer._producer) == 0, 60, "the report's answer")
        wait_until(lambda: _reports(client, "hasty") >= 3, 60, "the report")
    status, found = audit(live, capsys, "hasty", "passed")
    assert status == 1
    assert [(row["stage"], row["missing"], row["duplicated"]) for row in found["differences"]] == [("hasty", 7, 0)]
    assert found["messages"][0]["missing"] == [[100, 106]]  # partition 1 has the second hundred


def _reports(client: Client, stage: str) -> int:
    records = [row for chunk in client.read("kafkalite.audit", 0) for row in chunk.records()]
    return sum((row.key or b"").startswith(b"taken/%s/" % stage.encode()) for row in records)


def test_kafka_python_s_consumer(live: Broker, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    from kafka import KafkaConsumer

    fill(client, "python")
    options = {"bootstrap_servers": live.bootstrap_servers, "group_id": "pythons", "auto_offset_reset": "earliest"}
    with AuditedKafkaPythonConsumer(KafkaConsumer(enable_auto_commit=False, **options)) as consumer:
        consumer.subscribe(["python"])
        taken = 0
        while taken < COUNT:
            taken += sum(map(len, consumer.poll(timeout_ms=1000).values()))
        consumer.commit()
    assert audit(live, capsys, "pythons", "python")[0] == 0
    plain = KafkaConsumer(**options)
    with pytest.raises(ValueError, match="an audited consumer requires enable_auto_commit=False"):
        AuditedKafkaPythonConsumer(plain)
    plain.close()


def test_aiokafka_s_consumer(live: Broker, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    fill(client, "async")

    async def read() -> None:
        options = {"bootstrap_servers": live.bootstrap_servers}
        async with (
            AIOKafkaProducer(**options) as producer,
            AIOKafkaConsumer(
                "async", group_id="async", enable_auto_commit=False, auto_offset_reset="earliest", **options
            ) as plain,
        ):
            consumer = AuditedAioKafkaConsumer(plain, producer, "async")
            taken = 1 if await consumer.getone() else 0
            while taken < COUNT:
                found = await consumer.getmany(timeout_ms=1000)
                taken += sum(map(len, found.values()))
            await consumer.commit()

    asyncio.run(read())
    assert audit(live, capsys, "async", "async")[0] == 0


def test_a_stage_without_any_report_is_named(live: Broker, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    fill(client, "silent")
    options = ["--live", live.bootstrap_servers, "--topics", "silent", "--grace", "0"]
    assert main(["audit", *options, "--consumer", "nobody"]) == 2
    assert "no consumer of stage nobody has reported anything yet" in capsys.readouterr().err
    assert main(["audit", *options, "--consumer", "live"]) == 2
    assert "stage 'live' already exists" in capsys.readouterr().err
