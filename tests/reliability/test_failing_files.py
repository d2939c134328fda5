"""Files that fail under a working broker: truncated, holed, or on a disk that returns EIO, each kind of file in turn.

After a fault of one file, the process lives, a witness on other partitions sees no error, no client gets a record that
was not written, and the log names the offline partition once. EIO comes from a FUSE file system
(tests/kit/processes/failing_fs.c).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import confluent_kafka
import pytest

from kafkalite.errors import ErrorCode
from tests.kit.harness import wire
from tests.kit.harness.classic_client import ClassicClient
from tests.kit.harness.load import create_topic
from tests.kit.oracles import classic_oracle
from tests.kit.oracles.classic_oracle import OracleMessage
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until
from tests.kit.processes.failing_disk import FailingDisk, program

SEGMENT_BYTES = 30_000
BATCHES = 160
RECORDS_PER_BATCH = 5
OFFSET_COMMIT, INIT_PRODUCER_ID = 8, 22
KINDS = {
    "sealed segment": ("t-0/*.log", 0),
    "second segment": ("t-0/*.log", 1),
    "active segment": ("t-0/*.log", -1),
    "index": ("t-0/*.klindex", 0),
    "snapshot": ("t-0/*.snapshot", -1),
    "producers": ("t-0/*.producers", -1),
    "aborted transactions": ("t-0/*.txnindex", 0),
    "leader epochs": ("t-0/leader-epoch-checkpoint", 0),
    "classic segment": ("classic-0/*.kafka", 0),
    "active classic segment": ("classic-0/*.kafka", -1),
    "group offsets": ("__consumer_offsets-0/*.log", -1),
    "transaction state": ("__transaction_state-0/*.log", -1),
    "recovery points": ("recovery-point-offset-checkpoint", 0),
}
OFFLINE_KINDS = ("sealed segment", "second segment")
FAULTS = ("emptied", "cut", "hole", "eio")
SAMPLE = {("active segment", "cut")}


def value_at(offset: int) -> bytes:
    return b"%d:" % offset + b"v" * (offset % 190)


class Stage:
    """A broker with some of everything in it, and what a reader of topic `t` must find."""

    def __init__(self, directory: Path) -> None:
        self.port, self.classic_port = free_port(), free_port()
        settings = {
            "listeners": f"kafka://127.0.0.1:{self.port},kafka07://127.0.0.1:{self.classic_port}",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "log.segment.bytes": str(SEGMENT_BYTES),
            "log.index.interval.bytes": "200",
            "log.flush.interval": "1",
        }
        self.broker = BrokerProcess(directory, settings, port=self.port)
        self.end = 0
        self.classic = b""

    def path(self, kind: str) -> Path:
        pattern, number = KINDS[kind]
        return sorted(self.broker.data_dir.glob(pattern))[number]

    def fill(self) -> None:
        create_topic(self.port, "t", 1)
        create_topic(self.port, "other", 2)
        self.abort_something()
        with wire.Connection(self.port) as connection:
            # An abort is answered before its marker is written: three records and as many markers.
            self.start = self.end = wait_until(
                lambda: (end := connection.list_offset("t", 0, -1)[2]) == 6 and end, 60.0, "the last abort marker"
            )
            for _ in range(BATCHES):
                self.produce(connection)
        with ClassicClient(self.classic_port) as client:
            for number in range(200):
                message = OracleMessage(b"%08d" % number * 100)
                client.send(classic_oracle.produce("classic", 0, message.encode()))
                self.classic += message.encode()
            client.wait_for("classic", 0, len(self.classic))
        self.use_coordinators()

    def produce(self, connection: wire.Connection) -> int:
        rows = [wire.Record(None, value_at(self.end + number)) for number in range(RECORDS_PER_BATCH)]
        answer = connection.produce("t", 0, wire.batch_of(rows), acks=-1)
        if answer.error == 0:
            assert answer.base_offset == self.end
            self.end += RECORDS_PER_BATCH
        return answer.error

    def abort_something(self) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.broker.bootstrap, "transactional.id": "x"})
        producer.init_transactions(60)
        for _ in range(3):
            producer.begin_transaction()
            producer.produce("t", b"aborted")
            producer.flush(60)
            producer.abort_transaction(60)

    def use_coordinators(self) -> None:
        """Write into both coordinators' topics, and accept any response."""
        with wire.Connection(self.port) as connection:
            partition = wire.i32(0) + wire.i64(7) + wire.string(None)
            topics = wire.array([wire.string("t") + wire.array([partition])])
            group = wire.string("g") + wire.i32(-1) + wire.string("") + wire.i64(-1)
            connection.call(OFFSET_COMMIT, 2, group + topics)
            connection.call(INIT_PRODUCER_ID, 1, wire.string("id") + wire.i32(60_000))

    def read(self, *, size_max: int = 8 << 20) -> tuple[set[int], set[int]]:
        """Return (offsets served, error codes received); an unknown record fails the test. A connection may end."""
        served: set[int] = set()
        codes: set[int] = set()
        offset = self.start
        connection = wire.Connection(self.port)
        while offset < self.end:
            try:
                answer = connection.fetch("t", 0, offset, partition_max_bytes=size_max)
            except (OSError, EOFError):
                connection.close()
                connection = wire.Connection(self.port)
                codes.add(-1)
                offset += RECORDS_PER_BATCH
                continue
            if answer.error or not answer.records:
                codes.add(answer.error)
                if answer.error == ErrorCode.KAFKA_STORAGE_ERROR:
                    break
                offset += 1
                continue
            for batch in wire.split_batches(answer.records):
                if batch.crc_is_right:
                    for at, _, value in wire.decode_records(batch):
                        assert value == value_at(at), f"@{at}: a record nobody wrote"
                        served.add(at)
                offset = max(offset + 1, batch.next_offset)
        connection.close()
        return served, codes

    def read_classic(self) -> None:
        """Check that served records of the classic topic are those written; an error or a closed connection is accepted
        too.
        """
        at = 0
        while at < len(self.classic):
            with contextlib.suppress(OSError, EOFError), ClassicClient(self.classic_port) as client:
                error, data = client.fetch("classic", 0, at, 100_000)
                # 0.7 checks no checksum on its way out: a hole is served as zeros, which its consumers refuse.
                same = [a == b or a == 0 for a, b in zip(data, self.classic[at:], strict=False)]
                assert error or all(same), f"@{at}: bytes nobody wrote"
            at += 10_000

    def exercise(self) -> set[int]:
        """Everything that touches the files, small answers and large ones; the error codes of `t`."""
        codes: set[int] = set()
        for size_max in (1 << 10, 8 << 20):
            codes |= self.read(size_max=size_max)[1]
        with wire.Connection(self.port) as connection:
            connection.list_offset("t", 0, 1)
            connection.list_offset("t", 0, -3)
            for _ in range(20):
                codes.add(self.produce(connection))
        self.read_classic()
        self.use_coordinators()
        return codes

    def offline_lines(self) -> list[str]:
        return [line for line in self.broker.log().splitlines() if "is offline until the broker restarts" in line]


