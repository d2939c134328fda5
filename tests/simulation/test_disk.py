"""The disk in memory does what a file system does, and a power cut leaves of it what was synced."""

import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from kafkalite.broker.log import disk, files
from kafkalite.errors import StartupError
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness import seams
from tests.kit.harness.log_harness import make_batch, make_manager, read_all
from tests.simulation.disk import LEFT, SimulatedDisk

pytestmark = pytest.mark.own_process


@pytest.fixture
def simulated() -> Iterator[SimulatedDisk]:
    simulated = SimulatedDisk(FakeClock())
    simulated.mount("/one")
    with seams.disk_instead(simulated):
        yield simulated
    simulated.close()


def write(path: str, data: bytes) -> int:
    fd = file_ops.open_file(path, os.O_RDWR | os.O_CREAT)
    file_ops.write_all(fd, data, 0)
    return fd


def walk_of_calls(root: str) -> list[object]:
    """Return a file system's results for a number of calls, including failing ones."""
    answers: list[object] = []

    def note(call: Callable[[], object]) -> None:
        try:
            answers.append(call())
        except OSError as error:
            answers.append(errno.errorcode[error.errno or 0])

    note(lambda: disk.make_directories(f"{root}/d/e", 0o700))
    note(lambda: disk.make_directories(f"{root}/d/e", 0o700))
    note(lambda: file_ops.make_directory(f"{root}/d"))
    note(lambda: file_ops.make_directory(f"{root}/missing/f"))
    note(lambda: files.write_atomically(f"{root}/d/a", b"0123456789", durable=True))
    note(lambda: files.read_bytes(f"{root}/d/a"))
    note(lambda: files.read_bytes(f"{root}/d/missing"))
    fd = file_ops.open_file(f"{root}/d/a", os.O_RDWR)
    note(lambda: file_ops.write_all(fd, b"ab", 12))
    note(lambda: disk.read_at(fd, 100, 0))
    note(lambda: file_ops.truncate_file(fd, 13))
    note(lambda: disk.stat(f"{root}/d/a").st_size)
    note(lambda: file_ops.rename(f"{root}/d/a", f"{root}/d/e/b"))
    note(lambda: file_ops.rename(f"{root}/d/a", f"{root}/d/e/b"))
    note(lambda: file_ops.unlink(f"{root}/d/a"))
    note(lambda: file_ops.unlink(f"{root}/d/a", missing_ok=True))
    note(lambda: file_ops.open_file(f"{root}/d/e/b", os.O_RDWR | os.O_CREAT | os.O_EXCL))
    note(lambda: file_ops.open_file(f"{root}/d/none", os.O_RDWR))
    note(lambda: file_ops.open_file(f"{root}/d", os.O_RDWR))
    note(lambda: disk.list_names(f"{root}/d"))
    note(lambda: disk.list_names(f"{root}/nowhere"))
    note(lambda: [(entry.name, entry.is_dir(), entry.is_file()) for entry in disk.entries(f"{root}/d/e")])
    note(lambda: (disk.exists(f"{root}/d/a"), disk.exists(f"{root}/d/e/b"), disk.lexists(f"{root}/d/e/b")))
    note(lambda: (disk.is_directory(f"{root}/d"), disk.is_directory(f"{root}/d/e/b"), disk.is_link(f"{root}/d")))
    note(lambda: disk.remove_directory(f"{root}/d"))
    note(lambda: file_ops.unlink(f"{root}/d/e/b"))
    note(lambda: disk.read_at(fd, 100, 0))
    note(lambda: files.remove_tree(f"{root}/d"))
    note(lambda: disk.exists(f"{root}/d"))
    disk.close(fd)
    return answers


def test_disk_in_memory_answers_as_the_machines_does(tmp_path: Path) -> None:
    expected = walk_of_calls(str(tmp_path))
    assert "EEXIST" in expected
    simulated = SimulatedDisk(FakeClock())
    simulated.mount("/one")
    with seams.disk_instead(simulated):
        assert walk_of_calls("/one") == expected
    simulated.close()
    assert not Path("/one").exists()
    assert walk_of_calls(str(tmp_path)) == expected, "the machine's again"


def test_what_was_not_synced_goes_with_the_power(simulated: SimulatedDisk) -> None:
    synced = write("/one/synced", b"first")
    file_ops.sync_file(synced)
    file_ops.sync_directory("/one")
    file_ops.write_all(synced, b"later", 5)
    nameless = write("/one/nameless", b"bytes without a name")
    file_ops.sync_file(nameless)
    assert files.read_bytes("/one/synced") == b"firstlater"
    simulated.crash("/one", random.Random(1))
    assert simulated.tree("/one") == {"synced": b"first"}
    assert files.read_bytes("/one/synced") == b"first"
    with pytest.raises(OSError, match="Input/output error"):
        file_ops.write_all(synced, b"from before", 0)


