"""A worker sets up a connection with everything its listener requires, or rejects it."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kafkalite import Broker
from kafkalite._native.serve.transfer import Mailbox
from kafkalite.broker.net.worker import BareSelector, Worker
from tests.kit.harness import wire
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    import pytest

    from kafkalite._native.base.accepting import AcceptedSocket
    from kafkalite.broker.net.listener import BoundListener

WAIT_S = 60.0


def refuse_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has no room to watch the next connection."""
    watch = BareSelector.watch
    refused: list[int] = []

    def first_refused(self: BareSelector, fd: int, events: int) -> None:
        if not refused:
            refused.append(fd)
            raise OSError(errno.ENOSPC, "No space left on device")
        watch(self, fd, events)

    monkeypatch.setattr(BareSelector, "watch", first_refused)


def test_one_that_cannot_be_watched_is_closed_and_counted_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker() as broker:
        refuse_the_first(monkeypatch)
        with socket.create_connection(("127.0.0.1", broker.port), WAIT_S) as client:
            assert client.recv(1) == b""
        wait_until(lambda: broker.connection_count == 0, WAIT_S, "it is not counted")
        wait_until(lambda: "No space left on device" in caplog.text, WAIT_S, "it is logged")
        broker.create_topic("a")
        with wire.Connection(broker.port) as client:
            client.produce("a", 0, wire.batch_of([wire.Record(None, b"x")]))


def test_of_a_crowd_each_worker_has_its_share_before_any_of_it_is_served() -> None:
    """Those that wait in its mailbox are a worker's: who looks at its connections alone gives all of them to one."""
    workers = [
        Worker(number, Mailbox(), cast("Any", lambda *_: SimpleNamespace()), idle_s_max=1.0, on_closed=lambda _: None)
        for number in range(2)
    ]
    taken, listener = cast("AcceptedSocket", object()), cast("BoundListener", object())
    for _ in range(10):
        min(workers, key=lambda worker: worker.connection_count).adopt(taken, ("127.0.0.1", 1), listener)
    assert [worker.connection_count for worker in workers] == [5, 5]
