"""The end of a command that serves, in a process of its own: signals before, during and after the wait."""

import signal
import subprocess
import sys

import pytest

TIMEOUT_S = 60.0


def run(body: str) -> subprocess.CompletedProcess[str]:
    text = "import os, signal, sys, threading, time\nfrom kafkalite.cli.ending import Ending\n" + body
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=TIMEOUT_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_before_the_wait_is_not_lost(number: int) -> None:
    """Sent to another thread, it leaves the main thread asleep: the wait has to see it all the same."""
    done = run(
        f"""
with Ending() as ending:
    sender = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), {int(number)}))
    sender.start()
    sender.join()
    print(ending.wait())
"""
    )
    assert (done.stdout, done.stderr, done.returncode) == (f"{int(number)}\n", "", 0)


def test_signal_to_a_sleeping_wait_by_way_of_another_thread() -> None:
    done = run(
        """
main = threading.get_ident()
def send():
    while sys._current_frames()[main].f_code.co_name != "wait":
        time.sleep(0.001)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

with Ending() as ending:
    threading.Thread(target=send).start()
    print(ending.wait())
"""
    )
    assert (done.stdout, done.stderr, done.returncode) == ("15\n", "", 0)


def test_failure_ends_the_wait_and_may_come_late() -> None:
    done = run(
        """
with Ending() as ending:
    threading.Thread(target=ending.failed).start()
    print(ending.wait())
ending.failed()
"""
    )
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)


def test_second_signal_ends_at_once() -> None:
    done = run(
        """
with Ending() as ending:
    os.kill(os.getpid(), signal.SIGTERM)
    ending.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""
    )
    assert done.returncode == 128 + signal.SIGTERM
