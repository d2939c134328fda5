"""The thread for long requests: order within a connection, turns between holders, one thread of the pool, ends."""

from __future__ import annotations

import gc
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from kafkalite.base.pool import IoPool
from kafkalite.broker.limits.long_requests import LongRequests
from kafkalite.broker.limits.pace import Pace, checkpoint
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT_S = 60.0


class Client:
    def __init__(self, address: str, principal: str = "User:a") -> None:
        self._ours, self.theirs = socket.socketpair()
        self.fd = self._ours.fileno()
        self.closed = False
        self.client_host = address
        self.principal = principal

    def close(self) -> None:
        self._ours.close()
        self.theirs.close()


class Job:
    def __init__(self, work: Callable[[], object] = lambda: None, disk: Callable[[], object] | None = None) -> None:
        self._work = work
        self._disk = disk
        self.thread = ""
        self.disk_thread = ""
        self.ended = threading.Event()
        self.dropped = threading.Event()

    def run(self, pace: Pace) -> Callable[[Pace], None] | None:
        self.thread = threading.current_thread().name
        self._work()
        if self._disk is not None:
            return self._run_on_disk
        self.ended.set()
        return None

    def _run_on_disk(self, _pace: Pace) -> None:
        assert self._disk is not None
        self.disk_thread = threading.current_thread().name
        self._disk()
        self.ended.set()

    def drop(self) -> None:
        self.dropped.set()


@pytest.fixture
def pool() -> Iterator[IoPool]:
    pool = IoPool(4, "test-io")
    yield pool
    assert pool.close(WAIT_S)


@pytest.fixture
def long(pool: IoPool) -> Iterator[LongRequests]:
    long = LongRequests(pool)
    yield long
    assert long.close(WAIT_S)


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    clients = [Client(address) for address in ("127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.9")]
    yield clients
    for client in clients:
        client.close()


class Gate:
    """A job that holds the thread until it is opened."""

    def __init__(self, long: LongRequests, client: Client) -> None:
        self._open = threading.Event()
        held = threading.Event()

        def hold() -> None:
            held.set()
            assert self._open.wait(WAIT_S)

        long.submit(client, Job(hold))
        assert held.wait(WAIT_S)

    def open(self) -> None:
        self._open.set()


def test_jobs_of_a_connection_run_in_order_on_one_thread_and_its_disk_work_on_the_pool(
    long: LongRequests, clients: list[Client]
) -> None:
    seen: list[int] = []
    jobs = [
        Job(disk=lambda n=number: seen.append(n)) if number % 3 == 0 else Job(lambda n=number: seen.append(n))  # type: ignore[misc]
        for number in range(100)
    ]
    for job in jobs:
        long.submit(clients[0], job)
    for job in jobs:
        assert job.ended.wait(WAIT_S)
    assert seen == list(range(100))
    assert {job.thread for job in jobs} == {"kafkalite-long"}
    assert all(job.disk_thread.startswith("test-io") for job in jobs[::3])
    wait_until(lambda: not long.has_jobs(clients[0]), WAIT_S, "the strand is gone")
    assert long.waiting_count == 0


def test_disk_work_of_all_clients_uses_one_thread_of_the_pool_at_a_time(
    long: LongRequests, clients: list[Client]
) -> None:
    running, together = 0, 0
    lock = threading.Lock()

    def disk() -> None:
        nonlocal running, together
        with lock:
            running += 1
            together = max(together, running)
        for _ in range(1000):
            checkpoint()
        with lock:
            running -= 1

    jobs = [(client, Job(disk=disk)) for client in clients for _ in range(10)]
    for client, job in jobs:
        long.submit(client, job)
    for _, job in jobs:
        assert job.ended.wait(WAIT_S)
    assert together == 1


def test_holders_take_turns_however_many_connections_and_requests_one_has(
    long: LongRequests, clients: list[Client]
) -> None:
    greedy, also_greedy, other, _ = clients
    order: list[str] = []
    gate = Gate(long, clients[3])
    jobs = []
    for client in (greedy, also_greedy):
        for _ in range(20):
            jobs.append(Job(lambda: order.append("greedy")))
            long.submit(client, jobs[-1])
    for _ in range(3):
        jobs.append(Job(lambda: order.append("other")))
        long.submit(other, jobs[-1])
    gate.open()
    for job in jobs:
        assert job.ended.wait(WAIT_S)
    assert order[:6] == ["greedy", "other"] * 3
    assert order.count("greedy") == 40


