"""B1 and B6: the end of the last segment cut, zeroed or filled with garbage, as a crash or a power failure leaves it.

Every whole batch before the damage stays, offsets continue from there, and nothing is ever half a batch.
"""

import random
import shutil
from pathlib import Path

import pytest

from tests.kit.harness.log_harness import LogHarness, PlainLog, damage_ranges, make_batch, read_all, release

BATCH_COUNT = 12


def written_log(path: Path, *, segment_bytes: int = 1 << 20) -> tuple[LogHarness, PlainLog, list[int]]:
    """A log killed without a flush; its model, and the position behind each batch of the last segment."""
    harness = LogHarness(path, segment_bytes=segment_bytes, index_interval_bytes=200)
    model = PlainLog()
    log = harness.open()
    for i in range(BATCH_COUNT):
        batch = make_batch(1 + i % 3, value_size=5 + 7 * i)
        model.append(log.append(batch).base_offset, batch)
    ends = [0]
    for _, _, covered in model.from_offset(log.segments[-1].base_offset):
        ends.append(ends[-1] + len(covered) + 21)
    release(log)
    return harness, model, ends


def reopen_and_go_on(harness: LogHarness, model: PlainLog, *, recovery_point: int = 0) -> None:
    """After a kill the log serves the model, takes appends at its end, and does so again after another kill."""
    log = harness.open(clean=False, recovery_point=recovery_point)
    assert log.log_end_offset == model.end
    assert read_all(log) == model.batches
    batch = make_batch(2)
    info = log.append(batch)
    assert info.base_offset == model.end
    model.append(info.base_offset, batch)
    release(log)
    log = harness.open(clean=False, recovery_point=recovery_point)
    assert read_all(log) == model.batches
    release(log)


def test_tail_cut_at_every_byte_of_the_last_three_batches(tmp_path: Path) -> None:
    (tmp_path / "original").mkdir()
    harness, model, ends = written_log(tmp_path / "original")
    original = harness.files()[-1]
    content = original.read_bytes()
    for size in range(ends[-4], len(content) + 1):
        expected = PlainLog(list(model.batches))
        whole = sum(end <= size for end in ends) - 1
        expected.batches = expected.batches[: len(model.batches) - (len(ends) - 1 - whole)]
        copy = tmp_path / "copy"
        shutil.copytree(harness.path.parent, copy)
        cut = LogHarness(copy, index_interval_bytes=200)
        cut.files()[-1].write_bytes(content[:size])
        reopen_and_go_on(cut, expected)
        shutil.rmtree(copy)


@pytest.mark.parametrize("filler", ["zeros", "garbage", "text"])
@pytest.mark.parametrize("size", [1, 11, 60, 61, 500, 4096])
def test_nonsense_behind_the_last_batch_is_cut(tmp_path: Path, filler: str, size: int) -> None:
    harness, model, _ = written_log(tmp_path)
    tail = {"zeros": bytes(size), "garbage": random.Random(size).randbytes(size), "text": b"\x02 padding" * size}
    with harness.files()[-1].open("ab") as file:
        file.write(tail[filler][:size])
    reopen_and_go_on(harness, model)


@pytest.mark.parametrize("filler", [b"\x00", b"\xff", b"\x02"])
@pytest.mark.parametrize("size", [1, 30, 100, 1000])
def test_overwritten_end_loses_only_the_batches_it_touches(tmp_path: Path, filler: bytes, size: int) -> None:
    harness, model, ends = written_log(tmp_path)
    path = harness.files()[-1]
    content = path.read_bytes()
    damaged = content[:-size] + filler * size
    path.write_bytes(damaged)
    first = next((at for at, (old, new) in enumerate(zip(content, damaged, strict=True)) if old != new), len(content))
    model.batches = model.batches[: sum(end <= first for end in ends) - 1]
    reopen_and_go_on(harness, model)


def test_damage_in_an_unflushed_segment_drops_the_segments_behind_it(tmp_path: Path) -> None:
    harness, model, _ = written_log(tmp_path, segment_bytes=400)
    for path in harness.files(".klindex"):
        path.unlink()  # else they say what was flushed
    paths = harness.files()
    assert len(paths) >= 4
    content = bytearray(paths[1].read_bytes())
    content[70] ^= 1
    paths[1].write_bytes(content)
    base = int(paths[1].stem)
    model.cut(base)
    reopen_and_go_on(harness, model)
    assert [path.stem for path in harness.files()] == [paths[0].stem, paths[1].stem]


def test_log_shorter_than_its_recovery_point_gives_no_offset_twice(tmp_path: Path) -> None:
    harness, model, ends = written_log(tmp_path)
    end = model.end
    path = harness.files()[-1]
    path.write_bytes(path.read_bytes()[: ends[-3] + 10])
    log = harness.open(clean=False, recovery_point=end)
    kept_end = model.batches[-3][1]
    model.cut(kept_end)
    assert log.log_end_offset == end
    assert damage_ranges(log)[-1] == (kept_end, end)
    assert log.read_blocking(kept_end, 1000)[0] == 2
    assert log.append(make_batch()).base_offset == end
    assert [batch[0] for batch in read_all(log, end)] == [end]
    assert read_until(log, kept_end) == model.batches


def test_lost_directory_gives_no_offset_twice(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = harness.open(clean=True, recovery_point=500, log_start=20)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    assert log.append(make_batch()).base_offset == 500


def read_until(log: object, end: int) -> list[tuple[int, int, bytes]]:
    from tests.kit.harness.log_harness import split

    found: list[tuple[int, int, bytes]] = []
    at = 0
    while at < end:
        found += split(log.read(at, 300))  # type: ignore[attr-defined]
        at = found[-1][1]
    return found


def test_blocks_that_a_dead_process_reserved_are_given_back(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, preallocate="true", segment_bytes=1 << 20)
    log = harness.open()
    log.append(make_batch())
    release(log)
    path = harness.files()[0]
    assert path.stat().st_blocks * 512 >= 1 << 20
    release(harness.open(clean=False))
    assert path.stat().st_blocks * 512 < 1 << 20
