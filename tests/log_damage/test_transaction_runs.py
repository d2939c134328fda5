"""Transactions in random order, with stops, kills and damaged files in between, against a plain model.

After every step, the end of read_committed reads, the open transactions, the records of a read_committed client and the
aborted transactions of each offset range are the model's, and the last stable offset never goes back. Faults planted in
the log show that the test can fail: each must be found.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kafkalite._native.log.log_append import append_batch
from kafkalite._native.log.producers import ProducerTable
from kafkalite.broker.log import formats, producer_state, segment_removal, snapshots
from kafkalite.broker.log.partition_log import PartitionLog
from kafkalite.errors import ErrorCode
from tests.kit.harness.log_harness import LogHarness, make_batch, release
from tests.kit.harness.samples import sample
from tests.kit.oracles.transaction_model import Entry, TransactionModel, read_committed

TRANSACTIONAL = 0x10
PRODUCERS = st.integers(1, 5)


class TransactionsRun(RuleBasedStateMachine):
    """One log. Its files may be damaged only while nothing was deleted from its front: deleted parts are
    not rebuilt.
    """

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="transactions-"))
        self.harness = LogHarness(self.directory, segment_bytes=1200, index_interval_bytes=0)
        self.log = self.harness.open()
        self.model = TransactionModel()
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.newest: dict[int, tuple[int, int, int, bool]] = {}
        self.stable = 0
        self.random = random.Random(0)

    def teardown(self) -> None:
        release(self.log)
        shutil.rmtree(self.directory)

    @initialize(seed=st.integers(0, 1 << 30))
    def seed(self, seed: int) -> None:
        self.random = random.Random(seed)

    def put(self, producer_id: int, sequence: int, count: int, *, transactional: bool, token: int) -> tuple[int, int]:
        batch = make_batch(
            count,
            producer_id=producer_id,
            epoch=self.epochs.get(producer_id, 0),
            sequence=sequence,
            attributes=TRANSACTIONAL if transactional else 0,
            value_size=5,
        )
        _, error, base_offset, *_ = append_batch(self.log.core, batch, admitted=token)
        return error, base_offset

    @rule(producer_id=PRODUCERS, count=st.integers(1, 4), transactional=st.booleans())
    def append(self, producer_id: int, count: int, transactional: bool) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.log.ensure_producers()
        token = self.log.core.marker_count()
        found = self.put(producer_id, sequence, count, transactional=transactional, token=token)
        if producer_id in self.model.open and not transactional:
            assert found == (ErrorCode.INVALID_TXN_STATE, -1)
            return
        assert found == (0, self.model.end)
        self.newest[producer_id] = (sequence, count, self.model.end, transactional)
        self.model.entries.append(Entry(self.model.end, count, producer_id, transactional))
        self.sequences[producer_id] = sequence + count

    @rule(producer_id=PRODUCERS)
    def append_again(self, producer_id: int) -> None:
        """Retry the newest batch, after any later events."""
        if producer_id in self.newest:
            sequence, count, offset, transactional = self.newest[producer_id]
            assert self.put(producer_id, sequence, count, transactional=transactional, token=-1) == (0, offset)

    @rule(producer_id=PRODUCERS, ahead=st.integers(1, 3))
    def append_out_of_sequence(self, producer_id: int, ahead: int) -> None:
        if producer_id in self.epochs or producer_id in self.sequences:
            sequence = self.sequences.get(producer_id, 0) + ahead
            token = self.log.core.marker_count()
            assert self.put(producer_id, sequence, 1, transactional=True, token=token) == (
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                -1,
            )

    @rule(producer_id=PRODUCERS, commit=st.booleans())
    def end(self, producer_id: int, commit: bool) -> None:
        self.mark(producer_id, commit=commit)

    @rule(producer_id=PRODUCERS)
    def fence(self, producer_id: int) -> None:
        """An abort with a newer epoch: its sequences begin at 0 again, older batches are refused."""
        older = self.epochs.get(producer_id, 0)
        self.epochs[producer_id] = older + 1
        self.mark(producer_id, commit=False)
        self.sequences[producer_id] = 0
        self.newest.pop(producer_id, None)
        batch = make_batch(1, producer_id=producer_id, epoch=older, sequence=0, attributes=TRANSACTIONAL)
        assert (
            append_batch(self.log.core, batch, admitted=self.log.core.marker_count())[1]
            == ErrorCode.INVALID_PRODUCER_EPOCH
        )

    @rule(producer_id=PRODUCERS)
    def batch_that_comes_too_late(self, producer_id: int) -> None:
        """Admitted before the marker, appended behind it."""
        self.log.ensure_producers()
        token = self.log.core.marker_count()
        self.mark(producer_id, commit=False)
        sequence = self.sequences.get(producer_id, 0)
        assert self.put(producer_id, sequence, 1, transactional=True, token=token) == (ErrorCode.INVALID_TXN_STATE, -1)

    def mark(self, producer_id: int, *, commit: bool) -> None:
        self.epochs.setdefault(producer_id, 0)
        end = self.log.append_marker(producer_id, self.epochs[producer_id], 0, commit=commit)
        self.model.entries.append(Entry(self.model.end, 1, producer_id, marker=True, commit=commit))
        assert end == self.model.end

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()

    @rule()
    def save_producers(self) -> None:
        """As a checkpoint after much more data."""
        self.log.ensure_producers()
        with self.log.core.locked():
            captured = self.log.producer_state.capture_locked()
        self.log.producer_state.save(captured)

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.log = self.harness.open(clean=True, recovery_point=self.log.log_end_offset, log_start=self.model.log_start)

    @rule()
    def kill_and_start(self) -> None:
        flushed = self.log.flushed_offset
        release(self.log)
        self.log = self.harness.open(clean=False, recovery_point=flushed, log_start=self.model.log_start)

    @precondition(lambda self: self.model.log_start == 0)
    @rule(what=st.sampled_from([".txnindex", ".snapshot", ".producers"]), how=st.sampled_from(["gone", "cut", "flip"]))
    def kill_and_damage(self, what: str, how: str) -> None:
        flushed = self.log.flushed_offset
        release(self.log)
        for path in self.harness.files(what):
            data = bytearray(path.read_bytes())
            if how == "gone" or not data:
                path.unlink()
                continue
            if how == "cut":
                del data[self.random.randrange(len(data)) :]
            else:
                data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            path.write_bytes(data)
        self.log = self.harness.open(clean=False, recovery_point=flushed)
        # Without the companion of a snapshot only the newest batch of a producer is known, which is Kafka's way too.

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        target = self.model.log_start + int((self.model.end - self.model.log_start) * share / 2)
        self.log.ensure_producers()
        segment_removal.delete_records(self.log, target)
        self.model.log_start = target

    @invariant()
    def looks_like_the_model(self) -> None:
        model, log = self.model, self.log
        producers = log.ensure_producers()
        assert log.log_end_offset == model.end
        assert log.last_stable_offset == model.last_stable_offset
        assert log.last_stable_offset >= self.stable, "it went back"
        self.stable = log.last_stable_offset
        assert log.ensure_producers().open_transactions() == sorted(
            ((producer_id, first) for producer_id, first in model.open.items()), key=lambda found: found[1]
        )
        assert read_committed(log, log.log_start_offset) == model.committed(log.log_start_offset)
        at = self.random.randint(log.log_start_offset, model.end)
        assert read_committed(log, at, size_max=self.random.choice([1, 200, 1000])) == model.committed(at)
        for _ in range(10):
            start = self.random.randint(log.log_start_offset, model.end)
            upper = self.random.randint(start, model.end)
            assert producers.aborted.between(start, upper) == model.aborted_between(start, upper)


COUNTS = {"max_examples": 25, "stateful_step_count": 30}
SETTINGS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}


def test_random_transactions_look_like_the_model() -> None:
    run_state_machine_as_test(TransactionsRun, settings=settings(**COUNTS, **SETTINGS))


@pytest.mark.slow
def test_many_random_transactions_look_like_the_model() -> None:
    run_state_machine_as_test(TransactionsRun, settings=settings(max_examples=500, stateful_step_count=60, **SETTINGS))


# ---- the test can fail ----------------------------------------------------------------------------------------------


class StableOffsetAhead(PartitionLog):
    """Lets read_committed read open transactions."""

    @property
    def last_stable_offset(self) -> int:  # type: ignore[override]
        return self.high_watermark


class MarkersForgotten(PartitionLog):
    """Commits what was to be aborted."""

    def append_marker(self, *arguments: Any, **settings: Any) -> int:
        return super().append_marker(*arguments, **{**settings, "commit": True})


def stable_offset_ahead(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(formats.LOGS, "v2", StableOffsetAhead)


def markers_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(formats.LOGS, "v2", MarkersForgotten)


def sequences_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A restart loses producer state."""
    patch.setattr(producer_state.ProducerState, "load_locked", lambda _self: ProducerTable())


