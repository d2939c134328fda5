"""Distribute tests to xdist's workers, and report failures before the run's end.

With `--dist loadfile`, a worker runs all tests of a file, so that its module's fixtures are created once, and tests may
use what earlier tests of the file created. With `--no-loadscope-reorder`, every worker runs the files marked
`own_process` first. A failure is reported at once, since an aborted run has no summary; the tests that were running
then are reported too, in CI with the workers' stacks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from xdist.scheduler import LoadScopeScheduling
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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Return a scheduler that gives a file, or all checks of the repository, to one worker.

    The checks share the syntax trees of the repository. xdist's groups (`--dist loadgroup`) would do, but xdist 3.8
    ignores them without a word under pytest 9.2.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class FileScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            path = PurePosixPath(nodeid.partition("::")[0])
            return "repository" if path.parent.name == "tests" else str(path)

    return FileScheduling(config, log)


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
