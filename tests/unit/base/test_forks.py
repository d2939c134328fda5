"""A fork waits for an import that a broker's own thread has begun, since its child could never import that module."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from kafkalite.base import forks

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 60.0


class Importer:
    """A thread that is in the middle of an import until `leave`."""

    def __init__(self) -> None:
        self.inside = False
        self._entered, self.leave = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        assert self._entered.wait(WAIT_S)

    def _run(self) -> None:
        with forks.importing():
            self.inside = True
            self._entered.set()
            self.leave.wait(WAIT_S)
            self.inside = False


@pytest.fixture
def importer() -> Iterator[Importer]:
    importer = Importer()
    yield importer
    importer.leave.set()
    importer.thread.join(WAIT_S)


def status_of_child(importer: Importer) -> int:
    """1 if the import was under way at the fork."""
    child = os.fork()
    if child == 0:
        os._exit(int(importer.inside))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_waits_for_the_import(importer: Importer) -> None:
    threading.Timer(0.2, importer.leave.set).start()
    assert status_of_child(importer) == 0


def test_a_fork_does_not_wait_forever_and_the_next_one_waits_again(
    importer: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(forks, "IMPORT_S_MAX", 0.01)
        assert status_of_child(importer) == 1
    test_a_fork_waits_for_the_import(importer)


def test_a_thread_that_imports_can_fork() -> None:
    with forks.importing():
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
