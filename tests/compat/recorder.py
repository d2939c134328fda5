"""The pytest plugin behind the client matrix: which test belongs to which cell, and what became of it.

Outcomes travel in the reports' user properties, so that a run spread over processes is recorded as well. Recording is
asked for with KAFKALITE_COMPAT_RECORD=FILE; every run prints the table of what it ran.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from kafkalite import __version__
from tests.compat import versions
from tests.compat.matrix import CAPABILITIES, CLIENTS, Cell

HERE = Path(__file__).resolve().parent


def cell_of(item: pytest.Item) -> tuple[str, str] | None:
    """Return a test's (folder, capability) if it fills a cell; a marker that names none is a usage error."""
    marker = item.get_closest_marker("capability")
    if marker is None:
        return None
    folder, (capability,) = item.path.parent.name, marker.args
    if folder not in CLIENTS or capability not in CAPABILITIES or capability in CLIENTS[folder].absent:
        raise pytest.UsageError(f"{item.nodeid}: the matrix has no cell {folder}, {capability!r}")
    return folder, capability


class Recorder:
    """Collects one run's outcomes and writes them at its end."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], Cell] = defaultdict(Cell)
        self.versions: dict[str, tuple[str, str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if item.path.is_relative_to(HERE) and (cell := cell_of(item)):
                item.user_properties.append(("cell", cell))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """With --collect-only, record each test as not run."""
        if session.config.option.collectonly:
            self._missed(session.items, "collected only")

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._missed(items, "left out of this run")

    def _missed(self, items: list[pytest.Item], why: str) -> None:
        for item in items:
            if item.path.is_relative_to(HERE) and (cell := cell_of(item)):
                self.cells[cell].not_run += 1
                self.cells[cell].why = why

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]):
        """Adds the client's versions where a test of it passed: then it is installed."""
        passed = call.when == "call" and call.excinfo is None
        if passed and item.path.is_relative_to(HERE) and (cell := cell_of(item)):
            item.user_properties.append(("versions", versions.of(cell[0])))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = dict(report.user_properties)
        if "cell" not in found:
            return
        folder, capability = found["cell"]
        cell = self.cells[folder, capability]
        if report.failed:
            cell.failed += 1
        elif report.skipped:
            cell.not_run += 1
            cell.why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        elif report.when == "call":
            cell.passed += 1
        if "versions" in found:
            self.versions[folder] = tuple(found["versions"])

    def record(self) -> dict[str, object]:
        """What matrix.py describes; clients and cells without a test in this run are left out."""
        clients: dict[str, object] = {}
        for folder in CLIENTS:
            names = [name for name in CAPABILITIES if (folder, name) in self.cells]
            if names:
                version, runtime = self.versions.get(folder, ("", ""))
                cells = {name: self.cells[folder, name].as_json() for name in names}
                clients[folder] = {"version": version, "runtime": runtime, "cells": cells}
        foreign = os.environ.get("KAFKALITE_COMPAT_BOOTSTRAP")
        door = os.environ.get("KAFKALITE_COMPAT_DOOR")
        ours = f"kafkalite {__version__}" + (f", by SASL_SSL with {door} and with rules" if door else "")
        return {"broker": f"the broker at {foreign}" if foreign else ours, "clients": clients}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        path = os.environ.get("KAFKALITE_COMPAT_RECORD")
        if path and not hasattr(session.config, "workerinput"):
            Path(path).write_text(json.dumps(self.record(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
