"""The example pipeline, small, with each part killed once: all arrives once, the report says so, nothing is left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.examples.pipeline.visits import KILLS
from tests.spark.conftest import ROOT, quick_python

pytestmark = [pytest.mark.spark, pytest.mark.integration]

TIMEOUT_S = 540


def running_in(folder: Path) -> list[str]:
    """Command lines of processes that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has just ended
        if str(folder) in words:
            found.append(words)
    return found


def test_each_visit_arrives_once_though_each_part_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    size = ["--rate", "200", "--seconds", "4", "--kill", "all", "--timeout", str(TIMEOUT_S - 60)]
    done = subprocess.run(
        [sys.executable, "-m", "kafkalite.examples.pipeline", "--out", str(folder), *size],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "PYSPARK_PYTHON": str(quick_python(tmp_path)), "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr
    assert "Audit: **complete** (1700 visits in" in done.stdout
    report = json.loads((folder / "report.json").read_text())
    assert report["complete"]
    assert report["sent"] == {"web0": 100, "web1": 800, "web2": 800}
    assert report["loaded"] == {"stream": 1700, "batch": 1700}
    assert report["dead_letters"] == report["dead_letters_expected"] > 0
    assert list(report["audit"]["stages"]) == ["live", "mirror", "readers", "offline", "stream", "batch"]
    assert report["latency_s"]["p50"] <= report["latency_s"]["p99"] <= report["latency_s"]["max"]
    assert [kill["part"] for kill in report["kills"]] == list(KILLS)
    page = (folder / "report.html").read_text()
    assert page.count('class="kill"') == 4 * len(KILLS)
    assert all(f">{part}</th>" in page for part in KILLS)
    assert running_in(folder) == []
