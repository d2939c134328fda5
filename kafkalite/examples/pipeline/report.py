"""Report the results of a run, as HTML, Markdown and JSON: counts, the audit's verdict, and latency.

A visit's latency begins at its timestamp, which the front end sets. It ends when readers of the loaded directory see
the visit. Both times are of the same machine's clock.

Thread rule: functions are pure, except for the files that they read and write.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalite.examples.pipeline.follow_up import FLAKY
from kafkalite.examples.pipeline.page import Line, page
from kafkalite.examples.pipeline.stages import Samples
from kafkalite.examples.pipeline.visits import WARM_UP

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from kafkalite.examples.pipeline.run import Outcome
    from kafkalite.examples.pipeline.stages import Kill

GOAL_S: Final = 10.0
"""The Kafka paper's latency: from producers in the live data center to the offline cluster's loaded data."""


@dataclass(frozen=True, slots=True)
class Report:
    """The results, and whether they are correct."""

    sent: dict[str, int]
    loaded: dict[str, int]
    """Number of loaded visits, by kind of load."""
    same_answer: bool
    """Whether streaming and batch load give the same number of visits by path and status."""
    paths: dict[str, int]
    latency: dict[str, float]
    """mean, p50, p99 and max, in seconds, of visits after the warm-up."""
    warm_up_s: float
    """The mean during the warm-up: Spark starts its workers for the first batch."""
    commits: int
    caught_up_s: float
    audit: dict[str, Any]
    seconds: float
    letters: int
    letters_expected: int
    """Number of loaded visits whose follow-up must fail permanently."""
    kills: tuple[Kill, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every visit arrived everywhere exactly once."""
        total = sum(self.sent.values())
        arrived = bool(self.audit["complete"]) and self.same_answer and set(self.loaded.values()) == {total}
        return arrived and self.letters == self.letters_expected

    def document(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "complete": self.complete,
            "sent": self.sent,
            "loaded": self.loaded,
            "same_answer": self.same_answer,
            "visits_by_path": self.paths,
            "latency_s": {name: round(value, 3) for name, value in self.latency.items()},
            "latency_goal_s": GOAL_S,
            "warm_up_s": round(self.warm_up_s, 3),
            "commits": self.commits,
            "caught_up_s": round(self.caught_up_s, 3),
            "dead_letters": self.letters,
            "dead_letters_expected": self.letters_expected,
            "audit": self.audit,
            "seconds": round(self.seconds, 1),
            "kills": [
                {
                    "part": kill.part,
                    "killed_ms": round(kill.killed_s * 1000),
                    "back_ms": None if kill.back_s is None else round(kill.back_s * 1000),
                }
                for kill in self.kills
            ],
        }

    def text(self) -> str:
        """Return the report in Markdown."""
        audit = self.audit
        lines = ["# Report of a pipeline run", "", "| | visits |", "| --- | --- |"]
        lines += [f"| sent by {server} | {count} |" for server, count in self.sent.items()]
        lines += [f"| {stage}, counted by the audit | {row['records']} |" for stage, row in audit["stages"].items()]
        verdict = "complete" if audit["complete"] else f"{len(audit['differences'])} differences"
        scope = f"{audit['expected']} visits in {audit['windows']} windows"
        lines += ["", f"Audit: **{verdict}** ({scope}, in {', '.join(audit['stages'])})."]
        lines += [
            f"- {row['stage']}, {row['window']}, {row['server']}: {row['missing']} missing, {row['duplicated']} "
            f"duplicated, {row['unreported']} unreported of {row['expected']}"
            for row in audit["differences"]
        ]
        same = "the same" if self.same_answer else "NOT the same"
        lines += ["", f"Streaming and batch load give {same} counts by path and status."]
        failed = f"{self.letters} visits could not be handled and became dead letters"
        lines += ["", f"{failed}; the loaded data contain {self.letters_expected} such visits."]
        times = ", ".join(f"{name} {value:.2f} s" for name, value in self.latency.items())
        met = "met" if self.latency["mean"] <= GOAL_S else "missed"
        goal = f"goal of {GOAL_S:g} s mean: {met}"
        lines += ["", f"Latency from producer to loaded data: **{times}** ({self.commits} commits; {goal})."]
        lines += [f"The last visit was loaded {self.caught_up_s:.1f} s after the servers had ended."]
        warm_up = f"they took {self.warm_up_s:.1f} s, because Spark was starting"
        lines += [f"The first {self.sent[WARM_UP]} visits are left out of the latency; {warm_up}."]
        if self.kills:
            lines += ["", f"Killed and restarted: {', '.join(kill.part for kill in self.kills)}."]
        lines += ["", "| path | visits |", "| --- | --- |"]
        lines += [f"| {path} | {count} |" for path, count in self.paths.items()]
        lines += ["", f"The whole run took {self.seconds:.0f} s.", ""]
        return "\n".join(lines)


