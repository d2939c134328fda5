"""Power cuts in a recorded run: a sample of what `make prove FAMILY=power` does; and the judge finds what is wrong."""

from __future__ import annotations

import itertools
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from crc32c import crc32c

from kafkalite.broker.log import expiry_checkpoint, files
from tests.kit.harness.samples import sample
from tests.power import states
from tests.power.audit import audit
from tests.power.disk import Disk
from tests.power.history import NEVER
from tests.power.judge import judge
from tests.power.moments import Moments
from tests.power.promises.letters import LEDGER
from tests.power.prove import judge_states, plan
from tests.power.recorder import scratch
from tests.power.recording import Recording, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.own_process  # the judge forks

STEPS = 700
SWEPT_STATES = 10


@pytest.fixture
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """One run with a kill -9 in it, which these tests share; that its trace gives the real directory is checked while
    it is made."""
    kept = tmp_path_factory.getbasetemp() / "power"
    if not kept.exists():
        record(4, steps=STEPS, kills=1).save(kept)
    return Recording.load(kept)


@pytest.fixture
def place() -> Iterator[Path]:
    directory = scratch()
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize("count", [8, pytest.param(40, marks=pytest.mark.slow)])
def test_nothing_promised_is_missing(recording: Recording, count: int) -> None:
    for state, verdict in judge_states(recording, plan(recording, range(count))):
        assert verdict.findings == [], state


def test_no_answer_comes_before_the_disk_has_what_it_promises(recording: Recording) -> None:
    found = audit(recording)
    assert found.early == []
    assert found.count > 100


def test_broker_that_does_not_sync_is_found_out() -> None:
    recording = record(4, steps=STEPS, kills=1, overrides={"flush.on.acks.all": "false"})
    assert len(audit(recording).early) > 50
    assert any(verdict.findings for _, verdict in judge_states(recording, plan(recording, range(40))))


# ---- series of renames and unlinks in one directory ------------------------------------------------------------------


def moments_of_a_sweep(recording: Recording) -> list[int]:
    """When names of the swept log had gone, and its directory was not synced yet."""
    series = Moments(recording.root, recording.records).series
    return sorted({at for name, places in series.items() if name.endswith(" swept-0") for at in places})


def states_within_a_sweep(recording: Recording, place: Path, *, written: bool) -> list[list[str]]:
    """Return the findings of states in the middle of a sweep; unless `written`, no record names the log start."""
    found = []
    moments = moments_of_a_sweep(recording)
    disk = Disk(recording.root)
    records = iter(recording.records)
    following = next(records, None)
    for number, moment in enumerate(moments[:SWEPT_STATES]):
        while following is not None and following.place < moment:
            disk.play(following)
            following = next(records, None)
        root = place / str(number)
        root.mkdir()
        states.write(states.series(disk, random.Random(number)), root)
        data = root / "var" / "data"
        if not written:
            (data / "log-start-offset-checkpoint").unlink(missing_ok=True)
        found.append([text for text in judge(data, recording, moment).findings if "swept" in text])
    return found


@pytest.mark.slow
def test_what_a_sweep_leaves_is_the_end_of_a_log(place: Path) -> None:
    for seed in range(5, 10):  # a machine that is busy may sweep after the run
        recording = record(seed, steps=STEPS, kills=0, overrides={"log.flush.offset.checkpoint.interval.ms": "60000"})
        if len(moments_of_a_sweep(recording)) > 3:
            break
    (place / "written").mkdir()
    assert not any(states_within_a_sweep(recording, place / "written", written=True))
    (place / "unwritten").mkdir()
    assert any(states_within_a_sweep(recording, place / "unwritten", written=False)), "a hole was not found"


# ---- the judge finds planted faults ----------------------------------------------------------------------------------


def at_the_end(recording: Recording, place: Path) -> tuple[Path, int]:
    """The directory as it was when the run was over, and the moment."""
    return at(recording, place, recording.records[-1].place + 1)


def at(recording: Recording, place: Path, moment: int) -> tuple[Path, int]:
    disk = Disk(recording.root)
    for entry in recording.records:
        if entry.place < moment:
            disk.play(entry)
    tree: states.Tree = dict(disk.read_tree())
    states.write(tree, place)
    return place / "var" / "data", moment


def moment_of_an_open_transaction(recording: Recording) -> int:
    """When the last records of a transaction had been answered, and its end not been asked for."""
    ends = {op.what["serial"]: op.begun for op in reversed(recording.history.ops["transactions"])}
    return 1 + max(
        op.answered
        for op in recording.history.ops["records"]
        if op.what["topic"] == "transactional" and op.promised(ends.get(op.what["txn"], NEVER))
    )