def sequences_behind_the_snapshot_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(producer_state.ProducerState, "_walk", lambda *_: None)


def open_transactions_not_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    def restore(table: ProducerTable, row: tuple[int, ...], beside: Any) -> None:
        whole(table, (*row[:-1], -1), beside)

    whole = snapshots._restore
    patch.setattr(snapshots, "_restore", restore)


def aborted_transactions_not_loaded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(producer_state.ProducerState, "_load_aborted", lambda *_: None)


def damaged_index_files_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(producer_state.ProducerState, "_meant", staticmethod(lambda *_: []))


FAULTS = [
    stable_offset_ahead,
    markers_forgotten,
    sequences_forgotten,
    sequences_behind_the_snapshot_forgotten,
    open_transactions_not_in_snapshots,
    aborted_transactions_not_loaded,
    damaged_index_files_believed,
]


@pytest.mark.parametrize("fault", sample(FAULTS, 4), ids=lambda fault: fault.__name__)
def test_fault_is_found(fault: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        with pytest.raises(AssertionError):
            run_state_machine_as_test(
                TransactionsRun,
                settings=settings(
                    max_examples=300,
                    stateful_step_count=40,
                    database=None,
                    phases=[phase for phase in settings().phases if phase.name == "generate"],
                    **{**SETTINGS, "print_blob": False},
                ),
            )
