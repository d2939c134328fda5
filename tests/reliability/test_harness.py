"""The harness itself, on a broker that cheats: clients, sockets and checker must find each planted fault.

The broker is benchmarks/null_broker in its storing mode, with a fault at a regular number of batches. An honest run of
the same broker is the control.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.path.harness import program
from tests.kit.checkers.ledger import Ledger
from tests.kit.harness.load import Producers, read_all
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import wait_until


@pytest.fixture
def null_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """Port of a null broker with the fault named by the parameter."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to build the null broker with")
    ready = tmp_path / "ready"
    arguments = ["--mode", "append", "--data-dir", str(tmp_path), "--ready-file", str(ready), "--partitions", "4"]
    process = subprocess.Popen([program("null_broker"), *arguments, "--fault", request.param])
    wait_until(ready.exists, 10, "the null broker")
    yield int(ready.read_text().rsplit(":", 1)[1])
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("null_broker", "kind"),
    sample(
        [
            ("none", None),
            ("forget", "lost"),
            ("double", "doubled"),
            ("flip", "changed"),
            ("move", "moved"),
            ("swap", "reordered"),
        ],
        3,
    ),
    indirect=["null_broker"],
    ids=["control", "forget", "double", "flip", "move", "swap"],
)
def test_planted_fault_is_found(null_broker: int, kind: str | None, seed: int) -> None:
    ledger = Ledger()
    settings = {"enable.idempotence": False, "max.in.flight": 1, "batch.num.messages": 10}  # each 50th batch is spoiled
    bootstrap = f"127.0.0.1:{null_broker}"
    producers = Producers(bootstrap, "load", ledger, 4, producer_count=1, settings=settings, seed=seed).start()
    deadline = time.monotonic() + 20
    while ledger.acknowledged_count < 3000 and time.monotonic() < deadline:
        time.sleep(0.02)
    producers.stop()
    assert ledger.acknowledged_count >= 3000
    verdict = ledger.judge(read_all(null_broker, "load", 4))
    if kind is None:
        assert verdict, str(verdict)
    else:
        assert kind in verdict.kinds, str(verdict)