def moment_of_one(recording: Recording, promise: str, is_there: Callable[[dict[str, Any]], bool]) -> int:
    """When a request that made a thing had been answered, and none that takes it away been sent: at the end of a run
    there may be no user, rule or quota that somebody was promised."""
    ops = recording.history.ops[promise]
    return 1 + max(op.answered for op in ops if op.result is not None and is_there(op.what))


def moment_of_a_tombstone(recording: Recording) -> int:
    """When the last transaction that takes a mark away had been committed."""
    ops = recording.history.ops
    serials = {op.what["txn"] for op in ops["records"] if "tombstones" in op.what}
    ends = [op for op in ops["transactions"] if op.what["serial"] in serials and op.what["commit"]]
    return 1 + max(op.answered for op in ends if op.result is not None)


def moment_of_a_mark(recording: Recording) -> int:
    """When the record behind the last mark had been written to the ledger, and no tombstone was committed."""
    ops = [op for op in recording.history.ops["records"] if op.what["topic"] == LEDGER and op.result is not None]
    return 1 + max(behind.answered for op, behind in itertools.pairwise(ops) if "marks" in op.what)


def biggest(data: Path, pattern: str) -> Path:
    return max(data.glob(pattern), key=lambda path: path.stat().st_size)


def batches(content: bytes) -> Iterator[bytes]:
    """Yield each whole batch of a segment."""
    while len(content) > 12:
        size = 12 + int.from_bytes(content[8:12], "big")
        yield content[:size]
        content = content[size:]


def cut_records(data: Path) -> str:
    log = biggest(data, "plain-*/*.log")
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    return "records: "


def flip_records(data: Path) -> str:
    log = biggest(data, "idempotent-*/*.log")
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    return "records: "


def swap_partitions(data: Path) -> str:
    for first, second in (("plain-0", "plain-1"), ("plain-2", "plain-3")):
        (data / first).rename(data / "between")
        (data / second).rename(data / first)
        (data / "between").rename(data / second)
    return "records: "


def forget_offsets(data: Path) -> str:
    for directory in data.glob("__consumer_offsets-*"):
        shutil.rmtree(directory)
    return "offsets: "


def forget_aborts(data: Path) -> str:
    """Markers of aborted transactions say that they commit."""
    count = 0
    for log in data.glob("transactional-*/*.log"):
        content = bytearray(log.read_bytes())
        position = 0
        while position + 61 < len(content):
            end = position + 12 + int.from_bytes(content[position + 8 : position + 12], "big")
            key = content.find(b"\0\0\0\0", position + 61, end)
            if content[position + 22] & 0x20 and key > 0:
                content[key + 3] = 1
                content[position + 17 : position + 21] = crc32c(bytes(content[position + 21 : end])).to_bytes(4, "big")
                count += 1
            position = end
        log.write_bytes(content)
    for index in (*data.glob("transactional-*/*.txnindex"), *data.glob("transactional-*/*.producers")):
        index.unlink()
    for snapshot in data.glob("transactional-*/*.snapshot"):
        snapshot.unlink()
    assert count, "no transaction was aborted"
    return "transactions: "


def forget_the_journal(data: Path) -> str:
    journal = data / "metadata.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"overrides"' not in line or b'"op":"topic"' in line))
    return "configs: "


def forget_given_ids(data: Path) -> str:
    journal = data / "metadata.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b"producer_ids" not in line))
    for directory in data.glob("*-*/"):
        if not any(directory.glob("*.kafka")):
            shutil.rmtree(directory)  # the ids in logs are known from there
    return "producer ids: "


def forget_users(data: Path) -> str:
    journal = data / "metadata.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"op":"scram' not in line))
    return "users: "


def forget_acls(data: Path) -> str:
    journal = data / "metadata.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"op":"acls"' not in line))
    return "acls: "


def forget_features(data: Path) -> str:
    journal = data / "metadata.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"op":"features"' not in line))
    return "features: "


def forget_quotas(data: Path) -> str:
    journal = data / "metadata.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"op":"quota"' not in line))
    return "quotas: "


def forget_topics(data: Path) -> str:
    journal = data / "metadata.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"wide"' not in line))
    for directory in data.glob("wide-*"):
        shutil.rmtree(directory)
    return "topics: "


def delete_too_much(data: Path) -> str:
    (data / "log-start-offset-checkpoint").write_text("0\n1\npurged 0 1000000\n")
    return "purging: "


def forget_the_newest_of_a_key(data: Path) -> str:
    for checkpoint in data.glob("*checkpoint"):
        checkpoint.unlink()
    for directory in data.glob("compacted-*"):
        found = sorted(path for path in directory.glob("*.log") if path.stat().st_size)
        for newest in found[-2:]:  # in the last one there may be nothing yet that was answered
            for file in directory.glob(f"{newest.stem}.*"):
                file.unlink()
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    return "compaction: "


