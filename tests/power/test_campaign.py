"""Results that are kept, counted and taken up again; moments that are drawn; the page."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.power import campaign, proof, trace
from tests.power.__main__ import seeds
from tests.power.judge import Verdict
from tests.power.moments import Moments
from tests.power.prove import State
from tests.power.trace import Record

if TYPE_CHECKING:
    import pytest


def write_rows(place: Path, seed: int, *rows: dict[str, object]) -> Path:
    path = place / f"seed-{seed}.states"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(number: int, model: str = "posix", **changes: object) -> dict[str, object]:
    verdict = Verdict(cpu_s=0.5)
    return campaign.row_of(State(number, 100, model), verdict) | changes


def test_what_was_judged_is_not_judged_again(tmp_path: Path) -> None:
    path = write_rows(tmp_path, 1, row(0), row(2))
    assert campaign._missing(tmp_path, "seed-1", 4) == [1, 3]
    path.write_text(path.read_text() + json.dumps(row(3))[:20])
    assert campaign._missing(tmp_path, "seed-1", 4) == [1, 3], "a line that was cut off counts for nothing"
    assert campaign._missing(tmp_path, "seed-2", 2) == [0, 1]


def test_counts_of_a_commit(tmp_path: Path) -> None:
    write_rows(tmp_path, 1, row(0), row(1, "ext4", findings=["x", "y"]), row(1, "ext4", findings=["x", "y"]))
    write_rows(tmp_path, 2, row(0, refused="no"), row(2))
    (tmp_path / "replicas-1.states").write_text(json.dumps(row(0)) + "\n")
    (tmp_path / "audit-1").write_text(json.dumps({"count": 10, "gone": 1, "early": ["z"], "early_count": 1}))
    (tmp_path / "audit-2").write_text(json.dumps({"count": 5, "gone": 0, "early": [], "early_count": 0}))
    assert campaign.summarise(tmp_path) == {
        "seeds": 2,
        "states": {"posix": 3, "ext4": 1},
        "replicas": {"posix": 1},
        "findings": 1,
        "refused": 1,
        "audited": 15,
        "early": 1,
        "cpu_s_per_state": 0.5,
    }


def a_page(**rows: Any) -> str:
    """The page with one row of some families."""
    return proof.page(*([rows[name]] if name in rows else [] for name in proof.FAMILIES))


def test_page_is_that_of_the_counts() -> None:
    found = proof.page(*map(proof.load, proof.FAMILIES))
    assert proof.PAGE.read_text(encoding="utf-8") == found, "run `python -m tests.power page`"


def test_page_has_a_row_a_commit() -> None:
    models = {"posix": 1500, "ext4": 1500}
    counts = {"seeds": 5, "states": models, "replicas": models, "findings": 0, "audited": 50_001, "early": 0}
    text = a_page(power={"commit": "abc", "cpu_s_per_state": 0.123, **counts})
    assert "| `abc` | 5 | 1,500 | 1,500 | 3,000 | 0 | 50,001 | 0 | 0.12 s |" in text
    kills = {"kills": 200, "acknowledged": 70_000, "in_doubt": 4_800, "kept": 100, "findings": 0}
    assert "| `def` | 200 | 70,000 | 4,800 | 100 | 0 |" in a_page(kills={"commit": "def", **kills})
    cluster = {"faults": 200, "acknowledged": 200_000, "transactions": 4_000, "aborted": 900, "commits": 7_000}
    row = {"commit": "jkl", "brokers": "mixed", "findings": 0, **cluster}
    assert "| `jkl` | mixed | 200 | 200,000 | 4,000 | 900 | 7,000 | 0 |" in a_page(cluster=row)
    fuzz = {"build": "asan", "minutes": 30.0, "tls": 100_000, "sasl": 1_000_000, "http": 50_000}
    text = a_page(fuzz={"commit": "ghi", **fuzz})
    assert "| `ghi` | asan | 30 | 100,000 | 1,000,000 | 50,000 |" in text
    seeds_played = {"commit": "mno", "seeds": 10_000, "steps": 5_000_000, "broken": 0}
    assert "| `mno` | 10,000 | 5,000,000 | 0 |" in a_page(failures=seeds_played)
    turns = {"turns": 5, "acknowledged": 70_000, "read": 70_000, "transactions": 900, "aborted": 300, "given_again": 40}
    row = {"commit": "pqr", "older": "0.1.0", "findings": 0, **turns}
    assert "| `pqr` | 0.1.0 | 5 | 70,000 | 70,000 | 900 | 300 | 40 | 0 |" in a_page(upgrades=row)
    loads = {"kills": 200, "steps": 80, "at_random": 100, "completed": 30, "checked": 80_000, "findings": 0}
    row = {"commit": "stu", "load": "native, hdfs", **loads}
    assert "| `stu` | native, hdfs | 200 | 80 | 100 | 30 | 80,000 | 0 |" in a_page(loads=row)
    assert a_page().count(proof.NONE) == len(proof.FAMILIES)


def test_a_run_is_recorded_with_its_seeds_date_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    families = {name: each._replace(path=tmp_path / f"{name}.json") for name, each in proof.FAMILIES.items()}
    monkeypatch.setattr(proof, "FAMILIES", families)
    monkeypatch.setattr(proof, "PAGE", tmp_path / "proof.md")
    row = {"faults": 1, "acknowledged": 2, "transactions": 3, "aborted": 4, "commits": 5, "findings": 0}
    for brokers, faults in (("mixed", 1), ("java", 1), ("mixed", 7)):
        proof.add("cluster", "abc", {**row, "brokers": brokers, "faults": faults}, "0-6")
    rows = proof.load("cluster")
    assert [(each["brokers"], each["faults"]) for each in rows] == [("java", 1), ("mixed", 7)]
    assert rows[0]["run"].keys() == {"seeds", "date", "machine"}
    assert rows[0]["run"]["seeds"] == "0-6"
    assert "| `abc` | mixed | 7 | 2 | 3 | 4 | 5 | 0 | 0 |" in proof.PAGE.read_text(encoding="utf-8")


def test_seeds_are_numbers_and_ranges() -> None:
    assert seeds("1-3") == [1, 2, 3]
    assert seeds("7,2-3") == [7, 2, 3]


def test_moments_are_drawn_near_what_matters_and_everywhere() -> None:
    def record(number: int, kind: int, a: int = 0, b: int = 0) -> Record:
        return Record(number * 8, kind, 0, 1, a, b, 0, "", b"")

    records = [record(0, trace.PROCESS), record(1, trace.MARK, trace.MARK_READY)]
    records += [record(number, trace.CLOSE) for number in range(2, 1000)]
    records[500] = record(500, trace.SEND)
    records[700] = record(700, trace.OPEN, b=os.O_CREAT)
    moments = Moments("/data", records)
    draw = random.Random(1)
    drawn = [moments.draw(draw) // 8 for _ in range(2000)]
    near = [sum(place < number <= place + 5 for number in drawn) for place in (500, 700)]
    assert min(near) > 300, "right behind an answer, and behind a new name"
    assert len(set(drawn)) > 150, "and anywhere else"
    again = random.Random(1)
    assert drawn == [moments.draw(again) // 8 for _ in range(2000)]
