"""The end of a command that serves, in a separate process: signals before, during and after the wait."""

import signal
import subprocess
import sys

import pytest

TIMEOUT_S = 60.0


def run(body: str) -> subprocess.CompletedProcess[str]:
    text = "import os, signal, sys, threading, time\nfrom kafkalite.base.ending import Ending\n" + body
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


def test_signal_meanwhile_calls_once_and_is_still_there_for_the_wait() -> None:
    done = run(
        """
called = threading.Event()
with Ending(told=(signal.SIGHUP,)) as ending:
    with ending.meanwhile(called.set):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        called.wait()
    print(ending.wait(), ending.wait())
    with ending.meanwhile(called.clear):
        pass
    print(called.is_set())
"""
    )
    assert (done.stdout, done.stderr, done.returncode) == ("1 15\nTrue\n", "", 0)


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


def test_ctrl_c_and_then_the_sigterm_of_a_parent_is_one_stop() -> None:
    done = run(
        """
with Ending() as ending:
    os.kill(os.getpid(), signal.SIGINT)
    print(ending.wait())
    os.kill(os.getpid(), signal.SIGTERM)
    print(ending.wait())
"""
    )
    assert (done.stdout, done.stderr, done.returncode) == ("2\n15\n", "", 0)


def test_stdin_that_ends_after_sigterm_does_not_end_the_process_at_once() -> None:
    """As under systemd, which sends SIGTERM to a broker and its children: the broker then closes the child's stdin."""
    done = run(
        """
from kafkalite.base.ending import until_stdin_ends
reader, writer = os.pipe()
os.dup2(reader, 0)
with Ending() as ending, until_stdin_ends(wanted=True):
    watch = next(thread for thread in threading.enumerate() if thread.name == "stdin-watch")
    os.kill(os.getpid(), signal.SIGTERM)
    print(ending.wait(), flush=True)
    os.close(writer)
    watch.join()
    print("stopped in order")
"""
    )
    assert (done.stdout, done.stderr, done.returncode) == ("15\nstopped in order\n", "", 0)


def test_work_that_may_be_killed_ends_at_once_and_says_its_last_word() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        done = run(
            f"""
from kafkalite.base.ending import ended_at_once
with ended_at_once(lambda: print("so far 7", flush=True)):
    try:
        os.kill(os.getpid(), {number})
        time.sleep(60)
    except BaseException:
        print("a library's traceback")
"""
        )
        assert (done.stdout, done.stderr, done.returncode) == ("so far 7\n", "", 128 + number)


def test_work_that_is_done_leaves_the_handlers_as_they_were() -> None:
    done = run(
        """
from kafkalite.base.ending import ended_at_once
before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
with ended_at_once(lambda: 1 / 0):
    pass
print(before == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)))
with ended_at_once(lambda: 1 / 0):
    os.kill(os.getpid(), signal.SIGTERM)
"""
    )
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 128 + signal.SIGTERM)