def write_report(outcome: Outcome, folder: Path) -> Report:
    """Write report.html, report.md and report.json into `folder`. Return the report."""
    from kafkalite.load.reading import dataset

    sent_at, latencies = latencies_of(outcome)
    warm = int(np.searchsorted(sent_at, outcome.began_ms / 1000))
    by_path = {name: answers(dataset(path)) for name, path in (("stream", outcome.stream), ("batch", outcome.batch))}
    paths: dict[str, int] = {}
    for (path, _), count in by_path["stream"].items():
        paths[path] = paths.get(path, 0) + count
    report = Report(
        outcome.sent,
        {name: sum(rows.values()) for name, rows in by_path.items()},
        by_path["stream"] == by_path["batch"],
        dict(sorted(paths.items(), key=lambda row: -row[1])),
        figures(latencies[warm:]),
        float(latencies[:warm].mean()),
        len(outcome.commits),
        outcome.caught_up_s,
        outcome.audit,
        outcome.seconds,
        outcome.letters,
        sum(count for (path, status), count in by_path["stream"].items() if status == 500 and path != FLAKY),
        outcome.kills,
    )
    lines = latency_lines(sent_at[warm:], latencies[warm:])
    shown = page(report.document(), outcome.samples or Samples(), outcome.kills, lines)
    (folder / "report.html").write_text(shown, encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(report.document(), indent=1) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(report.text(), encoding="utf-8")
    return report


def latencies_of(outcome: Outcome) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two arrays with one item per visit: the time of sending (s since 1970), and the latency until it was
    loaded (s).
    """
    import pyarrow as pa
    from pyarrow import parquet

    sent, took = [np.empty(0)], [np.empty(0)]
    for commit in outcome.commits:
        for name in commit["files"]:
            column = parquet.read_table(outcome.stream / name, columns=["timestamp"], partitioning=None).column(0)
            stamps = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy() / 1e6
            sent.append(stamps)
            took.append(commit["published_ms"] / 1000 - stamps)
    times, latencies = np.concatenate(sent), np.concatenate(took)
    order = np.argsort(times, kind="stable")
    return times[order], latencies[order]


def figures(latencies: NDArray[np.float64]) -> dict[str, float]:
    """Return mean, p50, p99 and max."""
    p50, p99 = np.percentile(latencies, [50, 99])
    return {"mean": float(latencies.mean()), "p50": float(p50), "p99": float(p99), "max": float(latencies.max())}


def answers(loaded: Any) -> dict[tuple[str, int], int]:
    """Return the number of visits by path and status: the result of an example query on the loaded data."""
    from pyarrow import compute

    table = loaded.to_table(columns={name: compute.field("decoded", name) for name in ("path", "status")})
    counted = table.group_by(["path", "status"]).aggregate([([], "count_all")]).to_pylist()
    return {(row["path"], row["status"]): row["count_all"] for row in counted}


def latency_lines(sent_at: NDArray[np.float64], latencies: NDArray[np.float64]) -> list[Line]:
    """Return the mean and p99 of the latency as lines, by the second of sending."""
    whole = np.floor(sent_at).astype(np.int64)
    starts = np.flatnonzero(np.diff(whole, prepend=-1))
    groups = np.split(latencies, starts[1:])
    times = whole[starts].astype(np.float64)
    return [
        Line("mean", 0, times, np.array([group.mean() for group in groups])),
        Line("p99", 1, times, np.array([np.percentile(group, 99) for group in groups])),
    ]
