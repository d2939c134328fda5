"""`kafkalite log check` and `log repair` on the files of a stopped broker: findings, repairs and kept files."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite.broker.log import segment_removal
from kafkalite.cli import main
from kafkalite.errors import ErrorCode
from tests.kit.harness.log_harness import make_batch, make_manager, read_all

if TYPE_CHECKING:
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.log.partition_log import PartitionLog

BATCHES = 120


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A cleanly stopped data directory: topic `t`, of several segments, and topic `whole`."""
    directory = tmp_path / "data"
    manager = make_manager(directory, log_segment_bytes=40_000, log_index_interval_bytes=500)
    manager.open()
    for name in ("t", "whole"):
        log = manager.create_topic(name, 1, {}).partitions[0]
        for number in range(BATCHES):
            log.append(
                make_batch(value=b"%d" % number * 300, producer_id=7, epoch=0, sequence=number)
                if name == "t"
                else make_batch(value_size=100)
            )
    manager.close()
    return directory


def opened(directory: Path, work: Callable[[PartitionLog], None]) -> None:
    manager: LogManager = make_manager(directory, log_segment_bytes=40_000, log_index_interval_bytes=500)
    manager.open()
    try:
        work(manager.topics["t"].partitions[0])
    finally:
        manager.close()


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    status = main(["log", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def segments(data: Path) -> list[Path]:
    return sorted((data / "t-0").glob("*.log"))


def flip(path: Path, position: int) -> None:
    found = bytearray(path.read_bytes())
    found[position] ^= 1
    path.write_bytes(found)


def test_what_is_whole_is_whole_and_unchanged(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(data)
    for action in (("check",), ("repair", "--dry-run"), ("repair",)):
        status, out, _ = run(capsys, action[0], data, *action[1:])
        assert status == 0, out
        assert ": no problems" in out
        assert out.count("\n") == 1
    assert tree(data) == before


def test_a_broker_that_runs_is_not_disturbed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def while_open(_log: PartitionLog) -> None:
        for directory in (data, data / "t-0"):
            for action in ("check", "repair"):
                status, out, err = run(capsys, action, directory)
                assert (status, out) == (2, "")
                assert "stop the broker that uses it" in err
                assert err.count("\n") == 1

    opened(data, while_open)


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_nothing_to_check_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / "empty").mkdir()
    status, _, err = run(capsys, "check", tmp_path / name)
    assert status == 2
    assert err.count("\n") == 1


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_damaged_batch_is_reported_and_removed(data: Path, capsys: pytest.CaptureFixture[str], number: int) -> None:
    path = segments(data)[number]
    original = path.read_bytes()
    flip(path, min(5000, len(original) // 2))
    damaged = tree(data)
    status, out, _ = run(capsys, "check", data)
    assert status == 1
    [line] = [text for text in out.splitlines() if path.name in text]
    assert "are damaged; offsets" in line
    assert "1 problems" in out.splitlines()[-1]
    assert run(capsys, "repair", data, "--dry-run")[0] == 1
    assert tree(data) == damaged, "looking changes nothing"
    status, out, _ = run(capsys, "repair", data)
    assert status == 0, out
    assert "are lost" in out
    assert "1 repaired, 0 left" in out
    [kept] = list((data / "t-0").glob("*.damaged-*"))
    first, behind = map(int, kept.name.rpartition(".damaged-")[2].split("-"))
    assert len(kept.read_bytes()) + path.stat().st_size == len(original)
    assert run(capsys, "check", data)[0] == 0

    def serves_the_rest(log: PartitionLog) -> None:
        served = [batch[0] for batch in read_all(log)]
        assert served == [offset for offset in range(BATCHES) if not first <= offset < behind]
        appended = log.append(make_batch(value=b"new", producer_id=7, epoch=0, sequence=BATCHES))
        assert appended.base_offset == BATCHES

    opened(data, serves_the_rest)
    assert run(capsys, "check", data)[0] == 0


def test_what_was_taken_out_of_a_segments_end_is_not_missed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segments(data)[0]
    flip(path, path.stat().st_size - 10)
    assert run(capsys, "repair", data)[0] == 0
    for kept in (data / "t-0").glob("*.damaged*"):
        kept.unlink()

    def misses_nothing(log: PartitionLog) -> None:
        segment_removal.apply_retention(log, 0)
        assert len(read_all(log)) == BATCHES - 1
        assert not any(segment.damage for segment in log.segments)

    for clean in (True, False):
        if not clean:
            (data / ".kafka_cleanshutdown").unlink()
        opened(data, misses_nothing)


@pytest.mark.parametrize("clean", [True, False])
def test_a_mended_last_segment_stands_after_an_unclean_stop(
    data: Path, capsys: pytest.CaptureFixture[str], clean: bool
) -> None:
    flip(segments(data)[-1], 2000)
    assert run(capsys, "repair", data)[0] == 0
    if not clean:
        (data / ".kafka_cleanshutdown").unlink()
    opened(data, lambda log: check_end(log, len(read_all(log))))


def check_end(log: PartitionLog, served: int) -> None:
    assert log.log_end_offset == BATCHES
    assert BATCHES - 5 < served < BATCHES
    assert not any(segment.damage for segment in log.segments)


@pytest.mark.parametrize("pattern", ["*.klindex", "*.snapshot", "*.producers", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("how", ["emptied", "cut", "flipped"])
def test_derived_files_are_made_again(data: Path, capsys: pytest.CaptureFixture[str], pattern: str, how: str) -> None:
    path = min((data / "t-0").glob(pattern))
    if how == "flipped":
        flip(path, 0)
    else:
        os.truncate(path, 0 if how == "emptied" else path.stat().st_size - 3)
    status, out, _ = run(capsys, "check", data)
    assert status == 1, out
    assert path.name in out
    assert run(capsys, "repair", data)[0] == 0
    assert path.with_name(path.name + ".damaged").exists()
    if pattern == "*.klindex":
        assert path.exists()
    assert run(capsys, "check", data)[0] == 0

    def serves_everything(log: PartitionLog) -> None:
        assert len(read_all(log)) == BATCHES
        assert log.append(make_batch(producer_id=7, epoch=0, sequence=BATCHES)).base_offset == BATCHES

    opened(data, serves_everything)


def test_partition_metadata_is_written_again_from_the_journal(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data / "t-0" / "partition.metadata"
    good = path.read_bytes()
    path.write_bytes(b"nonsense")
    assert run(capsys, "check", data)[0] == 1
    assert run(capsys, "repair", data)[0] == 0
    assert path.read_bytes() == good


def test_an_unflushed_tail_is_cut_and_kept(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    path = segments(data)[-1]
    with path.open("ab") as file:
        file.write(b"half a batch, never acknowledged")
    status, out, _ = run(capsys, "check", data)
    assert status == 1
    assert "no checkpoint covers them" in out
    assert run(capsys, "repair", data)[0] == 0
    [kept] = list((data / "t-0").glob("*.damaged-*"))
    assert kept.read_bytes() == b"half a batch, never acknowledged"
    assert run(capsys, "check", data)[0] == 0
    opened(data, check_whole)


@pytest.mark.parametrize("number", [0, 1])
def test_a_sealed_segment_that_was_cut_lacks_offsets_which_no_repair_brings_back(
    data: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    path = segments(data)[number]
    os.truncate(path, 10_000)
    status, out, _ = run(capsys, "check", data)
    assert status == 1
    assert "are damaged; offsets" in out or "are missing" in out
    run(capsys, "repair", data)
    opened(data, check_readable)


def check_whole(log: PartitionLog) -> None:
    assert len(read_all(log)) == BATCHES


def check_readable(log: PartitionLog) -> None:
    offsets = [batch[0] for batch in read_all(log)]
    assert offsets == sorted(offsets)
    assert offsets[-1] == BATCHES - 1


def test_a_missing_segment_and_a_damaged_journal_are_reported(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments(data)[1].unlink()
    flip(data / "metadata.journal", 20)
    status, out, _ = run(capsys, "check", data)
    assert status == 1
    assert "metadata.journal" in out
    assert run(capsys, "repair", data)[0] == 1, "only a copy can mend these"


def test_a_partition_directory_can_be_checked_alone(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(data / "t-0", data.parent / "elsewhere" / "t-0")
    assert run(capsys, "check", data.parent / "elsewhere" / "t-0")[0] == 0
    flip(min((data.parent / "elsewhere" / "t-0").glob("*.log")), 3000)
    assert run(capsys, "check", data.parent / "elsewhere" / "t-0")[0] == 1


@pytest.mark.parametrize("rounds", [25, pytest.param(400, marks=pytest.mark.slow)])
def test_after_any_damage_a_repaired_log_opens(data: Path, capsys: pytest.CaptureFixture[str], rounds: int) -> None:
    chance = random.Random(11)
    for _ in range(rounds):
        copy = data.parent / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(data, copy)
        victims = [path for path in (copy / "t-0").iterdir() if path.stat().st_size]
        for path in chance.sample(victims, chance.randrange(1, 4)):
            if chance.random() < 0.3:
                os.truncate(path, chance.randrange(path.stat().st_size))
            else:
                flip(path, chance.randrange(path.stat().st_size))
        status, out, _ = run(capsys, "check", copy)
        assert status in {0, 1}, out
        run(capsys, "repair", copy)
        opened(copy, check_answers)


def check_answers(log: PartitionLog) -> None:
    for offset in range(log.log_start_offset, log.log_end_offset):
        error, found = log.read_blocking(offset, 1)
        assert error in {0, ErrorCode.CORRUPT_MESSAGE}, offset
        if found is not None:
            found.release()
