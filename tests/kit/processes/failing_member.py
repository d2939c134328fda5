"""A member of a group whose records fail in known ways, as a process to be killed.

    python -m tests.kit.processes.failing_member BOOTSTRAP GROUP TOPIC MEMBER [ORDER]

By the number in a record's value: 7 of a hundred fails always, 13 the first two times, 21 is fatal; all others work.
Results go to the topic TOPIC-done, in the transaction that finishes the record.
"""

from __future__ import annotations

import signal
import sys
import threading

from kafkalite.failures import Message, Policy, RetryTopics, Transaction, run


def handle(record: Message, transaction: Transaction) -> None:
    number = int(record.value or b"0")
    if number % 100 == 21:
        raise ValueError("this one can never be handled")
    if number % 100 == 7 or (number % 100 == 13 and record.attempt < 2):
        raise RuntimeError("not now")
    transaction.send(f"{sys.argv[3]}-done", record.value, record.key, partition=0)


def policy(group: str, topic: str, order: str = "none") -> Policy:
    strategy = RetryTopics(["1 s", "1 s", "2 s"], jitter=0.1)
    return Policy(group=group, topics=[topic], strategy=strategy, fatal=[ValueError], order=order)


def main() -> None:
    bootstrap, group, topic, member = sys.argv[1:5]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    run(policy(group, topic, *sys.argv[5:]), handle, bootstrap, stop=stop, member=member, session_timeout_s=6.0)


if __name__ == "__main__":
    main()
