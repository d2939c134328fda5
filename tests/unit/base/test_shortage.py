"""Threads without memory: each continues its work, and its caller gets the failure."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite import Broker
from kafkalite.base import pool, shortage
from kafkalite.base.executors import ThreadWorker
from kafkalite.base.logging import RepeatLogger
from kafkalite.broker.limits import long_requests
from kafkalite.broker.net import acceptor
from tests.kit.harness import wire
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from kafkalite.broker.net.worker import Worker

WAIT_S = 60.0


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory"), RuntimeError("can't start new thread")],
    ids=repr,
)
def test_loop_is_begun_again_after_a_shortage(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    monkeypatch.setattr(shortage, "time", SimpleNamespace(sleep=rests.append))
    left = [error, error]

    def loop() -> None:
        if left:
            raise left.pop()

    shortage.run_to_end(loop)
    assert not left
    assert rests == [shortage.REST_S] * 2


@pytest.mark.parametrize("error", [ValueError(), OSError(errno.EBADF, "Bad file descriptor"), RuntimeError("other")])
def test_loop_ends_with_any_other_error(error: Exception) -> None:
    def loop() -> None:
        raise error

    with pytest.raises(type(error)):
        shortage.run_to_end(loop)


def test_the_errors_are_those_of_this_python() -> None:
    """A thread whose stack cannot be mapped."""
    before = threading.stack_size(1 << 46)
    try:
        with pytest.raises(RuntimeError) as caught:
            threading.Thread(target=print).start()
    finally:
        threading.stack_size(before)
    assert shortage.is_shortage(caught.value)


def test_worker_takes_another_turn() -> None:
    turned = threading.Event()
    turns: list[int] = []

    def turn() -> None:
        turns.append(1)
        if len(turns) == 1:
            raise MemoryError
        turned.set()

    worker = ThreadWorker("test-turns", turn)
    worker.start()
    assert turned.wait(WAIT_S)
    worker.stop()


class NoThreads:
    """`threading` without memory for a thread."""

    Condition, Lock, current_thread = threading.Condition, threading.Lock, threading.current_thread

    class Thread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")


def test_pool_that_cannot_grow_uses_the_threads_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = pool.IoPool(3, "test-io")
    blocked, done = threading.Event(), threading.Event()
    jobs.submit(blocked.wait, WAIT_S)
    monkeypatch.setattr(pool, "threading", NoThreads)
    jobs.submit(done.set)
    assert jobs.thread_count == 1
    blocked.set()
    assert done.wait(WAIT_S)
    assert jobs.close(WAIT_S)


def test_started_pool_has_a_thread_for_the_first_job(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, done = pool.IoPool(3, "test-io"), threading.Event()
    jobs.start()
    monkeypatch.setattr(pool, "threading", NoThreads)
    jobs.submit(done.set)
    assert done.wait(WAIT_S)
    assert jobs.close(WAIT_S)


def test_pool_without_a_thread_refuses_the_job_and_forgets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = pool.IoPool(3, "test-io")
    ran: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(pool, "threading", NoThreads)
        with pytest.raises(RuntimeError):
            jobs.submit_ordered("key", ran.append, "refused")
        with pytest.raises(RuntimeError):
            jobs.submit(ran.append, "refused")
    assert not jobs.has_jobs("key")
    jobs.submit_ordered("key", ran.append, "taken")
    assert jobs.close(WAIT_S)
    assert ran == ["taken"]


class Client:
    closed, client_host, principal = False, "127.0.0.1", "User:a"


def test_long_request_without_a_thread_is_refused_and_the_next_one_served(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    client: Any = Client()
    client.fd = ours.fileno()
    ran = threading.Event()

    def run(_pace: object) -> None:
        ran.set()

    job: Any = SimpleNamespace(run=run, drop=lambda: None)
    jobs = pool.IoPool(1, "test-io")
    requests = long_requests.LongRequests(jobs)
    with ours, theirs:
        with monkeypatch.context() as patch:
            patch.setattr(long_requests, "threading", NoThreads)
            with pytest.raises(RuntimeError):
                requests.submit(client, job)
        assert not requests.has_jobs(client)
        requests.submit(client, job)
        assert ran.wait(WAIT_S)
        assert requests.close(WAIT_S)
    assert jobs.close(WAIT_S)


def test_line_without_memory_is_lost_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    class Full(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise MemoryError

    plain = logging.getLogger("kafkalite.test_shortage")
    handler = Full()
    plain.addHandler(handler)
    RepeatLogger(plain).error("something failed")
    plain.removeHandler(handler)


def failing_once(function: Any, failed: threading.Event) -> Any:
    def call(*arguments: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise MemoryError
        return function(*arguments)

    return call


def test_network_thread_and_acceptor_serve_on(monkeypatch: pytest.MonkeyPatch) -> None:
    failed, failed_too = threading.Event(), threading.Event()
    with Broker(num_network_threads=1) as broker:
        broker.create_topic("a")
        worker: Worker = broker._parts.workers[0]
        monkeypatch.setattr(worker, "_housekeeping", failing_once(worker._housekeeping, failed))
        monkeypatch.setattr(acceptor, "accept", failing_once(acceptor.accept, failed_too))
        assert failed.wait(WAIT_S)
        with wire.Connection(broker.port) as client:
            assert client.produce("a", 0, wire.batch_of([wire.Record(None, b"x")])).error == 0
        assert failed_too.is_set()


def test_connection_without_memory_for_its_answer_is_closed() -> None:
    """The worker finds it, as nothing more was to be had to report it."""
    with Broker(num_network_threads=1) as broker, wire.Connection(broker.port) as client:
        broker.create_topic("a")
        assert client.produce("a", 0, wire.batch_of([wire.Record(None, b"x")])).error == 0
        (connection,) = broker._parts.workers[0].connections()
        connection.answer_lost = True
        wait_until(lambda: connection.closed, WAIT_S, "it is closed")
