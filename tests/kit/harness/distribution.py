"""Distribute tests to xdist's workers, and report failures before the run's end.

A group (`--dist loadgroup`) is a file, so that its module's fixtures are created once; the file's tests marked
`own_process` are another group, and with `--no-loadscope-reorder` every worker runs those first. A failure is reported
at once, since an aborted run has no summary; the tests that were running then are reported too, in CI with the workers'
stacks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.harness.own_process import MARK

if TYPE_CHECKING:
    from collections.abc import Generator

    from xdist.workermanage import WorkerController

PHASES = frozenset({"setup", "call", "teardown"})
TEXT_MAX = 500  # characters


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let one of xdist's workers collect before the others: it compiles the tests, and they read what it compiled."""
    if not hasattr(session.config, "workerinput") or sys.dont_write_bytecode:
        return (yield)
    with open(__file__, "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name each test's group; xdist appends it to the test's name, after an @."""
    if hasattr(config, "workerinput") and config.getvalue("loadgroup"):
        for item in items:
            own = "own-" if item.get_closest_marker(MARK) is not None else ""
            item.add_marker(pytest.mark.xdist_group(own + _group_of(item.path)))


def _group_of(path: Path) -> str:
    """The file's name; the checks of the repository are one group, since they share its syntax trees."""
    return "repository" if path.parent.name == "tests" else path.stem


def pytest_configure(config: pytest.Config) -> None:
    """In the process that reports."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_AtOnce(config), "told-at-once")


class _AtOnce:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._running: set[str] = set()
        self._workers: list[WorkerController] = []

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running.add(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.discard(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            why = report.longreprtext.strip().rpartition("\n")[2]
            self._tell(f"failed in {report.when}: {report.nodeid}: {why}")
        if report.when not in PHASES:  # its worker died, and says no more of it
            self._running.discard(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: WorkerController) -> None:
        self._workers.append(node)

    def pytest_keyboard_interrupt(self) -> None:
        for worker in self._workers if "CI" in os.environ else ():
            with contextlib.suppress(AttributeError, ProcessLookupError):
                os.kill(worker.gateway._io.popen.pid, signal.SIGABRT)  # at which faulthandler tells the stacks

    def pytest_terminal_summary(self) -> None:
        for nodeid in sorted(self._running):
            self._tell(f"was running: {nodeid}")

    def _tell(self, text: str) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line("\n" + text[:TEXT_MAX])
