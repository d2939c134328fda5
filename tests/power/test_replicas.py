"""Power cuts at a broker of a cluster: a sample of what `make prove` does; and the judge finds what is wrong."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c

from kafkalite.broker.log import checkpoints, directory, files
from kafkalite.model import new_uuid, uuid_text
from tests.kit.harness.samples import sample
from tests.power import states
from tests.power.disk import Disk
from tests.power.judge import judge
from tests.power.prove import judge_states, plan
from tests.power.recorder import scratch
from tests.power.replicas.judge import look_at_replicas
from tests.power.replicas.recording import ReplicaRecording, record_replicas
from tests.power.replicas.state import Event, Kept, Key, State, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.own_process  # the judge forks

SEED = 4


@pytest.fixture
def recording(tmp_path_factory: pytest.TempPathFactory) -> ReplicaRecording:
    """One run with a kill -9 in it, and a clean stop at its end, which these tests share."""
    kept = tmp_path_factory.getbasetemp() / "power-of-replicas"
    if not kept.exists():
        record_replicas(SEED, steps=400, kills=1, stops=True).save(kept)
    return ReplicaRecording.load(kept)


@pytest.fixture
def place() -> Iterator[Path]:
    root = scratch()
    yield root
    shutil.rmtree(root)


@pytest.mark.parametrize("count", [4, pytest.param(24, marks=pytest.mark.slow)])
def test_replicas_keep_what_was_promised(recording: ReplicaRecording, count: int) -> None:
    for state, verdict in judge_states(recording, plan(recording, range(count))):
        assert verdict.findings == [], state


def test_recording_can_be_kept(recording: ReplicaRecording, tmp_path: Path) -> None:
    recording.save(tmp_path / "kept")
    again = ReplicaRecording.load(tmp_path / "kept")
    assert [verdict.findings for _, verdict in judge_states(again, plan(again, [0]))] == [[]]
    assert plan(again, range(9)) == plan(recording, range(9))


# ---- the judge finds planted faults ----------------------------------------------------------------------------------


class Planted:
    """The directory as it was at a moment, to be spoiled."""

    def __init__(self, recording: ReplicaRecording, place: Path, moment: int) -> None:
        self.recording = recording
        self.moment = moment
        disk = Disk(recording.root)
        for entry in recording.records:
            if entry.place < moment:
                disk.play(entry)
        states.write(dict(disk.read_tree()), place)
        self.data = place / "var" / "data"
        self.kept = Kept(recording.others, moment)

    def key(self, name: str) -> Key:
        topic, _, number = name.rpartition("-")
        return next(key for key, part in self.kept.state.parts.items() if (part.topic, key[1]) == (topic, int(number)))

    def segments(self, name: str) -> list[Path]:
        """Return the segments with records, oldest first. Files derived from them are not trusted at the next start.

        An empty segment that was just begun is removed: after a spoiled log it would reveal where that log ended.
        """
        (self.data / files.CLEAN_SHUTDOWN_NAME).unlink(missing_ok=True)
        for suffix in ("klindex", "producers", "snapshot"):
            for path in (self.data / name).glob(f"*.{suffix}"):
                path.unlink()
        found = []
        for path in sorted((self.data / name).glob("*.log")):
            if next(split(path.read_bytes()), None):
                found.append(path)
            else:
                path.unlink()
        return found

    def findings(self) -> list[str]:
        return judge(self.data, self.recording, self.moment, look_at_replicas).findings


def the_end(recording: ReplicaRecording) -> int:
    return recording.records[-1].place + 1


def cut_epoch(state: State, key: Key) -> int | None:
    """The last leader's whose log has something, not deleted since, that the leader lacks who was asked last."""
    line = state.lines[key]
    present = set(state.history(key, line.told[0]))
    lacking = {
        epoch: [each for each in log if each.base >= line.start and each not in present]
        for epoch, log in line.histories.items()
        if epoch < line.told[0]
    }
    return max((epoch for epoch, batches in lacking.items() if batches), default=None)


def after_a_cut(recording: ReplicaRecording) -> int:
    """When followed-0 had last lost something, as its leader told it, that an earlier leader's log has."""
    state, found = State(), []
    for place, kind, (topic_id, number), what in recording.others["events"]:
        key = (bytes.fromhex(topic_id), number)
        state.apply(Event(place, kind, key, what))
        part = state.parts.get(key)
        if part is not None and (part.topic, number) == ("followed", 0) and cut_epoch(state, key) is not None:
            found.append(place)
    return max(found)


