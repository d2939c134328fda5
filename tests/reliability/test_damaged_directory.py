"""B1 to B7 at the level of the process: damage done to a stopped broker's files, then what it serves after a start.

The byte-by-byte sweeps over segments and their parsing are unit tests of the log (tests/log_damage); here a sample of
each kind goes through the whole broker: it starts, or refuses with one clear message and status 2, and never serves a
record that was not written.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.errors import ErrorCode
from tests.kit.harness import wire
from tests.kit.harness.load import create_topic
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import BrokerDidNotStart, BrokerProcess

MakeBroker = Callable[..., BrokerProcess]
BATCH_COUNT = 60
RECORDS_PER_BATCH = 5
UNCLEAN = ".kafka_cleanshutdown"


def value_at(offset: int) -> bytes:
    return b"%d:" % offset + b"v" * (offset % 90)


def write_batches(port: int, topic: str, count: int, start: int = 0) -> int:
    """`count` batches of five records whose values say their offset; the next offset."""
    with wire.Connection(port) as connection:
        for _ in range(count):
            rows = [wire.Record(None, value_at(start + number)) for number in range(RECORDS_PER_BATCH)]
            answer = connection.produce(topic, 0, wire.batch_of(rows), acks=-1)
            assert (answer.error, answer.base_offset) == (0, start), answer
            start += RECORDS_PER_BATCH
    return start


def read_what_is_there(port: int, topic: str) -> tuple[set[int], int]:
    """Offsets served and the end offset. Damaged ranges may answer an error; a wrong record fails the test."""
    served: set[int] = set()
    with wire.Connection(port) as connection:
        end = connection.list_offset(topic, 0, -1)[2]
        offset = connection.list_offset(topic, 0, -2)[2]
        while offset < end:
            answer = connection.fetch(topic, 0, offset)
            if answer.error or not answer.records:
                assert answer.error in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR), (
                    f"@{offset}: {answer}"
                )
                offset += 1
                continue
            for batch in wire.split_batches(answer.records):
                if not batch.crc_is_right:  # the client sees it, as with Kafka
                    offset = max(offset + 1, batch.next_offset)
                    continue
                for at, _, value in wire.decode_records(batch):
                    assert value == value_at(at), f"@{at}: a record nobody wrote"
                    served.add(at)
                offset = batch.next_offset
    return served, end


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's data directory: topic `t` has 60 batches, topic `rolled` as many over several segments."""
    with BrokerProcess(tmp_path_factory.mktemp("sound")) as broker:
        create_topic(broker.port, "t", 1)
        create_topic(broker.port, "rolled", 1, {"segment.bytes": "3000"})
        write_batches(broker.port, "t", BATCH_COUNT)
        write_batches(broker.port, "rolled", BATCH_COUNT)
        broker.stop()
    return broker.data_dir


@pytest.fixture
def broker(make_broker: MakeBroker, sound: Path) -> BrokerProcess:
    """Not started; with a copy of the sound directory."""
    broker = make_broker()
    shutil.copytree(sound, broker.data_dir)
    return broker


def segments(broker: BrokerProcess, topic: str) -> list[Path]:
    return sorted((broker.data_dir / f"{topic}-0").glob("*.log"))


def batch_ends(segment: Path) -> list[int]:
    """Positions after each batch of a segment."""
    data, position, ends = segment.read_bytes(), 0, []
    while position + 12 <= len(data) and data[position + 16 : position + 17] == b"\2":
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        ends.append(position)
    return ends


def crash(broker: BrokerProcess) -> None:
    """Makes the stopped directory look like that of a killed process that never wrote a checkpoint."""
    for name in (UNCLEAN, "recovery-point-offset-checkpoint"):
        (broker.data_dir / name).unlink(missing_ok=True)