def test_a_later_end_of_a_request_waits_for_no_other_request_of_its_connection(
    long: LongRequests, clients: list[Client]
) -> None:
    gate = Gate(long, clients[0])
    behind, end = Job(), Job()
    long.submit(clients[0], behind)
    long.finish(clients[2], end)
    gate.open()
    assert end.ended.wait(WAIT_S)
    assert behind.ended.wait(WAIT_S)
    assert not long.has_jobs(clients[2]), "a later end holds nothing up"


def test_what_a_gone_client_has_waiting_is_dropped(long: LongRequests, clients: list[Client]) -> None:
    gate = Gate(long, clients[2])
    jobs = [Job(lambda: pytest.fail("nothing wants this")) for _ in range(50)]
    for job in jobs:
        long.submit(clients[0], job)
    clients[0].theirs.close()
    gate.open()
    for job in jobs:
        assert job.dropped.wait(WAIT_S)


def test_a_job_that_fails_ends_alone(long: LongRequests, clients: list[Client]) -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    failing, following = Job(fail), Job()
    long.submit(clients[0], failing)
    long.submit(clients[0], following)
    assert failing.dropped.wait(WAIT_S)
    assert following.ended.wait(WAIT_S)


@pytest.mark.parametrize("where", ["thread", "pool"])
def test_a_stop_ends_what_runs_at_its_next_checkpoint_and_drops_what_waits(
    pool: IoPool, clients: list[Client], where: str
) -> None:
    long = LongRequests(pool)
    begun = threading.Event()

    def work() -> None:
        begun.set()
        while True:
            checkpoint()

    running = Job(work) if where == "thread" else Job(disk=work)
    waiting, other = Job(), Job()
    long.submit(clients[0], running)
    assert begun.wait(WAIT_S)
    long.submit(clients[0], waiting)
    assert long.close(WAIT_S)
    for job in (running, waiting):
        assert job.dropped.wait(WAIT_S)
        assert not job.ended.is_set()
    long.submit(clients[2], other)
    assert other.dropped.is_set(), "nothing begins after the stop"


def test_a_stop_drops_the_completions_that_wait_and_not_what_runs_to_its_end(
    pool: IoPool, clients: list[Client]
) -> None:
    long = LongRequests(pool)
    begun, stopped = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert stopped.wait(WAIT_S)

    running, completion = Job(work), Job()
    long.submit(clients[0], running)
    assert begun.wait(WAIT_S)
    long.finish(clients[2], completion)
    assert long.waiting_count == 2
    assert not long.close(0)
    assert completion.dropped.is_set()
    assert not running.dropped.is_set()
    stopped.set()
    assert running.ended.wait(WAIT_S)
    assert long.close(WAIT_S)
    assert not running.dropped.is_set()


def test_disk_work_that_is_left_at_a_stop_is_dropped(pool: IoPool, clients: list[Client]) -> None:
    long = LongRequests(pool)
    begun, stopped = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert stopped.wait(WAIT_S)

    job = Job(work, disk=lambda: pytest.fail("the broker stops"))
    long.submit(clients[0], job)
    assert begun.wait(WAIT_S)
    assert not long.close(0)
    stopped.set()
    assert job.dropped.wait(WAIT_S)


def test_the_end_of_a_connection_ends_its_running_request(long: LongRequests, clients: list[Client]) -> None:
    begun = threading.Event()

    def work() -> None:
        begun.set()
        while True:
            checkpoint()

    job, following = Job(work), Job()
    long.submit(clients[0], job)
    long.submit(clients[2], following)
    assert begun.wait(WAIT_S)
    clients[0].theirs.close()
    assert job.dropped.wait(WAIT_S)
    assert following.ended.wait(WAIT_S)


def test_the_collector_spares_old_objects_while_long_requests_run(long: LongRequests, clients: list[Client]) -> None:
    before = gc.get_threshold()
    meanwhile: list[tuple[int, int, int]] = []
    job = Job(lambda: meanwhile.append(gc.get_threshold()))
    long.submit(clients[0], job)
    assert job.ended.wait(WAIT_S)
    assert meanwhile[0][:2] == before[:2]
    assert meanwhile[0][2] > 1_000_000
    wait_until(lambda: gc.get_threshold() == before, WAIT_S, "the collector does as before")


def test_connections_of_one_holder_share_what_network_threads_spend_on_them(
    long: LongRequests, clients: list[Client]
) -> None:
    first = long.share_of(clients[0])  # type: ignore[arg-type]
    assert long.share_of(clients[1]) is first  # type: ignore[arg-type]
    assert long.share_of(clients[2]) is not first  # type: ignore[arg-type]
