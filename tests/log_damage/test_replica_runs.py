"""Random runs of a replica's log: appended, truncated, restarted, flushed, killed, held by readers; then a power cut.

Its content is compared with a plain list. After a kill nothing is missing. After a power cut, at any change of the disk
and by each model of such a cut, the log is a prefix of its state at the last completed truncation: no truncated record
returns, no flushed one is missing, and epochs and producers are those of the batches.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite.broker.log import disk
from kafkalite.errors import KafkaError
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness import seams
from tests.kit.harness.log_harness import TIME_MS, release
from tests.kit.harness.replica_harness import Batches, History, ReplicaHarness
from tests.kit.harness.samples import sample
from tests.simulation.disk import LEFT, SimulatedDisk

if TYPE_CHECKING:
    from kafkalite._native.log.log_slice import LogSlice
    from kafkalite.broker.log.replica_log import ReplicaLog

pytestmark = pytest.mark.own_process

STEPS = 60
SETTINGS = {"segment_bytes": 4000, "index_interval_bytes": 500}
SIZE_MAX = 1 << 22


class Run:
    """One replica and its model, which change together."""

    def __init__(self, path: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.harness = ReplicaHarness(path, **SETTINGS)
        self.batches = Batches(self.draw)
        self.history = History()
        self.before: History | None = None  # while a cut is under way: what was there
        self.flushed = 0
        self.epoch = 0
        self.window = 5
        self.held: list[tuple[LogSlice, bytes]] = []
        self.log = self.harness.opened(clean=True)

    def step(self) -> None:
        """One thing that happens to a log."""
        what = self.draw.random()
        if what < 0.5:
            self.append()
        elif what < 0.62:
            self.cut()
        elif what < 0.64:
            self.begin_anew()
        elif what < 0.66:
            self.front()
        elif what < 0.75:
            self.log.advance_high_watermark(self.draw.randint(self.history.start, self.history.end))
        elif what < 0.82:
            self.log.flush()
        elif what < 0.88:
            self.log.checkpoint()
            self.harness.write_points(self.log)
        elif what < 0.92:
            self.log.roll()
        elif what < 0.96:
            self.hold()
        else:
            self.let_go()
        self.flushed = self.log.flushed_offset

    def append(self) -> None:
        self.epoch += self.draw.random() < 0.2
        offset = self.history.end
        given = []
        for _ in range(self.draw.randint(1, 12)):
            offset += self.draw.choice([0, 0, 0, 0, 5])
            given.append(self.batches.next(offset, self.epoch))
            end = History(end=offset)
            end.take(given[-1])
            offset = end.end
        for batch in given:  # first in the list: of a write that a power cut ends some may be there
            self.history.take(batch)
        assert self.log.append_as_follower(b"".join(given), self.epoch).end_offset == self.history.end

    def cut(self) -> None:
        low = max(self.history.start, self.history.end - self.draw.choice([3, 30, 300]))
        offset = self.draw.randint(low, self.history.end)
        self.before, self.flushed = self.history.copy(), min(self.flushed, offset)
        self.history.cut(offset)
        self.flushed = min(self.flushed, self.history.end)
        self.log.truncate_to(offset)
        self.before = None
        self.epoch += 1

    def begin_anew(self) -> None:
        self.before, self.flushed = self.history.copy(), 0
        offset = max(0, self.history.end + self.draw.choice([-20, 0, 7, 1000]))
        self.history.begin_anew(offset)
        self.log.truncate_fully_and_start_at(offset)
        self.before = None
        self.epoch += 1

    def front(self) -> None:
        """Its leader's log begins later."""
        bases = [base for base, _, _, _ in self.history.batches if base <= self.history.end]
        if not bases:
            return
        self.before = self.history.copy()
        self.history.start = self.draw.choice(bases)
        self.history.batches = [each for each in self.history.batches if each[1] > self.history.start]
        self.log.advance_log_start(self.history.start)
        if self.log.offline:
            raise OSError("it could not be written down")
        self.before = None

    def hold(self) -> None:
        if self.history.end == self.history.start:
            return
        _, piece = self.log.read_blocking(self.draw.randrange(self.history.start, self.history.end), 3000)
        if piece is not None:
            self.held.append((piece, piece.tobytes()))

    def let_go(self) -> None:
        while self.held:
            piece, was = self.held.pop()
            assert piece.tobytes() == was
            piece.release()

    def restart(self, *, clean: bool) -> None:
        self.let_go()
        if clean:
            self.log.close()
            self.harness.write_points(self.log)
        release(self.log)
        self.log = self.harness.opened(clean=clean)
        # A log truncated within a batch has no mark of that offset: it ends with its last batch, as Kafka's does.
        last = self.history.batches[-1][1] if self.history.batches else self.history.start
        if last <= self.log.log_end_offset < self.history.end:
            self.history.end = self.log.log_end_offset

    def check(self) -> None:
        """The log is what the list says."""
        log, history = self.log, self.history
        assert (log.log_start_offset, log.log_end_offset) == (history.start, history.end)
        assert read_whole(log) == history.data
        assert all(log.epochs.epoch_at(base) == epoch for base, _, epoch, _ in history.batches)
        check_producers(log, self.window)
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset


