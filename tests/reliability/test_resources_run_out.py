"""C1: a full disk, C2: no free descriptors. (C8 is among the damage tests, C3 to C5 are among those of the log.)"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite.errors import ErrorCode
from tests.kit.harness import wire
from tests.kit.harness.load import create_topic, read_partition
from tests.kit.processes.broker import BrokerProcess, wait_until

MakeBroker = Callable[..., BrokerProcess]
DISK_SIZE = 64 << 20
SPACE_LEFT = 2 << 20
PAYLOAD = os.urandom(900_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 64 MiB, where mounting is allowed."""
    point = tmp_path / "disk"
    point.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "tmpfs", str(point)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no right to mount a tmpfs: {done.stderr.decode().strip()} (the RLIMIT_FSIZE test runs instead)")
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def fill(connection: wire.Connection, topic: str, attempts: int = 400) -> tuple[int, int]:
    """Produces until the broker says the disk is full; how many records were acknowledged and the error."""
    acknowledged = 0
    for _ in range(attempts):
        answer = connection.produce(topic, 0, wire.batch_of([wire.Record(None, PAYLOAD)]))
        if answer.error:
            return acknowledged, answer.error
        acknowledged += 1
    return acknowledged, 0


def readable(port: int, topic: str) -> list[int]:
    """Offsets that can be read, each with the value that was sent."""
    with wire.Connection(port) as connection:
        records = read_partition(connection, topic, 0)
    assert all(record.value == PAYLOAD for record in records)
    return [record.offset for record in records]


