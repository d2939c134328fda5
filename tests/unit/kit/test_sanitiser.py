"""The address sanitiser is loaded first by programs of ours, and by no other."""

import sys
from pathlib import Path

import pytest

from tests.kit.harness.sanitiser import is_ours, preloads

SANITISER = "/usr/lib/gcc/libasan.so"


@pytest.mark.parametrize(
    ("before", "ours", "expected"),
    [
        pytest.param(None, True, SANITISER, id="nothing yet"),
        pytest.param("libfaketime.so", True, f"{SANITISER}:libfaketime.so", id="behind another"),
        pytest.param(f"libfaketime.so:{SANITISER}", True, f"{SANITISER}:libfaketime.so", id="moved to the front"),
        pytest.param(f"{SANITISER}:libfaketime.so", False, "libfaketime.so", id="not for others"),
        pytest.param(f"{SANITISER}:libstdc++.so.6", True, f"{SANITISER}:libstdc++.so.6", id="what it needs stays"),
        pytest.param(SANITISER, False, "", id="nothing left"),
    ],
)
def test_sanitiser_is_first_for_ours_and_absent_for_others(before: str | None, ours: bool, expected: str) -> None:
    environment = {} if before is None else {"LD_PRELOAD": before}
    assert preloads(environment, ours=ours, sanitiser=SANITISER) == expected


def test_this_python_and_its_scripts_are_ours() -> None:
    assert is_ours(["sh", "-c", f"ulimit -n 8; exec {sys.executable} -c pass"])
    assert not is_ours(["sh", "-c", "true"])
    assert is_ours([sys.executable, "-c", "pass"])
    assert is_ours([Path(sys.executable).parent / "kafkalite", "start"])
    assert not is_ours(["java", "-version"])
    assert not is_ours(["/usr/bin/node", "x.js"])
    assert not is_ours("true")
