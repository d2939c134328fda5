"""Each benchmark runs at its smallest size, so that none rots; figures are thrown away."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.path.__main__ import NAMES
from tests.kit.processes.broker import REPOSITORY

pytestmark = pytest.mark.bench_smoke


def test_micro_benchmarks_run() -> None:
    command = [sys.executable, "-m", "pytest", "benchmarks/micro", "-q", "-o", "python_files=bench_*.py"]
    done = subprocess.run([*command, "-p", "no:cacheprovider"], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
def test_path_benchmark_runs(name: str, tmp_path: Path) -> None:
    if shutil.which("gcc") is None or not Path("/usr/include/librdkafka/rdkafka.h").exists():
        pytest.skip("gcc and librdkafka-dev are needed to build the C clients")
    environment = {**os.environ, "KAFKALITE_BENCH_RESULTS": str(tmp_path), "KAFKALITE_BENCH_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "benchmarks.path", "--small", name]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert list(tmp_path.glob("*.json")), "no result written"
