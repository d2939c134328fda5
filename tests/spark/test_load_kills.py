"""Loads and streams that are killed (SIGKILL, Python and Java at once) at random moments, and run again.

However often and wherever that was: in the end, and for readers at any moment, each record is there once.
"""

import contextlib
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.load.manifest import MANIFESTS, Target
from kafkalite.spark import load
from tests.kit.processes.broker import wait_until
from tests.kit.processes.spark_loading import spark_loader
from tests.spark.conftest import quick_python

pytestmark = [pytest.mark.spark, pytest.mark.integration]

PARTITIONS = 3
RECORDS_EACH_ROUND = 4_000
TIMEOUT_S = 400


class Loads:
    """Runs the program again and again over a topic that grows."""

    def __init__(self, broker: Broker, client: Client, topic: str, folder: Path) -> None:
        self._broker = broker
        self._client = client
        self._topic = topic
        self._folder = folder
        self._python = quick_python(folder)
        self._count = 0
        """Of records, in each partition."""
        self.kills = 0

    def produce(self) -> None:
        for partition in range(PARTITIONS):
            values = [b"%d" % number for number in range(self._count, self._count + RECORDS_EACH_ROUND)]
            self._client.produce(self._topic, partition, values, batch_size=2_000)
        self._count += RECORDS_EACH_ROUND

    def target(self, mode: str) -> Path:
        return self._folder / mode

    def running(self, mode: str) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        """The program in this mode; nothing of it is left afterwards."""
        servers = self._broker.bootstrap_servers
        words = [mode, servers, self._topic, str(self.target(mode)), str(self._folder / f"{mode}-checkpoint")]
        return spark_loader(words, self._folder / f"{mode}.log", self._python)

    def kill_in_the_middle(self, mode: str, chance: random.Random) -> None:
        """Once it has made some changes, and a moment that is not known later."""
        before = self._changes(mode)
        wanted = before + chance.randrange(4)
        pause_s = chance.random()
        with self.running(mode) as process:
            wait_until(lambda: self._changes(mode) > wanted or process.poll() is not None, TIMEOUT_S, "a change")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(pause_s)
            if process.poll() is None:
                self.kills += 1
            else:
                assert process.returncode == 0, (self._folder / f"{mode}.log").read_text()[-4000:]
        self.check_what_readers_see(mode)
        if mode == "stream" and chance.random() < 0.5:  # as if it had ended before the checkpoint knew
            self.forget_newest_commit()

    def _changes(self, mode: str) -> int:
        return Target(self.target(mode)).refresh().number

    def forget_newest_commit(self) -> None:
        commits = self._folder / "stream-checkpoint" / "commits"
        numbers = sorted(int(path.name) for path in commits.glob("[0-9]*") if path.name.isdigit())
        for name in (f"{numbers[-1]}", f".{numbers[-1]}.crc") if numbers else ():
            (commits / name).unlink(missing_ok=True)

    def finish(self, mode: str) -> None:
        with self.running(mode) as process:
            while process.poll() is None:  # as long as it gets on: how many steps are left is chance
                before = self._changes(mode)
                wait_until(
                    lambda at=before: self._changes(mode) > at or process.poll() is not None, TIMEOUT_S, "a change"
                )
            assert process.returncode == 0, (self._folder / f"{mode}.log").read_text()[-4000:]

    def rows(self, mode: str) -> list[tuple[int, int, bytes]]:
        if not load.files(self.target(mode)):
            return []
        table = load.dataset(self.target(mode)).to_table(columns=["partition", "offset", "value"])
        return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def check_what_readers_see(self, mode: str) -> None:
        """No record twice, and all below the positions: whatever a killed load has left."""
        if not Target(self.target(mode)).exists:
            return
        seen = [(partition, offset) for partition, offset, _ in self.rows(mode)]
        positions = load.positions(self.target(mode))
        assert seen == [(key.partition, offset) for key in sorted(positions) for offset in range(positions[key])]

    def check_everything(self, mode: str) -> None:
        wanted = [(partition, n, b"%d" % n) for partition in range(PARTITIONS) for n in range(self._count)]
        assert self.rows(mode) == wanted
        count = ds.dataset(self.target(mode), partitioning="hive").count_rows()
        assert count == len(wanted), "no orphan is left for those who list directories"
        assert not list((self.target(mode) / MANIFESTS).glob("pending*"))


@pytest.fixture
def loads(kafka_broker: Broker, kafka_topic: str, tmp_path: Path) -> Iterator[Loads]:
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        client.admin.add_partitions(kafka_topic, PARTITIONS)
        yield Loads(kafka_broker, client, kafka_topic, tmp_path)


def run_rounds(loads: Loads, mode: str, rounds: int) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")  # shown when it fails
    chance = random.Random(seed)
    for _ in range(rounds):
        loads.produce()
        loads.kill_in_the_middle(mode, chance)
        if chance.random() < 0.3 and Target(loads.target(mode)).exists:
            load.compact(loads.target(mode))
            loads.check_what_readers_see(mode)
    loads.finish(mode)
    loads.check_everything(mode)


@pytest.mark.parametrize("mode", ["load", "stream"])
def test_killed_once(loads: Loads, mode: str) -> None:
    run_rounds(loads, mode, 1)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mode", ["load", "stream"])
def test_killed_ten_times(loads: Loads, mode: str) -> None:
    run_rounds(loads, mode, 10)
    assert loads.kills >= 5, "most of them were killed before they were done"
