"""A source that went back: restored from a backup, truncated, or restored and written up to the same epoch."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.broker.backup import back_up
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.client.errors import LogTruncated
from kafkalite.client.history import find_divergences
from kafkalite.client.read.marks import Mark, Position
from kafkalite.mirror import Mirror, Progress, TopicFilter
from kafkalite.mirror.embedded import EmbeddedMirror, EmbeddedOptions
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until
from tests.kit.processes.restored import READY_S, grow_after_backup, numbers, produce, put_back

pytestmark = pytest.mark.integration

FAST = {"flush.on.acks.all": False, "transaction.state.log.num.partitions": 1}
KEY = TopicPartition("orders", 0)


@pytest.fixture
def target() -> Iterator[Broker]:
    with Broker(FAST) as running:
        yield running


def values(broker: Broker) -> list[bytes | None]:
    with Client(broker.bootstrap_servers) as client:
        if not client.partition_counts(["orders"]):
            return []
        chunks = client.read("orders", 0, end=client.end_offset("orders", 0), isolation=1)
        return [record.value for chunk in chunks for record in chunk.records()]


def copy(source: str, target: Broker, *options: str) -> int:
    return main(["mirror", "--from", source, "--to", target.bootstrap_servers, "--name", "m", "-e", "-q", *options])


@pytest.mark.parametrize("killed", sample([False, True], 1), ids=["epochs tell", "the same epoch"])
@pytest.mark.parametrize("count", sample([10, 60], 1))
def test_a_source_that_was_restored_stops_the_mirror(
    tmp_path: Path, target: Broker, capsys: pytest.CaptureFixture[str], killed: bool, count: int
) -> None:
    """Whether it has fewer records than were copied or more; `killed`: both histories have the same leader epochs."""
    with BrokerProcess(tmp_path / "live", port=free_port()) as live:
        grow_after_backup(live, "orders", tmp_path / "saved", same_epoch=killed)
        assert copy(live.bootstrap, target) == 0
        put_back(live, tmp_path / "saved")
        produce(live.bootstrap, "orders", numbers(100, 100 + count, "new"))
        capsys.readouterr()
        assert copy(live.bootstrap, target) == 1
        error = capsys.readouterr().err
        assert "the source was restored or truncated: orders-0 was read up to offset 150" in error
        assert "--on-data-loss rewind" in error
        assert values(target) == numbers(0, 150)
        assert copy(live.bootstrap, target, "--on-data-loss", "rewind") == 0
        again = numbers(0, 100) if killed else []
        assert values(target) == numbers(0, 150) + again + numbers(100, 100 + count, "new")
        assert "copying from offset" in capsys.readouterr().err
        assert copy(live.bootstrap, target) == 0
        assert len(values(target)) == 150 + len(again) + count


def test_all_of_it_is_copied_where_that_is_wanted(tmp_path: Path, target: Broker) -> None:
    with BrokerProcess(tmp_path / "live", port=free_port()) as live:
        produce(live.bootstrap, "orders", numbers(0, 10))
        back_up(str(live.data_dir), str(tmp_path / "saved"))
        produce(live.bootstrap, "orders", numbers(10, 15))
        assert copy(live.bootstrap, target, "--sync-group-offsets") == 0
        put_back(live, tmp_path / "saved")
        produce(live.bootstrap, "orders", numbers(10, 16, "new"))
        assert copy(live.bootstrap, target, "--on-data-loss", "restart", "--sync-group-offsets") == 0
        assert values(target) == numbers(0, 15) + numbers(0, 10) + numbers(10, 16, "new")


@pytest.mark.slow
@pytest.mark.parametrize("killed", sample([False, True], 1), ids=["epochs tell", "the same epoch"])
def test_it_is_restored_while_the_mirror_runs(tmp_path: Path, target: Broker, killed: bool) -> None:
    with BrokerProcess(tmp_path / "live", port=free_port()) as live:
        grow_after_backup(live, "orders", tmp_path / "saved", same_epoch=killed)
        file = tmp_path / "mirror.properties"
        file.write_text("topics=orders\nrefresh.topics.interval.seconds=600\n")
        mirror = EmbeddedMirror(EmbeddedOptions.load(live.bootstrap, None, file))
        with Broker({**FAST, "log.dirs": str(tmp_path / "replica")}, companions=[mirror]) as replica:
            wait_until(lambda: len(values(replica)) == 150, READY_S, "records")
            put_back(live, tmp_path / "saved")
            produce(live.bootstrap, "orders", numbers(100, 160, "new"))
            wait_until(lambda: mirror.status.ended, READY_S, "its end")
            assert "the source was restored or truncated: orders-0" in mirror.status.ended
            assert values(replica) == numbers(0, 150)


def test_a_source_that_only_restarts_is_copied_on(tmp_path: Path, target: Broker) -> None:
    """A new leader epoch alone is no reason to stop, of a compacted topic neither."""
    with BrokerProcess(tmp_path / "live", port=free_port()) as live:
        with Client(live.bootstrap) as client:
            client.admin.create_topic("orders", 1, configs={"cleanup.policy": "compact"})
        for start in range(0, 30, 10):
            with Client(live.bootstrap, retry_timeout_s=READY_S) as client, client.producer() as producer:
                producer.send(
                    "orders", 0, [Record(-1, -1, b"k%d" % i, b"old %d" % i) for i in range(start, start + 10)]
                )
            assert copy(live.bootstrap, target) == 0
            live.kill()
            live.start()
        assert values(target) == numbers(0, 30)


def test_progress_of_an_older_release_is_read(tmp_path: Path, target: Broker) -> None:
    """Without an epoch: a position past the log's end is still detected."""
    with Broker(FAST) as source:
        produce(source.bootstrap_servers, "orders", numbers(0, 10))
        with Client(source.bootstrap_servers) as one, Client(target.bootstrap_servers) as two:
            assert copy(source.bootstrap_servers, target) == 0
            progress = Progress(two, "m", one.cluster_id or one.refresh([]).cluster_id)
            row = progress.load()[KEY]
            assert (row.offset, row.mark.epoch, row.mark.base_offset) == (10, 0, 0)
            with two.producer(transactional_id="older") as producer, producer.transaction():
                progress.write(producer, {KEY: row._replace(mark=Mark(), offset=8)})
            assert progress.load()[KEY].mark == Mark()
            worker = Mirror(one, two, name="m", topics=TopicFilter("orders"))
            assert worker.run(threading.Event(), to_end=True).record_count == 2
            worker.close()
            with two.producer(transactional_id="older") as producer, producer.transaction():
                progress.write(producer, {KEY: row._replace(mark=Mark(), offset=12)})
            worker = Mirror(one, two, name="m", topics=TopicFilter("orders"))
            with pytest.raises(LogTruncated, match="orders-0 was read up to offset 12, but its log has diverged"):
                worker.run(threading.Event(), to_end=True)
            worker.close()
            assert json.loads(next(iter_values(two, "kafkalite.mirror.m")))["offset"] == 12