class Witness:
    """Produces to and reads from other partitions all the while; any error is kept."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.count = 0
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            with wire.Connection(self._port) as connection:
                while not self._stopping.is_set():
                    value = b"%d" % self.count
                    batch = wire.batch_of([wire.Record(None, value)])
                    made = connection.produce("other", self.count % 2, batch, acks=-1)
                    assert made.error == 0, made
                    found = connection.fetch("other", self.count % 2, made.base_offset)
                    assert found.error == 0, found
                    assert wire.decode_records(wire.split_batches(found.records)[0])[0][2] == value
                    self.count += 1
        except BaseException as error:  # noqa: BLE001 - for the test to see
            self.error = error

    def check(self) -> None:
        assert self.error is None, repr(self.error)
        assert self.count > 0


@contextlib.contextmanager
def disk_for(fault: str, tmp_path: Path) -> Iterator[tuple[Path, FailingDisk | None]]:
    if fault != "eio":
        yield tmp_path, None
        return
    if program() is None:
        pytest.skip("needs /dev/fuse, fusermount3, the headers of libfuse 3 and a C compiler")
    with FailingDisk(tmp_path) as disk:
        yield disk.directory, disk


def inflict(fault: str, path: Path, disk: FailingDisk | None) -> None:
    size = path.stat().st_size
    if fault == "emptied":
        os.truncate(path, 0)
    elif fault == "cut":
        os.truncate(path, size // 2)
    elif fault == "hole":
        start = size // 3 // 4096 * 4096
        subprocess.run(["fallocate", "-p", "-o", str(start), "-l", str(max(4096, size // 4)), str(path)], check=True)
    else:
        assert disk is not None
        disk.fail(path)


def cases() -> list[object]:
    return [
        pytest.param(kind, fault, marks=() if (kind, fault) in SAMPLE else pytest.mark.slow)
        for kind in KINDS
        for fault in FAULTS
    ]


@pytest.mark.parametrize(("kind", "fault"), cases())
@pytest.mark.scenario("B8")
def test_one_file_fails_and_all_others_keep_working(tmp_path: Path, kind: str, fault: str) -> None:
    with disk_for(fault, tmp_path) as (directory, disk):
        stage = Stage(directory)
        try:
            stage.broker.start()
            stage.fill()
            stage.broker.stop()  # so that every kind of file is there, and is loaded from the disk
            stage.broker.start()
            assert stage.read()[0] == set(range(stage.start, stage.end)), "everything is mapped and open"
            stage.use_coordinators()
            path, before = stage.path(kind), stage.end
            if disk is None:
                shutil.copy(path, tmp_path / "good")
            with Witness(stage.port) as witness:
                inflict(fault, path, disk)
                codes = stage.exercise()
                codes |= stage.exercise()
            assert stage.broker.alive, f"the broker ended with {stage.broker.process and stage.broker.process.poll()}"
            witness.check()
            assert codes <= {
                ErrorCode.UNKNOWN_SERVER_ERROR,
                0,
                ErrorCode.CORRUPT_MESSAGE,
                ErrorCode.KAFKA_STORAGE_ERROR,
            }
            lines = stage.offline_lines()
            assert len(lines) <= 1, "one line for one partition"
            if kind in OFFLINE_KINDS and fault != "hole":
                assert ErrorCode.KAFKA_STORAGE_ERROR in codes
                assert len(lines) == 1
            stage.broker.kill()
            if disk is not None:
                disk.heal()
            start_again(stage, path, None if disk is not None else tmp_path / "good", before)
        finally:
            stage.broker.close()


def start_again(stage: Stage, path: Path, good: Path | None, before: int) -> None:
    """First with the file as it is: nothing that is served may be wrong. Then with the good copy, if there is one."""
    stage.broker.start()
    stage.exercise()
    assert stage.broker.alive
    stage.broker.kill()
    if good is not None and path.exists():
        shutil.copy(good, path)
        stage.broker.start()
        stage.read()
        assert stage.broker.alive
        return
    stage.broker.start()
    assert stage.read()[0] >= set(range(stage.start, before)), "with the disk healed everything is there"


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [40])
@pytest.mark.scenario("B8")
def test_random_files_are_cut_at_random_under_load(tmp_path: Path, seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    stage = Stage(tmp_path)
    try:
        stage.broker.start()
        stage.fill()
        for number in range(rounds):
            files = sorted(
                path
                for name in ("t-0", "classic-0", "__consumer_offsets-0", "__transaction_state-0")
                for path in (stage.broker.data_dir / name).iterdir()
                if path.is_file() and path.stat().st_size
            )
            with Witness(stage.port) as witness:
                for path in chance.sample(files, min(len(files), 2)):
                    with contextlib.suppress(FileNotFoundError):
                        os.truncate(path, chance.randrange(path.stat().st_size + 1))
                stage.exercise()
            assert stage.broker.alive, f"seed {seed}, round {number}"
            witness.check()
            if chance.random() < 0.3:
                stage.broker.kill()
                stage.broker.start()
                with wire.Connection(stage.port) as connection:
                    stage.end = max(connection.list_offset("t", 0, -1)[2], 0)
    finally:
        stage.broker.close()
