"""What our client does when a log goes back under it: restored while it is read, or below a committed offset."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafkalite.client import Chunk, Client, CommittedOffset
from kafkalite.client.errors import LogTruncated
from kafkalite.client.read.reader import Reader
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import BrokerProcess, wait_until
from tests.kit.processes.restored import READY_S, grow_after_backup, numbers, produce, put_back

pytestmark = pytest.mark.integration

KEY = TopicPartition("orders", 0)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "live") as running:
        yield running


def values(chunks: list[Chunk]) -> list[bytes | None]:
    return [record.value for chunk in chunks for record in chunk.records()]


def read(poll: Callable[[float], list[Chunk]], last: bytes) -> list[bytes | None]:
    """Values up to this one."""
    found: list[bytes | None] = []
    wait_until(lambda: found.extend(values(poll(0.2))) or last in found, READY_S, f"{last!r}")
    return found


@pytest.mark.parametrize("killed", [False, True], ids=["epochs tell", "the same epoch"])
@pytest.mark.parametrize("count", sample([10, 60], 1))
@pytest.mark.parametrize("reset", sample([None, "earliest", "latest"], 1))
def test_a_log_that_is_restored_while_it_is_read(
    live: BrokerProcess,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    killed: bool,
    count: int,
    reset: str | None,
) -> None:
    """Where the histories part, unless that is unknown: then as for a position that is gone."""
    grow_after_backup(live, KEY.topic, tmp_path / "saved", same_epoch=killed)
    with Client(live.bootstrap, retry_timeout_s=READY_S) as client, client.reader({KEY: 0}, reset=reset) as reader:
        assert read(reader.poll, b"old 149") == numbers(0, 150)
        put_back(live, tmp_path / "saved")
        produce(live.bootstrap, KEY.topic, numbers(100, 100 + count, "new"))
        if reset is None:
            for _ in range(2):  # met again unless somebody seeks
                with pytest.raises(LogTruncated, match="was restored from a backup, truncated or recreated") as raised:
                    read(reader.poll, b"never")
                found = raised.value
                assert (found.partition, found.offset, found.at) == (KEY, 150, None if killed else 100)
            reader.seek(KEY, 100)
            assert read(reader.poll, b"new %d" % (99 + count)) == numbers(100, 100 + count, "new")
            return
        if killed and reset == "latest":
            wait_until(lambda: values(reader.poll(0.1)) or "reading continues at" in caplog.text, READY_S, "a warning")
            produce(live.bootstrap, KEY.topic, [b"newest"])
            assert read(reader.poll, b"newest") == [b"newest"]
            return
        again = numbers(0, 100) if killed else []
        assert read(reader.poll, b"new %d" % (99 + count)) == again + numbers(100, 100 + count, "new")
        assert f"reading continues at offset {len(numbers(0, 100)) - len(again)}" in caplog.text


@pytest.mark.parametrize("committed", sample([False, True], 1))
@pytest.mark.parametrize("killed", sample([False, True], 1), ids=["epochs tell", "the same epoch"])
def test_a_member_goes_through_a_restore(live: BrokerProcess, tmp_path: Path, killed: bool, committed: bool) -> None:
    """The group's offsets went back with the log; what the member has in memory did not."""
    produce(live.bootstrap, KEY.topic, [])
    with (
        Client(live.bootstrap, retry_timeout_s=READY_S) as client,
        client.group_reader("g", KEY.topic, reset="earliest") as reader,
    ):
        if committed:
            produce(live.bootstrap, KEY.topic, numbers(0, 1))
            read(reader.poll, b"old 0")
            reader.commit()
        grow_after_backup(live, KEY.topic, tmp_path / "saved", same_epoch=killed)
        assert read(reader.poll, b"old 149") == numbers(0, 150)
        put_back(live, tmp_path / "saved")
        produce(live.bootstrap, KEY.topic, numbers(100, 160, "new"))
        assert read(reader.poll, b"new 159")[-60:] == numbers(100, 160, "new")


def found_epoch(client: Client) -> int:
    """The leader epoch of the last record."""
    return client.list_offsets({KEY: -1})[KEY].leader_epoch


def test_a_committed_offset_has_the_epoch_of_the_record_before_it(live: BrokerProcess) -> None:
    """For each committed offset, in each epoch of its records and with each kind of reader."""
    produce(live.bootstrap, KEY.topic, numbers(0, 10))
    live.kill()
    live.start()
    produce(live.bootstrap, KEY.topic, numbers(10, 20))
    with Client(live.bootstrap, retry_timeout_s=READY_S) as client:
        newest = found_epoch(client)
        (row,) = client.epoch_ends({KEY: newest - 1}).values()
        assert row == (newest - 1, 10)
        with client.group_reader("g", KEY.topic, reset="earliest") as reader:
            read(reader.poll, b"old 19")
            for offset, epoch in [(5, newest - 1), (10, newest - 1), (11, newest), (20, newest)]:
                reader.commit({KEY: offset})
                assert reader.committed([KEY])[KEY] == CommittedOffset(offset, epoch)
            reader.commit({KEY: 0})
            assert reader.committed([KEY])[KEY] == CommittedOffset(0, -1)
            reader.commit({KEY: CommittedOffset(3, 0, "mine")})
            assert reader.committed([KEY])[KEY] == CommittedOffset(3, 0, "mine")
            reader.seek(KEY, 15)
            reader.commit()
            assert reader.committed([KEY])[KEY] == CommittedOffset(15, newest)
            with client.producer(transactional_id="t") as producer, producer.transaction():
                producer.send_offsets_to_transaction(reader.with_epochs({KEY: 7}), reader.group_metadata)
            assert reader.committed([KEY])[KEY] == CommittedOffset(7, newest - 1)


