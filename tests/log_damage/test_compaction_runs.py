"""Random histories against the model: keys, tombstones, idempotent producers, codecs, rolls, restarts, small maps.

After every pass: the log holds exactly the model's records, from every offset; offsets, the log end and what producers
may send next are what they were. A failing run prints its seed; `KAFKALITE_SEED` repeats it.
"""

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite.broker.log.cleaner import LOAD_FACTOR_MAX
from kafkalite.broker.log.compaction import Compaction, CompactionLimits
from kafkalite.wire.record.compression import Codec
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness.log_harness import TIME_MS, LogHarness, release
from tests.kit.harness.samples import sample
from tests.kit.oracles.compaction_model import CompactedModel, ModelRecord, keyed_batch, read_records

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog

RUNS = 24
STEPS = 80
SEED = int(os.environ.get("KAFKALITE_SEED", "0"))
DELETE_RETENTION_MS = 5000


class Run:
    """One compacted log, its model, and what may happen to both."""

    def __init__(self, seed: int, path: Path) -> None:
        self.random = random.Random(seed)
        self.clock = FakeClock(TIME_MS)
        self.harness = LogHarness(
            path,
            clock=self.clock,
            cleanup_policy="compact",
            segment_bytes=self.random.choice([300, 2000, 20_000]),
            index_interval_bytes=self.random.choice([0, 200, 4096]),
            delete_retention_ms=DELETE_RETENTION_MS,
            message_timestamp_after_max_ms=10**12,
        )
        self.codecs = self.random.choice([[Codec.NONE], list(Codec)])
        self.keys = [bytes([65 + i % 26]) * self.random.choice([1, 3, 9, 300]) + b"%d" % i for i in range(12)] + [b""]
        self.limits = CompactionLimits(
            key_map_size=self.random.choice([72, 240, 100_000]),
            key_map_load_factor=LOAD_FACTOR_MAX,
            output_size=self.random.choice([1, 1000, 100_000]),
        )
        self.model = CompactedModel()
        self.log: PartitionLog = self.harness.open()
        self.cleaned = 0
        self.end = 0
        self.sequences = {7: 0, 8: 0}
        self.last_sent: dict[int, tuple[int, bytes]] = {}

    def step(self) -> None:
        operations = [(self.append, 20), (self.append_idempotent, 8), (self.roll, 3), (self.compact, 4)]
        operations += [(self.wait, 3), (self.restart_clean, 1), (self.kill, 1)]
        names, weights = zip(*operations, strict=True)
        self.random.choices(names, weights)[0]()

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        count = self.random.choice([1, 1, 3, 20])
        values = [None, b"", b"v", bytes(100)]
        return [(self.random.choice(self.keys), self.random.choices(values, [2, 1, 4, 2])[0]) for _ in range(count)]

    def append(self) -> None:
        batch, records = keyed_batch(
            self.records(), timestamp=self.clock.time_ms(), codec=self.random.choice(self.codecs)
        )
        self.take(batch, records)

    def append_idempotent(self) -> None:
        producer_id = self.random.choice([7, 8])
        batch, records = keyed_batch(
            self.records(),
            timestamp=self.clock.time_ms(),
            codec=self.random.choice(self.codecs),
            producer_id=producer_id,
            epoch=0,
            sequence=self.sequences[producer_id],
        )
        base = self.take(batch, records)
        self.sequences[producer_id] += len(records)
        self.last_sent[producer_id] = (base, batch)

    def take(self, batch: bytes, records: list[ModelRecord]) -> int:
        base = self.log.append(batch).base_offset
        assert base == self.end
        self.model.append(base, records, len(records))
        self.end = base + len(records)
        return base

    def roll(self) -> None:
        self.log.roll()

    def wait(self) -> None:
        self.clock.advance(self.random.choice([1, 3, 6]))

    def compact(self) -> None:
        self.log.flush()
        upper = self.log.active.base_offset
        if upper <= self.cleaned:
            return
        now_ms = self.clock.time_ms()
        ends = [segment.base_offset for segment in self.log.segments[1:]]
        pass_ = Compaction(self.log, self.cleaned, upper, now_ms=now_ms, limits=self.limits, spend=lambda _size: None)
        mapped_end = pass_.run()
        assert self.cleaned < mapped_end <= upper, "no progress"
        assert self.limits.key_map_size > 1000 or len(self.log.segments) > 1
        written_end = min(end for end in ends if end >= mapped_end)
        self.model.compact(
            self.cleaned, mapped_end, written_end, now_ms=now_ms, delete_retention_ms=DELETE_RETENTION_MS
        )
        self.cleaned = mapped_end
        self.check()

    def restart_clean(self) -> None:
        self.log.close()
        self.log = self.harness.open(clean=True, recovery_point=self.log.log_end_offset)
        self.check()

    def kill(self) -> None:
        self.log.flush()
        for path in [*self.harness.files(".snapshot"), *self.harness.files(".producers")]:
            path.unlink()
        release(self.log)
        self.log = self.harness.open(clean=False, recovery_point=self.end)
        self.check()

    def check(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (0, self.end)
        assert not self.harness.offline
        expected = self.model.records
        assert read_from(log, 0) == expected
        offset = self.random.randrange(self.end + 1)
        assert read_from(log, offset) == [record for record in expected if record.offset >= offset]
        for base, batch in self.last_sent.values():
            assert log.append(batch).base_offset == base, "a producer's last batch is no longer known"
        assert log.log_end_offset == self.end
        for timestamp in {record.timestamp for record in expected[:3]}:
            found = log.find_timestamp(timestamp)
            first = next(record for record in expected if record.timestamp >= timestamp)
            assert found is not None
            assert (found.offset, found.timestamp) == (first.offset, first.timestamp)
        newest = log.max_timestamp()
        assert (None if newest is None else newest.timestamp) == max(
            (record.timestamp for record in expected), default=None
        )


def read_from(log: "PartitionLog", offset: int) -> list[ModelRecord]:
    """Every record from an offset on, as a consumer that asks for the next offset again and again."""
    found: list[ModelRecord] = []
    at = offset
    while at < log.log_end_offset:
        data = log.read(at, 700)
        if not data:
            break  # nothing but a gap up to the end
        records = read_records(data)
        found += [record for record in records if record.offset >= at]
        at = max(at + 1, next_offset(data))
    return found


def next_offset(data: bytes) -> int:
    position = end = 0
    while position < len(data):
        end = int.from_bytes(data[position : position + 8], "big") + 1
        end += int.from_bytes(data[position + 23 : position + 27], "big")
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return end


@pytest.mark.parametrize("number", sample(range(RUNS), 8))
def test_random_histories_equal_the_model(number: int, tmp_path: Path) -> None:
    seed = SEED or number
    print(f"KAFKALITE_SEED={seed}")
    run = Run(seed, tmp_path)
    for _ in range(STEPS):
        run.step()
    run.log.roll()
    run.compact()
    run.kill()
