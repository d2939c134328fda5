"""How tests are given to xdist's workers, and what is told of those that fail before the run's end.

Each worker gets whole files, and no test twice (`once_each.py`). What fails is told as it fails, since a run that is
broken off has no summary; what ran then is told, too, in CI with the workers' stacks.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

    from tests.kit.harness.once_each import OnceEach

PHASES = frozenset({"setup", "call", "teardown"})
TEXT_MAX = 500  # characters


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OnceEach | None:
    """xdist asks for one, where there is xdist; None for another kind of distribution than by file."""
    from tests.kit.harness.once_each import OnceEach

    return OnceEach(config, log) if config.getvalue("dist") == "loadfile" else None


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
