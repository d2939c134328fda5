"""The target of a load whose writer is killed (SIGKILL) at random moments, without Spark: what readers see is whole.

tests/spark/test_load_kills.py does it with Spark around.
"""

import contextlib
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from kafkalite.load.manifest import MANIFESTS, Target
from kafkalite.spark import load
from tests.kit.processes.broker import REPOSITORY, wait_until

pytestmark = pytest.mark.integration

TIMEOUT_S = 120


def kill_in_the_middle(path: Path, chance: random.Random) -> None:
    """Once it has published something, and a moment that is not known later."""
    before = Target(path).refresh().number
    with (path.parent / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.processes.target_writer", str(path)], cwd=REPOSITORY, stderr=errors
        )
    try:
        wait_until(lambda: Target(path).refresh().number > before or process.poll() is not None, TIMEOUT_S, "a change")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(chance.random() / 4)
        assert process.poll() is None, (path.parent / "errors").read_text()[-4000:]
    finally:
        process.kill()
        process.wait()


def check(path: Path) -> None:
    """Each record below the positions once, by manifest; nothing else after the next writer, for anybody."""
    positions = load.positions(path)
    wanted = [(key.partition, offset) for key in sorted(positions) for offset in range(positions[key])]
    for seen in (load.dataset(path), None):
        if seen is None:
            with Target(path).writing():
                assert not (path / MANIFESTS / "pending.json").exists()
            seen = ds.dataset(path, partitioning="hive")
        table = seen.to_table(columns=["partition", "offset"])
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        assert sorted(rows) == wanted


@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_killed_again_and_again(tmp_path: Path, rounds: int) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")  # shown when it fails
    chance = random.Random(seed)
    for _ in range(rounds):
        kill_in_the_middle(tmp_path / "loaded", chance)
        check(tmp_path / "loaded")
