"""The I/O pool: order within a key, side by side between keys, failures that stay alone."""

import threading
from collections import defaultdict
from types import SimpleNamespace

import pytest

from kafkalite.base import pool as pool_module
from kafkalite.base.pool import IoPool
from tests.kit.processes.broker import wait_until

WAIT_S = 20.0


@pytest.fixture
def pool():
    pool = IoPool(3, "test-io")
    yield pool
    assert pool.close(WAIT_S)


def test_jobs_of_one_key_run_in_order_while_keys_interleave(pool):
    seen = defaultdict(list)
    done = threading.Semaphore(0)

    def job(key, number):
        seen[key].append(number)
        done.release()

    for number in range(500):
        for key in ("a", "b", "c", "d"):
            pool.submit_ordered(key, job, key, number)
    for _ in range(2000):
        assert done.acquire(timeout=WAIT_S)
    assert dict(seen) == {key: list(range(500)) for key in ("a", "b", "c", "d")}


def test_jobs_of_different_keys_do_not_wait_for_each_other(pool):
    first_runs, second_ran = threading.Event(), threading.Event()

    def first():
        first_runs.set()
        assert second_ran.wait(WAIT_S)

    pool.submit_ordered("slow", first)
    assert first_runs.wait(WAIT_S)
    pool.submit_ordered("quick", second_ran.set)
    assert second_ran.wait(WAIT_S)


def test_jobs_given_at_once_to_one_idle_thread_do_not_wait_for_each_other(pool):
    idle, second_ran, first_ended = threading.Event(), threading.Event(), threading.Event()
    pool.submit(idle.set)
    assert idle.wait(WAIT_S)
    wait_until(lambda: pool._idle == 1, WAIT_S, "the thread to be back")

    def first():
        if second_ran.wait(WAIT_S):
            first_ended.set()

    with pool._ready:  # the thread cannot wake up between the two
        pool._submit_locked(first, ())
        pool._submit_locked(second_ran.set, ())
    assert first_ended.wait(2 * WAIT_S)


def test_key_has_jobs_until_the_last_one_ended(pool):
    runs, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def job():
        runs.set()
        assert may_end.wait(WAIT_S)

    assert not pool.has_jobs("key")
    pool.submit_ordered("key", job)
    pool.submit_ordered("key", lambda: None)
    assert runs.wait(WAIT_S)
    assert pool.has_jobs("key")
    may_end.set()
    while pool.has_jobs("key"):
        pool.submit_ordered("other", ended.set)
        assert ended.wait(WAIT_S)


def test_key_that_is_held_keeps_its_jobs_back_and_no_thread(pool):
    seen = []
    done = threading.Event()
    release = pool.hold("key")
    for number in range(3):
        pool.submit_ordered("key", seen.append, number)
    pool.submit_ordered("key", done.set)
    for number in range(pool.size):  # every thread is free
        passed = threading.Event()
        pool.submit_ordered(number, passed.set)
        assert passed.wait(WAIT_S)
    assert (seen, pool.has_jobs("key")) == ([], True)
    release()
    assert done.wait(WAIT_S)
    assert seen == [0, 1, 2]
    wait_until(lambda: not pool.has_jobs("key"), WAIT_S, "the key to be forgotten")


@pytest.mark.parametrize("when", ["while the job runs", "after it"])
def test_job_that_holds_its_key_keeps_back_what_was_given_before_and_after(pool, when):
    seen = []
    held, may_end, done = threading.Event(), threading.Event(), threading.Event()
    releases = []

    def holding():
        releases.append(pool.hold("key"))
        held.set()
        assert may_end.wait(WAIT_S)
        seen.append("held")

    pool.submit_ordered("key", holding)
    pool.submit_ordered("key", seen.append, 0)
    assert held.wait(WAIT_S)
    pool.submit_ordered("key", seen.append, 1)
    pool.submit_ordered("key", done.set)
    if when == "while the job runs":
        releases[0]()
        may_end.set()
    else:
        may_end.set()
        wait_until(lambda: seen == ["held"], WAIT_S, "the job to end")
        releases[0]()
    assert done.wait(WAIT_S)
    assert seen == ["held", 0, 1]


def test_key_that_was_held_without_jobs_is_forgotten(pool):
    pool.hold("key")()
    assert not pool.has_jobs("key")


def test_key_that_is_let_go_after_the_close_runs_nothing():
    pool = IoPool(1)
    seen = []
    release = pool.hold("key")
    pool.submit_ordered("key", seen.append, 0)
    assert pool.close(WAIT_S)
    release()
    assert (seen, pool.has_jobs("key")) == ([], False)


def test_a_failing_job_is_logged_and_its_strand_continues(pool, caplog):
    done = threading.Event()

    def fail():
        raise ValueError("on purpose")

    pool.submit_ordered("key", fail)
    pool.submit_ordered("key", done.set)
    assert done.wait(WAIT_S)
    assert "a job of the I/O pool failed" in caplog.text


def test_close_finishes_what_was_queued_and_refuses_more():
    pool = IoPool(1)
    seen = []
    for number in range(100):
        pool.submit_ordered("key", seen.append, number)
        pool.submit(seen.append, -1)
    assert pool.close(WAIT_S)
    assert [number for number in seen if number >= 0] == list(range(100))
    assert seen.count(-1) == 100
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(seen.append, 0)


def test_close_gives_all_threads_one_time_limit_together(pool, monkeypatch):
    now, may_end = [0.0], threading.Event()
    for _ in range(3):
        pool.submit(may_end.wait, WAIT_S)
    assert pool.thread_count == 3

    def join(timeout_s):
        now[0] += timeout_s  # a thread that does not end

    with monkeypatch.context() as patch:
        patch.setattr(pool_module, "time", SimpleNamespace(monotonic=lambda: now[0]), raising=False)
        for thread in pool._threads:
            patch.setattr(thread, "join", join)
        assert not pool.close(10.0)
    assert now == [10.0]
    may_end.set()


def test_pool_that_grows_runs_what_was_waiting(pool):
    pool.resize(1)
    running, more = [threading.Event() for _ in range(3)], threading.Event()

    def job(number):
        running[number].set()
        assert more.wait(WAIT_S)

    for number in range(3):
        pool.submit(job, number)
    assert running[0].wait(WAIT_S)
    assert pool.thread_count == 1
    pool.resize(3)
    assert all(event.wait(WAIT_S) for event in running)
    more.set()


def test_pool_that_shrinks_ends_threads_and_loses_no_job(pool):
    pool.resize(4)
    together = threading.Barrier(5)
    for _ in range(4):
        pool.submit(together.wait, WAIT_S)
    together.wait(WAIT_S)
    assert pool.thread_count == 4
    pool.resize(1)
    done = [threading.Event() for _ in range(20)]
    for event in done:
        pool.submit(event.set)
    assert all(event.wait(WAIT_S) for event in done)
    wait_until(lambda: pool.thread_count == 1, WAIT_S, "threads that end")
    pool.submit(done[0].clear)
    wait_until(lambda: not done[0].is_set(), WAIT_S, "the thread that is left")


def test_a_job_that_exits_leaves_its_thread_to_the_others():
    pool = IoPool(1, "test-exits")
    done = threading.Event()

    def leave():
        raise SystemExit

    pool.submit_ordered("a", leave)
    pool.submit_ordered("a", done.set)
    assert done.wait(WAIT_S)
    assert pool.close(WAIT_S)
