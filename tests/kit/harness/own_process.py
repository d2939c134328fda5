"""Tests in a process of their own: what is swapped for a whole process must not meet what other tests run in it.

The pytest process, or one of xdist's workers, has the threads of fixtures that tests share, `kafka_broker` above all. A
test that puts something in the place of the disk, or makes its calls fail, would do it to that broker; the broker would
use up the fault, and be counted. So a test with

    @pytest.mark.own_process

is run, with its fixtures, in a fork, which has none of those threads. Whoever swaps calls `assert_alone` first.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import signal
import threading
import traceback
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

MARK = "own_process"

_shared = False
"""Whether tests run in this process one after another."""


def assert_alone(*, threads: bool = True) -> None:
    """AssertionError where other tests' threads run, or may: in pytest's process, or beside a broker's threads.

    With `threads` the test may have some of a broker's itself, which begin in its own process.
    """
    assert not _shared, f"a seam of the whole process is swapped in one that tests share: the mark {MARK} is missing"
    running = [thread.name for thread in threading.enumerate() if thread.name.startswith("kafkalite-")]
    assert threads or not running, f"a seam of the whole process is swapped beside threads of a broker: {running}"


def pytest_sessionstart() -> None:
    """From here on, fixtures may live longer than the test that asked for them."""
    global _shared
    _shared = True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a marked test elsewhere, and tells what it reported."""
    if item.get_closest_marker(MARK) is None:
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _run_in_fork(item):
        hook.pytest_runtest_logreport(report=report)
    # The test before left here what this one's module shares; after the last of that module nobody else ends it.
    item.session._setupstate.teardown_exact(nextitem)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run_in_fork(item: pytest.Item) -> list[Any]:
    item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for the run, not one for each test
    # The fork would wait for the watchdog's thread, which it does not have; here nothing can hang but the fork.
    faulthandler.cancel_dump_traceback_later()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            gc.freeze()  # what other threads were at when they were lost is nobody's to clear away
            os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(pickle.dumps(_run(item)))
        except BaseException:  # noqa: BLE001 - the parent tells that there was no report
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    ended = False
    try:
        with os.fdopen(reading, "rb") as pipe:
            told = pipe.read()
        _, status = os.waitpid(child, 0)
        ended = True
    finally:
        if not ended:  # the test's time is over
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if not told:
        return [_died(item, status)]
    from_data = item.config.hook.pytest_report_from_serializable
    return [from_data(config=item.config, data=data) for data in pickle.loads(told)]  # noqa: S301 - of this very program


def _run(item: pytest.Item) -> list[dict[str, Any]]:
    """In the fork: what the test's phases reported, as plain values."""
    global _shared
    _shared = False
    # Fixtures of the module and the session are left to the process that will need them again.
    reports = runtestprotocol(item, log=False, nextitem=item.parent)  # type: ignore[arg-type]
    to_data = item.config.hook.pytest_report_to_serializable
    return [to_data(config=item.config, report=report) for report in reports]


def _died(item: pytest.Item, status: int) -> pytest.TestReport:
    text = f"the test's own process ended without a report: wait status {status}"
    return pytest.TestReport(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), "failed", text, "call")
