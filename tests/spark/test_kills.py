"""Streaming jobs killed at random moments, and their newest commit lost: three sinks, of which one may double.

Each round's records are numbers that come once, so what is missing and what is doubled can be named.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from tests.kit.processes.broker import BrokerProcess, wait_until
from tests.kit.processes.spark_copies import QUERIES, ROWS_PER_BATCH, Places, start
from tests.spark.conftest import quick_python

pytestmark = [pytest.mark.spark, pytest.mark.integration]

TIMEOUT_S = 600
ROUNDS = int(os.environ.get("KAFKALITE_KILL_ROUNDS", "10"))
TOKEN = "KAFKALITE_TEST_JOB"


class Family:
    """The processes of a job, found by a word in their environment: Python's, Java's, workers that outlive both."""

    def __init__(self, word: str) -> None:
        self.word = word
        self._mark = f"{TOKEN}={word}".encode()

    def pids(self, *parts: bytes) -> list[int]:
        """Those that are alive and whose command line has one of `parts` in it; without parts all."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if self._mark in (entry / "environ").read_bytes():
                        line = (entry / "cmdline").read_bytes()
                        if line and (not parts or any(part in line for part in parts)):
                            found.append(int(entry.name))
        return sorted(found)

    def workers(self) -> list[int]:
        """Python processes that run tasks, and the one that makes them."""
        return self.pids(b"pyspark.daemon", b"pyspark/daemon")

    def end(self) -> None:
        """Kill all remaining processes."""

        def gone() -> bool:
            left = self.pids()
            kill(left)
            return not left

        wait_until(gone, 120, "the end of the job's processes")


def newest(directory: Path) -> int:
    """The newest batch in a log of a checkpoint, -1 where there is none."""
    if not directory.is_dir():
        return -1
    return max((int(path.name) for path in directory.iterdir() if path.name.isdigit()), default=-1)


def lose_newest_commit(checkpoint: Path) -> None:
    """As a driver that died between the sink and the checkpoint, unless the newest batch is in that state already."""
    number = newest(checkpoint / "commits")
    if number >= 0 and number == newest(checkpoint / "offsets"):
        for name in (str(number), f".{number}.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=True)


def produce(places: Places, first: int, count: int) -> None:
    """Numbers from `first` on, to both partitions."""
    with Client(places.bootstrap) as client:
        for partition in range(2):
            numbers = range(first + partition, first + count, 2)
            client.produce(places.source, partition, [b"%d" % number for number in numbers], batch_size=2000)


def in_topic(places: Places, name: str) -> list[int]:
    """What readers of committed data see."""
    topic = places.topic(name)
    with Client(places.bootstrap) as client:
        return sorted(
            int(value or b"")
            for partition in client.partitions(topic)
            for chunk in client.read(topic, partition, end=client.end_offset(topic, partition), isolation=1)
            for value in chunk.columns.values
        )


def in_files(places: Places) -> list[int]:
    """What whole batches have, as Spark's committer leaves them."""
    import pyarrow.parquet as pq

    done = [path.parent for path in places.files.glob("batch=*/_SUCCESS")]
    tables = [pq.ParquetFile(path).read(["value"]) for folder in done for path in folder.glob("*.parquet")]
    return sorted(int(value) for table in tables for value in table["value"].to_pylist())


def verify(places: Places, count: int) -> None:
    """Once where that is promised, and the sink that promises less shows that something was there to be doubled."""
    wanted = list(range(count))
    assert in_topic(places, "once") == wanted
    assert in_files(places) == wanted
    appended = in_topic(places, "appended")
    assert sorted(set(appended)) == wanted, "nothing may be missing anywhere"
    assert len(appended) > count, "the appending sink shows duplicates, so the others had something to withstand"


@pytest.fixture
def dice() -> random.Random:
    seed = int(os.environ.get("KAFKALITE_SEED", str(random.randrange(2**32))))
    print(f"KAFKALITE_SEED={seed}")
    return random.Random(seed)


def test_a_sample_of_kills(spark, kafka_broker: Broker, tmp_path: Path) -> None:
    """In the run's own session, so it is the workers that die, and then a batch is done again."""
    places = Places(kafka_broker.bootstrap_servers, f"kills-{uuid.uuid4().hex[:8]}", str(tmp_path))
    for name in ("", "-appended", "-once"):
        kafka_broker.create_topic(places.source + name, 2)
    count = ROWS_PER_BATCH
    produce(places, 0, count)
    for name in QUERIES:
        query = start(spark, places, name)
        begun = places.checkpoint(name) / "offsets"
        wait_until(lambda: newest(begun) >= 0 or not query.isActive, TIMEOUT_S, "the first batch")  # noqa: B023
        kill(workers_below(os.getpid()))
        ended_well(query)
        run_to_end(spark, places, name)
        lose_newest_commit(places.checkpoint(name))
        run_to_end(spark, places, name)
    verify(places, count)


def run_to_end(spark, places: Places, name: str) -> None:
    """A run in which nothing dies; on a busy machine Spark may give up a Python process that comes late."""
    for _ in range(5):
        if ended_well(start(spark, places, name)):
            return
    raise AssertionError(f"{name} does not end well")


def ended_well(query) -> bool:
    """Whether a query has done all that it had to do; not when a task of it lost its worker."""
    try:
        ended = query.awaitTermination(TIMEOUT_S)
    except Exception as error:  # noqa: BLE001  # as Py4J has it
        print(error)
        return False
    assert ended, "the query does not end"
    return True


def workers_below(ancestor: int) -> list[int]:
    """PySpark's workers among the descendants of a process; not the daemons that make them."""
    parents: dict[int, int] = {}
    daemons: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                    daemons.add(int(entry.name))

    def descends(pid: int) -> bool:
        while pid in parents and pid != ancestor:
            pid = parents[pid]
        return pid == ancestor

    return sorted(pid for pid in daemons if descends(pid) and parents[pid] in daemons)


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "broker").start()
    yield broker
    broker.close()