def read_whole(log: ReplicaLog) -> bytes:
    found = b""
    at = log.log_start_offset
    while piece := log.read(at, SIZE_MAX):
        found += piece
        tail = History(end=at)
        for batch in split_whole(piece):
            tail.take(batch)
        at = tail.end
    return found


def split_whole(data: bytes) -> Iterator[bytes]:
    while data:
        size = int.from_bytes(data[8:12], "big") + 12
        yield data[:size]
        data = data[size:]


def check_producers(log: ReplicaLog, window: int) -> None:
    """Check that the producer state matches a scan of the whole log: so it has the same number of batches each.

    Where segments below the log start are deleted, the state may have more than a scan finds: then only the entries in
    the remaining segments are compared.
    """
    known = log.ensure_producers()
    with log.core.locked():
        scratch = type(known)(replicated=True)
        log.producer_state._walk(scratch, 0, 1 << 62)
    first = log.segments[0].base_offset
    found, remembered = (table.aborted.rows(log.log_start_offset) for table in (scratch, known))
    if first == 0:
        assert rows(scratch, window) == rows(known, window)
        assert scratch.open_transactions() == known.open_transactions()
        assert found == remembered
        return
    assert spans(scratch, window, first) == spans(known, window, first)
    assert {(row[0], row[2]) for row in found} <= {(row[0], row[2]) for row in remembered}


def rows(table: object, window: int) -> list[tuple[object, ...]]:
    return sorted(
        (
            entry.producer_id,
            entry.epoch,
            entry.coordinator_epoch,
            entry.transaction_offset,
            [span[:4] for span in entry.batches()[-window:]],
        )
        for entry in table  # type: ignore[attr-defined]
    )


def spans(table: object, window: int, first: int) -> dict[int, list[tuple[int, ...]]]:
    """By producer: the batches from an offset on."""
    found = {
        entry.producer_id: [span[:4] for span in entry.batches()[-window:] if span[3] >= first]
        for entry in table  # type: ignore[attr-defined]
    }
    return {producer: batches for producer, batches in found.items() if batches}


def run_with_kills(path: Path, seed: int, steps: int = STEPS) -> None:
    run = Run(path, seed)
    for step in range(steps):
        run.step()
        if step % 7 == 0:
            run.check()
        if run.draw.random() < 0.05:
            run.restart(clean=run.draw.random() < 0.5)
            run.check()
    run.restart(clean=False)
    run.check()
    release(run.log)


