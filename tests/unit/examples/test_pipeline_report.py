"""The report of the example pipeline: figures and verdict, from files such as a run leaves behind."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kafkalite.examples.pipeline.report import write_report
from kafkalite.examples.pipeline.run import Outcome, Plan
from kafkalite.examples.pipeline.stages import Kill, Samples
from kafkalite.load.manifest import Target
from kafkalite.load.parquet import Writing
from tests.kit.harness.load_target import publish_batches

BEGAN_MS = 1_700_000_000_000
SENT = {"web0": 100, "web1": 1000}


def visits(sent_ms: list[int]) -> pa.RecordBatch:
    count = len(sent_ms)
    decoded = [{"path": "/" if at % 4 else "/search", "status": 200} for at in range(count)]
    return pa.record_batch(
        {
            "topic": pa.array(["visits"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array(np.array(sent_ms) * 1000, pa.timestamp("us", tz="UTC")),
            "decoded": pa.array(decoded),
        }
    )


def load(folder: Path, sent_ms: list[int]) -> list[str]:
    target = Target(folder)
    with target.writing() as staging:
        writing = Writing(str(staging), f"part-{target.state.number + 1}", "zstd", 2**27, {}, skips=False)
        published = publish_batches(target, [visits(sent_ms)], writing)
    return [file.path for file in published.files]


def outcome(folder: Path, *, batch_count: int) -> Outcome:
    """A hundred visits before, loaded after 20 s; then a thousand in a second, loaded half a second after it."""
    warm = [BEGAN_MS - 20_000] * 100
    steady = [BEGAN_MS + at for at in range(1000)]
    commits = [
        {"published_ms": BEGAN_MS, "files": load(folder / "stream", warm)},
        {"published_ms": BEGAN_MS + 1500, "files": load(folder / "stream", steady)},
    ]
    load(folder / "batch", [*warm, *steady][:batch_count])
    stage = {"records": 1100, "unmarked": 0, "missing": 0, "duplicated": 0, "unreported": 0}
    audit = {"complete": True, "expected": 1100, "windows": 2, "stages": {"live": stage}, "differences": []}
    return Outcome(
        Plan(folder),
        SENT,
        folder / "stream",
        folder / "batch",
        BEGAN_MS,
        commits,
        {},
        audit,
        caught_up_s=0.5,
        seconds=60,
    )


def test_latency_is_from_the_timestamp_to_the_commit_without_the_warm_up(tmp_path: Path) -> None:
    report = write_report(outcome(tmp_path, batch_count=1100), tmp_path)
    assert report.complete
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["latency_s"] == {"mean": 1.0, "p50": 1.0, "p99": 1.49, "max": 1.5}
    assert (written["warm_up_s"], written["commits"]) == (20.0, 2)
    assert written["visits_by_path"] == {"/": 825, "/search": 275}
    text = (tmp_path / "report.md").read_text()
    assert "**mean 1.00 s, p50 1.00 s, p99 1.49 s, max 1.50 s** (2 commits; goal of 10 s mean: met)" in text
    assert "Audit: **complete** (1100 visits in 2 windows, in live)" in text
    page = (tmp_path / "report.html").read_text()
    assert "every visit arrived in every stage exactly once" in page
    assert page.count("<svg") == 4


def test_the_page_shows_kills_and_what_each_stage_lacked(tmp_path: Path) -> None:
    samples = Samples()
    for at in range(10):
        samples.add("live", BEGAN_MS / 1000 + at, 100 * at)
        samples.add("mirror", BEGAN_MS / 1000 + at, 100 * min(at, 4))
    killed = Kill("mirror <b>", BEGAN_MS / 1000 + 4.5, BEGAN_MS / 1000 + 6)
    ended = outcome(tmp_path, batch_count=1100)._replace(samples=samples, kills=(killed,))
    report = write_report(ended, tmp_path)
    assert report.document()["kills"] == [
        {"part": "mirror <b>", "killed_ms": BEGAN_MS + 4500, "back_ms": BEGAN_MS + 6000}
    ]
    page = (tmp_path / "report.html").read_text()
    assert 'title="mirror &lt;b&gt;"' in page
    assert "<td>4.5 s</td><td>1.5 s</td>" in page
    assert "<td>500</td><td>500</td>" in page, "its lag, at the end the maximum"
    assert "<script" not in page
    assert "Killed and restarted: mirror <b>." in (tmp_path / "report.md").read_text()


def test_letters_that_the_loaded_data_know_nothing_of_make_the_run_incomplete(tmp_path: Path) -> None:
    report = write_report(outcome(tmp_path, batch_count=1100)._replace(letters=1), tmp_path)
    assert (report.complete, report.letters_expected) == (False, 0)


@pytest.mark.parametrize("batch_count", [1099, 1000])
def test_a_load_that_lacks_visits_makes_the_run_incomplete(tmp_path: Path, batch_count: int) -> None:
    report = write_report(outcome(tmp_path, batch_count=batch_count), tmp_path)
    assert not report.complete
    assert "give NOT the same counts" in (tmp_path / "report.md").read_text()
