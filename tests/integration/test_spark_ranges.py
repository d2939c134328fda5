"""The plans and reads of a Spark batch query, without Spark: bounds, splitting, deleted records, classic topics."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client, RangeUnavailable
from kafkalite.errors import UnknownTopicOrPartition
from kafkalite.load.selection import OptionError
from kafkalite.model import TopicPartition
from kafkalite.spark.options import SourceOptions
from kafkalite.spark.source import plan
from kafkalite.spark.source.offsets import DataLoss
from kafkalite.spark.source.pushdown import Narrowing
from kafkalite.spark.source.reading import read_task
from kafkalite.wire.record.columns import Record, RecordColumns
from tests.kit.harness.classic_client import ClassicClient
from tests.kit.oracles import classic_oracle as oracle
from tests.kit.oracles.classic_oracle import HELLO_0
from tests.kit.processes.broker import REPOSITORY

pytestmark = pytest.mark.integration

STAMP = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0",
        "log.flush.interval": 1,
        "flush.on.acks.all": False,
    }
    with Broker(settings) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers, retry_timeout_s=10) as client:
        yield client


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """Partition 0 has 300 records in batches of 10, one each ms; partition 1 has 5; partition 2 none."""
    name = f"t-{abs(hash(request.node.name))}"
    client.admin.create_topic(name, 3)
    for first in range(0, 300, 10):
        sent = [Record(i, STAMP + i, b"k", b"%03d" % i * 100, ()) for i in range(first, first + 10)]
        client.produce(name, 0, RecordColumns.from_records(sent))
    client.produce(name, 1, RecordColumns.from_records([Record(i, STAMP + i, None, b"v", ()) for i in range(5)]))
    return name


def parse(broker: Broker, **options: object) -> SourceOptions:
    named = {name.replace("__", "."): str(value) for name, value in options.items()}
    return SourceOptions.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, **named})


def read(client: Client, options: SourceOptions, tasks: list[plan.ReadTask] | None = None) -> dict[int, list[int]]:
    """Partition → offsets, in the order read."""
    found: dict[int, list[int]] = {}
    for task in plan.plan_tasks(client, options) if tasks is None else tasks:
        for batch in read_task(options, ("offset", "partition"), task):
            assert batch.schema.names == ["offset", "partition"]
            for row in batch.to_pylist():
                found.setdefault(row["partition"], []).append(row["offset"])
    return found


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({}, (0, 300), (0, 5)),
        ({"startingOffsets": '{"T": {"0": 17, "1": -2, "2": 0}}'}, (17, 300), (0, 5)),
        ({"endingOffsets": '{"T": {"0": 17, "1": -1, "2": -1}}'}, (0, 17), (0, 5)),
        ({"startingTimestamp": STAMP + 3, "startingOffsetsByTimestampStrategy": "latest"}, (3, 300), (3, 5)),
        ({"endingTimestamp": STAMP + 100}, (0, 100), (0, 5)),
        ({"endingTimestamp": STAMP + 100, "endingOffsets": "latest"}, (0, 100), (0, 5)),
        (
            {
                "startingOffsetsByTimestamp": f'{{"T": {{"0": {STAMP + 290}, "1": {STAMP + 99}, "2": 0}}}}',
                "startingOffsetsByTimestampStrategy": "latest",
            },
            (290, 300),
            (5, 5),
        ),
    ],
)
def test_bounds(broker: Broker, client: Client, topic: str, options: dict, first: tuple, second: tuple) -> None:
    named = {name: str(value).replace("T", topic) for name, value in options.items()}
    found = read(client, parse(broker, subscribe=topic, **named))
    assert found == {n: list(range(*r)) for n, r in ((0, first), (1, second)) if r[0] < r[1]}


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": '{"T": {"0": 301, "1": 0, "2": 0}}'}, "startingOffsets: T-0 starts at offset 301, after"),
        (
            {
                "startingOffsets": '{"T": {"0": 0, "1": 5, "2": 0}}',
                "endingOffsets": '{"T": {"0": 9, "1": 4, "2": -1}}',
            },
            "startingOffsets: T-1 starts at offset 5, after its end 4",
        ),
        (
            {
                "startingTimestamp": STAMP + 50,
                "startingOffsetsByTimestampStrategy": "latest",
                "endingTimestamp": STAMP + 10,
            },
            "startingTimestamp: T-0 starts at offset 50, after its end 10",
        ),
    ],
)
def test_a_start_after_the_end_fails_for_any_data_loss_option(
    broker: Broker, client: Client, topic: str, options: dict, message: str, fails: str
) -> None:
    named = {name: str(value).replace("T", topic) for name, value in options.items()}
    with pytest.raises(OptionError, match="option " + message.replace("T-", f"{topic}-")):
        plan.plan_tasks(client, parse(broker, subscribe=topic, failOnDataLoss=fails, **named))


def test_a_time_in_the_future_is_an_error(broker: Broker, client: Client, topic: str) -> None:
    with pytest.raises(OptionError, match=f"{topic}-1 has no record at or after"):
        plan.plan_tasks(client, parse(broker, subscribe=topic, startingTimestamp=STAMP + 50))


def test_assign_and_pattern(broker: Broker, client: Client, topic: str) -> None:
    assert set(read(client, parse(broker, assign=f'{{"{topic}": [1, 2]}}'))) == {1}
    assert set(read(client, parse(broker, subscribePattern=f"{topic[:-1]}."))) == {0, 1}
    assert set(read(client, parse(broker, subscribePattern=topic[1:-1]))) == {0, 1}
    assert plan.plan_tasks(client, parse(broker, subscribePattern="no-such-.*")) == []
    with pytest.raises(OptionError, match=r"has no partition 7 .partition count: 3"):
        plan.plan_tasks(client, parse(broker, assign=f'{{"{topic}": [7]}}'))
    with pytest.raises(UnknownTopicOrPartition):
        plan.plan_tasks(client, parse(broker, subscribe="no-such-topic"))


def test_internal_topics_match_no_pattern(broker: Broker, client: Client, topic: str) -> None:
    client.groups.commit("some-group", {TopicPartition(topic, 0): 1})
    assert "__consumer_offsets" in client.topics()
    assert "__consumer_offsets" not in plan.discover(client, parse(broker, subscribePattern=".*").subscription)


@pytest.mark.parametrize(
    ("options", "tasks_min"),
    [
        ({"maxBytesPerPartition": 20_000}, 4),
        ({"minPartitions": 17}, 17),
        ({"minPartitions": 1000}, 305),
        ({"maxRecordsPerPartition": 7}, 44),
    ],
)
def test_splitting(broker: Broker, client: Client, topic: str, options: dict, tasks_min: int) -> None:
    parsed = parse(broker, subscribe=topic, **options)
    tasks = plan.plan_tasks(client, parsed)
    assert len(tasks) >= tasks_min
    assert read(client, parsed, tasks) == {0: list(range(300)), 1: list(range(5))}


def test_what_aged_out(broker: Broker, client: Client, topic: str) -> None:
    strict = parse(broker, subscribe=topic)
    lenient = parse(broker, subscribe=topic, failOnDataLoss=False)
    tasks = plan.plan_tasks(client, strict)
    client.admin.delete_records({TopicPartition(topic, 0): 55})
    with pytest.raises(DataLoss, match=f"offsets 0 to 300 of {topic}-0 can no longer be read.*failOnDataLoss"):
        read(client, strict, tasks)
    assert read(client, lenient, tasks) == {0: list(range(55, 300)), 1: list(range(5))}
    begin = {"startingOffsets": f'{{"{topic}": {{"0": 5, "1": 0, "2": 0}}}}'}
    with pytest.raises(DataLoss, match=f"offsets 5 to 55 of {topic}-0 have aged out"):
        plan.plan_tasks(client, parse(broker, subscribe=topic, **begin))
    assert read(client, parse(broker, subscribe=topic, failOnDataLoss=False, **begin))[0] == list(range(55, 300))


def test_a_recreated_topic(broker: Broker, client: Client, topic: str) -> None:
    strict = parse(broker, subscribe=topic)
    tasks = plan.plan_tasks(client, strict)
    client.admin.delete_topic(topic)
    with pytest.raises(DataLoss, match="can no longer be read"):
        read(client, strict, tasks)
    client.admin.create_topic(topic, 3)
    client.produce(topic, 0, [b"new"] * 300)
    with pytest.raises(DataLoss, match="was recreated"):
        read(client, strict, tasks)
    assert read(client, parse(broker, subscribe=topic, failOnDataLoss=False), tasks) == {}


def test_a_partition_that_ends_before_its_range(broker: Broker, client: Client, topic: str) -> None:
    beyond = {"endingOffsets": f'{{"{topic}": {{"0": 400, "1": 5, "2": 0}}}}'}
    with pytest.raises(DataLoss, match=f"{topic}-0 ends at offset 300, below the requested 400"):
        plan.plan_tasks(client, parse(broker, subscribe=topic, **beyond))
    assert read(client, parse(broker, subscribe=topic, failOnDataLoss=False, **beyond))[0] == list(range(300))
    strict = parse(broker, subscribe=topic, kafkaConsumer__pollTimeoutMs=100)
    task = plan.plan_tasks(client, strict)[0]
    longer = [task._replace(piece=task.piece._replace(end=400))]
    with pytest.raises(RangeUnavailable, match="readable up to 300"):
        read(client, strict, longer)
    lenient = parse(broker, subscribe=topic, failOnDataLoss=False, kafkaConsumer__pollTimeoutMs=100)
    assert read(client, lenient, longer) == {0: list(range(300))}


def test_read_committed_ends_before_an_open_transaction(broker: Broker, client: Client, topic: str) -> None:
    with client.producer(transactional_id="spark-ranges") as producer:
        producer.begin_transaction()
        producer.send(topic, 2, [b"aborted"])
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, 2, [b"committed"])
        producer.begin_transaction()
        producer.send(topic, 2, [b"open"])
        producer.flush()
        assert read(client, parse(broker, subscribe=topic, kafka__isolation__level="read_committed"))[2] == [2]
        assert read(client, parse(broker, subscribe=topic))[2] == [0, 2, 4]
        producer.abort_transaction()


def test_topics_of_kafka_0_7(broker: Broker, client: Client) -> None:
    with ClassicClient(broker.classic_endpoint.port) as classic:
        classic.send(oracle.produce("classic-for-spark", 0, HELLO_0 * 50))
        classic.fetch("classic-for-spark", 0, 0, 1)
    found = read(client, parse(broker, subscribe="classic-for-spark", minPartitions=3))
    assert found[0] == [len(HELLO_0) * number for number in range(50)]


def test_clients_are_kept_and_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "CLIENTS_MAX", 2)
    plan.client_for(parse(broker, subscribe="a").client)
    names = [parse(broker, subscribe="a", kafka__client__id=f"c{number}").client for number in range(3)]
    made = [plan.client_for(settings) for settings in names]
    assert plan.client_for(names[2]) is made[2]
    assert plan.client_for(names[1]) is made[1]
    assert plan.client_for(names[0]) is not made[0]


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("size", "cores", "expected"),
    [(0, 2, 0), (31 * MIB, 2, 0), (100 * MIB, 2, 3), (1000 * MIB, 2, 8), (1000 * MIB, 64, 31)],
)
def test_every_core_gets_tasks_that_are_worth_it(size: int, cores: int, expected: int) -> None:
    assert plan.task_count(size, cores) == expected


def test_filters_make_ranges_smaller(broker: Broker, client: Client, topic: str) -> None:
    """Where no record is as young as a time, nothing is read."""
    options = parse(broker, subscribe=topic)

    def narrowed(**bounds: object) -> dict[int, list[int]]:
        return read(client, options, plan.plan_tasks(client, options, Narrowing(**bounds)))

    assert narrowed(time_from_ms=STAMP + 3) == {0: list(range(3, 300)), 1: [3, 4]}
    assert narrowed(time_from_ms=STAMP + 299) == {0: [299]}
    assert narrowed(partitions=frozenset([0]), offset_from=5, offset_end=8) == {0: [5, 6, 7]}
    assert narrowed(topics=frozenset(["another"])) == {}


def test_a_worker_is_settled_once() -> None:
    """What PySpark's daemon would walk after each task is out of the collector's sight, and stays so."""
    script = """
import gc
from kafkalite.spark.source.reading import freeze_imports
freeze_imports()
frozen = gc.get_freeze_count()
assert frozen > 10_000, frozen
kept = [[] for _ in range(100_000)]
freeze_imports()
assert gc.get_freeze_count() <= frozen
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=REPOSITORY)
