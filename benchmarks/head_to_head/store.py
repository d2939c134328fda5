"""Store a run's results as they come, so that an interrupted run has them and can continue.

    OUT/run.json            profile, machine, versions, settings, what was skipped and why, counts of messages
    OUT/rows/SYSTEM.jsonl   one line per measurement; a line {"end": true} ends each session
    OUT/*.png, OUT/*.svg    plots

`--resume` keeps complete sessions and drops the others, because a consumer test needs what its own session produced.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
PLOT_SUFFIXES = frozenset({".png", ".svg"})


class OtherRun(RuntimeError):
    """The folder has a run with other options, which this run cannot continue."""


class Store:
    """One folder of results. One thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run: Row = {}
        self._closed: set[str] = set()

    def begin(self, run: Row) -> None:
        """Begin a new run; delete the files of the last one."""
        if (self.folder / "rows").is_dir():
            for path in (self.folder / "rows").glob("*.jsonl"):
                path.unlink()
        for path in self.folder.glob("*") if self.folder.is_dir() else ():
            if path.suffix in PLOT_SUFFIXES:
                path.unlink()
        self.run, self._closed = run, set()
        self.save()

    def resume(self, run: Row) -> None:
        """Continue the run in this folder, or begin one. Raises OtherRun if its options differ."""
        if not (self.folder / "run.json").exists():
            self.begin(run)
            return
        found = load_run(self.folder)
        for key in ("profile", "options"):
            if found.get(key) != run.get(key):
                raise OtherRun(f"{self.folder} has a run with {key} {found.get(key)!r}, not {run.get(key)!r}")
        self.run = {**run, "counts": found.get("counts", {}), "systems": found.get("systems", {}) | run["systems"]}
        self.run["skipped"] = run["skipped"]
        for path in sorted((self.folder / "rows").glob("*.jsonl")):
            rows = list(_lines(path))
            closed = {row["session"] for row in rows if row.get("end")}
            path.write_text("".join(_line(row) for row in rows if row["session"] in closed))
            self._closed |= closed
        self.save()

    def is_closed(self, session: str) -> bool:
        return session in self._closed

    def add(self, system: str, row: Row) -> None:
        """Append a row and flush it."""
        path = self.folder / "rows" / f"{system}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(_line(row))

    def close(self, system: str, session: str) -> None:
        self.add(system, {"session": session, "end": True})
        self._closed.add(session)
        self.save()

    def save(self) -> None:
        """Write run.json atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / "run.json.new"
        fresh.write_text(json.dumps(self.run, indent=1, sort_keys=True) + "\n")
        fresh.replace(self.folder / "run.json")


def load_run(folder: Path) -> Row:
    """Return the contents of run.json."""
    run: Row = json.loads((folder / "run.json").read_text())
    return run


def load_rows(folder: Path) -> list[Row]:
    """Return all measurements of a folder, ordered by system name, then by time."""
    return [row for path in sorted((folder / "rows").glob("*.jsonl")) for row in _lines(path) if not row.get("end")]


def _lines(path: Path) -> Iterator[Row]:
    """Return the rows of a file, without an incomplete last line."""
    for text in path.read_text().splitlines():
        try:
            yield json.loads(text)
        except json.JSONDecodeError:
            return


def _line(row: Row) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"