@pytest.mark.parametrize("rounds", [2, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.scenario("C1")
def test_full_disk_is_an_error_and_passes_when_space_returns(
    make_broker: MakeBroker, small_disk: Path, rounds: int
) -> None:
    """Each round fills the disk beside a filler, reads, takes the filler away, writes, and deletes the old records."""
    broker = make_broker(settings={"log.retention.check.interval.ms": "50"})
    broker.directory = small_disk / "broker"
    broker.start()
    create_topic(broker.port, "full", 1, {"segment.bytes": "4000000", "file.delete.delay.ms": "0"})
    filler = small_disk / "filler"
    start = total = 0
    with wire.Connection(broker.port) as connection:
        for round_number in range(rounds):
            leave_free(filler, SPACE_LEFT)
            acknowledged, error = fill(connection, "full")
            total += acknowledged
            assert error == ErrorCode.KAFKA_STORAGE_ERROR, f"round {round_number}: error {error} after {acknowledged}"
            assert readable(broker.port, "full") == list(range(start, total)), "consumers go on"
            filler.unlink()
            answer = connection.produce("full", 0, wire.batch_of([wire.Record(None, PAYLOAD)]))
            assert (answer.error, answer.base_offset) == (0, total), f"after space returned: {answer}"
            total += 1
            start = total - 1
            delete_records(connection, "full", start)
            wait_until(lambda: free_space(small_disk) > DISK_SIZE // 2, 30, "space of deleted records")
    broker.kill()
    broker.start()
    assert readable(broker.port, "full") == list(range(start, total)), "an acknowledged record is gone"


def delete_records(connection: wire.Connection, topic: str, offset: int) -> None:
    body = wire.array([wire.string(topic) + wire.array([wire.i32(0) + wire.i64(offset)])]) + wire.i32(10_000)
    connection.call(wire.DELETE_RECORDS, 1, body)


def free_space(directory: Path) -> int:
    space = os.statvfs(directory)
    return space.f_bavail * space.f_frsize


def leave_free(filler: Path, size: int) -> None:
    """Write a file that leaves about `size` bytes on its file system, or none if a broker takes space meanwhile."""
    try:
        filler.write_bytes(bytes(max(0, free_space(filler.parent) - size)))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@pytest.mark.scenario("C1")
def test_topics_made_on_a_full_disk_are_whole_or_absent(make_broker: MakeBroker, small_disk: Path) -> None:
    broker = make_broker()
    broker.directory = small_disk / "broker"
    broker.start()
    create_topic(broker.port, "full", 1)
    filler = small_disk / "filler"
    leave_free(filler, 0)
    with wire.Connection(broker.port) as connection:
        names = [f"made-{number}" for number in range(20)]
        made = [name for name in names if connection.create_topic(name, 3) == 0]
    filler.unlink()
    broker.kill()
    broker.start()
    with wire.Connection(broker.port) as connection:
        for topic in made:
            for partition in range(3):
                answer = connection.produce(topic, partition, wire.batch_of([wire.Record(None, b"v")]))
                assert answer.error == 0, f"{topic}-{partition} was acknowledged and is not usable: {answer}"


@pytest.mark.scenario("C1")
def test_file_size_limit_is_an_error_not_the_end(make_broker: MakeBroker) -> None:
    """RLIMIT_FSIZE: EFBIG where a full disk gives ENOSPC."""
    broker = make_broker(file_size_limit=20 << 20).start()
    create_topic(broker.port, "limited", 1)
    create_topic(broker.port, "other", 1)
    with wire.Connection(broker.port) as connection:
        acknowledged, error = fill(connection, "limited", attempts=40)
        assert error == ErrorCode.KAFKA_STORAGE_ERROR, f"error {error} after {acknowledged}"
        assert connection.produce("other", 0, wire.batch_of([wire.Record(None, PAYLOAD)])).error == 0
    assert readable(broker.port, "limited") == list(range(acknowledged))
    broker.kill()
    broker.file_size_limit = None
    broker.start()
    assert readable(broker.port, "limited") == list(range(acknowledged))
    with wire.Connection(broker.port) as connection:
        answer = connection.produce("limited", 0, wire.batch_of([wire.Record(None, PAYLOAD)]))
    assert (answer.error, answer.base_offset) == (0, acknowledged)


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.scenario("C2")
def test_descriptors_run_out_and_return(make_broker: MakeBroker, rounds: int) -> None:
    """256 descriptors; 500 partitions written, 1000 connections tried: accepting pauses, and resumes."""
    broker = make_broker(descriptor_limit=256).start()
    create_topic(broker.port, "many", 500)
    with wire.Connection(broker.port) as control:
        write_each(control, range(500), {0})
        for _ in range(rounds):
            with contextlib.ExitStack() as idle:
                for connection in open_many(broker.port, 1000):
                    idle.enter_context(connection)
                wait_until(lambda: rests(broker), 60, "an accept loop that does not spin")
                write_each(control, range(0, 500, 7), {0})
            wait_until(lambda: can_connect(broker.port), 30, "accepting again")
    assert broker.alive
    with wire.Connection(broker.port) as connection:
        for partition in range(500):
            found = connection.fetch("many", partition, 0)
            assert found.error == 0
            assert found.records


def rests(broker: BrokerProcess) -> bool:
    """Whether the broker leaves a processor alone for a second; one that spins never does."""
    cpu_s = broker.usage().cpu_s
    time.sleep(1.0)  # the length of what is measured
    return broker.usage().cpu_s - cpu_s < 0.5


def write_each(connection: wire.Connection, partitions: range, errors: set[int]) -> None:
    """A record to each partition of `many`; one that was acknowledged must be there."""
    for partition in partitions:
        answer = connection.produce("many", partition, wire.batch_of([wire.Record(None, b"value")]))
        assert answer.error in errors, f"partition {partition}: {answer}"
        assert connection.fetch("many", partition, answer.base_offset).records, "acknowledged and not there"


def open_many(port: int, count: int) -> list[wire.Connection]:
    """As many as the backlog and the broker take; each within a second or not at all."""
    found = []
    for _ in range(count):
        try:
            found.append(wire.Connection(port, timeout_s=0.2))
        except OSError:
            break
    return found


def can_connect(port: int) -> bool:
    with contextlib.suppress(OSError, wire.Closed), wire.Connection(port, timeout_s=2) as connection:
        connection.call(wire.API_VERSIONS, 0, b"")
        return True
    return False


def test_broken_pipe_of_the_log_output_does_not_end_the_broker(make_broker: MakeBroker) -> None:
    """SIGPIPE is a reader of the output going away, not a wish to stop."""
    broker = make_broker().start()
    assert broker.process is not None
    broker.process.send_signal(signal.SIGPIPE)
    assert can_connect(broker.port)
    assert broker.alive