@pytest.mark.parametrize("model", sorted(LEFT))
def test_what_was_synced_is_left_by_every_model(simulated: SimulatedDisk, model: str) -> None:
    for seed in range(20):
        simulated.mount("/one")
        fd = write("/one/file", b"x" * 5000)
        file_ops.sync_file(fd)
        file_ops.sync_directory("/one")
        file_ops.write_all(fd, b"y" * 5000, 5000)
        write("/one/another", b"z")
        simulated.crash("/one", random.Random(seed), model)
        left = simulated.tree("/one")["file"]
        assert isinstance(left, bytes)
        assert left[:5000] == b"x" * 5000


def test_nothing_happens_without_power(simulated: SimulatedDisk) -> None:
    fd = write("/one/file", b"before")
    simulated.power_off("/one")
    for call in (
        lambda: file_ops.write_all(fd, b"behind", 0),
        lambda: file_ops.sync_file(fd),
        lambda: file_ops.rename("/one/file", "/one/other"),
        lambda: disk.exists("/one/file"),
    ):
        with pytest.raises(OSError, match="Input/output error"):
            call()


def test_a_path_outside_every_simulated_disk_is_reported() -> None:
    simulated = SimulatedDisk(FakeClock())

    def open_what_is_nowhere() -> None:
        with seams.disk_instead(simulated), pytest.raises(OSError, match="Input/output error"):
            file_ops.open_file("/elsewhere", os.O_RDONLY)

    with pytest.raises(AssertionError, match="on no simulated disk"):
        open_what_is_nowhere()
    assert files.read_bytes("/dev/null") == b"", "the machine's again"


def test_fault_plan_and_disk_go_together(simulated: SimulatedDisk) -> None:
    seams.arm(["write"], after=0, error=errno.ENOSPC, written=3)
    try:
        with pytest.raises(OSError, match="No space"):
            write("/one/file", b"0123456")
    finally:
        file_ops.disarm()
    assert simulated.tree("/one")["file"] == files.read_bytes("/one/file") == b"012"


def test_data_directory_lives_on_it(simulated: SimulatedDisk) -> None:
    """Topics, rolls, a clean stop, a start: everything under a path that the machine does not have."""
    settings = {"log_segment_bytes": 700}
    manager = make_manager(Path("/one/data"), **settings)
    manager.open()
    with pytest.raises(StartupError, match="in use by another broker"):
        make_manager(Path("/one/data")).open()
    manager.create_topic("t", 2, {})
    log = manager.topics["t"].partitions[0]
    for _ in range(20):
        log.append(make_batch(value_size=100))
    log.flush()
    served = read_all(log)
    assert len(log.segments) > 2
    manager.close()
    assert not os.path.lexists("/one")

    again = make_manager(Path("/one/data"), **settings)
    again.open()
    assert again.clean_start
    assert read_all(again.topics["t"].partitions[0]) == served
    again.close()


def test_flushed_records_outlive_the_power(simulated: SimulatedDisk) -> None:
    manager = make_manager(Path("/one/data"))
    manager.open()
    manager.create_topic("t", 1, {})
    log = manager.topics["t"].partitions[0]
    log.append(make_batch(value_size=100))
    log.flush()
    served = read_all(log)
    log.append(make_batch(value_size=100))
    simulated.power_off("/one")
    manager.abandon()
    simulated.crash("/one", random.Random(1))

    again = make_manager(Path("/one/data"))
    again.open()
    assert not again.clean_start
    assert read_all(again.topics["t"].partitions[0]) == served
    again.close()


def test_kafkas_indexes_do_not_come_back_beside_a_segment_that_grew_before_a_clean_stop(
    simulated: SimulatedDisk,
) -> None:
    """Kafka, which may be next, would believe them."""
    manager = make_manager(Path("/one/data"))
    manager.open()
    manager.create_topic("t", 1, {})
    manager.topics["t"].partitions[0].append(make_batch())
    manager.close()
    indexes = [f"/one/data/t-0/{files.stem(0)}{suffix}" for suffix in files.KAFKA_INDEX_SUFFIXES]
    for path in indexes:
        files.write_atomically(path, b"Kafka's", durable=True)
    manager = make_manager(Path("/one/data"))
    manager.open()
    manager.topics["t"].partitions[0].append(make_batch())
    assert manager.close()
    simulated.power_off("/one")
    simulated.crash("/one", random.Random(1))
    assert disk.exists(f"/one/data/{files.CLEAN_SHUTDOWN_NAME}")
    assert [path for path in indexes if disk.exists(path)] == []
