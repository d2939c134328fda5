"""The native load is killed (SIGKILL) at each of its steps, and at random moments, and run again.

Readers see each record once at any moment, and each bad record is one dead letter in the end. DuckDB counts.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from tests.kit.harness.load_scene import PARTITIONS, LoadScene
from tests.kit.harness.samples import sample
from tests.kit.processes.dying import runs_of, steps_of

pytestmark = pytest.mark.integration

MODULE = "tests.kit.processes.native_loader"
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


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, kafka_broker: Broker, kafka_topic: str, tmp_path: Path
) -> Iterator[LoadScene]:
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        client.admin.add_partitions(kafka_topic, PARTITIONS)
        layout = getattr(request, "param", "hour")
        yield LoadScene(kafka_broker.bootstrap_servers, client, kafka_topic, tmp_path, layout=layout)


@pytest.mark.parametrize("stride", [pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]), 20])
@pytest.mark.parametrize("settled", sample([True, False], 1), ids=["after a load that ended", "after a load that died"])
def test_killed_at_its_steps(scene: LoadScene, tmp_path: Path, stride: int, settled: bool) -> None:
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


@pytest.mark.parametrize("scene", ["hour", "kind"], indirect=True)
@pytest.mark.parametrize("kills", [pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]), 5])
def test_killed_at_random_moments(scene: LoadScene, tmp_path: Path, kills: int) -> None:
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
