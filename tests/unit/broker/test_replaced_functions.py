"""A broker does not start in a process whose files, sockets or threads are not the system's."""

from __future__ import annotations

import _thread
import os
import select
import socket
from typing import TYPE_CHECKING

import pytest

from kafkalite import Broker
from kafkalite.broker.replaced_functions import check_system
from kafkalite.errors import StartupError
from kafkalite.testing import KafkaBroker

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def replacement(*_: object) -> None:
    """A fake function of another library."""


def test_functions_of_the_system_pass() -> None:
    check_system()


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [
        (os, "open", "os.open"),
        (socket, "socket", "socket.socket"),
        (select, "epoll", "select.epoll"),
        (select, "select", "select.select"),
        (_thread, "start_new_thread", "threads"),
    ],
    ids=["files", "sockets", "no-epoll", "select", "threads"],
)
def test_each_replaced_function_is_named(
    module: ModuleType, name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "epoll":
        monkeypatch.delattr(module, name)
    else:
        monkeypatch.setattr(module, name, replacement)
    with pytest.raises(StartupError, match=rf"^\w+ has replaced {text}, .*kafkalite\.testing\.KafkaBroker"):
        check_system()


def test_a_refused_start_leaves_nothing_and_the_next_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(log_dirs=str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", replacement)
        with pytest.raises(StartupError, match=r"has replaced socket\.socket"):
            broker.start()
    assert not broker.running
    assert list(tmp_path.iterdir()) == []
    with broker:
        assert broker.running


def test_a_refused_restart_leaves_the_broker_running(monkeypatch: pytest.MonkeyPatch) -> None:
    with KafkaBroker(in_process=True) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socket", replacement)
            with pytest.raises(StartupError, match=r"has replaced socket\.socket"):
                broker.restart(kill=True)
        assert broker.running
