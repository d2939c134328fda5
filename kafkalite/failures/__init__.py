"""Retry failed records of a consumer group, write dead letters, and keep the state of failed records in a ledger topic.

    from kafkalite import failures

    @failures.handler(topics="orders", group="billing", retry=["10 s", "1 min", "10 min"], fatal=ValueError)
    def bill(order): ...

    bill.run("127.0.0.1:9092")

A letter is the copy of a record in a retry or dead-letter topic. Its headers name the source record, and the failure
if there was one. By default, one transaction commits a dead letter, its ledger row and the failed record's offset.

    handlers.py               ENTRY POINT: decorates a function with a policy
    trial.py                  tests a handler in memory
    running.py                opens a member's client, runs the member, closes the client
    policy_file.py            loads a policy from a TOML file
    letters.py, edits.py      list, redrive, resolve and edit dead letters
    batches.py                writes dead letters for records of a batch that could not be decoded
    alarms.py                 posts alarms to a URL
    adapters/                 let a member use kafkalite's client or another client library
    runner.py                 the member's main loop: reads records, executes the decisions of session.py
    metrics.py                counters for Prometheus
    workers.py                runs handlers in threads or as tasks
    dead_letters.py           calls the dead-letter handler
    batch_calls.py            calls a handler with a list of records
    run_progress.py           divides records into handler calls
    calls.py                  calls a handler with one record and classifies its exception
    transaction_writer.py     writes transactions in a separate thread
    breaker_status.py         publishes the member's circuit-breaker state
    marks.py                  publishes which record the handler is about to get
    session.py                decides what happens to each record; no I/O, no clock, no threads
    arrivals.py, commits.py, lanes.py, losses.py, moves.py, outcomes.py, runs.py, state.py     parts of the session
    breaker.py, windows.py    the session's circuit breaker
    topic_ids.py              tells letters of a deleted topic from those of a new one
    headers.py                headers of a letter
    events.py                 events and actions of the session
    dead_topics.py            finds dead-letter topics that policies choose by exception class
    ledger.py, rows.py        read the ledger; encode its records, called rows
    committed_reading.py      reads committed records up to the high watermark
    topics.py                 creates and checks the topics of a policy
    policy.py                 a group's policy
    retry_strategies.py       what follows a failure, and after which delay
    names.py                  topic names
    arguments.py              rejects unknown arguments
    times.py                  durations

Public names are imported when first used.
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