def launch(places: Places, family: Family, python: Path, log: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, TOKEN: family.word, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.kit.processes.spark_copies", json.dumps(places._asdict())],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=Path(__file__).resolve().parents[2],
            start_new_session=True,
        )


def strike(dice: random.Random, job: subprocess.Popen[bytes], family: Family, broker: BrokerProcess) -> str:
    """Something dies."""
    what = dice.choice(["workers", "broker", "driver", "driver"])
    if what == "workers":
        kill(family.workers())
    elif what == "broker":
        broker.kill()
        broker.start()
    else:
        kill_group(job)
    return what


def kill_group(job: subprocess.Popen[bytes]) -> None:
    """The driver's Python and Java at once; workers end when they notice."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_rounds_of_kills(killable: BrokerProcess, tmp_path: Path, dice: random.Random) -> None:
    places = Places(killable.bootstrap, "kills", str(tmp_path))
    with Client(killable.bootstrap) as client:
        for name in ("", "-appended", "-once"):
            client.admin.create_topic(places.source + name, 2)
    python = quick_python(tmp_path)
    log = tmp_path / "jobs.log"
    family = Family(uuid.uuid4().hex)
    commits = [places.checkpoint(name) / "commits" for name in QUERIES]
    per_round = 4 * ROWS_PER_BATCH
    struck: list[str] = []
    try:
        for round_ in range(ROUNDS):
            produce(places, round_ * per_round, per_round)
            job = launch(places, family, python, log)
            watched = dice.choice(commits)
            goal = newest(watched) + dice.randrange(1, 5)
            wait_until(lambda: newest(watched) >= goal or job.poll() is not None, TIMEOUT_S, "progress")  # noqa: B023
            time.sleep(dice.random() * 0.5)  # any moment of a batch
            print("round", round_, "commits", [newest(log) for log in commits], flush=True)
            struck.append(strike(dice, job, family, killable))
            if struck[-1] != "driver":
                with contextlib.suppress(subprocess.TimeoutExpired):
                    job.wait(dice.random() * 20)
            kill_group(job)
            for name in QUERIES:
                lose_newest_commit(places.checkpoint(name))
        whole = 0
        for _ in range(8):  # on a busy machine Spark may give up a Python process that comes late
            job = launch(places, family, python, log)
            whole += job.wait(TIMEOUT_S) == 0
            if whole == 2:
                break
            for name in QUERIES:
                lose_newest_commit(places.checkpoint(name))
        assert whole == 2, log.read_text()[-4000:]
    finally:
        print("struck:", struck)
        family.end()
    verify(places, ROUNDS * per_round)
