"""kcat -X transactional.id: what it reads until the end of its input is one transaction; Ctrl-C aborts it.

It has no offsets in transactions, and its consumer reads what is committed.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.compat.kcat.test_kcat import create, kcat, reach
from tests.compat.records import values_to_end
from tests.compat.transactions import ABORTED, COMMITTED
from tests.kit.processes.broker import wait_until

__all__ = ["kcat"]

TIMEOUT_S = 30


@pytest.mark.capability("transactions")
def test_end_of_input_commits_and_interrupt_aborts(kcat: Callable[..., str], bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    producing = ["-P", "-t", topic, "-p", "0", "-X", f"transactional.id=id-{topic}"]
    running = subprocess.Popen(["kcat", *reach(bootstrap), *producing], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdin is not None
    running.stdin.write("".join(f"{value}\n" for value in ABORTED * 500).encode())  # kcat reads whole blocks
    running.stdin.flush()
    wait_until(lambda: values_to_end(bootstrap, topic, "read_uncommitted"), TIMEOUT_S, "the open transaction")
    assert values_to_end(bootstrap, topic, "read_committed") == []
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=TIMEOUT_S)
    assert values_to_end(bootstrap, topic, "read_committed") == []
    kcat(*producing, text="".join(f"{value}\n" for value in COMMITTED))
    wait_until(
        lambda: values_to_end(bootstrap, topic, "read_committed") == COMMITTED, TIMEOUT_S, "what was committed, alone"
    )
    assert set(values_to_end(bootstrap, topic, "read_uncommitted")) == {*ABORTED, *COMMITTED}
    reading = ["-C", "-t", topic, "-o", "beginning", "-e", "-q", "-X", "isolation.level=read_committed"]
    assert kcat(*reading).split() == COMMITTED
