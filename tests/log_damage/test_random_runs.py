"""Random operation runs against a plain list: append, roll, flush, checkpoint, close, kill, delete records, read.

After each step the offsets are in order; after each reopening and at the end the log serves exactly what the list
holds. A failing run prints its seed; `KAFKALITE_SEED` repeats it.
"""

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite.broker.log import segment_removal
from tests.kit.harness.log_harness import LogHarness, PlainLog, make_batch, read_all, release
from tests.kit.harness.samples import sample

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog

RUNS = 40
STEPS = 60
SEED = int(os.environ.get("KAFKALITE_SEED", "0"))


class Run:
    """One log, its model, and what may happen to both."""

    def __init__(self, seed: int, path: Path) -> None:
        self.random = random.Random(seed)
        self.harness = LogHarness(
            path,
            segment_bytes=self.random.choice([300, 2000, 20_000]),
            index_interval_bytes=self.random.choice([0, 200, 4096]),
            segment_index_bytes=self.random.choice([64, 1 << 20]),
        )
        self.model = PlainLog()
        self.log: PartitionLog = self.harness.open()
        self.start = 0
        self.flushed = 0
        self.sequence = 0
        self.sent: list[tuple[int, bytes]] = []

    def step(self) -> None:
        operations = [
            (self.append, 12),
            (self.append_idempotent, 6),
            (self.resend, 3),
            (self.read_somewhere, 6),
            (self.roll, 1),
            (self.flush, 2),
            (self.checkpoint, 1),
            (self.delete_records, 1),
            (self.restart_clean, 1),
            (self.kill, 2),
        ]
        names, weights = zip(*operations, strict=True)
        self.random.choices(names, weights)[0]()
        log = self.log
        assert log.log_start_offset <= log.flushed_offset <= log.log_end_offset == log.high_watermark
        assert log.log_end_offset == self.model.end
        assert log.log_start_offset >= self.start

    def append(self) -> None:
        batch = make_batch(self.random.randint(1, 5), value_size=self.random.choice([0, 1, 40, 400]))
        info = self.log.append(batch)
        assert info.base_offset == self.model.end
        self.model.append(info.base_offset, batch)

    def append_idempotent(self) -> None:
        count = self.random.randint(1, 3)
        batch = make_batch(count, producer_id=7, epoch=0, sequence=self.sequence)
        info = self.log.append(batch)
        assert info.base_offset == self.model.end
        self.model.append(info.base_offset, batch)
        self.sequence += count
        self.sent = [*self.sent[-4:], (info.base_offset, batch)]

    def resend(self) -> None:
        if self.sent:
            offset, batch = self.random.choice(self.sent)
            assert self.log.append(batch).base_offset == offset

    def read_somewhere(self) -> None:
        if self.log.log_end_offset > self.log.log_start_offset:
            offset = self.random.randrange(self.log.log_start_offset, self.log.log_end_offset)
            found = read_all(self.log, offset, size_max=self.random.choice([1, 500, 5000]))
            assert found == self.model.from_offset(offset)

    def roll(self) -> None:
        self.log.roll()

    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.flushed_offset

    def checkpoint(self) -> None:
        self.log.checkpoint()
        self.flushed = self.log.flushed_offset

    def delete_records(self) -> None:
        self.start = segment_removal.delete_records(
            self.log,
            self.random.randint(self.log.log_start_offset, self.log.log_start_offset + 5)
            if self.log.log_end_offset >= self.log.log_start_offset + 5
            else self.log.log_start_offset,
        )

    def restart_clean(self) -> None:
        self.log.close()
        self.log = self.harness.open(clean=True, recovery_point=self.log.log_end_offset, log_start=self.start)
        self.check()

    def kill(self) -> None:
        release(self.log)
        self.log = self.harness.open(clean=False, recovery_point=self.flushed, log_start=self.start)
        self.check()

    def check(self) -> None:
        log = self.log
        assert log.log_end_offset == self.model.end
        assert read_all(log) == self.model.from_offset(log.log_start_offset)
        assert not self.harness.offline


@pytest.mark.parametrize("number", sample(range(RUNS), 12))
def test_random_operations_equal_the_plain_list(number: int, tmp_path: Path) -> None:
    seed = SEED or number
    print(f"KAFKALITE_SEED={seed}")
    run = Run(seed, tmp_path)
    for _ in range(STEPS):
        run.step()
    run.check()
