"""The native load is killed (SIGKILL) at each of its steps, and at random moments, and run again.

Readers see each record once at any moment, and each bad record is one dead letter in the end. DuckDB counts.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client, ColumnReader
from kafkalite.failures.headers import letter_of
from kafkalite.load import contents
from kafkalite.load.manifest import MANIFESTS, STAGING, Target
from kafkalite.load.places import storage_of
from kafkalite.wire.record.columns import Record, RecordColumns
from tests.kit.harness.samples import sample
from tests.kit.processes import native_loader
from tests.kit.processes.dying import runs_of, steps_of

pytestmark = pytest.mark.integration

MODULE = "tests.kit.processes.native_loader"
PARTITIONS = 2
EACH_ROUND = 40
BAD_EVERY = 15
STAMP = 1_700_000_000_000
HOUR_MS = 3_600_000
NAMED = {
    "before the turn",
    "before a record batch",
    "after all record batches",
    "after create part-N-N.parquet in staging",
    "after finish file in staging",
    "before put _manifests/pending-N.json",
    "after put _manifests/pending-N.json",
    "after move _manifests/pending-N.json",
    "before commit_transaction",
    "after commit_transaction",
}
"""Some of the steps: a load that no longer had them would not be killed there."""


class Scene:
    """A topic that grows, and what a load has made of it."""

    def __init__(self, servers: str, client: Client, topic: str, folder: Path) -> None:
        self.client = client
        self.topic = topic
        self.letters = f"{topic}-bad"
        self.place = folder / "loaded"
        self.names = folder / "names"
        self.words = [servers, topic, self.letters, str(self.place), str(self.names)]
        self._servers = servers
        self._count = 0
        """Of records in each partition."""

    def produce(self, size: int = 10) -> None:
        """More records, in two hours."""
        for partition in range(PARTITIONS):
            numbers = range(self._count, self._count + EACH_ROUND)
            sent = [Record(n, STAMP + n % 2 * HOUR_MS, None, self.value(n).ljust(size, b"."), ()) for n in numbers]
            self.client.produce(self.topic, partition, RecordColumns.from_records(sent), batch_size=1_000)
        self._count += EACH_ROUND

    def value(self, number: int) -> bytes:
        return b"%s %d" % (b"bad" if number % BAD_EVERY == 0 else b"good", number)

    def good(self, end: int) -> list[int]:
        return [number for number in range(end) if number % BAD_EVERY]

    def check_readers(self) -> None:
        """By the manifests: all good records below the positions, each once."""
        if not (self.place / MANIFESTS).exists():
            return
        state = Target(self.place).refresh()
        wanted = [(key.partition, n) for key in sorted(state.positions) for n in self.good(state.positions[key])]
        paths = [str(self.place / path) for path in state.files]
        assert self.rows_of(paths) == wanted

    def rows_of(self, paths: list[str]) -> list[tuple[int, int]]:
        if not paths:
            return []
        return sorted(duckdb.read_parquet(paths).project('"partition", "offset"').fetchall())

    def check_everything(self) -> None:
        """After one more load, for those who list directories, and in the topic of letters."""
        native_loader.load(self._servers, self.topic, self.letters, storage_of(self.place))
        wanted = [(partition, n) for partition in range(PARTITIONS) for n in self.good(self._count)]
        assert self.rows_of([str(path) for path in self.place.glob("topic=*/**/*.parquet")]) == wanted
        assert len(contents.files(self.place)) == len(list(self.place.glob("topic=*/**/*.parquet")))
        assert [name for name in storage_of(self.place).names(MANIFESTS) if name.startswith("pending")] == []
        assert storage_of(self.place).names(STAGING) == []
        bad = [(partition, n) for partition in range(PARTITIONS) for n in range(0, self._count, BAD_EVERY)]
        assert sorted(self.letters_sent()) == bad

    def letters_sent(self) -> Iterator[tuple[int, int]]:
        reader = ColumnReader(self.client, isolation_level="read_committed")
        for batch in reader.read(self.letters, 0, 0, self.client.end_offset(self.letters, 0)):
            for row in batch.to_pylist():
                letter = letter_of(tuple((header["key"], header["value"]) for header in row["headers"]))
                assert letter is not None
                yield letter.partition.partition, letter.offset


@pytest.fixture
def scene(kafka_broker: Broker, kafka_topic: str, tmp_path: Path) -> Iterator[Scene]:
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        client.admin.add_partitions(kafka_topic, PARTITIONS)
        yield Scene(kafka_broker.bootstrap_servers, client, kafka_topic, tmp_path)


@pytest.mark.parametrize("stride", [pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]), 20])
@pytest.mark.parametrize("settled", sample([True, False], 1), ids=["after a load that ended", "after a load that died"])
def test_killed_at_its_steps(scene: Scene, tmp_path: Path, stride: int, settled: bool) -> None:
    scene.produce()
    count = 0
    for count, _ in enumerate(steps_of(MODULE, tmp_path, "steps", *scene.words, stride=stride), 1):  # noqa: B007
        scene.check_readers()
        if settled:
            scene.check_everything()
        scene.produce()
    scene.check_everything()
    if settled and stride == 1:
        assert {*scene.names.read_text().splitlines()} >= NAMED
    assert count > 60 // stride, "steps that there are"


@pytest.mark.parametrize("kills", [pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]), 5])
def test_killed_at_random_moments(scene: Scene, tmp_path: Path, kills: int) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")  # shown when it fails
    chance = random.Random(seed)

    longest_us = [200_000.0]
    """It shrinks with loads that were done before, and grows with those that were not."""

    def delays() -> Iterator[int]:
        while True:
            yield round(chance.random() * longest_us[0])

    killed = 0
    for _, status in runs_of(MODULE, tmp_path, delays(), "times", *scene.words):
        killed += status == "-9"
        longest_us[0] *= 1.1 if status == "-9" else 0.8
        scene.check_readers()
        if killed == kills:
            break
        scene.produce(size=500)
    scene.check_everything()