@pytest.mark.parametrize("reset", sample([None, "earliest", "latest"], 1))
@pytest.mark.parametrize("count", sample([10, 60], 1))
def test_a_committed_offset_is_compared_when_a_member_begins_there(
    live: BrokerProcess, tmp_path: Path, reset: str | None, count: int
) -> None:
    grow_after_backup(live, KEY.topic, tmp_path / "saved")
    with Client(live.bootstrap, retry_timeout_s=READY_S) as client:
        reader = client.group_reader("g", KEY.topic, reset="earliest")
        read(reader.poll, b"old 149")
        reader.commit()
        position = reader.committed([KEY])[KEY]
        assert position is not None
        reader.close()
    put_back(live, tmp_path / "saved")
    produce(live.bootstrap, KEY.topic, numbers(100, 100 + count, "new"))
    with Client(live.bootstrap, retry_timeout_s=READY_S) as client:
        client.groups.commit("g", {KEY: position})  # the log alone went back, as by an unclean election
        with client.group_reader("g", KEY.topic, reset=reset) as reader:
            if reset is None:
                with pytest.raises(LogTruncated, match="has diverged from offset 100 on"):
                    read(reader.poll, b"never")
                return
            assert read(reader.poll, b"new %d" % (99 + count)) == numbers(100, 100 + count, "new")
            assert reader.position(KEY) == 100 + count


def test_a_restart_alone_is_no_other_history(live: BrokerProcess, caplog: pytest.LogCaptureFixture) -> None:
    """Of a compacted topic neither, whose batches are other ones by then."""
    with Client(live.bootstrap, retry_timeout_s=READY_S) as client:
        client.admin.create_topic("compacted", 1, configs={"cleanup.policy": "compact"})
        produce(live.bootstrap, KEY.topic, numbers(0, 10))
        compacted = TopicPartition("compacted", 0)
        keyed = [Record(-1, -1, b"key", value) for value in numbers(0, 10)]
        client.produce("compacted", 0, keyed)
        with client.reader({KEY: 0, compacted: 0}) as reader:
            found: list[bytes | None] = []
            wait_until(lambda: found.extend(values(reader.poll(0.2))) or len(found) == 20, READY_S, "20 records")
            live.kill()
            live.start()
            produce(live.bootstrap, KEY.topic, [b"more"])
            client.produce("compacted", 0, [Record(-1, -1, b"key", b"more")])
            wait_until(lambda: found.extend(values(reader.poll(0.2))) or len(found) == 22, READY_S, "22 records")
            assert isinstance(reader, Reader)
    assert found[20:] == [b"more", b"more"]
    assert "history" not in caplog.text


def test_a_topic_that_was_recreated_under_a_reader(live: BrokerProcess) -> None:
    produce(live.bootstrap, KEY.topic, numbers(0, 100))
    with (
        Client(live.bootstrap, retry_timeout_s=READY_S) as client,
        client.reader({KEY: 0}, await_topics=True) as reader,
    ):
        read(reader.poll, b"old 99")
        client.admin.delete_topic(KEY.topic)
        wait_until(lambda: reader.poll(0.1) or reader.failing is not None, READY_S, "a failure")
        produce(live.bootstrap, KEY.topic, numbers(0, 120, "new"))
        with pytest.raises(LogTruncated, match="recreated"):
            read(reader.poll, b"never")


@pytest.mark.slow
def test_consume_stops_with_a_choice(live: BrokerProcess, tmp_path: Path) -> None:
    """The command runs in a separate process, since it reads until it is stopped."""
    grow_after_backup(live, KEY.topic, tmp_path / "saved")
    command = [sys.executable, "-m", "kafkalite", "consume", "-b", live.bootstrap, "-t", KEY.topic, "-o", "beginning"]
    out = {name: tmp_path / name for name in ("stop", "go")}
    with ExitStack() as stack:
        running = {}
        for name, more in {"stop": [], "go": ["--reset", "earliest"]}.items():
            files = [stack.enter_context((tmp_path / f"{name}{kind}").open("wb")) for kind in ("", ".err")]
            running[name] = subprocess.Popen([*command, *more], stdout=files[0], stderr=files[1])
            stack.callback(running[name].kill)
            wait_until(lambda name=name: b"old 149\n" in out[name].read_bytes(), READY_S, "the first 150")
        put_back(live, tmp_path / "saved")
        produce(live.bootstrap, KEY.topic, numbers(100, 160, "new"))
        assert running["stop"].wait(READY_S) == 1
        error = (tmp_path / "stop.err").read_text()
        assert "has diverged from offset 100 on" in error
        assert "consume continues where the old and the new log diverge" in error
        wait_until(lambda: b"new 159\n" in out["go"].read_bytes(), READY_S, "the 60 new ones")
        assert out["go"].read_bytes().split(b"\n")[:-1] == [*numbers(0, 150), *numbers(100, 160, "new")]
        assert out["stop"].read_bytes().split(b"\n")[:-1] == numbers(0, 150)
        running["go"].terminate()
        running["go"].wait(READY_S)
