"""Transactions on a compacted log, in random order, with stops, kills, lost files and time passing, against a model.

A read_committed client that reads everything must end up with the newest committed value of each key, after any
compaction; the last stable offset never goes back; and the list of aborted transactions is dropped in time after their
data.
"""

from __future__ import annotations

import contextlib
import errno
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite._native.base import file_ops
from kafkalite._native.log.log_append import append_batch
from kafkalite.broker.log.compaction import Compaction, CompactionStopped, SegmentDamaged
from kafkalite.broker.log.swap import SwapAbandoned
from kafkalite.errors import KafkaError
from tests.kit.harness import seams
from tests.kit.harness.log_harness import TIME_MS, LogHarness, release
from tests.kit.harness.samples import sample
from tests.kit.oracles.compaction_model import keyed_batch, read_records
from tests.kit.oracles.transaction_model import Entry, TransactionModel, batches_of, client_view
from tests.log_damage.test_compaction_runs import next_offset
from tests.log_damage.test_compaction_swap import DELETE_RETENTION_MS, compact, make_harness

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog

pytestmark = pytest.mark.own_process

TRANSACTIONAL = 0x10
PRODUCER_COUNT = 4


def committed_values(log: PartitionLog, size_max: int) -> dict[bytes | None, bytes | None]:
    """Return the values that a read_committed client has after reading the whole log."""
    producers = log.ensure_producers()
    known: dict[bytes | None, bytes | None] = {}
    at = log.log_start_offset
    while at < log.last_stable_offset:
        log.prepare_read(at, size_max)
        _, error, data = log.core.read_copy(at, size_max, upper_offset=log.last_stable_offset)
        assert error == 0, error
        if not data:
            break  # nothing but a gap below the last stable offset
        found = list(batches_of(data))
        seen = set(client_view(found, producers.aborted.between(at, found[-1].next_offset)))
        known |= {record.key: record.value for record in read_records(data) if record.offset in seen}
        at = next_offset(data)
    return {key: value for key, value in known.items() if value is not None}


class Run:
    """One log and its model."""

    def __init__(self, path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.harness: LogHarness = make_harness(path)
        self.log = self.harness.open()
        self.model = TransactionModel()
        self.records: dict[int, tuple[bytes, bytes | None]] = {}
        self.sequences = dict.fromkeys(range(PRODUCER_COUNT), 0)
        self.now_ms = TIME_MS
        self.stable = 0

    def put(self) -> None:
        producer_id = self.rng.randrange(PRODUCER_COUNT)
        transactional = producer_id in self.model.open or self.rng.random() < 0.8
        end = self.model.end
        pairs = [
            (b"k%d" % self.rng.randrange(6), None if self.rng.random() < 0.1 else b"at %d" % (end + i))
            for i in range(self.rng.randint(1, 3))
        ]
        batch, _ = keyed_batch(
            pairs,
            timestamp=self.now_ms,
            attributes=TRANSACTIONAL if transactional else 0,
            producer_id=producer_id,
            epoch=0,
            sequence=self.sequences[producer_id],
        )
        self.log.ensure_producers()
        found = append_batch(self.log.core, batch, admitted=self.log.core.marker_count())
        assert found[1:3] == (0, end)
        self.sequences[producer_id] += len(pairs)
        self.model.entries.append(Entry(end, len(pairs), producer_id, transactional))
        self.records |= {end + i: pair for i, pair in enumerate(pairs)}

    def finish(self) -> None:
        if self.model.open:
            producer_id, commit = self.rng.choice(list(self.model.open)), self.rng.random() < 0.5
            self.log.append_marker(producer_id, 0, 0, commit=commit)
            self.model.entries.append(Entry(self.model.end, 1, producer_id, marker=True, commit=commit))

    def compact(self) -> None:
        self.log.roll()
        self.log.flush()
        compact(self.log, now_ms=self.now_ms)

    def crash_in_compaction(self) -> None:
        """Every file operation from some point on fails, as if the process had died there."""
        self.log.roll()
        self.log.flush()
        seams.arm(file_ops.KINDS, after=self.rng.randrange(60), error=errno.EIO, sticky=True)
        try:
            with contextlib.suppress(OSError, KafkaError, CompactionStopped, SwapAbandoned, SegmentDamaged):
                compact(self.log, now_ms=self.now_ms)
        finally:
            file_ops.disarm()
        release(self.log)
        self.log = self.harness.open(clean=False, recovery_point=self.log.flushed_offset)

    def restart(self) -> None:
        if self.rng.random() < 0.5:
            self.log.close()
            self.log = self.harness.open(clean=True, recovery_point=self.log.log_end_offset)
            return
        flushed = self.log.flushed_offset
        release(self.log)
        lost = self.rng.choice(["", "", ".txnindex", ".snapshot", ".klindex"])
        for path in self.harness.files(lost) if lost else ():
            path.unlink()
        self.log = self.harness.open(clean=False, recovery_point=flushed)

    def pass_time(self) -> None:
        self.now_ms += DELETE_RETENTION_MS // 2

    def check(self) -> None:
        log, model = self.log, self.model
        log.ensure_producers()
        assert log.last_stable_offset == model.last_stable_offset >= self.stable
        self.stable = log.last_stable_offset
        assert dict(log.ensure_producers().open_transactions()) == model.open
        expected = dict(self.records[offset] for offset in model.committed(0))
        expected = {key: value for key, value in expected.items() if value is not None}
        assert committed_values(log, self.rng.choice([1, 300, 1 << 20])) == expected


def run(path: Path, seed: int, steps: int) -> None:
    one = Run(path, seed)
    actions = [one.put] * 10 + [one.finish] * 5 + [one.compact, one.restart, one.pass_time, one.crash_in_compaction]
    for _ in range(steps):
        one.rng.choice(actions)()
        one.check()
    while one.model.open:
        one.finish()
    one.log.producer_state.expire(one.now_ms + 1, 0)
    for _ in range(4):
        one.compact()
        one.check()
        one.now_ms += DELETE_RETENTION_MS
    assert one.log.ensure_producers().aborted.rows() == [], "nothing of them is left to be told about"
    assert one.harness.files(".txnindex") == []
    release(one.log)


@pytest.mark.parametrize("seed", sample(range(12), 4))
def test_committed_values_survive_compaction(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, 120)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_committed_values_survive_compaction_many_times(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, 300)


def test_forgetting_aborted_transactions_too_early_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(compaction: Compaction, _transactions: object) -> None:
        compaction.log.ensure_producers().aborted.forget_below(compaction.log.log_end_offset)

    def runs() -> None:
        for seed in range(100):
            directory = tmp_path / str(seed)
            directory.mkdir()
            run(directory, seed, 120)

    monkeypatch.setattr(Compaction, "_forget_aborted", forget)
    with pytest.raises(AssertionError):
        runs()
