"""The target of a load whose writer is killed (SIGKILL), on the local disk and in HDFS: what readers see is whole.

At every step of a change and of a compaction, and at random moments. tests/spark/test_load_kills.py does it with Spark
around.
"""

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.cli import EXIT_USAGE, main
from kafkalite.load import webhdfs
from kafkalite.load.compaction import compact
from kafkalite.load.manifest import MANIFESTS, OVERTAKEN, STAGING, Change, Target
from kafkalite.load.places import storage_of
from kafkalite.load.storage import LoadError
from kafkalite.spark import load
from tests.kit.harness.load_target import add
from tests.kit.processes.broker import REPOSITORY, wait_until
from tests.kit.processes.dying import steps_of
from tests.kit.processes.hdfs import MiniHdfs
from tests.kit.processes.maven import NotAvailable

pytestmark = pytest.mark.integration

TIMEOUT_S = 240


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    try:
        with MiniHdfs(tmp_path_factory.mktemp("hdfs")) as running:
            yield running
    except NotAvailable as error:
        pytest.skip(str(error))


@pytest.fixture(params=["local", pytest.param("hdfs", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "loaded")
    running: MiniHdfs = request.getfixturevalue("hdfs")
    return running.url(f"/{tmp_path.name}")


def writer(place: str, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "errors").open("ab") as errors:
        command = [sys.executable, "-m", "tests.kit.processes.target_writer", place]
        return subprocess.Popen(command, cwd=REPOSITORY, stderr=errors)


def data_files(place: str) -> set[str]:
    """Everything below topic=..., whatever the manifests say."""
    storage = storage_of(place)
    found = set()
    for topic in (name for name in storage.names("") if name.startswith("topic=")):
        for date in storage.names(topic):
            for hour in storage.names(f"{topic}/{date}"):
                folder = f"{topic}/{date}/{hour}"
                found |= {f"{folder}/{name}" for name in storage.names(folder)}
    return found


def check(place: str) -> int:
    """Each record below the positions once, by manifest; nothing else after the next writer, for anybody. How many."""
    state = Target(place).refresh()
    wanted = [(key.partition, offset) for key in sorted(state.positions) for offset in range(state.positions[key])]
    if wanted:
        table = load.dataset(place).to_table(columns=["partition", "offset"])
        assert sorted(zip(*(column.to_pylist() for column in table.columns), strict=True)) == wanted
    with Target(place).writing():
        left = storage_of(place).names(MANIFESTS)
        assert not [name for name in left if name.startswith("pending") or name.endswith(".tmp")]
    assert data_files(place) == set(Target(place).refresh().files), "those who list directories see the same files"
    assert storage_of(place).names(STAGING) == []
    return len(wanted)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_every_step(place: str, tmp_path: Path) -> None:
    count = 0
    for count in steps_of("tests.kit.processes.target_writer", tmp_path, place, "steps"):  # noqa: B007  # the last one
        check(place)
        compact(place)  # what it left for later would be steps of the next one
    assert count > 30, "steps that there are"
    assert check(place) > 0


def kill_in_the_middle(place: str, folder: Path, chance: random.Random) -> None:
    """Once it has published something, and a moment that is not known later."""
    before = Target(place).refresh().number
    process = writer(place, folder)
    try:
        wait_until(lambda: Target(place).refresh().number > before or process.poll() is not None, TIMEOUT_S, "a change")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(chance.random() / 4)
        assert process.poll() is None, (folder / "errors").read_text()[-4000:]
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [3, pytest.param(30, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_killed_again_and_again(place: str, tmp_path: Path, rounds: int) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")  # shown when it fails
    chance = random.Random(seed)
    for _ in range(rounds):
        kill_in_the_middle(place, tmp_path, chance)
        check(place)


# --- HDFS alone -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_hdfs_goes_away_and_comes_back_while_a_load_writes(hdfs: MiniHdfs, tmp_path: Path) -> None:
    place = hdfs.url(f"/{tmp_path.name}")
    process = writer(place, tmp_path)
    try:
        for _ in range(2):
            before = Target(place).refresh().number
            wait_until(lambda at=before: Target(place).refresh().number > at + 3, TIMEOUT_S, "changes")
            hdfs.restart()
        restarted = Target(place).refresh().number
        if process.poll() is not None:  # what it was writing just then is lost, and it says so
            assert "HDFS at http://127.0.0.1" in (tmp_path / "errors").read_text()[-1000:]
            process = writer(place, tmp_path)
        wait_until(lambda: Target(place).refresh().number > restarted + 3, TIMEOUT_S, "changes after the restart")
    finally:
        process.kill()
        process.wait()
    assert check(place) > 0


def refused(capsys: pytest.CaptureFixture[str], place: str) -> str:
    """What `kafkalite load` says there."""
    assert main(["load", "--to", place, "--compact"]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err[:11]) == ("", 1, "kafkalite: ")
    return err


@pytest.mark.slow
def test_safe_mode_is_waited_for_and_then_told(
    hdfs: MiniHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = hdfs.url(f"/{tmp_path.name}")
    add(place, range(10))
    add(place, range(10, 20))
    monkeypatch.setattr(webhdfs, "WAIT_S", 1.0)
    hdfs.admin("-safemode", "enter")
    try:
        assert load.dataset(place).count_rows() == 20, "readers read"
        assert "is in safe mode" in refused(capsys, place)
    finally:
        hdfs.admin("-safemode", "leave")
    add(place, range(20, 30))
    assert check(place) == 30


@pytest.mark.slow
def test_somebody_who_may_not_is_told_who_he_is(
    hdfs: MiniHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = hdfs.url(f"/{tmp_path.name}")
    add(place, range(5))
    add(place, range(5, 10))
    monkeypatch.setenv("HADOOP_USER_NAME", "mallory")
    said = refused(capsys, place)
    assert "does not let mallory" in said
    assert "Permission denied" in said
    with pytest.raises(LoadError, match="does not let mallory"):
        add(hdfs.url("/new"), range(10))
    monkeypatch.delenv("HADOOP_USER_NAME")
    assert check(place) == 10


@pytest.mark.slow
def test_a_turn_that_was_lost_publishes_nothing(
    hdfs: MiniHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder lives and knows nothing: the other took his turn since it looked abandoned for too long."""
    place = hdfs.url(f"/{tmp_path.name}")
    add(place, range(10))
    slow = Target(place)
    with slow.writing() as staging:
        monkeypatch.setattr(webhdfs, "LEASE_S", -1.0)
        add(place, range(10, 20))
        monkeypatch.undo()
        with pytest.raises(LoadError, match=OVERTAKEN.partition("{")[0]):
            slow.commit(Change("load"), {})
        assert storage_of(place).names(staging.rpartition("/")[2]) == []
    assert check(place) == 20


@pytest.mark.slow
def test_two_writers_take_turns(hdfs: MiniHdfs, tmp_path: Path) -> None:
    place = hdfs.url(f"/{tmp_path.name}")
    second = pytest.raises(LoadError, match="another load has locked")
    with Target(place).writing(), second, Target(place, lock_timeout_s=0).writing():
        pytest.fail("two writers at a time")
    add(place, range(10))
    assert check(place) == 10
