"""What a load reads next, against a broker and without Spark: rounds by bytes, new partitions, what is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.client.history import marks_at
from kafkalite.load.manifest import Change, LoadState
from kafkalite.load.plan import LoadPlan, LoadSource, starting_bound
from kafkalite.load.selection import OffsetBound, Subscription
from kafkalite.load.storage import LoadError
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from kafkalite.spark.options import ClientSettings
from kafkalite.spark.source.plan import client_for
from tests.kit.processes.broker import BrokerProcess
from tests.kit.processes.restored import grow_after_backup, produce, put_back

pytestmark = pytest.mark.integration

EARLIEST = OffsetBound(everywhere=OFFSET_EARLIEST)


@pytest.fixture
def client(kafka_broker: Broker) -> Iterator[Client]:
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=30) as client:
        yield client


@pytest.fixture
def topic(client: Client, kafka_topic: str) -> str:
    """300 records of 1 kB in partition 0, in batches of ten; 50 in partition 1."""
    client.admin.add_partitions(kafka_topic, 2)
    for partition, batches in ((0, 30), (1, 5)):
        for _ in range(batches):
            client.produce(kafka_topic, partition, [b"x" * 1000] * 10)
    return kafka_topic


def plan(
    broker: Broker | BrokerProcess,
    topic: str,
    *,
    commit_size: int = 1 << 30,
    skips: bool = False,
    starting: OffsetBound = EARLIEST,
) -> LoadPlan:
    servers = broker.bootstrap if isinstance(broker, BrokerProcess) else broker.bootstrap_servers
    source = LoadSource(Subscription(pattern=topic), starting, fail_on_data_loss=not skips)
    return LoadPlan(client_for(ClientSettings(servers)), source, commit_size=commit_size)


def correct(made: LoadPlan, state: LoadState) -> dict[TopicPartition, int]:
    """As the load does it: what is found is in the state from then on."""
    change = made.corrections(state)
    if change is None:
        return {}
    state.positions |= change.positions
    state.topic_ids |= change.topic_ids
    return dict(change.positions)


def test_rounds_cover_everything_once(client: Client, kafka_broker: Broker, topic: str) -> None:
    made = plan(kafka_broker, topic, commit_size=60_000)
    client.produce(topic, 1, [b"later"])
    state = LoadState()
    assert correct(made, state) == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}
    assert correct(made, state) == {}, "once is enough"
    sizes = []
    while (part := made.following(state)) is not None:
        assert part.starts == {key: state.positions[key] for key in part.ends}
        assert all(part.starts[key] < end for key, end in part.ends.items())
        state.positions |= part.ends
        sizes.append(part.size)
    assert state.positions == {TopicPartition(topic, 0): 300, TopicPartition(topic, 1): 50}, "what was there first"
    assert len(sizes) >= 5
    assert max(sizes) < 120_000
    assert made.lags(state.positions) == {topic: 1}


def test_partitions_begin_where_it_is_said(kafka_broker: Broker, topic: str) -> None:
    latest = plan(kafka_broker, topic, starting=OffsetBound(everywhere=OFFSET_LATEST))
    state = LoadState()
    assert correct(latest, state) == {TopicPartition(topic, 0): 300, TopicPartition(topic, 1): 50}
    assert latest.following(state) is None
    for time_ms, offsets in ((1_000, (0, 0)), (2**62, (300, 50))):
        by_time = plan(kafka_broker, topic, starting=starting_bound(time_ms))
        first, second = (TopicPartition(topic, partition) for partition in (0, 1))
        assert correct(by_time, LoadState()) == dict(zip((first, second), offsets, strict=True))
    given = plan(kafka_broker, topic, starting=OffsetBound(offsets={TopicPartition(topic, 0): 17}))
    assert correct(given, LoadState()) == {TopicPartition(topic, 0): 17, TopicPartition(topic, 1): 0}, "or at its first"


def test_a_start_after_the_end(kafka_broker: Broker, topic: str) -> None:
    given = OffsetBound(offsets={TopicPartition(topic, 0): 301}, option="startingOffsets")
    with pytest.raises(LoadError, match=r"starts at offset 301, after its end 300; on_data_loss=\"skip\""):
        correct(plan(kafka_broker, topic, starting=given), LoadState())
    made = plan(kafka_broker, topic, skips=True, starting=given)
    assert correct(made, LoadState()) == {TopicPartition(topic, 0): 300, TopicPartition(topic, 1): 0}
    assert len(made.losses) == 1


def test_what_has_aged_out(client: Client, kafka_broker: Broker, topic: str) -> None:
    state = LoadState()
    correct(plan(kafka_broker, topic), state)
    client.admin.delete_records({TopicPartition(topic, 0): 100})
    with pytest.raises(LoadError, match=r"offsets 0 to 100 of .*-0 have aged out .*on_data_loss=\"skip\""):
        correct(plan(kafka_broker, topic), state)
    made = plan(kafka_broker, topic, skips=True)
    assert correct(made, state) == {TopicPartition(topic, 0): 100}
    assert len(made.losses) == 1


def test_a_topic_made_anew_begins_again_in_all_partitions(client: Client, kafka_broker: Broker, topic: str) -> None:
    state = LoadState()
    correct(plan(kafka_broker, topic), state)
    state.positions = {TopicPartition(topic, 0): 300, TopicPartition(topic, 1): 50}
    client.admin.delete_topic(topic)
    client.admin.create_topic(topic, 2)
    with pytest.raises(LoadError, match="was deleted and recreated"):
        correct(plan(kafka_broker, topic), state)
    made = plan(kafka_broker, topic, skips=True)
    assert correct(made, state) == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}
    assert correct(plan(kafka_broker, topic), state) == {}, "it is told once"


def test_a_partition_that_ends_before_what_is_loaded(kafka_broker: Broker, topic: str) -> None:
    state = LoadState()
    correct(plan(kafka_broker, topic), state)
    state.positions[TopicPartition(topic, 1)] = 60
    with pytest.raises(LoadError, match="ends at offset 50 but is loaded up to 60"):
        correct(plan(kafka_broker, topic), state)
    assert correct(plan(kafka_broker, topic, skips=True), state) == {TopicPartition(topic, 1): 50}


@pytest.mark.parametrize("count", [10, 60])
def test_a_log_that_was_restored(tmp_path: Path, count: int) -> None:
    """As the mirror: the manifests have the epoch and the CRC of what was loaded last."""
    with BrokerProcess(tmp_path / "live") as live:
        grow_after_backup(live, "restored", tmp_path / "saved")
        state, key = LoadState(), TopicPartition("restored", 0)
        made = plan(live, "restored")
        correct(made, state)
        part = made.following(state)
        assert part is not None
        change = Change("load", positions=part.ends, marks=marks_at(made.client, part.ends))
        state.apply(change.to_json(0))
        state = LoadState.from_json(state.to_json())
        assert (state.positions[key], state.marks[key].offset) == (150, 150)
        assert correct(plan(live, "restored"), state) == {}
        put_back(live, tmp_path / "saved")
        produce(live.bootstrap, "restored", [b"new"] * count)
        with pytest.raises(LoadError, match="restored-0"):
            plan(live, "restored").corrections(state)
        skipping = plan(live, "restored", skips=True)
        assert correct(skipping, state) == {key: 100}
        assert correct(plan(live, "restored"), state) == {}


def test_a_log_that_was_restored_below_where_a_load_began(tmp_path: Path) -> None:
    """Nothing was read, so there is a position alone: it is compared all the same."""
    with BrokerProcess(tmp_path / "live") as live:
        grow_after_backup(live, "restored", tmp_path / "saved")
        state, key = LoadState(), TopicPartition("restored", 0)
        change = plan(live, "restored", starting=OffsetBound(everywhere=OFFSET_LATEST)).corrections(state)
        assert change is not None
        state.apply(change.to_json(0))
        assert (state.positions[key], state.marks[key].offset) == (150, 150)
        put_back(live, tmp_path / "saved")
        produce(live.bootstrap, "restored", [b"new"] * 60)
        with pytest.raises(LoadError, match="has diverged from offset 100 on"):
            plan(live, "restored").corrections(state)
