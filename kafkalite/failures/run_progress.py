"""Divide the records of a run into handler calls, and turn the result of each call into outcomes of records.

A run is a sequence of records of one partition. A handler gets them one at a time, or in batches (`Policy.batch`). The
result of a call with a batch decides what follows:

    the call returned             all records are processed
    BatchFailed                   the records that it names have failed; with a transaction, the batch is divided first
    exception, one record         that record has failed
    exception, several records    each half of the batch is passed to the handler in a separate call
    outage                        the first record has failed, and the run ends

Thread rule: one thread at a time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from kafkalite.failures.events import FailureKind, Finished, FinishedTogether, Message, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.failures.events import Event, Failure, Output, Run


class RunProgress:
    """The failures of a run so far. They determine which records are still to be handled."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._failures = 0
        self._failed_keys: set[bytes] = set()
        self.over = False
        """No further record of the run is handled."""

    def skips(self, message: Message) -> bool:
        """Return whether to skip a record because an earlier record of its key has failed (order by key)."""
        return self._run.by_key and message.key in self._failed_keys

    def fail(self, message: Message, failure: Failure) -> None:
        """Note that a record has failed."""
        self._failures += 1
        if message.key is not None:
            self._failed_keys.add(message.key)
        if self._failures >= self._run.failures_max or failure.kind is FailureKind.OUTAGE:
            self.over = True


class Decoder(Protocol):
    """The interface of BatchCaller that BatchWork uses."""

    with_transaction: bool

    def prepared(self, message: Message) -> Message | Failure:
        """Return the record decoded for the handler, or the failure to decode it."""


class BatchResult:
    """The result of one call with a batch: `failure` of the whole call, or `failures` by index in the batch."""

    def __init__(
        self,
        outputs: tuple[Output, ...] = (),
        failure: Failure | None = None,
        failures: Mapping[int, Failure] | None = None,
    ) -> None:
        self.outputs = outputs
        self.failure = failure
        self.failures = failures or {}


class BatchWork:
    """Divides a run into batches of at most `size` records, and splits batches that fail; see the module.

    In a run with marks (kafkalite.failures.marks), each batch has one record, so that a record that crashes the process
    can be identified.

    If the policy keeps an order, a record that failed before gets its own batch. In a larger batch, each of its retries
    would also pass the records that wait for it to the handler.
    """

    def __init__(self, run: Run, decoder: Decoder, size: int) -> None:
        size = 1 if run.marks else size
        self._run = run
        self._decoder = decoder
        self._progress = RunProgress(run)
        self._is_ordered = run.by_key or run.failures_max == 1
        self._events: list[Event] = []
        self._waiting: deque[list[Message]] = deque()
        for message in run.messages:
            last = self._waiting[-1] if self._waiting else []
            failed = self._is_ordered and any(one.attempt for one in (*last[-1:], message))
            if not last or failed or len(last) == size:
                self._waiting.append([])
            self._waiting[-1].append(message)
        self.batch: list[Message] = []
        """The records of the batch in hand, as they were read."""

    def next(self) -> list[Message]:
        """Return the decoded records of the next batch; none at the end of the run."""
        while self._waiting and not self._progress.over:
            records = self._prepared(self._waiting.popleft())
            if records and not self._progress.over:
                return records
        return []

    def _prepared(self, messages: list[Message]) -> list[Message]:
        """Decode records.

        If the policy keeps an order, stop before a record that cannot be decoded. So the records before it are handled
        first.
        """
        self.batch, records = [], []
        for place, message in enumerate(messages):
            if self._progress.skips(message):
                continue
            record = self._decoder.prepared(message)
            if isinstance(record, Message):
                self.batch.append(message)
                records.append(record)
                continue
            if self._is_ordered and records:
                self._waiting.appendleft(messages[place:])
                break
            self._fail(message, record)
            if self._progress.over:
                break
        return records

    def ended(self, result: BatchResult) -> None:
        """Process the result of the call with the current batch."""
        batch, failure = self.batch, result.failure
        if failure is None and not result.failures:
            self._succeed(batch, result.outputs)
        elif len(batch) == 1:
            self._fail(batch[0], failure or result.failures[0])
        elif failure is not None and failure.kind is FailureKind.OUTAGE:
            self._fail(batch[0], failure)  # the system is down for all of them
        elif failure is not None:
            half = len(batch) // 2
            self._waiting.extendleft((batch[half:], batch[:half]))
        elif self._decoder.with_transaction:
            self._waiting.extendleft(reversed(parted(batch, result.failures)))  # no output can be tied to a record
        else:
            self._sort_out(batch, result.failures)

    def _sort_out(self, batch: list[Message], failures: Mapping[int, Failure]) -> None:
        """Create the outcomes of the records after BatchFailed.

        A record gets no outcome if an earlier failure has ended the run or, with order by key, if its key has failed.
        """
        for place, message in enumerate(batch):
            if self._progress.over:
                return
            if place in failures:
                self._fail(message, failures[place])
            elif not self._progress.skips(message):
                self._succeed([message], ())

    def _succeed(self, messages: list[Message], outputs: tuple[Output, ...]) -> None:
        partition, number = self._run.partition, self._run.number
        if outputs and len(messages) > 1:
            offsets = tuple(message.offset for message in messages)
            self._events.append(FinishedTogether(partition, number, offsets, outputs))
        else:
            self._events += [
                Finished(partition, number, message.offset, Outcome(None, outputs)) for message in messages
            ]

    def _fail(self, message: Message, failure: Failure) -> None:
        self._events.append(Finished(self._run.partition, self._run.number, message.offset, Outcome(failure)))
        self._progress.fail(message, failure)

    def take(self) -> list[Event]:
        """Return the outcomes that were created since the last call of `take`."""
        events, self._events = self._events, []
        return events


def parted(batch: list[Message], places: Mapping[int, object]) -> list[list[Message]]:
    """Split a batch so that each record at these indexes gets its own batch."""
    parts: list[list[Message]] = []
    alone = True
    for place, message in enumerate(batch):
        if alone or place in places:
            parts.append([message])
        else:
            parts[-1].append(message)
        alone = place in places
    return parts
