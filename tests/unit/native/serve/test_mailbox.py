"""The mailbox of a network worker: nothing posted is lost, and an awake worker costs no system call."""

import select
import threading
import time

from kafkalite._native.serve.counters import Turns
from kafkalite._native.serve.transfer import Mailbox


def readable(mailbox, timeout=0.0):
    return bool(select.select([mailbox.wake_fd], [], [], timeout)[0])


def test_post_to_an_awake_worker_leaves_the_eventfd_alone():
    mailbox = Mailbox()
    mailbox.put("item")
    assert not readable(mailbox)
    assert not mailbox.begin_sleep()
    assert mailbox.take() == ["item"]


def test_post_to_a_sleeping_worker_wakes_it_once():
    mailbox = Mailbox()
    assert mailbox.begin_sleep()
    mailbox.put(1)
    mailbox.put(2)
    assert readable(mailbox)
    mailbox.end_sleep()
    mailbox.clear_wake()
    assert not readable(mailbox)
    assert mailbox.take() == [1, 2]


def test_the_longest_turn_is_none_of_before_the_loop():
    """The time of a worker's start, which imports modules, is no turn of its loop."""

    def spend(seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass

    mailbox = Mailbox()
    turns = mailbox.turns = Turns()
    spend(0.02)
    assert mailbox.begin_sleep()
    mailbox.end_sleep()
    assert turns.numbers()[1] == 0.0
    spend(0.02)
    mailbox.end_sleep()
    assert turns.numbers()[1] >= 0.02


def test_the_cpu_time_of_turns_is_counted_and_sleep_is_not():
    mailbox = Mailbox()
    turns = mailbox.turns = Turns()
    assert turns.cpu() == (0.0, (0, (0,) * 24))
    mailbox.end_sleep()
    for _ in range(10):
        assert mailbox.begin_sleep()
        mailbox.end_sleep()
    longest, (total, counts) = turns.cpu()
    assert sum(counts) == 10, "from the first wake-up on"
    until = time.thread_time() + 0.02
    while time.thread_time() < until:
        pass
    mailbox.end_sleep()
    longest_with_work, (total_with_work, counts) = turns.cpu()
    assert sum(counts) == 11
    assert longest_with_work >= 0.02 > longest
    assert total_with_work - total >= 20_000


def test_no_wake_up_is_lost_between_two_threads():
    """A poster and a sleeper race 20,000 times; the sleeper may only ever block when a wake-up is still to come."""
    mailbox = Mailbox()
    count = 20_000
    taken = []

    def sleep_and_take():
        while len(taken) < count:
            if mailbox.begin_sleep():
                assert readable(mailbox, 20.0), f"slept for ever after {len(taken)} items"
            mailbox.end_sleep()
            if readable(mailbox):
                mailbox.clear_wake()
            taken.extend(mailbox.take())

    sleeper = threading.Thread(target=sleep_and_take)
    sleeper.start()
    for number in range(count):
        mailbox.put(number)
    sleeper.join(60.0)
    assert taken == list(range(count))
