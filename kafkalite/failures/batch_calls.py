"""Call a handler that takes a list of records (`Policy.batch`).

Thread rule: any thread; calls share no state.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafkalite.failures.calls import Caller, Transaction, ends_member, is_cancelled
from kafkalite.failures.events import Message, Outcome
from kafkalite.failures.run_progress import BatchResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite.failures.events import Failure
    from kafkalite.failures.policy import Policy


class BatchFailed(Exception):
    """An exception that a batch handler raises to name the failed records.

    It contains a mapping of list index to exception. The other records of the list count as processed. But a record
    that must wait for a failed record, to keep the order, is handled again later. If the handler takes a transaction,
    all records are handled again.
    """

    def __init__(self, failures: Mapping[int, BaseException]) -> None:
        super().__init__(f"{len(failures)} records of the batch failed")
        self.failures = dict(failures)


class BatchCaller(Caller):
    """Calls a handler with lists of records. BatchWork turns the result into outcomes of records."""

    @property
    def size(self) -> int:
        """The maximum number of records in a batch."""
        return self._policy.batch

    def prepared(self, message: Message) -> Message | Failure:
        """Return the record decoded for the handler, or the failure to decode it."""
        record = self._decoded(message)
        if isinstance(record, Outcome):
            assert record.failure is not None, "an outcome here is a failure"
            return record.failure
        assert isinstance(record, Message), "dead letters come one at a time"
        return record

    def call_batch(self, records: list[Message]) -> BatchResult:
        """Call a sync handler. SystemExit and KeyboardInterrupt are raised: they end the member."""
        transaction = Transaction()
        try:
            self._run(records, transaction)
        except BaseException as error:
            if ends_member(error):
                raise
            return self._result(error, len(records))
        return BatchResult(tuple(transaction.outputs))

    async def call_batch_async(self, records: list[Message]) -> BatchResult:
        """Call an async handler, limited to `processing_time_max`. Raises CancelledError if this task is cancelled."""
        transaction = Transaction()
        try:
            await self._run_async(records, transaction)
        except BaseException as error:
            if ends_member(error):
                raise
            if is_cancelled():
                raise asyncio.CancelledError from error
            return self._result(error, len(records))
        return BatchResult(tuple(transaction.outputs))

    def _result(self, error: BaseException, count: int) -> BatchResult:
        """Convert an exception to a failure of the whole call, or BatchFailed to failures of the records that
        it names.
        """
        if isinstance(error, BatchFailed):
            if error.failures and error.failures.keys() <= set(range(count)):
                named = {place: self._failure(one, None) for place, one in sorted(error.failures.items())}
                return BatchResult(failures=named)
            error = IndexError(f"BatchFailed names the records {[*error.failures]} of a batch of {count}")
        return BatchResult(failure=self._failure(error, None))


def caller_of(policy: Policy, handler: Callable[..., Any]) -> Caller:
    """Return the object that calls a policy's handler. Raises ValueError if they do not fit."""
    return BatchCaller(policy, handler) if policy.batch else Caller(policy, handler)
