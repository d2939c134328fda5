"""Retry failed records of a consumer group, write dead letters, and record every outcome in a ledger topic.

    handlers.py, trial.py    ENTRY POINT: the decorator that gives a function a policy; runs in memory, for tests
    running.py    one member of the group: opens its client, runs it, closes the client
    adapters/     clients that read and write for the runner
    runner.py     reads records and executes the decisions of session.py
    workers.py, calls.py    threads and tasks that run handlers; calls a handler and classifies its exception
    batch_calls.py, run_progress.py    calls with lists of records; the order of calls within a run
    dead_letters.py    calls the dead-letter handler
    breaker_status.py    publishes each member's circuit-breaker state to the ledger
    batches.py    dead letters for readers of whole batches, such as the Avro decoder
    dead_topics.py    dead-letter topics that policies choose by exception class
    letters.py, edits.py    list, redrive and resolve dead letters; edit their values before a redrive
    ledger.py, topics.py, headers.py    reader of the ledger; the required topics; the headers of a letter
    session.py    decides what happens to each record: events in, actions out; no I/O, no clock, no threads
    events.py, lanes.py, breaker.py, windows.py    the session's events and actions, and its parts
    policy.py, retry_strategies.py    a group's policy; the next step and the backoff after a failure
    arguments.py    rejects unknown arguments, and names the class that has them
    names.py, rows.py, times.py    names of topics; records of the ledger, called rows; durations

Each module uses only modules listed below it. Public names are imported when first used.

    from kafkalite import failures

    @failures.handler(topics="orders", group="billing", retry=["10 s", "1 min", "10 min"], fatal=ValueError)
    def bill(order): ...

    bill.run("127.0.0.1:9092")

A letter is the copy of a failed record in a retry or dead-letter topic. Its headers name the source record and the
failure. A dead letter, its ledger row and the offset of the failed record are committed in one transaction.
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
