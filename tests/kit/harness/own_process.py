"""Tests in a process of their own: what is swapped for a whole process must not meet what other tests run in it.

The pytest process, or one of xdist's workers, has the threads of fixtures that tests share, `kafka_broker` above all. A
test that puts something in the place of the disk, or makes its calls fail, would do it to that broker; the broker would
use up the fault, and be counted. So a test with

    @pytest.mark.own_process

is run, with its fixtures, in a fork of the process as it was before its first test: with none of those threads, nor
what they held at the time. (Of a process at work a fork may inherit a lock that nobody will ever open, which the
allocator of the address sanitiser showed.) Whoever swaps calls `assert_alone` first.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import threading
import traceback
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

MARK = "own_process"
ABORT_S = 5

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


class Unused:
    """This process as it is now, kept for forks of it: a fork that does nothing but that."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._numbers = {item: number for number, item in enumerate(items)}
        self._ours, theirs = Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._ours.close()
                _serve(theirs, items)
            finally:
                os._exit(0)
        theirs.close()

    def run(self, item: pytest.Item) -> tuple[bytes, int]:
        """What `_told` of the test gives in a fork of its own, and the fork's wait status."""
        self._ours.send(self._numbers[item])
        child: int = self._ours.recv()
        try:
            ended: tuple[bytes, int] = self._ours.recv()
        except BaseException:  # the test's time is over
            os.kill(child, signal.SIGABRT)  # at which faulthandler tells the stacks of its threads
            self._ours.poll(ABORT_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # with what it began, which may hold the pipe it tells by
            self._ours.recv()
            raise
        return ended

    def close(self) -> None:
        self._ours.close()
        os.kill(self._pid, signal.SIGKILL)  # it only waits, and would for as long as anybody else holds our end
        os.waitpid(self._pid, 0)


_UNUSED = pytest.StashKey[Unused]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Before xdist is told what there is, and its thread is busy with what comes back."""
    if any(item.get_closest_marker(MARK) for item in session.items) and not session.config.option.collectonly:
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for the run, not for a test
        session.stash[_UNUSED] = Unused(session.items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _UNUSED in session.stash:
        session.stash[_UNUSED].close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a marked test elsewhere, and tells what it reported."""
    if item.get_closest_marker(MARK) is None:
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    try:
        told, status = item.session.stash[_UNUSED].run(item)
        reports = _reports(item, told) if told else [_died(item, f"without a report: wait status {status}")]
    except pytest.fail.Exception as late:
        reports = [_died(item, f"by force: {late}")]
    for report in reports:
        hook.pytest_runtest_logreport(report=report)
    # The test before left here what this one's module shares; after the last of that module nobody else ends it.
    item.session._setupstate.teardown_exact(nextitem)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _serve(asked: Connection, items: Sequence[pytest.Item]) -> None:
    """Runs the tests whose numbers come, each in a fork; says its process first, then what it told and its status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks is interrupted, and goes
    gc.freeze()  # what other threads were at when they were lost is nobody's to clear away
    while True:
        try:
            item = items[asked.recv()]
        except EOFError:
            return
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setpgid(0, 0)
                asked.close()
                os.close(reading)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                with os.fdopen(writing, "wb") as pipe:
                    pipe.write(_told(item))
            except BaseException:  # noqa: BLE001 - the parent tells that there was no report
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(writing)
        asked.send(child)
        with os.fdopen(reading, "rb") as pipe:
            told = pipe.read()
        _, status = os.waitpid(child, 0)
        asked.send((told, status))


def _told(item: pytest.Item) -> bytes:
    """In the fork: what the test's phases reported, as plain values."""
    global _shared
    _shared = False
    to_data = item.config.hook.pytest_report_to_serializable
    reports = runtestprotocol(item, log=False, nextitem=None)
    return pickle.dumps([to_data(config=item.config, report=report) for report in reports])


def _reports(item: pytest.Item, told: bytes) -> list[Any]:
    from_data = item.config.hook.pytest_report_from_serializable
    return [from_data(config=item.config, data=data) for data in pickle.loads(told)]  # noqa: S301 - of this very program


def _died(item: pytest.Item, how: str) -> pytest.TestReport:
    text = f"the test's own process ended {how}"
    return pytest.TestReport(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), "failed", text, "call")
