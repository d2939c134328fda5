"""Many threads on one log: appenders, readers from everywhere, rolls, retention, flushes, with few descriptors.

A reader must see batches in order, whole and unchanged, up to the log end it was given; an appender its own offsets; a
flush callback exactly one call. Bounded by work, not by time.
"""

import random
import threading
from collections.abc import Callable
from pathlib import Path

from kafkalite._native.log.log_append import append_batch
from kafkalite.base.clock import SystemClock
from kafkalite.broker.log.partition_log import PartitionLog
from kafkalite.errors import ErrorCode
from tests.kit.harness.log_harness import abandon, make_batch, make_manager, split

APPENDERS = 3
APPENDS = 400
READERS = 3
OPEN_SEGMENTS = 8


class Crowd:
    """Threads whose first failure is the test's."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.threads: list[threading.Thread] = []
        self.over = threading.Event()  # set when the work that the others accompany has ended, well or not

    def add(self, work: Callable[[], None], *, leads: bool = False) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - told by the test's own thread
                self.failures.append(error)
                self.over.set()
            if leads:
                self.over.set()

        self.threads.append(threading.Thread(target=run))

    def run(self) -> None:
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive(), "a thread hangs"
        if self.failures:
            raise self.failures[0]


def test_appends_reads_rolls_and_retention_at_once(tmp_path: Path) -> None:
    manager = make_manager(
        tmp_path,
        clock=SystemClock(),
        log_segment_bytes=4000,
        log_index_interval_bytes=300,
        log_open_files_max=OPEN_SEGMENTS,
        log_retention_check_interval_ms=3_600_000,
    )
    manager.open()
    log = manager.create_topic("t", 1, {"retention.bytes": "60000", "file.delete.delay.ms": "0"}).partitions[0]
    appended: dict[int, bytes] = {}
    acknowledged: list[int] = []
    crowd = Crowd()

    def append(number: int) -> None:
        rng = random.Random(number)
        sequence = 0
        for _ in range(APPENDS):
            count = rng.randint(1, 3)
            batch = make_batch(count, value_size=rng.randrange(80), producer_id=number, epoch=0, sequence=sequence)
            sequence += count
            info = log.append(batch)
            appended[info.base_offset] = batch[21:]
            if rng.random() < 0.05:
                log.flush_async(info.end_offset, acknowledged.append)

    def read(seed: int) -> None:
        rng = random.Random(seed)
        while not crowd.over.is_set():
            read_some(log, rng, appended)

    def housekeep() -> None:
        while not crowd.over.is_set():
            manager.housekeeper.apply_retention()
            manager.housekeeper.checkpoint()

    for number in range(APPENDERS):
        crowd.add(lambda number=number: append(number), leads=number == 0)  # type: ignore[misc]
    for seed in range(READERS):
        crowd.add(lambda seed=seed: read(seed))  # type: ignore[misc]
    crowd.add(housekeep)
    crowd.run()
    manager.housekeeper.apply_retention()
    assert set(acknowledged) <= {0}
    assert log.log_start_offset > 0, "retention never had anything to do"
    found = [batch for at in [log.log_start_offset] for batch in follow(log, at)]
    assert [base for base, _, _ in found] == sorted(base for base in appended if base >= found[0][0])
    assert all(appended[base] == covered for base, _, covered in found)
    assert manager.services.cache.open_count <= OPEN_SEGMENTS + APPENDERS + READERS
    manager.close()
    again = make_manager(tmp_path, clock=SystemClock())
    again.open()
    reopened = again.topics["t"].partitions[0]
    assert (reopened.log_start_offset, reopened.log_end_offset) == (log.log_start_offset, log.log_end_offset)
    assert list(follow(reopened, reopened.log_start_offset)) == found
    abandon(again)


def read_some(log: PartitionLog, rng: random.Random, appended: dict[int, bytes]) -> None:
    """One read from a random offset; what comes is in order and either being appended now or exactly as appended."""
    start, end = log.log_start_offset, log.log_end_offset
    if start == end:
        return
    offset = rng.randrange(start, end)
    error, piece = log.read_blocking(offset, rng.choice([1, 300, 10_000]))
    if error == ErrorCode.OFFSET_OUT_OF_RANGE:
        assert offset < log.log_start_offset, f"{offset} is inside {log}"
        return
    assert error == 0, error
    if piece is None:
        return
    at = None
    for base, after, covered in split(piece.tobytes()):
        assert at is None or base == at, "a gap"
        at = after
        assert appended.get(base, covered) == covered
    piece.release()


def follow(log: PartitionLog, at: int) -> list[tuple[int, int, bytes]]:
    found: list[tuple[int, int, bytes]] = []
    while at < log.log_end_offset:
        found += split(log.read(at, 5000))
        at = found[-1][1]
    return found


def test_topics_come_and_go_under_appends(tmp_path: Path) -> None:
    """F4 in small: no record of a deleted topic in the new one of its name; no client hangs or gets another error."""
    manager = make_manager(tmp_path, clock=SystemClock())
    manager.open()
    crowd = Crowd()
    rounds = 15

    def churn() -> None:
        for number in range(rounds):
            manager.create_topic("t", 2, {"file.delete.delay.ms": "0"})
            for _ in range(10):
                code = append_batch(manager.topics["t"].partitions[0].core, make_batch(value=b"round %d;" % number))[1]
                assert code == 0
            for _, _, covered in follow(manager.topics["t"].partitions[0], 0):
                assert b"round %d;" % number in covered
            manager.delete_topic("t")

    def append() -> None:
        while not crowd.over.is_set():
            topic = manager.topics.get("t")
            if topic is not None:
                assert append_batch(topic.partitions[1].core, make_batch())[1] in {
                    0,
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                }

    crowd.add(churn, leads=True)
    crowd.add(append)
    crowd.run()
    manager.close()
