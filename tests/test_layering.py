"""Who may import whom, where import-linter cannot look: cimports between native modules, and what an import costs.

The Python rooms' rules are contracts in pyproject.toml, run by `make lint` and by the first test here.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "ext" / "kafkalite" / "_native"

RANKS = [
    {"status", "cursor"},
    {"crc32", "crc32c", "file_ops"},
    {
        "message_set",
        "old_message",
        "growing",
        "batch",
        "codec",
        "index",
        "record_format",
        "columns",
        "lines",
        "key_map",
        "avro_decode",
        "avro_encode",
    },
    {"scan", "segment", "aborted", "producers", "compaction", "stream"},
    {"log_core", "classic_log"},
    {"topic_table"},
    {"transfer"},
    {"request_parts"},
    {"fetch_session"},
    {"produce", "fetch"},
    {"connection"},
    {"classic_connection"},
]
"""Native modules from the bottom up: each may cimport what stands lower, or beside it."""

CIMPORT = re.compile(r"^\s*from kafkalite\._native\.(\w+) cimport", re.MULTILINE)


def rank_of(name: str) -> int:
    return next((rank for rank, names in enumerate(RANKS) if name in names), -1)


def upward_cimports(name: str, text: str) -> list[str]:
    return [target for target in CIMPORT.findall(text) if rank_of(target) > rank_of(name)]


@pytest.mark.parametrize("path", sorted(NATIVE.glob("*.p[yx][xd]")), ids=lambda path: path.name)
def test_native_modules_look_down_only(path: Path) -> None:
    if path.stem == "__init__":
        return
    assert rank_of(path.stem) >= 0, f"give {path.stem} its place in RANKS"
    assert upward_cimports(path.stem, path.read_text(encoding="utf-8")) == []


def test_an_upward_cimport_is_found() -> None:
    assert upward_cimports("index", "from kafkalite._native.segment cimport Segment\n") == ["segment"]
    assert upward_cimports("segment", "from kafkalite._native.index cimport Index\n") == []


def test_rooms_keep_their_contracts() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        pytest.param("import kafkalite", ["numpy", "kafkalite.broker", "kafkalite.config"], id="the package alone"),
        pytest.param("import kafkalite.testing", ["numpy", "kafkalite.broker"], id="the pytest plugin, in every run"),
        pytest.param("import kafkalite.config", ["numpy", "kafkalite._native"], id="settings"),
    ],
)
def test_importing_costs_no_more_than_it_must(statement: str, absent: list[str]) -> None:
    script = f"{statement}\nimport sys\nprint(','.join(name for name in {absent!r} if name in sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
