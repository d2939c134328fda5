"""Changes of a load's target: whole or not at all wherever a writer ends, and what readers make of the manifests."""

import json
import os
from pathlib import Path

import pytest

from kafkalite.load import local_disk, manifest
from kafkalite.load.layout import folder_of
from kafkalite.load.manifest import SNAPSHOT_EVERY, Change, DataFile, LoadState, PartitionShare, Target
from kafkalite.load.storage import LoadError
from kafkalite.model import TopicPartition

KEY = TopicPartition("t", 0)


class Crash(BaseException):
    """The process ends here: no handler of failures may see it."""


def file_of(number: int, hour: int = 0) -> DataFile:
    path = f"{folder_of('t', '2026-11-21', hour)}/part-{number}.parquet"
    return DataFile(path, "t", "2026-11-21", hour, 1, 3, {0: PartitionShare(1, number, number)}, number, number)


def load(target: Target, number: int, hours: range = range(1)) -> None:
    """A change that adds a file an hour."""
    with target.writing() as staging:
        staged = {}
        for hour in hours:
            file = file_of(number, hour)
            staged[file.path] = f"{staging}/{number}-{hour}"
            Path(staged[file.path]).write_bytes(b"abc")
        added = [file_of(number, hour) for hour in hours]
        change = Change("load", added, positions={KEY: number + 1}, topic_ids={"t": "id"}, stream=("q", number))
        target.commit(change, staged)


def data_of(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.glob("topic=*/**/*.parquet")}


def test_a_change_is_read_by_others(tmp_path: Path) -> None:
    reader = Target(tmp_path)
    assert reader.refresh() == LoadState()
    load(Target(tmp_path), 0, range(2))
    load(Target(tmp_path), 1)
    state = reader.refresh()
    assert [state.number, state.positions, state.topic_ids, state.streams] == [1, {KEY: 2}, {"t": "id"}, {"q": 1}]
    assert list(state.files.values()) == [file_of(0, 0), file_of(0, 1), file_of(1, 0)]
    assert data_of(tmp_path) == set(state.files)
    assert not list((tmp_path / "_staging").iterdir())


@pytest.mark.parametrize("step", range(14))
def test_a_writer_that_ends_at_any_step_has_done_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Renames and syncs are counted; the process dies at one of them. Afterwards the next writer continues."""
    load(Target(tmp_path), 0)
    calls = iter(range(100))
    rename, sync = Path.rename, local_disk.sync_folder

    def or_crash(call):
        def counted(*arguments):
            if next(calls) == step:
                raise Crash
            return call(*arguments)

        return counted

    monkeypatch.setattr(Path, "rename", or_crash(rename))
    monkeypatch.setattr(local_disk, "sync_folder", or_crash(sync))
    try:
        load(Target(tmp_path), 1, range(3))
    except Crash:
        crashed = True
    else:
        crashed = False
    assert crashed == (next(calls) - 1 == step), "steps that there are"
    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(local_disk, "sync_folder", sync)
    seen = Target(tmp_path).refresh()
    assert len(seen.files) in (1, 4)
    assert (seen.number == 1) == (len(seen.files) == 4) == (seen.positions == {KEY: 2})
    assert set(seen.files) <= data_of(tmp_path), "what a reader is promised is there"
    load(Target(tmp_path), 2)
    state = Target(tmp_path).refresh()
    assert set(state.files) == {*seen.files, file_of(2).path}
    assert data_of(tmp_path) == set(state.files), "no orphan is left"
    assert not list((tmp_path / "_manifests").glob("pending*"))


def test_every_step_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of three files has fewer steps than the test above tries, and more than half as many."""
    load(Target(tmp_path), 0)
    calls: list[object] = []
    rename, sync = Path.rename, local_disk.sync_folder
    monkeypatch.setattr(Path, "rename", lambda *given: (calls.append(given), rename(*given))[1])
    monkeypatch.setattr(local_disk, "sync_folder", lambda *given: (calls.append(given), sync(*given))[1])
    load(Target(tmp_path), 1, range(3))
    assert 7 <= len(calls) < 14


