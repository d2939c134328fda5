"""B2 and B3: single bits flipped, in the tail, below the flushed offset, in older segments.

No record is ever served that was not written. Damage in the unflushed tail is cut; damage below the flushed offset is
reported, reads inside fail with CORRUPT_MESSAGE, everything else is served and nothing is deleted.
"""

import os
import random
import shutil
from pathlib import Path

import pytest

from kafkalite.broker.log.partition_log import PartitionLog
from kafkalite.errors import ErrorCode
from tests.kit.harness.log_harness import LogHarness, PlainLog, damage_ranges, make_batch, release, split
from tests.kit.harness.samples import sample

SEED = int(os.environ.get("KAFKALITE_SEED", "11"))
FLIPS = 600
OLD_FLIPS = 200


def written(path: Path, *, clean: bool, batches: int = 60, segment_bytes: int = 1 << 20) -> tuple[LogHarness, PlainLog]:
    harness = LogHarness(path, segment_bytes=segment_bytes, index_interval_bytes=300)
    model = PlainLog()
    log = harness.open()
    for i in range(batches):
        batch = make_batch(1 + i % 4, value_size=i % 50)
        model.append(log.append(batch).base_offset, batch)
    if clean:
        log.close()
    else:
        release(log)
    return harness, model


def read_what_is_served(log: PartitionLog) -> tuple[list[tuple[int, int, bytes]], set[int]]:
    """(batches served, offsets that answered CORRUPT_MESSAGE), reading offset by offset past the damage."""
    found: list[tuple[int, int, bytes]] = []
    refused: set[int] = set()
    at = log.log_start_offset
    while at < log.log_end_offset:
        error, piece = log.read_blocking(at, 700)
        if error:
            assert error == ErrorCode.CORRUPT_MESSAGE
            refused.add(at)
            at += 1
            continue
        assert piece is not None
        found += split(piece.tobytes())
        piece.release()
        at = found[-1][1]
    return found, refused


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ (1 << bit % 8)]))


def some_bits(size: int, count: int) -> list[int]:
    rng = random.Random(SEED)
    print(f"KAFKALITE_SEED={SEED}")
    return [rng.randrange(size) * 8 + rng.randrange(8) for _ in range(count)]


def test_flip_in_the_unflushed_tail_cuts_there(tmp_path: Path) -> None:
    harness, model = written(tmp_path, clean=False)
    path = harness.files()[0]
    original = path.read_bytes()
    for bit in some_bits(len(original), FLIPS):
        path.write_bytes(original)
        flip(path, bit)
        log = harness.open(clean=False, recovery_point=0)
        served, refused = read_what_is_served(log)
        assert served == model.batches[: len(served)], f"bit {bit}"
        assert not refused
        # At most the batch that was hit and those behind it are gone; a leader epoch is not protected by the CRC.
        position, whole = 0, 0
        for _, _, covered in model.batches:
            position += len(covered) + 21
            whole += position <= bit // 8
        assert len(served) >= whole, f"bit {bit}"
        release(log)


@pytest.mark.parametrize("indexed", sample([True, False], 1), ids=["with its index", "index lost"])
@pytest.mark.parametrize("clean", sample([True, False], 1), ids=["clean stop", "killed"])
def test_flip_below_the_flushed_offset_is_quarantined(tmp_path: Path, clean: bool, indexed: bool) -> None:
    harness, model = written(tmp_path, clean=True)
    path = harness.files()[0]
    original = path.read_bytes()
    end = model.end
    if not indexed:
        harness.files(".klindex")[0].unlink()
    for bit in some_bits(len(original), FLIPS // 2):
        path.write_bytes(original)
        flip(path, bit)
        log = harness.open(clean=clean, recovery_point=end)
        check_quarantine(log, model, f"bit {bit}")
        assert path.stat().st_size == len(original), f"bit {bit}: bytes were cut"
        release(log)


def check_quarantine(log: PartitionLog, model: PlainLog, what: str) -> None:
    served, refused = read_what_is_served(log)
    assert log.log_end_offset == model.end, what
    missing = [batch for batch in model.batches if batch not in served]
    assert [batch for batch in served if batch not in model.batches] == [], what
    assert served == sorted(served), what
    assert len(missing) <= 1, f"{what}: {[batch[:2] for batch in missing]}"
    assert refused == {offset for first, after, _ in missing for offset in range(first, after)}, what
    assert damage_ranges(log) == [(first, after) for first, after, _ in missing], what
    next_offset = log.append(make_batch()).base_offset
    assert next_offset == model.end, what
    error, piece = log.read_blocking(next_offset, 1000)
    assert error == 0, what
    assert piece is not None
    piece.release()
    # The appended batch must not stay: the next flip starts from the same log.
    position = log.segments[-1].size
    release(log)
    newest = Path(log.segments[-1].path)
    if len(log.segments) > 1:
        newest.unlink()
    else:
        size = position - len(make_batch())
        os.truncate(newest, size)
    (newest.parent / "leader-epoch-checkpoint").unlink(missing_ok=True)


def test_flip_in_an_older_segment_leaves_everything_else(tmp_path: Path) -> None:
    (tmp_path / "original").mkdir()
    harness, model = written(tmp_path / "original", clean=True, batches=150, segment_bytes=2500)
    assert len(harness.files()) >= 4
    for number, bit in enumerate(some_bits(2400, OLD_FLIPS)):
        copy = tmp_path / "copy"
        shutil.copytree(harness.path.parent, copy)
        damaged = LogHarness(copy, segment_bytes=2500, index_interval_bytes=300)
        path = damaged.files()[number % 3]
        size = path.stat().st_size
        flip(path, bit % (size * 8))
        log = damaged.open(clean=True, recovery_point=model.end)
        served, refused = read_what_is_served(log)
        missing = [batch for batch in model.batches if batch not in served]
        assert [batch for batch in served if batch not in model.batches] == []
        assert len(missing) <= 1
        assert refused == {offset for first, after, _ in missing for offset in range(first, after)}
        assert path.stat().st_size == size
        release(log)
        shutil.rmtree(copy)


def test_batches_inside_records_are_not_taken_for_batches(tmp_path: Path) -> None:
    """A mirror's record values are batches themselves: resynchronising must not find one of those."""
    harness = LogHarness(tmp_path)
    log = harness.open()
    inner = make_batch(3)
    model = PlainLog()
    for _ in range(6):
        batch = make_batch(1, value=inner + inner)
        model.append(log.append(batch).base_offset, batch)
    log.close()
    path = harness.files()[0]
    harness.files(".klindex")[0].unlink()
    flip(path, 8 * (len(batch) + 30))
    log = harness.open(clean=True, recovery_point=model.end)
    served, refused = read_what_is_served(log)
    assert refused == {1}
    assert served == [batch for batch in model.batches if batch[0] != 1]
