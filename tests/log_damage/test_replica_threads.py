"""A log that is truncated, again and again, while others read it from its map and send it from its file.

Each batch that was ever in the log is known, and the batches that could precede it. Whatever slice a reader gets, at
any time, is whole batches of one history: no other byte, no end of file, no fault of a map.
"""

import os
import random
import struct
from pathlib import Path

import pytest

from kafkalite._native.log.log_slice import LogSlice
from kafkalite.base.clock import SystemClock
from kafkalite.broker.log.replica_log import ReplicaLog
from kafkalite.errors import ErrorCode
from tests.kit.harness.log_harness import LogHarness, make_batch, read_all
from tests.kit.harness.replica_harness import placed
from tests.log_damage.test_threads import Crowd

READERS = 3
HELD_MAX = 6
SIZE_MAX = 20_000


class Known:
    """Every batch that was given to the log, and the pairs that were adjacent."""

    def __init__(self) -> None:
        self.pairs: set[tuple[bytes, bytes]] = set()
        self.batches: set[bytes] = set()

    def take(self, before: bytes, batch: bytes) -> None:
        self.batches.add(batch)
        self.pairs.add((before, batch))

    def check(self, data: bytes) -> None:
        before = None
        while data:
            size = int.from_bytes(data[8:12], "big") + 12
            batch, data = data[:size], data[size:]
            assert batch in self.batches, "bytes that were never in the log"
            assert before is None or (before, batch) in self.pairs, "two histories in one answer"
            before = batch


def sent(piece: LogSlice, out: int) -> bytes:
    """The bytes of a slice as the system sends them from its file."""
    assert piece.segment is not None
    os.ftruncate(out, 0)
    os.lseek(out, 0, os.SEEK_SET)
    position, left = piece.position, piece.size
    while left > 0:
        count = os.sendfile(out, piece.segment.descriptor, position, left)
        assert count > 0, "the file is shorter than the slice"
        position += count
        left -= count
    return os.pread(out, piece.size, 0)


def read(log: ReplicaLog, known: Known, crowd: Crowd, seed: int) -> None:
    draw = random.Random(seed)
    held: list[LogSlice] = []
    out = os.memfd_create("sent")
    try:
        while not crowd.over.is_set() or held:
            end = log.log_end_offset
            if held and (crowd.over.is_set() or len(held) >= HELD_MAX):
                piece = held.pop(draw.randrange(len(held)))
                known.check(sent(piece, out))
                known.check(piece.tobytes())
                piece.release()
            elif end > log.log_start_offset:
                offset = draw.randrange(log.log_start_offset, end)
                error, found = log.read_blocking(offset, draw.choice([1, 2000, SIZE_MAX]))
                assert error in (0, ErrorCode.OFFSET_OUT_OF_RANGE), error
                if found is not None:
                    held.append(found)
    finally:
        os.close(out)


def follow(log: ReplicaLog, known: Known, seed: int, rounds: int) -> None:
    """Appends and cuts, as a follower whose leaders change."""
    draw = random.Random(seed)
    chain: list[tuple[int, bytes]] = []  # (offset, batch)
    for epoch in range(rounds):
        for _ in range(draw.randint(1, 8)):
            given = b""
            for _ in range(draw.randint(1, 10)):
                offset = chain[-1][0] + 1 if chain else 0
                value = struct.pack(">ii", epoch, offset) * draw.randint(1, 60)
                batch = placed(make_batch(value=value), offset, epoch)
                known.take(chain[-1][1] if chain else b"", batch)
                chain.append((offset, batch))
                given += batch
            log.append_as_follower(given, epoch)
            log.advance_high_watermark(draw.randint(0, chain[-1][0] + 1))
        cut = max(0, chain[-1][0] + 1 - draw.choice([1, 5, 40, 150]))
        if draw.random() < 0.02:
            log.truncate_fully_and_start_at(0)
            chain.clear()
        else:
            log.truncate_to(cut)
            del chain[cut:]
        if draw.random() < 0.1:
            log.checkpoint()
    assert log.log_end_offset == len(chain)
    known.check(b"".join(batch for _, batch in chain))
    assert [covered for _, _, covered in read_all(log)] == [batch[21:] for _, batch in chain]


def run(path: Path, seed: int, rounds: int) -> None:
    harness = LogHarness(path, clock=SystemClock(), segment_bytes=30_000, index_interval_bytes=700)
    log = harness.open(replicated=True)
    assert isinstance(log, ReplicaLog)
    known, crowd = Known(), Crowd()
    crowd.add(lambda: follow(log, known, seed, rounds), leads=True)
    for reader in range(READERS):
        crowd.add(lambda reader=reader: read(log, known, crowd, seed * 100 + reader))  # type: ignore[misc]

    def flush() -> None:
        while not crowd.over.is_set():
            state = log.begin_bulk_flush()
            log.flush()
            log.end_bulk_flush(state, synced=True)  # as if the file system had been synced

    crowd.add(flush)
    crowd.run()
    assert not harness.offline
    log.close()


@pytest.mark.slow
def test_cut_under_readers_and_senders(tmp_path: Path) -> None:
    run(tmp_path, 1, 15)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_cut_under_readers_and_senders_at_length(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, 60)
