"""How tests are given to xdist's workers, and what is told of those that fail before the run's end.

Each worker gets whole files (`--dist loadfile`). When one dies, xdist itself (3.8) gives the test that it died of to
another, and the files that it had ended, too, which the other, having nothing to do, awaits for ever: a run with one
such test never ends. Here neither is given to anybody. What fails is told as it fails, since a run that is broken off
has no summary; what ran then is told, too, in CI with the workers' stacks.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController


PHASES = frozenset({"setup", "call", "teardown"})
TEXT_MAX = 500  # characters


class OnceEach(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
    """Files to workers, and no test twice."""

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that the worker died of, if it did; the others are given to somebody else."""
        died_of = None
        left = self.assigned_work[node]
        for file, verdicts in [*left.items()]:
            unended = [test for test, ended in verdicts.items() if not ended]
            if unended and died_of is None:
                died_of = unended.pop(0)
                verdicts[died_of] = True
            if not unended:
                del left[file]  # a worker that was given a file without tests would wait for ever for more
        super().remove_node(node)
        return died_of


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OnceEach | None:
    """xdist asks for one; None for another kind of distribution than by file."""
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
