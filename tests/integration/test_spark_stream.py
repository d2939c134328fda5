"""The plans of a Spark streaming query, without Spark: limits, ends, new partitions, replay, deleted
records, groups.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.model import TopicPartition
from kafkalite.spark.options import StreamOptions
from kafkalite.spark.source import stream_plan
from kafkalite.spark.source.offsets import DataLoss
from kafkalite.spark.source.reading import read_task
from kafkalite.spark.source.stream_plan import EPOCHS, FROM, IDS, StreamPlanner, StreamPosition
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import BrokerProcess
from tests.kit.processes.restored import grow_after_backup, produce, put_back
from tests.kit.processes.restored import numbers as values

pytestmark = pytest.mark.integration

numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"listeners": "kafka://127.0.0.1:0", "flush.on.acks.all": False}) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers, retry_timeout_s=10) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    """Partition 0 has 300 records of 100 bytes in batches of 10, partition 1 has 60."""
    name = f"stream-{next(numbers)}"
    client.admin.create_topic(name, 2)
    fill(client, name, 0, 300)
    fill(client, name, 1, 60)
    return name


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_plan, "SETTLE_S", 0.0)


def fill(client: Client, topic: str, partition: int, count: int) -> None:
    for _ in range(0, count, 10):
        client.produce(topic, partition, [b"x" * 100] * 10)


def planner(broker: Broker | BrokerProcess, topic: str, clock=None, **options: object) -> StreamPlanner:
    named = {name.replace("__", "."): str(value) for name, value in options.items()}
    servers = broker.bootstrap if isinstance(broker, BrokerProcess) else broker.bootstrap_servers
    base = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    parsed = StreamOptions.parse(base | named)
    return StreamPlanner(parsed) if clock is None else StreamPlanner(parsed, clock)


def offsets(planner: StreamPlanner, start: dict, end: dict) -> list[tuple[int, int]]:
    """(partition, offset) of a batch."""
    return [
        (row["partition"], row["offset"])
        for task in planner.tasks(start, end)
        for batch in read_task(planner._source, ("partition", "offset"), task)
        for row in batch.to_pylist()
    ]


def run(planner: StreamPlanner, start: dict | None = None, batches_max: int = 1000) -> list[tuple[dict, dict]]:
    """The batches of a query until there is nothing more."""
    at = planner.initial() if start is None else start
    found = []
    while (end := json.loads(json.dumps(planner.latest(at, limited=True)))) != at:
        found.append((at, end))
        at = end
        assert len(found) <= batches_max, "it does not come to an end"
    return found


def everything(partitions: dict[int, int]) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, end in partitions.items() for offset in range(end)]


@pytest.mark.parametrize(
    ("options", "batches"),
    [({}, 1), ({"maxOffsetsPerTrigger": 100}, 4), ({"maxOffsetsPerTrigger": 1, "startingOffsets": "latest"}, 0)],
)
def test_batches_cover_everything_once(broker: Broker, topic: str, options: dict, batches: int) -> None:
    query = planner(broker, topic, **options)
    found = run(query)
    assert len(found) == batches
    rows = [offsets(query, *batch) for batch in found]
    assert all(len(batch) <= options.get("maxOffsetsPerTrigger", 1000) for batch in rows)
    assert all({partition for partition, _ in batch} == {0, 1} for batch in rows)
    assert sorted(itertools.chain(*rows)) == (everything({0: 300, 1: 60}) if batches else [])


def test_a_limit_by_bytes(broker: Broker, topic: str) -> None:
    query = planner(broker, topic, maxBytesPerTrigger=8_000)
    found = run(query)
    rows = [offsets(query, *batch) for batch in found]
    assert max(map(len, rows)) <= 80, "each record has more than 100 bytes"
    assert len(rows) < 20
    assert sorted(itertools.chain(*rows)) == everything({0: 300, 1: 60})


def test_the_engine_may_lift_the_limits(broker: Broker, topic: str) -> None:
    query = planner(broker, topic, maxOffsetsPerTrigger=1)
    assert len(offsets(query, query.initial(), query.latest(query.initial(), limited=False))) == 360


def test_a_batch_is_the_same_when_it_is_planned_again(broker: Broker, client: Client, topic: str) -> None:
    first, last = run(planner(broker, topic, maxOffsetsPerTrigger=100))[1]
    before = offsets(planner(broker, topic), first, last)
    fill(client, topic, 0, 100)
    assert offsets(planner(broker, topic), first, last) == before
    assert len(before) == 100


def test_the_same_spot_is_the_same_text(broker: Broker, client: Client, topic: str) -> None:
    query = planner(broker, topic)
    end = query.latest(query.initial(), limited=True)
    mixed = {name: dict(reversed(row.items())) for name, row in reversed(end.items())}
    assert json.dumps(query.latest(mixed, limited=True)) == json.dumps(end)
    plain = {name: row for name, row in end.items() if name != IDS}
    assert json.dumps(query.latest(plain, limited=True)) == json.dumps(end), "as Spark's own connector writes it"


def test_a_bounded_query_ends_while_records_arrive(broker: Broker, client: Client, topic: str) -> None:
    query = planner(broker, topic, maxOffsetsPerTrigger=100, minOffsetsPerTrigger=90)
    query.bound()
    at, rows = query.initial(), []
    for _ in range(10):
        end = query.latest(at, limited=True)
        fill(client, topic, 1, 10)
        if end == at:
            break
        rows += offsets(query, at, end)
        at = end
    assert sorted(rows) == everything({0: 300, 1: 60})
    again = planner(broker, topic, maxOffsetsPerTrigger=100)
    again.bound()
    assert sum(len(offsets(again, *batch)) for batch in run(again, at)) == 50


def test_too_little_waits_until_it_has_waited_enough(broker: Broker, client: Client, topic: str) -> None:
    now = [100.0]
    query = planner(broker, topic, lambda: now[0], minOffsetsPerTrigger=100, maxTriggerDelay="30s")
    start = query.initial()
    at = query.latest(start, limited=True)
    assert at != start
    fill(client, topic, 0, 20)
    now[0] += 29
    assert query.latest(at, limited=True) == at
    now[0] += 2
    assert len(offsets(query, at, query.latest(at, limited=True))) == 20


def test_new_partitions_are_read_from_their_first_record(broker: Broker, client: Client, topic: str) -> None:
    query = planner(broker, topic)
    (_, at), *_ = run(query)
    client.admin.add_partitions(topic, 3)
    fill(client, topic, 2, 30)
    ((start, end),) = run(query, at)
    assert offsets(query, start, end) == [(2, offset) for offset in range(30)]


def test_latest_is_one_place(broker: Broker, client: Client, topic: str) -> None:
    query = planner(broker, topic, startingOffsets="latest")
    start = query.initial()
    fill(client, topic, 1, 10)
    assert query.initial() == start
    assert [row for batch in run(query) for row in offsets(query, *batch)] == [(1, n) for n in range(60, 70)]


class TestLoss:
    def test_aged_out(self, broker: Broker, client: Client, topic: str) -> None:
        strict = planner(broker, topic)
        ((start, end),) = run(strict)
        client.admin.delete_records({TopicPartition(topic, 0): 40})
        with pytest.raises(DataLoss, match=f"offsets 0 to 40 of {topic}-0 have aged out"):
            strict.tasks(start, end)
        lenient = planner(broker, topic, failOnDataLoss=False)
        assert len(offsets(lenient, start, end)) == 320

    def test_made_anew(self, broker: Broker, client: Client, topic: str) -> None:
        ((_, at),) = run(planner(broker, topic))
        client.admin.delete_topic(topic)
        client.admin.create_topic(topic, 2)
        fill(client, topic, 0, 400)
        with pytest.raises(DataLoss, match="was deleted and recreated"):
            planner(broker, topic).latest(at, limited=True)
        lenient = planner(broker, topic, failOnDataLoss=False)
        ((start, end),) = run(lenient, at)
        assert offsets(lenient, start, end) == everything({0: 400})

    def test_a_new_query_that_begins_after_the_end(self, broker: Broker, client: Client, topic: str) -> None:
        given = f'{{"{topic}": {{"0": 1000, "1": 10}}}}'
        message = f"option startingOffsets: {topic}-0 starts at offset 1000, after its end 300; .*failOnDataLoss"
        with pytest.raises(DataLoss, match=message):
            planner(broker, topic, startingOffsets=given).initial()
        lenient = planner(broker, topic, startingOffsets=given, failOnDataLoss=False)
        assert {topic: lenient.initial()[topic]} == {topic: {"0": 300, "1": 10}}
        fill(client, topic, 0, 10)
        end = lenient.latest(lenient.initial(), limited=True)
        assert len(offsets(lenient, lenient.initial(), end)) == 60, "what comes later is read"

    def test_shorter_than_before(self, broker: Broker, client: Client, topic: str) -> None:
        at = {topic: {"0": 1000, "1": 60}}
        with pytest.raises(DataLoss, match=f"{topic}-0 ends at offset 300, but the query has read up to 1000"):
            planner(broker, topic).latest(at, limited=True)
        lenient = planner(broker, topic, failOnDataLoss=False)
        ((start, end),) = run(lenient, at)
        assert end[topic] == {"0": 300, "1": 60}
        assert lenient.tasks(start, end) == []

    def test_a_topic_that_is_gone(self, broker: Broker, client: Client, topic: str) -> None:
        other = f"{topic}-other"
        client.admin.create_topic(other, 1)
        fill(client, other, 0, 10)
        strict = planner(broker, f"{topic},{other}")
        ((_, at),) = run(strict)
        client.admin.delete_topic(other)
        pattern = {"subscribePattern": f"{topic}.*", "startingOffsets": "earliest"}
        base = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        with pytest.raises(DataLoss, match=f"{other}-0 no longer exists .the query read it up to offset 10"):
            StreamPlanner(StreamOptions.parse(base | pattern)).latest(at, limited=True)
        lenient = StreamPlanner(StreamOptions.parse(base | pattern | {"failOnDataLoss": "false"}))
        assert StreamPosition.from_json(lenient.latest(at, limited=True)).ids.keys() == {topic}


class TestGroup:
    def committed(self, client: Client, group: str) -> dict[int, int]:
        return {key.partition: row.offset for key, row in client.groups.committed(group).items()}

    def test_what_is_done_is_committed_the_last_batch_too(self, broker: Broker, client: Client, topic: str) -> None:
        query = planner(broker, topic, maxOffsetsPerTrigger=100, kafka__group__id=f"g-{topic}")
        start = query.initial()
        first = query.latest(start, limited=True)
        assert self.committed(client, f"g-{topic}") == {}, "nothing is done yet"
        query.latest(first, limited=True)
        assert sum(self.committed(client, f"g-{topic}").values()) == 100
        run(query, first)
        assert self.committed(client, f"g-{topic}") == {0: 300, 1: 60}
        assert query.reported()[topic] == {"0": 300, "1": 60}

    def test_it_can_be_left(self, broker: Broker, client: Client, topic: str) -> None:
        run(planner(broker, topic, kafka__group__id=f"g-{topic}", commitOffsetsOnBatch=False))
        assert self.committed(client, f"g-{topic}") == {}

    def test_a_commit_that_fails_stops_nothing(
        self, broker: Broker, client: Client, topic: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with client.group_reader(f"g-{topic}", [topic], reset="earliest") as member:
            member.poll(timeout_s=5.0)
            assert len(run(planner(broker, topic, kafka__group__id=f"g-{topic}"))) == 1
        assert "cannot commit the offsets" in caplog.text


@pytest.mark.parametrize("value", [{IDS: 3}, {IDS: {"a": 1}}, {"a": 7}])
def test_what_is_no_spot(value: dict) -> None:
    with pytest.raises(ValueError, match=r"topic ids|an object of partitions"):
        StreamPosition.from_json(value)


def read_values(planner: StreamPlanner, batches: list[tuple[dict, dict]]) -> list[bytes]:
    """The records of these batches."""
    return [
        row["value"]
        for start, end in batches
        for task in planner.tasks(start, end)
        for batch in read_task(planner._source, ("value",), task)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("running", sample([False, True], 1), ids=["started again", "running"])
@pytest.mark.parametrize("killed", sample([False, True], 1), ids=["epochs tell", "the same epoch"])
@pytest.mark.parametrize("count", sample([10, 60], 1))
def test_a_log_that_was_restored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int, killed: bool, running: bool
) -> None:
    """Whether it has fewer records than were read or more, and whether the epochs tell or only the last batch."""
    with BrokerProcess(tmp_path / "live") as live:
        grow_after_backup(live, "orders", tmp_path / "saved", same_epoch=killed)
        strict = planner(live, "orders")
        batches = run(strict)
        assert read_values(strict, batches) == values(0, 150)
        at = batches[-1][1]
        assert len(at[EPOCHS]["orders"]["0"]) == 3
        put_back(live, tmp_path / "saved")
        produce(live.bootstrap, "orders", values(100, 100 + count, "new"))
        with pytest.raises(DataLoss, match="restored from a backup or truncated; set failOnDataLoss to false"):
            (strict if running else planner(live, "orders")).latest(at, limited=True)
        lenient = planner(live, "orders", failOnDataLoss=False, maxOffsetsPerTrigger=40)
        batches = run(lenient, at)
        first = 0 if killed else 100
        assert batches[0][1][FROM] == {"orders": {"0": first}}
        new = [*values(first, 100), *values(100, 100 + count, "new")]
        assert read_values(lenient, batches) == new
        assert f"reading again from offset {first}" in caplog.text
        assert run(planner(live, "orders"), batches[-1][1]) == []
        assert read_values(planner(live, "orders"), batches[-1:]) == new[(len(new) - 1) // 40 * 40 :]


def test_a_batch_that_is_done_again_after_its_log_was_restored(tmp_path: Path) -> None:
    """Its end was written down before the query died: it is compared with the log before it is read."""
    with BrokerProcess(tmp_path / "live") as live:
        grow_after_backup(live, "orders", tmp_path / "saved")
        ((start, end),) = run(planner(live, "orders"))
        put_back(live, tmp_path / "saved")
        produce(live.bootstrap, "orders", values(100, 160, "new"))
        with pytest.raises(DataLoss, match="orders-0 was read up to offset 150"):
            planner(live, "orders").tasks(start, end)
        lenient = planner(live, "orders", failOnDataLoss=False)
        batches = [(start, end), *run(lenient, end)]
        assert read_values(lenient, batches) == [*values(0, 100), *values(100, 150, "new"), *values(100, 160, "new")]


def test_checkpoints_without_epochs(broker: Broker, client: Client, topic: str) -> None:
    """As Spark's own connector and older versions have them: read as before, and epochs come with the next batch."""
    bare = {topic: {"0": 300, "1": 60}}
    lenient = planner(broker, topic)
    assert (
        StreamPosition.from_json(lenient.latest(bare, limited=True)).offsets == StreamPosition.from_json(bare).offsets
    )
    fill(client, topic, 1, 10)
    ((_, end),) = run(planner(broker, topic), bare)
    assert end[EPOCHS][topic].keys() == {"0", "1"}
    assert StreamPosition.from_json(end).to_json() == end


def test_where_a_query_began_is_compared_too(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "live") as live:
        grow_after_backup(live, "orders", tmp_path / "saved")
        at = planner(live, "orders", startingOffsets="latest").initial()
        put_back(live, tmp_path / "saved")
        produce(live.bootstrap, "orders", values(100, 160, "new"))
        with pytest.raises(DataLoss, match="has diverged from offset 100 on"):
            planner(live, "orders").latest(at, limited=True)
