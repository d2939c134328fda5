"""The debug build stops at a broken invariant: each fault is seeded in a separate process, which must abort.

Run by `make test-debug`; the release build has no such checks (where it has others, they raise).
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite._native.base import debug

ROOT = Path(__file__).resolve().parents[4]
pytestmark = pytest.mark.skipif(not debug.ENABLED, reason="the release build: `make test-debug` runs these")

SETUP = """
import pathlib, sys
from kafkalite._native.log.record_format import v2
from kafkalite._native.log.segment import FileCache, Segment
from tests.kit.harness.log_harness import LogHarness, make_batch

log = LogHarness(pathlib.Path(sys.argv[1]), index_interval_bytes=1).open()
for _ in range(3):
    log.append(make_batch(2))
segment = log.active
"""

FAULTS = [
    pytest.param("log.core.set_offsets(0, 0, 3)", "log_core", "log_end_offset", id="an end that goes back"),
    pytest.param("log.core.set_offsets(5, 3, 9)", "log_core", "flushed", id="a flushed offset below the start"),
    pytest.param(
        "log.core.set_log_start(2); log.core.set_log_start(1)", "log_core", "log_start", id="a start that goes back"
    ),
    pytest.param("log.core.set_log_start(7)", "log_core", "log_start", id="a start beyond the end"),
    pytest.param("log.core.set_flushed(7)", "log_core", "flushed", id="flushed beyond the end"),
    pytest.param(
        "log.core.set_segments((segment, Segment(FileCache(9), v2, log.directory, 9, map_reserve=4096)))",
        "log_core",
        "base_offset",
        id="a gap between segments",
    ),
    pytest.param(
        "log.core.locked().__exit__()", "log_core", "PyThread_acquire_lock", id="a lock given back that nobody holds"
    ),
    pytest.param(
        "log.core.deferred_appends = -1; log.append(make_batch())",
        "log_append",
        "deferred_appends",
        id="fewer than no appends that wait",
    ),
    pytest.param("segment.__enter__(); segment.__exit__(); segment.__exit__()", "segment", "pins", id="a double unpin"),
    pytest.param("segment.__enter__(); segment.cut(0)", "segment", "pins", id="a pinned segment that is cut"),
    pytest.param("segment.set_flushed(segment.size + 1)", "segment", "size", id="flushed bytes that nobody wrote"),
    pytest.param("segment.add_damage(5, 4, 0, 1)", "segment", "position", id="damage that ends before it begins"),
    pytest.param(
        "segment.index.add(10**9, 10**9, 0); log.append(make_batch())",
        "index",
        "offsets",
        id="an index entry that does not rise",
    ),
]


@pytest.mark.parametrize(("fault", "module", "condition"), FAULTS)
def test_a_seeded_fault_aborts_at_the_invariant_that_it_breaks(
    tmp_path: Path, fault: str, module: str, condition: str
) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", SETUP + fault, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == -signal.SIGABRT, result.stderr
    line = result.stderr.splitlines()[0]
    assert f"{module}.pyx:" in line
    assert "invariant broken: " in line
    assert condition in line
    assert 'File "<string>"' in result.stderr, "faulthandler shows who led there"


def test_the_same_log_without_a_fault_does_not_abort(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SETUP + "log.append(make_batch()); log.close()", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
