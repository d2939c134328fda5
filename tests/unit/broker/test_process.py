"""Settings for a broker's own process, which an application's process does not get."""

from __future__ import annotations

import subprocess
import sys

OWN = "from kafkalite.broker.process import own_process; own_process()"
THEIRS = "import kafkalite.broker.process"
PLAIN = "pass"


def switch_interval_after(code: str) -> float:
    program = f"{code}; import sys; print(sys.getswitchinterval())"
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def test_threads_of_a_brokers_own_process_hand_the_interpreter_over_soon() -> None:
    assert switch_interval_after(OWN) <= switch_interval_after(PLAIN) / 10


def test_an_application_keeps_its_own_interval() -> None:
    assert switch_interval_after(THEIRS) == switch_interval_after(PLAIN)
