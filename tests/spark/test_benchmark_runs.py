"""The comparison inside Spark runs at its smallest size, so that it does not rot; figures are thrown away."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.processes.broker import REPOSITORY

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.bench_smoke,
    pytest.mark.usefixtures("sparks_connector"),
]


def test_it_compares_all_sources(tmp_path: Path) -> None:
    environment = {**os.environ, "KAFKALITE_BENCH_RESULTS": str(tmp_path), "KAFKALITE_BENCH_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "benchmarks.spark", "--small"]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    result = json.loads((tmp_path / "spark.json").read_text())
    found = {(row["topic"], row["sink"], row["source"]) for row in result["cases"]}
    assert found == {
        ("even", sink, source) for sink in ("noop", "parquet") for source in ("ready", "kafkalite", "kafka")
    } | {(*query, source) for query in (("skewed", "noop"), ("orders", "group")) for source in ("kafkalite", "kafka")}
    assert all(row["medians"]["rate_per_s"] > 0 for row in result["cases"])


def test_it_compares_loads(tmp_path: Path) -> None:
    environment = {**os.environ, "KAFKALITE_BENCH_RESULTS": str(tmp_path), "KAFKALITE_BENCH_DIR": str(tmp_path)}
    rounds = ["--rows", "20000", "--rounds", "1", "--kept", str(tmp_path / "rounds.json")]
    command = [sys.executable, "-m", "benchmarks.spark.loads", *rounds]
    for count in (1, 2):
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=540)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        result = json.loads((tmp_path / "loads.json").read_text())
        assert (result["repeat_count"], len(result["rounds"])) == (count, count)
    assert result["medians"].keys() == {"native", "spark", "sink", "few"}
    assert all(row["cpu_s"] > 0 and row["size"] > 0 for row in result["medians"].values())
