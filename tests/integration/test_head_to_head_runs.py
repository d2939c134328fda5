"""`kafkalite bench --quick` on the real systems that are light to start, from the command line to the plots."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.head_to_head.queues import Nats, Redis
from benchmarks.head_to_head.report import Results
from tests.kit.processes.broker import REPOSITORY

pytestmark = [pytest.mark.integration, pytest.mark.bench_smoke]
TIMEOUT_S = 150


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Results]:
    """One quick run of kafkalite, the null broker, and what else is here: what it printed, what it wrote."""
    if shutil.which("gcc") is None or not Path("/usr/include/librdkafka/rdkafka.h").exists():
        pytest.skip("gcc and librdkafka-dev are needed to build the C client")
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, "-m", "kafkalite", "bench", "--quick", "--out", str(folder)]
    command += ["--systems", "kafkalite,null-broker,redis,nats"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "KAFKALITE_BENCH_DIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, cwd=folder)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(folder).encode() in _read(path)]
    assert left == [], "a process is left"
    assert not list(folder.glob("kafkalite-bench-*")), "a folder is left"
    return done, Results.load(folder)


@pytest.mark.slow
def test_the_producer_and_the_consumer_test_are_measured(
    finished: tuple[subprocess.CompletedProcess[str], Results],
) -> None:
    _, results = finished
    for system in ("kafkalite", "null-broker"):
        for case in ("produce-one-1", "produce-one-50", "consume"):
            rate = results.figure(system, case, "rate_per_s")
            assert rate is not None, (system, case)
            assert rate.median > 0
            assert results.figure(system, case, "server_cpu_s_per_million") is not None
    latency = [results.figure("kafkalite", "latency-1000", key) for key in ("p50_us", "p99_us", "p999_us")]
    assert all(figure is not None for figure in latency)


@pytest.mark.slow
def test_what_is_not_here_is_skipped_by_name(finished: tuple[subprocess.CompletedProcess[str], Results]) -> None:
    done, results = finished
    for system in (Redis, Nats):
        if system.missing():
            assert f"{system.name}: {system.missing()}" in done.stdout
        else:
            assert system.name in results.systems or f"{system.name}, native client" in done.stdout


@pytest.mark.slow
def test_it_ends_with_tables(finished: tuple[subprocess.CompletedProcess[str], Results]) -> None:
    done, _ = finished
    for title in ("What was measured", "Producer test, acknowledged", "Consumer test", "Latency", "Start, memory"):
        assert title in done.stdout
    assert "kafkalite" in done.stdout


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
