"""Each benchmark runs at its smallest size, so that none rots; figures are thrown away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.path.__main__ import NAMES
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import REPOSITORY, wait_until

pytestmark = pytest.mark.bench_smoke


@pytest.mark.slow
def test_micro_benchmarks_run() -> None:
    command = [sys.executable, "-m", "pytest", "benchmarks/micro", "-q", "-o", "python_files=bench_*.py"]
    done = subprocess.run([*command, "-p", "no:cacheprovider"], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.integration
@pytest.mark.parametrize("name", sample(NAMES, 1))
def test_path_benchmark_runs(name: str, tmp_path: Path) -> None:
    if shutil.which("gcc") is None or not Path("/usr/include/librdkafka/rdkafka.h").exists():
        pytest.skip("gcc and librdkafka-dev are needed to build the C clients")
    environment = {**os.environ, "KAFKALITE_BENCH_RESULTS": str(tmp_path), "KAFKALITE_BENCH_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "benchmarks.path", "--small", name]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert list(tmp_path.glob("*.json")), "no result written"


@pytest.mark.slow
@pytest.mark.integration
def test_benchmark_of_hostile_clients_runs_and_is_resumed(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    command = [sys.executable, "-m", "benchmarks.hostile", "--topics", "20", "--seconds", "0.5", "--items", "500"]
    command += ["--size", "0.001", "--only", "ListGroups.types_filter", "--only", "groups", "--rows", str(rows)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = [(row["attack"], row["case"]) for row in map(json.loads, rows.read_text().splitlines())]
    assert {case for _, case in found} == {"existing", "unknown", "repeated", "pipelined", "empty", "SIGTERM", "family"}
    again = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stdout[-2000:] + again.stderr[-4000:]
    assert len(rows.read_text().splitlines()) == len(found), "what was there has been run again"


@pytest.mark.integration
@pytest.mark.parametrize("name", ["metadata", "placement"])
def test_benchmark_of_clusters_on_paper_runs(name: str, tmp_path: Path) -> None:
    assert run_of_clusters(name, tmp_path)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("name", ["partitions", "replication", "rates"])
def test_benchmark_of_clusters_runs(name: str, kafka_jars: Path, tmp_path: Path) -> None:
    assert kafka_jars
    assert run_of_clusters(name, tmp_path)


def run_of_clusters(name: str, folder: Path) -> dict[str, object]:
    """What it has found."""
    command = [sys.executable, "-m", "benchmarks.cluster", "--small", "--repeats", "1", name]
    environment = {**os.environ, "KAFKALITE_BENCH_RESULTS": str(folder)}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found: dict[str, object] = json.loads((folder / f"cluster-{name}.json").read_text())
    return found


@pytest.mark.integration
@pytest.mark.slow
def test_a_day_is_stopped_taken_up_again_and_complete(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.day", "--folder", str(tmp_path), "--minutes", "10"]
    command += ["--count", "200000", "--rate", "20000", "--window", "1", "--grace", "1", "--keep", str(64 * 2**20)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as first:
        try:
            wait_until(lambda: sent(tmp_path) >= 40_000, 120, "messages are sent")
        finally:
            first.send_signal(signal.SIGINT)
            out, _ = first.communicate(timeout=300)
    assert first.returncode == 1, out  # not complete
    before = json.loads((tmp_path / "state.json").read_text())["sent"]
    assert 40_000 <= before < 200_000
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{before:,} messages" in done.stdout.splitlines()[0]
    found = json.loads((tmp_path / "day.json").read_text())
    assert (found["sent"], found["complete"], found["runs"]) == (200_000, True, 2)
    assert found["audit"]["messages_of_complete_windows"] == 200_000


def sent(folder: Path) -> int:
    """Messages that a day's producer has told of."""
    try:
        found: int = json.loads((folder / "sent.json").read_text())["sent"]
    except FileNotFoundError:
        return 0
    return found


@pytest.mark.integration
@pytest.mark.slow
def test_soak_runs_and_is_resumed(tmp_path: Path) -> None:
    for minutes in ("0.3", "0.5"):
        command = [sys.executable, "-m", "benchmarks.soak", "--folder", str(tmp_path), "--minutes", minutes]
        done = subprocess.run(
            [*command, "--kill-after", "0.1"], cwd=REPOSITORY, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        assert " 0 missing, 0 twice, 0 of aborted transactions" in done.stdout
    samples = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert {row["life"] for row in samples} >= {2, 3}
    assert {"broker.private", "console.threads", "journal", "produce.p50"} <= json.loads(
        (tmp_path / "soak.json").read_text()
    )["slopes"].keys()
