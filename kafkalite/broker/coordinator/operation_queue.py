"""Run the operations of a consumer group (KIP-848) in batches; each batch is one write.

    1  requests, timeouts and changes of topics add operations to the queue
    2  a batch runs all queued operations on the staged state
    3  the records for all changes are written together
    4  when they are durable, the staged state is committed, requests are answered and timers are set
    5  if the write fails, the staged state is discarded, and the requests of the batch are answered with an error

A batch that changes nothing is answered at once. Operations that arrive during a write wait for the next batch, so many
joins at once need few writes.

Thread rule: guarded by the group's lock. A batch runs on the thread that adds an operation, or on the I/O pool.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kafkalite.base.dataclass import dataclass
from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator.base import is_too_large, write_error
from kafkalite.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.coordinator.base import GroupBase
    from kafkalite.broker.coordinator.consumer_environment import ConsumerEnvironment
    from kafkalite.broker.coordinator.consumer_state import ConsumerState
    from kafkalite.broker.coordinator.downgrade import Downgrade
    from kafkalite.broker.coordinator.member_memory import ConsumerMemory
    from kafkalite.broker.coordinator.member_timers import MemberTimers
    from kafkalite.broker.coordinator.staged_changes import StagedChanges, Successor

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)


@dataclass(slots=True)
class Operation:
    """A request, or internal work without a response, such as a timeout or a changed topic."""

    run: Callable[[], Any]
    """Reads and changes the staged state, under the lock; returns the response or raises a KafkaError."""
    answer: Deferred[Any] | None = None
    refuse: Callable[[int, str | None], Any] | None = None
    """Returns the response for an error code and a message. Set for every operation with a response."""
    member_of: Callable[[Any], str] | None = None
    """Returns the id of the member that sent the request, from a response without an error."""
    again: Callable[[], Deferred[Any]] | None = None
    """Sends the request to the group that has replaced this group."""
    committed: Callable[[Any], None] | None = None
    """Called under the lock with a response without an error, when it is durable."""
    redirected: bool = False
    """Whether `run` found that the request is for a classic group; the request is then sent again."""
    response: Any = None
    refused: bool = False


class OperationQueue:
    """The queue of one group."""

    __slots__ = (
        "_changes",
        "_consumers",
        "_downgrade",
        "_group",
        "_memory",
        "_queued",
        "_timers",
        "_write",
        "_writing",
        "closed",
    )

    def __init__(
        self,
        group: GroupBase,
        consumers: ConsumerEnvironment,
        changes: StagedChanges,
        memory: ConsumerMemory,
        timers: MemberTimers,
        downgrade: Downgrade,
    ) -> None:
        self._group = group
        self._write = group.environment.write
        self._consumers = consumers
        self._changes = changes
        self._memory = memory
        self._timers = timers
        self._downgrade = downgrade
        self._queued: list[Operation] = []
        self._writing: list[Operation] = []
        self.closed = False
        """Whether the group was deleted or replaced: every operation is refused."""

    @property
    def busy(self) -> bool:
        """Whether operations are queued or being written."""
        return bool(self._queued or self._writing)

    def ask(self, operation: Operation) -> None:
        """Run a request in the next batch; its operation has the Deferred for the response."""
        with self._group.changing():
            if self.closed:
                self._refuse(operation, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                self._deliver(operation)
            else:
                self.submit_locked(operation)

    def submit(self, run: Callable[[], None]) -> None:
        """Run internal work in the next batch. Do nothing if the queue is closed."""
        with self._group.changing():
            if not self.closed:
                self.submit_locked(Operation(run))

    def submit_locked(self, operation: Operation) -> None:
        """Run an operation in the next batch, which starts now if nothing is being written."""
        self._queued.append(operation)
        if not self._writing:
            self._run_batch()

    def refuse_all_locked(self) -> None:
        """Close the queue, and refuse the operations that are queued or being written."""
        self.closed = True
        operations, self._queued = [*self._writing, *self._queued], []
        self._end(operations, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def members_changed_locked(self, before: ConsumerState) -> None:
        """Adjust the charged memory and the timers of the members, after the durable state changed."""
        changes = self._changes.durable.changes_since(before)
        self._memory.update(changes)
        self._timers.update(changes)

    # --- batches ------------------------------------------------------------------------------------------------------

    def _run_batch(self) -> None:
        operations, self._queued = self._queued, []
        try:
            for place, operation in enumerate(operations, 1):
                self._run(operation)
                if self._changes.successor is not None:  # later operations are for the group that replaces this one
                    operations, self._queued = operations[:place], operations[place:]
                    break
        except Exception:
            logger.exception(
                "updating a group failed; its changes are rolled back", extra=fields(group=self._group.group_id)
            )
            self._discard()
            self._end(operations, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        records = self._changes.take_records()
        if not records:
            self._end(operations, 0)
            return
        self._writing = operations
        self._write(self._group.group_id, records, self._stored)

    def _run(self, operation: Operation) -> None:
        try:
            operation.response = operation.run()
        except KafkaError as error:
            self._refuse(operation, error.code, str(error))
        else:
            self._touch(operation)

    def _stored(self, code: int) -> None:
        with self._group.changing():
            operations, self._writing = self._writing, []
            successor, self._changes.successor = self._changes.successor, None
            if code:
                self._discard()
                if not self.closed:
                    self._timers.rearm()
            elif successor is None:
                before = self._changes.commit()
                if not self.closed:
                    self.members_changed_locked(before)
            for operation in () if code else operations:
                self._touch(operation)  # the write may have taken a while
            if code and len(operations) > 1:  # any of them may be the reason: each can be retried, alone if necessary
                self._end(operations, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            elif is_too_large(code):  # Kafka returns UNKNOWN_SERVER_ERROR, which does not name the reason
                self._end(
                    operations,
                    ErrorCode.INVALID_REQUEST,
                    "the member's metadata is too large for a record of __consumer_offsets",
                )
            else:
                self._end(operations, write_error(code))
            if not code and successor is not None and not self.closed:
                self._give_way(successor)
            if self._queued:
                self._group.later_locked(lambda: self._consumers.run_soon(self._run_queued))

    def _run_queued(self) -> None:
        with self._group.changing():
            if self._queued and not self._writing:
                self._run_batch()

    def _discard(self) -> None:
        self._changes.discard()
        self._memory.recount(self._changes.durable.members)

    def _give_way(self, successor: Successor) -> None:
        """Let the classic group replace this group, and pass it the requests that arrived meanwhile."""
        self._downgrade.complete_locked(successor)
        operations, self._queued = self._queued, []
        for operation in operations:
            operation.redirected = True
        self._end(operations, 0)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _end(self, operations: list[Operation], code: int, text: str | None = None) -> None:
        for operation in operations:
            if code:
                self._refuse(operation, code, text)
            elif operation.committed is not None and not operation.refused and not operation.redirected:
                operation.committed(operation.response)
            self._deliver(operation)

    @staticmethod
    def _refuse(operation: Operation, code: int, text: str | None = None) -> None:
        operation.refused = True
        if operation.refuse is not None:
            operation.response = operation.refuse(code, text)

    def _touch(self, operation: Operation) -> None:
        if operation.member_of is not None and not operation.refused and not operation.redirected:
            self._timers.touch(operation.member_of(operation.response))

    def _deliver(self, operation: Operation) -> None:
        answer, again = operation.answer, operation.again
        if answer is None:
            return
        if operation.redirected and not operation.refused and again is not None:
            self._group.later_locked(lambda: self._consumers.run_soon(lambda: again().then(answer.complete)))
            return
        if operation.response is None:
            self._refuse(operation, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        response = operation.response
        self._group.later_locked(lambda: answer.complete(response))
