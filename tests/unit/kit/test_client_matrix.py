"""The client matrix shows the recorded results: every cell has a test, and the page matches the record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict

import pytest

from tests.compat import matrix
from tests.compat.matrix import CAPABILITIES, CLIENTS, Cell
from tests.compat.recorder import Recorder

COMPAT = matrix.ROOT / "tests" / "compat"


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """The record of a run with --collect-only: each cell that some test fills."""
    path = tmp_path_factory.mktemp("matrix") / "record.json"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", str(COMPAT)],
        cwd=matrix.ROOT,
        env={**os.environ, "KAFKALITE_COMPAT_RECORD": str(path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(path.read_text(encoding="utf-8"))["clients"]


def test_every_cell_has_a_test(collected: dict[str, dict]) -> None:
    found = {(folder, name) for folder, row in collected.items() for name in row["cells"]}
    assert found == matrix.expected_cells()
    assert {cell["state"] for row in collected.values() for cell in row["cells"].values()} == {"not run"}


def test_the_page_says_what_the_record_says() -> None:
    assert matrix.main(["--check"]) == 0, "run `make clients`"


def test_the_record_has_every_cell() -> None:
    """A row or column that was added since makes the published page old."""
    clients = json.loads(matrix.RECORD.read_text(encoding="utf-8"))["clients"]
    assert {(folder, name) for folder, row in clients.items() for name in row["cells"]} == matrix.expected_cells()


def test_a_folder_is_a_client_or_named() -> None:
    folders = {path.parent.name for path in COMPAT.glob("*/test_*.py")}
    assert folders - {"java_letters", "kafka_tools", "node_kafka", "programs", "samsa", "streams"} == set(CLIENTS)


@pytest.mark.parametrize(
    ("cell", "state"),
    [
        (Cell(), "not run"),
        (Cell(passed=3), "works"),
        (Cell(passed=3, failed=1), "fails"),
        (Cell(passed=3, not_run=1), "not run"),
        (Cell(failed=1, not_run=1), "fails"),
    ],
)
def test_a_cell_works_only_if_each_test_of_it_passed(cell: Cell, state: str) -> None:
    assert cell.state == state


def report(outcome: str, *, when: str = "call", why: str = "") -> pytest.TestReport:
    properties = [("cell", ["kcat", "groups"]), ("versions", ["1.7.1", "librdkafka 2.0.2"])]
    longrepr = ("a file", 1, why) if why else None
    return pytest.TestReport("a test", ("a file", 1, "a test"), {}, outcome, longrepr, when, user_properties=properties)


def test_outcomes_become_a_record() -> None:
    recorder = Recorder()
    for when in ("setup", "call", "teardown"):
        recorder.pytest_runtest_logreport(report("passed", when=when))
    row = recorder.record()["clients"]["kcat"]
    assert row["cells"] == {"groups": {"state": "works", "tests": 1}}
    assert (row["version"], row["runtime"]) == ("1.7.1", "librdkafka 2.0.2")
    recorder.pytest_runtest_logreport(report("skipped", when="setup", why="no kcat"))
    assert recorder.record()["clients"]["kcat"]["cells"]["groups"]["state"] == "not run"
    recorder.pytest_runtest_logreport(report("failed"))
    assert recorder.record()["clients"]["kcat"]["cells"]["groups"]["state"] == "fails"


def test_the_table_shows_each_state_and_the_reasons() -> None:
    cells = defaultdict(dict, {"groups": {"state": "not run", "tests": 1, "why": "no kcat"}})
    cells["idempotent"] = {"state": "works", "tests": 1}
    record = {"broker": "kafkalite 1", "clients": {"kcat": {"version": "1", "runtime": "", "cells": cells}}}
    row = dict(zip(CAPABILITIES, matrix.states(record, "kcat"), strict=True))
    assert (row["groups"], row["idempotent"], row["seek by time"], row["admin"]) == ("not run", "works", "not run", "—")
    text = matrix.table(record)
    assert "- kcat: not run: no kcat." in text
    assert "- kcat (admin): kcat produces" in text


def test_a_run_against_another_broker_makes_no_page() -> None:
    with pytest.raises(SystemExit):
        matrix.page(matrix.PAGE.read_text(encoding="utf-8"), {"broker": "the broker at host:1", "clients": {}})