def test_snapshots_keep_the_folder_small(tmp_path: Path) -> None:
    early, writer = Target(tmp_path), Target(tmp_path)
    load(writer, 0)
    early.refresh()
    count = 2 * SNAPSHOT_EVERY + 7
    for number in range(1, count):
        load(writer, number)
    names = os.listdir(tmp_path / "_manifests")
    assert sum(name.endswith(manifest.SNAPSHOT) for name in names) == 2
    assert len(names) <= 2 * SNAPSHOT_EVERY + 4
    wanted = [file_of(number) for number in range(count)]
    for reader in (early, Target(tmp_path)):
        state = reader.refresh()
        assert list(state.files.values()) == wanted
        assert (state.number, state.positions, state.streams) == (count - 1, {KEY: count}, {"q": count - 1})


def test_a_missing_manifest_is_reported(tmp_path: Path) -> None:
    for number in range(3):
        load(Target(tmp_path), number)
    (tmp_path / "_manifests" / f"{1:020d}.json").unlink()
    with pytest.raises(LoadError, match="manifests are missing"):
        Target(tmp_path).refresh()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"number": 1}', "is damaged"),
        ('{"format": 1, "number": 1}', "is damaged"),
        ('{"format": 2}', "has format 2; this version reads 1"),
    ],
)
def test_an_invalid_manifest_is_reported(tmp_path: Path, text: str, message: str) -> None:
    load(Target(tmp_path), 0)
    (tmp_path / "_manifests" / f"{1:020d}.json").write_text(text)
    with pytest.raises(LoadError, match=message):
        Target(tmp_path).refresh()


def test_writers_take_turns(tmp_path: Path) -> None:
    with Target(tmp_path).writing():
        with pytest.raises(LoadError, match="another load has locked"), Target(tmp_path, lock_timeout_s=0).writing():
            pytest.fail("two writers at a time")
        assert Target(tmp_path).refresh() == LoadState(), "a reader does not wait"
    load(Target(tmp_path, lock_timeout_s=0), 0)


def test_replaced_files_stay_for_their_grace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000]
    monkeypatch.setattr(manifest, "now_ms", lambda: now[0])
    target = Target(tmp_path)
    load(target, 0)
    load(target, 1)
    old = [file_of(0).path, file_of(1).path]
    with target.writing() as staging:
        Path(staging, "new").write_bytes(b"abcdef")
        target.commit(Change("compaction", [file_of(7)], old, keep_until_ms=2_000), {file_of(7).path: f"{staging}/new"})
    assert set(Target(tmp_path).refresh().files) == {file_of(7).path}
    assert data_of(tmp_path) == {*old, file_of(7).path}
    now[0] = 1_999
    with target.writing():
        assert set(old) <= data_of(tmp_path)
    now[0] = 2_000
    with target.writing():
        assert data_of(tmp_path) == {file_of(7).path}


def test_a_change_that_fails_leaves_nothing(tmp_path: Path) -> None:
    target = Target(tmp_path)
    load(target, 0)
    with pytest.raises(FileNotFoundError), target.writing() as staging:
        target.commit(Change("load", [file_of(1)]), {file_of(1).path: f"{staging}/never-written"})
    assert set(target.refresh().files) == {file_of(0).path}
    load(target, 1)
    assert data_of(tmp_path) == {file_of(0).path, file_of(1).path}


def test_json_and_back() -> None:
    file = DataFile("p", "t", None, None, 2, 3, {3: PartitionShare(1, 5, 5), 1: PartitionShare(1, 2, 2)}, None, None)
    assert DataFile.from_json(json.loads(json.dumps(file.to_json()))) == file
    state = LoadState(4, {"p": file}, {KEY: 3}, {"t": "x"}, {"q": 1}, {"old": 17})
    assert LoadState.from_json(json.loads(json.dumps(state.to_json()))) == state
    changed = state.copy()
    changed.files.clear()
    assert state.files, "a copy changes by itself"


def test_urls_are_refused() -> None:
    with pytest.raises(LoadError, match="is a URL"):
        Target("s3://bucket/loaded")
