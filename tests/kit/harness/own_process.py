"""Tests that replace something in their whole process, while no broker of other tests runs in it.

The pytest process, or one of xdist's workers, has the threads of shared fixtures, `kafka_broker` above all. A test that
replaces the disk or makes its calls fail would affect that broker, which would use up the fault and be counted. So
tests with

    pytestmark = pytest.mark.own_process

run before all others, when no shared fixture has started yet. The mark is for whole files, since under xdist (`make
test`) a worker runs all tests of a file (`distribution.py`). A test that would run in another order fails. Code that
replaces something calls `assert_alone` first.
"""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

MARK = "own_process"

_owner: Path | None = None
"""The file of the marked test that runs now."""
_shared = False
"""Whether tests run in this process."""
_failed = False
"""Whether a marked test has failed."""


def assert_alone(*, threads: bool = True) -> None:
    """AssertionError where other tests' threads run, or may: in a test without the mark, or beside a broker's threads.

    With `threads` the test may have some of a broker's itself, or its module may.
    """
    assert _owner or not _shared, (
        f"a seam of the whole process is swapped in one that tests share: the mark {MARK} is missing"
    )
    running = brokers_threads()
    assert threads or not running, f"a seam of the whole process is swapped beside threads of a broker: {running}"


def brokers_threads() -> list[str]:
    """The names of the threads that brokers have in this process."""
    return [thread.name for thread in _of_brokers()]


def _of_brokers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("kafkalite-")]


def pytest_sessionstart() -> None:
    """From here on, fixtures may live longer than the test that asked for them."""
    global _shared
    _shared = True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort marked files to the front. Raises UsageError for a file in which only some tests are marked."""
    marked = {item.path for item in items if item.get_closest_marker(MARK) is not None}
    for item in items:
        if item.path in marked and item.get_closest_marker(MARK) is None:
            raise pytest.UsageError(f"{item.nodeid} is not marked {MARK} as others of its file are: mark whole files")
    items.sort(key=lambda item: item.path not in marked)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Before the fixtures of a file's first marked test nothing of a broker runs; nor does it before one that fails."""
    global _owner
    if item.get_closest_marker(MARK) is not None:
        running = [thread.name for thread in _of_brokers() if thread not in _left]
        if running and item.path not in _begun:
            pytest.fail(f"a test marked {MARK} comes after those that share a broker: {running}", pytrace=False)
        _begun.add(item.path)
        _owner = item.path
    return (yield)


_begun: set[Path] = set()
"""The files whose marked tests have begun: what their modules share is theirs."""
_left: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""Threads that marked tests have left behind as they failed: those that come after fail only for what is theirs."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Of a marked test's setup and call, before its teardown."""
    global _failed
    if _owner is not None:
        _failed = _failed or report.failed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    global _owner
    try:
        return (yield)
    finally:
        if _owner is not None and _failed:
            _left.update(_of_brokers())
        _owner = None