def flip(path: Path, position: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def test_control_nothing_damaged(broker: BrokerProcess) -> None:
    broker.start()
    for topic in ("t", "rolled"):
        served, end = read_what_is_there(broker.port, topic)
        assert served == set(range(BATCH_COUNT * RECORDS_PER_BATCH))
        assert end == BATCH_COUNT * RECORDS_PER_BATCH


@pytest.mark.scenario("B1")
def test_a_torn_tail_keeps_whole_batches_and_takes_appends(broker: BrokerProcess, seed: int) -> None:
    segment = segments(broker, "t")[-1]
    ends = batch_ends(segment)
    chance = random.Random(seed)
    whole = BATCH_COUNT
    for _ in range(3):
        cut = chance.randint(ends[whole - 4] + 1, ends[whole - 1] - 1)
        kept = sum(end <= cut for end in ends)
        crash(broker)
        with segment.open("r+b") as file:
            file.truncate(cut)
        broker.start()
        served, end = read_what_is_there(broker.port, "t")
        assert end == kept * RECORDS_PER_BATCH, f"seed {seed}, cut at {cut}"
        assert served == set(range(end))
        write_batches(broker.port, "t", 1, start=end)
        broker.stop()
        ends, whole = batch_ends(segment), kept + 1


@pytest.mark.parametrize("count", [4, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.scenario("B2")
def test_flipped_bit_in_the_last_segment_never_shows_as_a_record(broker: BrokerProcess, seed: int, count: int) -> None:
    segment = segments(broker, "t")[-1]
    sound, chance = segment.read_bytes(), random.Random(seed)
    for _ in range(count):
        position, bit = chance.randrange(len(sound)), chance.randrange(8)
        segment.write_bytes(sound)
        for path in segment.parent.iterdir():
            if path.name != segment.name and path.name.startswith("0000"):
                path.unlink()
        flip(segment, position, bit)
        crash(broker)
        broker.start()
        served, end = read_what_is_there(broker.port, "t")
        before = sum(end <= position for end in batch_ends_of(sound)) * RECORDS_PER_BATCH
        assert set(range(before)) <= served, f"seed {seed}: whole batches before byte {position} bit {bit} are gone"
        assert end >= before
        broker.stop()


def batch_ends_of(data: bytes) -> list[int]:
    position, ends = 0, []
    while position + 12 <= len(data):
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        ends.append(position)
    return ends


@pytest.mark.parametrize("count", [4, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("clean", sample([False, True], 1), ids=["unclean", "clean"])
@pytest.mark.scenario("B3")
def test_flipped_bit_in_an_older_segment_harms_only_its_batch(
    broker: BrokerProcess, seed: int, count: int, clean: bool
) -> None:
    older = segments(broker, "rolled")[:-1]
    chance = random.Random(seed)
    sizes = {path.name: path.stat().st_size for path in older}
    for _ in range(count):
        segment = chance.choice(older)
        sound = segment.read_bytes()
        ends = batch_ends(segment)
        position = chance.randrange(61, len(sound))
        flip(segment, position, chance.randrange(8))
        if not clean:
            (broker.data_dir / UNCLEAN).unlink(missing_ok=True)
        broker.start()
        served, end = read_what_is_there(broker.port, "rolled")
        lost = set(range(BATCH_COUNT * RECORDS_PER_BATCH)) - served
        assert end == BATCH_COUNT * RECORDS_PER_BATCH, f"seed {seed}: the end moved"
        assert len(lost) <= 2 * RECORDS_PER_BATCH, f"seed {seed}: one flipped bit lost {sorted(lost)} of {len(ends)}"
        assert {path.name: path.stat().st_size for path in older} == sizes, "an older segment was cut or deleted"
        broker.stop()
        segment.write_bytes(sound)


INDEX_DAMAGE = {
    "deleted": lambda path, _: path.unlink(),
    "emptied": lambda path, _: path.write_bytes(b""),
    "random": lambda path, chance: path.write_bytes(chance.randbytes(path.stat().st_size)),
    "cut": lambda path, chance: path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)]),
    "flipped": lambda path, chance: flip(path, chance.randrange(path.stat().st_size), chance.randrange(8)),
    "foreign": lambda path, _: path.write_bytes(min(path.parent.glob("*" + path.suffix)).read_bytes()),
}


@pytest.mark.parametrize("damage", sample(INDEX_DAMAGE, 1))
@pytest.mark.parametrize("clean", sample([False, True], 1), ids=["unclean", "clean"])
@pytest.mark.scenario("B4")
def test_damaged_index_files_are_rebuilt(broker: BrokerProcess, seed: int, damage: str, clean: bool) -> None:
    chance = random.Random(seed)
    derived = [
        path
        for path in (broker.data_dir / "rolled-0").iterdir()
        if path.suffix not in (".log", ".metadata") and path.name.startswith("0000") and path.stat().st_size
    ]
    assert derived, "no index files: nothing to damage"
    for path in derived:
        INDEX_DAMAGE[damage](path, chance)
    if not clean:
        crash(broker)
    broker.start()
    served, end = read_what_is_there(broker.port, "rolled")
    assert (len(served), end) == (BATCH_COUNT * RECORDS_PER_BATCH,) * 2
    write_batches(broker.port, "rolled", 2, start=end)


def start_or_refuse(broker: BrokerProcess) -> bool:
    """True when it started; a refusal must be status 2 with a message and change no log."""
    before = {path: path.stat().st_size for path in broker.data_dir.glob("*/*.log")}
    broker.log_path.unlink(missing_ok=True)
    try:
        broker.start()
    except BrokerDidNotStart as caught:
        refusal = caught
    else:
        return True
    assert refusal.status == 2, f"status {refusal.status}:\n{refusal.log}"
    assert "Traceback" not in refusal.log, refusal.log
    assert refusal.log.strip(), "no message"
    assert {path: path.stat().st_size for path in broker.data_dir.glob("*/*.log")} == before
    return False


def root_files(broker: BrokerProcess) -> list[Path]:
    return sorted(path for path in broker.data_dir.iterdir() if path.is_file() and path.name != ".lock")


@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("damage", sample(["deleted", "cut", "flipped"], 1))
@pytest.mark.scenario("B5")
def test_damaged_metadata_never_means_an_empty_start(broker: BrokerProcess, seed: int, damage: str, count: int) -> None:
    """Starts with the topic's records readable, or refuses; and after the file is put back everything is there."""
    chance = random.Random(f"{seed}/{damage}")
    copy = broker.directory / "copy"
    shutil.copytree(broker.data_dir, copy)
    for name in [path.name for path in root_files(broker)]:
        for _ in range(1 if damage == "deleted" else count):
            path = broker.data_dir / name
            if not path.stat().st_size:
                continue
            INDEX_DAMAGE[damage](path, chance)
            if start_or_refuse(broker):
                served, _ = read_what_is_there(broker.port, "t")
                assert len(served) == BATCH_COUNT * RECORDS_PER_BATCH, f"{name} {damage}, seed {seed}"
                broker.stop()
            shutil.rmtree(broker.data_dir)
            shutil.copytree(copy, broker.data_dir)


@pytest.mark.parametrize("filling", sample(["zeros", "garbage", "zeros-after-the-end"], 1))
@pytest.mark.scenario("B6")
def test_tail_as_a_power_loss_leaves_it(broker: BrokerProcess, seed: int, filling: str) -> None:
    segment = segments(broker, "t")[-1]
    data = segment.read_bytes()
    keep = len(data) if filling == "zeros-after-the-end" else len(data) - 4096
    tail = random.Random(seed).randbytes(4096) if filling == "garbage" else bytes(4096)
    whole = sum(end <= keep for end in batch_ends(segment))
    segment.write_bytes(data[:keep] + tail)
    crash(broker)
    broker.start()
    served, end = read_what_is_there(broker.port, "t")
    assert end == whole * RECORDS_PER_BATCH
    assert served == set(range(end))
    write_batches(broker.port, "t", 1, start=end)


def add_stray_file(data: Path) -> None:
    (data / "notes.txt").write_text("not ours")


def add_stray_file_in_partition(data: Path) -> None:
    (data / "t-0" / "notes.txt").write_text("not ours")


def add_empty_folder(data: Path) -> None:
    (data / "strange").mkdir()


def add_folder_like_a_partition(data: Path) -> None:
    (data / "ghost-0").mkdir()


def add_half_created_file(data: Path) -> None:
    (data / "meta.properties.tmp").write_text("vers")


def add_misnamed_segment(data: Path) -> None:
    (data / "t-0" / "abc.log").write_text("?")


@pytest.mark.parametrize(
    "stray",
    sample(
        [
            add_stray_file,
            add_stray_file_in_partition,
            add_empty_folder,
            add_folder_like_a_partition,
            add_half_created_file,
            add_misnamed_segment,
        ],
        2,
    ),
)
@pytest.mark.scenario("B7")
def test_strays_are_survived_or_refused(broker: BrokerProcess, stray: Callable[[Path], None]) -> None:
    stray(broker.data_dir)
    if start_or_refuse(broker):
        served, _ = read_what_is_there(broker.port, "t")
        assert len(served) == BATCH_COUNT * RECORDS_PER_BATCH


def directory_hash(directory: Path) -> str:
    """Names and contents of everything below a directory, but for the lock."""
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.name != ".lock":
            digest.update(str(path.relative_to(directory)).encode() + path.read_bytes())
    return digest.hexdigest()


@pytest.mark.parametrize("count", [3, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.scenario("C8")
def test_broker_that_cannot_start_destroys_nothing(broker: BrokerProcess, count: int) -> None:
    meta = broker.data_dir / "meta.properties"
    sound = meta.read_text()
    meta.write_text("\n".join(line for line in sound.splitlines() if "=" not in line) + "\nversion=99\n")
    before = directory_hash(broker.data_dir)
    for attempt in range(count):
        assert not start_or_refuse(broker), f"attempt {attempt}: started over a data directory of version 99"
    assert directory_hash(broker.data_dir) == before
    meta.write_text(sound)
    broker.start()
    assert len(read_what_is_there(broker.port, "t")[0]) == BATCH_COUNT * RECORDS_PER_BATCH


@pytest.mark.scenario("C8")
def test_second_broker_on_a_directory_is_refused(broker: BrokerProcess) -> None:
    broker.start()
    second = BrokerProcess(broker.directory.parent / "second")
    second.directory.mkdir()
    second.data_dir.symlink_to(broker.data_dir)
    with pytest.raises(BrokerDidNotStart) as refusal:
        second.start()
    assert refusal.value.status == 2, refusal.value.log
    assert "Traceback" not in refusal.value.log
    assert len(read_what_is_there(broker.port, "t")[0]) == BATCH_COUNT * RECORDS_PER_BATCH


@pytest.mark.scenario("C8")
def test_taken_port_is_refused(broker: BrokerProcess, make_broker: MakeBroker) -> None:
    broker.start()
    second = make_broker(port=broker.port)
    with pytest.raises(BrokerDidNotStart) as refusal:
        second.start()
    assert refusal.value.status == 2, refusal.value.log
    assert str(broker.port) in refusal.value.log