@pytest.mark.parametrize("seed", sample(range(20), 8))
def test_a_replica_holds_what_it_was_given_and_not_what_was_cut(tmp_path: Path, seed: int) -> None:
    run_with_kills(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_a_replica_holds_what_it_was_given_and_not_what_was_cut_at_length(tmp_path: Path, block: int) -> None:
    for seed in range(block * 1000, block * 1000 + 10):
        (tmp_path / str(seed)).mkdir()
        run_with_kills(tmp_path / str(seed), seed, 200)


class Power:
    """Goes off at a change of the disk."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(FakeClock(TIME_MS), self.note)
        self.disk.mount("/one")
        self.changes_left = -1

    def note(self, mount: str, _what: str, _path: str, _size: int) -> None:
        if self.changes_left >= 0:
            self.changes_left -= 1
            if self.changes_left < 0:
                self.disk.power_off(mount)


@contextmanager
def in_memory() -> Iterator[Power]:
    power = Power()
    try:
        with seams.disk_instead(power.disk):
            yield power
    finally:
        power.disk.close()


def cut_power(seed: int, model: str) -> None:
    """A run that ends at some change of the disk, and what is there afterwards."""
    with in_memory() as power:
        run = Run(SimulatedPath("/one"), seed)  # type: ignore[arg-type]  # as much of one as it wants
        for _ in range(run.draw.randrange(STEPS)):
            run.step()
        power.changes_left = run.draw.randrange(40)
        run.window = 1  # as after Kafka's snapshots: the file with the others may be missing
        ends_without(power, run)
        power.disk.crash("/one", run.draw, model)
        after = run.harness.opened(clean=False)
        judge(run, after)
        # It continues from there, and a second start finds the same.
        run.log, run.before = after, None
        run.epoch += 1
        run.history = History(taken(after), after.log_start_offset, after.log_end_offset)
        run.append()
        run.restart(clean=False)
        run.check()
        release(run.log)


def kill_then_cut_power(seed: int, model: str) -> None:
    """Killed at some change of the disk, and soon after it has come back the power goes."""
    with in_memory() as power:
        run = Run(SimulatedPath("/one"), seed)  # type: ignore[arg-type]  # as much of one as it wants
        run.window = 1
        for _ in range(run.draw.randrange(STEPS)):
            run.step()
        power.changes_left = run.draw.randrange(40)
        ends_without(power, run)
        power.disk.power_on("/one")
        run.log = run.harness.opened(clean=False)
        judge(run, run.log)
        run.history = History(taken(run.log), run.log.log_start_offset, run.log.log_end_offset)
        run.before = None
        run.flushed = 0
        run.epoch += 1
        power.changes_left = run.draw.randrange(12)
        ends_without(power, run)
        power.disk.crash("/one", run.draw, model)
        after = run.harness.opened(clean=False)
        judge(run, after)
        release(after)


def ends_without(power: Power, run: Run) -> None:
    """Continue until the disk changes no more."""
    with suppress(KafkaError, OSError):
        while power.changes_left >= 0:
            run.step()
    for piece, _ in run.held:
        piece.release()
    run.held.clear()
    release(run.log)
    power.changes_left = -1


def taken(log: ReplicaLog) -> list[tuple[int, int, int, bytes]]:
    found = History(end=log.log_start_offset)
    for batch in split_whole(read_whole(log)):
        found.take(batch)
    return found.batches


def judge(run: Run, after: ReplicaLog) -> None:
    found = taken(after)
    histories = [run.history] if run.before is None else [run.history, run.before]
    fronts = [each for each in histories if found == front_of(each, after.log_start_offset)[: len(found)]]
    assert fronts, "the log is a front of nothing that it was"
    if run.before is None:  # it ends before it starts if what was there was not flushed
        assert after.log_start_offset == min(run.history.start, after.log_end_offset)
    if found or run.before is None:
        missing = [each for each in run.history.batches if after.log_end_offset < each[1] <= run.flushed]
        assert not missing, "what was flushed is missing"
    assert all(after.epochs.epoch_at(base) == epoch for base, _, epoch, _ in found)
    assert all(start < max(after.log_end_offset, 1) for _, start in after.epochs.entries)
    check_producers(after, run.window)


def front_of(history: History, start: int) -> list[tuple[int, int, int, bytes]]:
    return [each for each in history.batches if each[1] > start]


class SimulatedPath(str):
    """As much of a Path as the harness wants of one."""

    def __truediv__(self, name: str) -> SimulatedPath:
        return SimulatedPath(f"{self}/{name}")

    def mkdir(self, *, exist_ok: bool = False) -> None:
        disk.make_directories(self, 0o755)


@pytest.mark.parametrize("model", sorted(LEFT))
@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_leaves_a_front_of_a_replica(seed: int, model: str) -> None:
    cut_power(seed, model)


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(LEFT))
@pytest.mark.parametrize("block", range(5))
@pytest.mark.parametrize("play", [cut_power, kill_then_cut_power])
def test_a_power_cut_leaves_a_front_of_a_replica_at_length(
    play: Callable[[int, str], None], block: int, model: str
) -> None:
    for seed in range(1000 + block * 200, 1200 + block * 200):
        play(seed, model)


@pytest.mark.parametrize("model", sorted(LEFT))
@pytest.mark.parametrize("seed", sample([34, 1127, 1373, *range(12)], 5))
def test_what_was_cut_before_a_kill_does_not_come_back(seed: int, model: str) -> None:
    kill_then_cut_power(seed, model)


def filled(seed: int) -> Run:
    """Three segments of one epoch, all of it flushed."""
    run = Run(SimulatedPath("/one"), seed)  # type: ignore[arg-type]  # as much of one as it wants
    run.window = 1
    while len(run.log.segments) < 3:
        batch = run.batches.next(run.history.end, 0)
        run.history.take(batch)
        run.log.append_as_follower(batch, 0)
    run.log.flush()
    run.flushed = run.history.end
    return run


def cut_in_the_middle(run: Run) -> None:
    """A cut in the second of three segments, where a batch begins."""
    middle = run.log.segments[1].base_offset
    bases = [base for base, _, _, _ in run.history.batches if base > middle]
    offset = bases[min(3, len(bases) - 1)]
    run.before = run.history.copy()
    run.history.cut(offset)
    run.flushed = run.history.end
    run.log.truncate_to(offset)
    run.before = None


def after_the_cut_of_power(power: Power, run: Run, model: str) -> None:
    run.let_go()
    release(run.log)
    power.changes_left = -1
    power.disk.crash("/one", run.draw, model)
    after = run.harness.opened(clean=False)
    judge(run, after)
    release(after)


@pytest.mark.parametrize("seed", range(3))
def test_segments_above_a_cut_do_not_come_back(seed: int) -> None:
    with in_memory() as power:
        run = filled(seed)
        cut_in_the_middle(run)
        after_the_cut_of_power(power, run, "durable")


@pytest.mark.parametrize("model", sample(sorted(LEFT), 1))
@pytest.mark.parametrize("seed_count", sample([3, 12], 1))
def test_front_of_a_segment_that_a_reader_has_is_whole_under_its_name(seed_count: int, model: str) -> None:
    """Power goes at each change of the disk that a cut makes."""
    for changes, seed in itertools.product(range(45), range(seed_count)):
        with in_memory() as power:
            run = filled(seed)
            _, piece = run.log.read_blocking(run.log.segments[1].base_offset, 3000)
            assert piece is not None
            run.held.append((piece, piece.tobytes()))
            power.changes_left = changes
            with suppress(KafkaError, OSError):
                cut_in_the_middle(run)
            after_the_cut_of_power(power, run, model)
