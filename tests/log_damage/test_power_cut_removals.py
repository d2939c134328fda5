"""A power cut within a series of renames of one directory: a log keeps its end, and all of it is readable."""

import shutil
from pathlib import Path

import pytest

from kafkalite.broker.log import segment_removal
from kafkalite.broker.log.manager import LogManager
from tests.kit.harness.log_harness import TIME_MS, abandon, make_batch, read_all, started
from tests.kit.harness.samples import sample
from tests.kit.oracles.compaction_model import keyed_batch
from tests.kit.oracles.unsynced import ChangedNames, Names, watched

pytestmark = pytest.mark.own_process

SEGMENTS = 6
LEFT = 2
SETTINGS = {
    "delete": {"cleanup.policy": "delete"},
    "compact,delete": {"cleanup.policy": "compact,delete"},
    "classic": {"message.format": "classic"},
}


def filled(root: Path, settings: dict[str, str]) -> LogManager:
    """A topic t with six segments of two records; all is on the disk."""
    manager = started(root, log_cleaner_enable="false")
    manager.create_topic("t", 1, settings)
    log = manager.topics["t"].partitions[0]
    for i in range(SEGMENTS):
        if i:
            log.roll()
        for j in range(2):
            if "message.format" in settings:
                log.append_set(b"\0\0\0\5\0\0\0\0\0")  # type: ignore[attr-defined]
            elif "compact" in settings["cleanup.policy"]:
                log.append(keyed_batch([(b"k%d %d" % (i, j), b"v")], timestamp=TIME_MS)[0])
            else:
                log.append(make_batch())
    manager.close()
    return started(
        root, log_cleaner_enable="false"
    )  # nothing is left to do for its threads, whose syncs would cover the names


def take_front(manager: LogManager, how: str, kind: str) -> None:
    """All but the last two segments go, by one call."""
    log = manager.topics["t"].partitions[0]
    if how == "retention":
        size = sum(segment.size for segment in log.segments[-LEFT:])
        manager.alter_topic("t", {**SETTINGS[kind], "retention.bytes": str(size)})
        assert segment_removal.apply_retention(log, TIME_MS) == SEGMENTS - LEFT
    else:
        segment_removal.delete_records(log, log.segments[-LEFT].base_offset)


@pytest.mark.parametrize(
    ("how", "room"),
    sample([("retention", True), ("retention", False), ("delete records", True)], 1),
    ids=["retention", "retention on a full disk", "delete records"],
)
@pytest.mark.parametrize("kind", sample(SETTINGS, 1))
def test_what_is_left_is_the_end_of_the_log(
    tmp_path: Path, how: str, kind: str, room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    manager = filled(root, SETTINGS[kind])
    log = manager.topics["t"].partitions[0]
    bases = [segment.base_offset for segment in log.segments]
    end = log.log_end_offset
    judged: list[list[int]] = []

    def judge(names: Names) -> None:
        """Starts on the root as it is, in which what is written down is on the disk, and on those names."""
        image = tmp_path / f"image {len(judged)}"
        shutil.copytree(root, image, ignore=shutil.ignore_patterns("t-0", ".lock"))
        changes.build(names, image / "t-0")
        with monkeypatch.context() as clean:
            clean.undo()
            again = started(image, log_cleaner_enable="false")
        found = again.topics["t"].partitions[0]
        assert not found.offline
        left = [segment.base_offset for segment in found.segments]
        assert left == bases[-len(left) :]
        assert found.log_end_offset == end
        if kind != "classic":
            offsets = [first for first, _, _ in read_all(found)]
            assert offsets == list(range(found.log_start_offset, end))
        judged.append(left)
        abandon(again)
        shutil.rmtree(image)

    changes = ChangedNames(root / "t-0", tmp_path / "inodes", judge)
    with monkeypatch.context() as full:
        if not room:
            full.setattr(manager.checkpoints, "_write_offsets", _no_room)
        with watched(changes):
            take_front(manager, how, kind)
            changes.note()
    assert len(judged) > SEGMENTS - LEFT
    abandon(manager)


def _no_room(*_: object) -> None:
    raise OSError(28, "No space left on device")