def iter_values(client: Client, topic: str) -> Iterator[bytes]:
    """The newest first."""
    chunks = client.read(topic, 0, end=client.end_offset(topic, 0), isolation=1)
    return iter([record.value or b"{}" for chunk in chunks for record in chunk.records()][::-1])


def test_what_is_known_of_a_log(target: Broker) -> None:
    produce(target.bootstrap_servers, "orders", numbers(0, 10))
    with Client(target.bootstrap_servers) as client:
        (row,) = client.epoch_ends({KEY: 0}).values()
        assert row == (0, 10)
        assert find_divergences(client, {}) == []
        assert find_divergences(client, {KEY: Position(10)}) == []
        assert [found.at for found in find_divergences(client, {KEY: Position(11)})] == [None]
        assert [found.at for found in find_divergences(client, {KEY: Position(10, Mark(7))})] == [None]
        assert [found.at for found in find_divergences(client, {KEY: Position(10, Mark(0, 0, 1))})] == [None]


@pytest.mark.parametrize("value", ["stop", "none"])
def test_the_choice_inside_a_broker(tmp_path: Path, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text(f"bootstrap.servers=a:1\non.data.loss={value}\n")
    if value == "stop":
        assert EmbeddedOptions.load(None, None, tmp_path / "file").values["on.data.loss"] == "stop"
        return
    flags = ["--data-dir", str(tmp_path / "data"), "--mirror-config", str(tmp_path / "file")]
    assert main(["start", "--listeners", "kafka://127.0.0.1:0", *flags]) == 2
    assert "must be one of stop, rewind, restart" in capsys.readouterr().err