def before_it_told(recording: ReplicaRecording) -> int:
    """When followed-0 had more than its leader knew of, and no more could be seen."""
    found = []
    for place, kind, (topic_id, number), what in recording.others["events"]:
        key = (bytes.fromhex(topic_id), number)
        if kind == "told":
            state = State.at(recording.others, place - 1)
            part = state.parts.get(key)
            if part is not None and part.topic == "followed" and state.lines[key].high_max < what[1]:
                found.append((number, place - 1))
    return max(place for number, place in found if number == 0)


def after_it_told(recording: ReplicaRecording) -> int:
    """When followed-0 had told its leader how far it had come."""
    ids = {tuple(row[2]): row[3][0] for row in recording.others["events"] if row[1] == "part"}
    return max(
        place
        for place, kind, key, what in recording.others["events"]
        if kind == "told" and ids[tuple(key)] == "followed" and key[1] == 0 and what[1] > 0
    )


def lose_what_only_this_broker_had(planted: Planted) -> str:
    for path in planted.segments("alone-0"):
        path.unlink()
    return "records: "


def change_a_byte(planted: Planted) -> str:
    """Change a byte under a valid checksum: only a comparison with the leader's log detects it."""
    path = planted.segments("followed-0")[-1]
    first, *others = split(path.read_bytes())
    spoiled = bytearray(first.data)
    spoiled[-3] ^= 1
    spoiled[17:21] = crc32c(bytes(spoiled[21:])).to_bytes(4, "big")
    path.write_bytes(bytes(spoiled) + b"".join(each.data for each in others))
    return "history: "


def take_the_log_of_another(planted: Planted) -> str:
    own, other = planted.segments("followed-0"), planted.segments("followed-1")
    for path in own:
        path.unlink()
    for path in other:
        shutil.copy(path, planted.data / "followed-0" / path.name)
    return "history: "


def bring_back_what_was_cut(planted: Planted) -> str:
    """The log of an earlier leader, of which the last one lacks something."""
    key = planted.key("followed-0")
    epoch = cut_epoch(planted.kept.state, key)
    assert epoch is not None
    for path in planted.segments("followed-0"):
        path.unlink()
    log = planted.kept.state.lines[key].histories[epoch]
    path = planted.data / "followed-0" / f"{log[0].base:020}.log"
    path.write_bytes(b"".join(each.data for each in log))
    return "cuts: "


def forget_an_epoch(planted: Planted) -> str:
    path = str(planted.data / "followed-0" / files.EPOCHS_NAME)
    entries = checkpoints.read_epochs(path)
    checkpoints.write_epochs(path, [(entries[-1][0] + 1, entries[0][1])])
    return "epochs: "


def raise_the_high_watermark(planted: Planted) -> str:
    path = str(planted.data / files.HIGH_WATERMARKS_NAME)
    offsets = checkpoints.read_offsets(path) or {}
    checkpoints.write_offsets(path, {**offsets, ("followed", 0): 1 << 40})
    return "marks: "


def be_another_directory(planted: Planted) -> str:
    path = planted.data / files.META_PROPERTIES_NAME
    path.write_text(re.sub("directory.id=.*", f"directory.id={uuid_text(new_uuid())}", path.read_text()))
    return "identity: "


def claim_a_clean_stop(planted: Planted) -> str:
    """Of a broker that lost the last batch that it had told of."""
    path = planted.segments("followed-0")[-1]
    *kept, _ = split(path.read_bytes())
    path.write_bytes(b"".join(each.data for each in kept))
    epoch = [row[1] for row in planted.recording.others["registrations"] if row[0] <= planted.moment][-1]
    directory.leave_clean_marker(str(planted.data), epoch)
    return "clean: "


PLANTED: dict[Callable[[Planted], str], Callable[[ReplicaRecording], int]] = {
    lose_what_only_this_broker_had: the_end,
    change_a_byte: the_end,
    take_the_log_of_another: the_end,
    bring_back_what_was_cut: after_a_cut,
    forget_an_epoch: the_end,
    raise_the_high_watermark: before_it_told,
    be_another_directory: the_end,
    claim_a_clean_stop: after_it_told,
}
"""Planted fault → its moment."""


def test_untouched_directory_is_as_it_should_be(recording: ReplicaRecording, place: Path) -> None:
    assert Planted(recording, place, the_end(recording)).findings() == []


@pytest.mark.parametrize("plant", sample(PLANTED, 3))
def test_planted_fault_is_found(recording: ReplicaRecording, place: Path, plant: Callable[[Planted], str]) -> None:
    planted = Planted(recording, place, PLANTED[plant](recording))
    expected = plant(planted)
    findings = planted.findings()
    assert any(text.startswith(expected) for text in findings), findings
