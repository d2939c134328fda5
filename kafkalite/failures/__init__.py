"""When a message fails: retries, dead letters, and a ledger of what became of it, for a consumer group.

    handlers.py, trial.py    THE front door: a handler with its policy, by one decorator; in memory, for tests
    adapters/     clients that read and write for the runner
    runner.py     carries out what the core decides
    workers.py, calls.py    threads and tasks for handlers; one call, and what its exception means
    batch_calls.py, run_progress.py    calls with lists of records; which records of a run come next
    dead_letters.py    a call of the dead-letter handler
    breaker_status.py    whether a member's breaker is open, written into the ledger
    batches.py    letters of whoever reads in batches: Avro that cannot be decoded
    dead_topics.py    dead-letter topics that policies chose by exception class
    letters.py, edits.py    dead letters and the ways out; changes to them on their way back
    ledger.py, topics.py, headers.py    the ledger, read; the topics there must be; what a letter says of itself
    session.py    THE core: events in, actions out. No I/O, no clock, no threads
    events.py, lanes.py, breaker.py, windows.py    what the core speaks of, and what it is made of
    policy.py, retry_strategies.py    what a group wants; what it does with a record that fails, and after which delay
    arguments.py    unknown arguments are refused, with the place where they belong
    names.py, rows.py, times.py    names of topics; rows of the ledger; times

Each uses only what stands below it. Names are imported when first used.

    from kafkalite import failures

    @failures.handler(topics="orders", group="billing", retry=["10 s", "1 min", "10 min"], fatal=ValueError)
    def bill(order): ...

    bill.run("127.0.0.1:9092")

A dead letter, its row in the ledger and the offset are one transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite.failures.batch_calls import BatchFailed as BatchFailed
    from kafkalite.failures.batches import BatchLetters as BatchLetters
    from kafkalite.failures.calls import Failed as Failed
    from kafkalite.failures.calls import Transaction as Transaction
    from kafkalite.failures.events import DeadLetter as DeadLetter
    from kafkalite.failures.events import Message as Message
    from kafkalite.failures.handlers import Handler as Handler
    from kafkalite.failures.handlers import handler as handler
    from kafkalite.failures.ledger import Ledger as Ledger
    from kafkalite.failures.policy import Policy as Policy
    from kafkalite.failures.retry_strategies import Exponential as Exponential
    from kafkalite.failures.retry_strategies import Ignore as Ignore
    from kafkalite.failures.retry_strategies import Limit as Limit
    from kafkalite.failures.retry_strategies import Loss as Loss
    from kafkalite.failures.retry_strategies import RetryForever as RetryForever
    from kafkalite.failures.retry_strategies import RetryHere as RetryHere
    from kafkalite.failures.retry_strategies import RetryTopics as RetryTopics
    from kafkalite.failures.runner import Runner as Runner
    from kafkalite.failures.running import run as run
    from kafkalite.failures.trial import Tried as Tried

_WHERE: Final = {
    "BatchFailed": "kafkalite.failures.batch_calls",
    "BatchLetters": "kafkalite.failures.batches",
    "DeadLetter": "kafkalite.failures.events",
    "Exponential": "kafkalite.failures.retry_strategies",
    "Failed": "kafkalite.failures.calls",
    "Handler": "kafkalite.failures.handlers",
    "Ignore": "kafkalite.failures.retry_strategies",
    "Ledger": "kafkalite.failures.ledger",
    "Limit": "kafkalite.failures.retry_strategies",
    "Loss": "kafkalite.failures.retry_strategies",
    "Message": "kafkalite.failures.events",
    "Policy": "kafkalite.failures.policy",
    "RetryForever": "kafkalite.failures.retry_strategies",
    "RetryHere": "kafkalite.failures.retry_strategies",
    "RetryTopics": "kafkalite.failures.retry_strategies",
    "Runner": "kafkalite.failures.runner",
    "Transaction": "kafkalite.failures.calls",
    "Tried": "kafkalite.failures.trial",
    "handler": "kafkalite.failures.handlers",
    "run": "kafkalite.failures.running",
}

__all__ = list(_WHERE)

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