def forget_classic_messages(data: Path) -> str:
    for segment in data.glob("old-*/*.kafka"):
        segment.unlink()
    return "classic: "


def lose_letters(data: Path) -> str:
    """A move of which the row and the offset are there, and the letter is not."""
    log = biggest(data, "dlq.*-0/*.log")
    content = log.read_bytes()
    first = 12 + int.from_bytes(content[8:12], "big")
    log.write_bytes(content[first:])
    for file in (*log.parent.glob("*.index"), *log.parent.glob("*.timeindex"), *log.parent.glob("*.snapshot")):
        file.unlink()
    return "letters: "


def lose_notes(data: Path) -> str:
    """A ledger with the marks of a batch's records, and no row of them."""
    return keep_in_ledger(data, lambda batch: b"hand/" in batch) + " marks record "


def lose_what_became(data: Path) -> str:
    """A ledger without the rows of moved records: what took their marks away is there."""
    return keep_in_ledger(data, lambda batch: b'"dead"' not in batch) + " takes the mark of record "


def lose_tombstones(data: Path) -> str:
    """A ledger in which a mark that a committed tombstone took away is the newest row of its key."""
    return keep_in_ledger(data, lambda batch: b"hand/" not in batch or b'"position"' in batch) + " has a mark at "


def lose_marks(data: Path) -> str:
    """A ledger without marks, and with records behind the last one."""
    return keep_in_ledger(data, lambda batch: b"hand/" not in batch) + " has a record at "


def keep_in_ledger(data: Path, is_kept: Callable[[bytes], bool]) -> str:
    """Leaves these batches in the ledger; what a finding about it begins with."""
    for log in data.glob("kafkalite.failures.*-0/*.log"):
        log.write_bytes(b"".join(batch for batch in batches(log.read_bytes()) if is_kept(batch)))
        for file in (*log.parent.glob("*.index"), *log.parent.glob("*.timeindex"), *log.parent.glob("*.snapshot")):
            file.unlink()
    return f"letters: {LEDGER}"


def store_a_later_time(data: Path) -> str:
    stored = expiry_checkpoint.read(str(data))
    assert stored is not None
    expiry_checkpoint.write(str(data), stored._replace(time_ms=stored.time_ms + 86_400_000))
    return "expiry time: "


def forget_the_stored_time(data: Path) -> str:
    (data / files.EXPIRY_TIME_NAME).unlink()
    return "expiry time: "


PLANTED = (
    cut_records,
    flip_records,
    swap_partitions,
    forget_offsets,
    forget_aborts,
    forget_the_journal,
    forget_given_ids,
    forget_users,
    forget_acls,
    forget_features,
    forget_quotas,
    forget_topics,
    delete_too_much,
    forget_the_newest_of_a_key,
    forget_classic_messages,
    lose_letters,
    lose_notes,
    lose_what_became,
    lose_tombstones,
    lose_marks,
    store_a_later_time,
    forget_the_stored_time,
)


def test_untouched_directory_keeps_every_promise(recording: Recording, place: Path) -> None:
    data, moment = at_the_end(recording, place)
    assert judge(data, recording, moment).findings == []


MOMENTS: dict[Callable[[Path], str], Callable[[Recording], int]] = {
    forget_users: lambda recording: moment_of_one(recording, "users", lambda what: what["iterations"] is not None),
    forget_acls: lambda recording: moment_of_one(recording, "acls", lambda what: what["there"]),
    forget_quotas: lambda recording: moment_of_one(recording, "quotas", lambda what: what["rate"] is not None),
    lose_tombstones: moment_of_a_tombstone,
    lose_marks: moment_of_a_mark,
}
"""When a fault can be seen; the others at the end."""


@pytest.mark.parametrize("plant", sample(PLANTED, 6))
def test_planted_fault_is_found(recording: Recording, place: Path, plant: Callable[[Path], str]) -> None:
    if plant in MOMENTS:
        data, moment = at(recording, place, MOMENTS[plant](recording))
    else:
        data, moment = at_the_end(recording, place)
    expected = plant(data)
    findings = judge(data, recording, moment).findings
    assert any(text.startswith(expected) for text in findings), findings


def test_a_transaction_whose_coordinator_forgot_it_is_found(recording: Recording, place: Path) -> None:
    data, moment = at(recording, place, moment_of_an_open_transaction(recording))
    for directory in data.glob("__transaction_state-*"):
        shutil.rmtree(directory)
    findings = judge(data, recording, moment).findings
    assert any(text.startswith("transactions: ") for text in findings), findings


def test_broker_that_cannot_start_is_found(recording: Recording, place: Path) -> None:
    data, moment = at_the_end(recording, place)
    (data / "metadata.journal").unlink()
    verdict = judge(data, recording, moment)
    assert verdict.refused
    assert verdict.findings
