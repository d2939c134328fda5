"""Base class that writes transactions with confluent-kafka and kafka-python.

    transaction   initialize the transactional id ─▶ begin ─▶ send records ─▶ add offsets ─▶ commit
    commit        repeated until the outcome is known, for a limited time
    failure       abort the transaction, then use a new producer

Thread rule: one thread at a time. Producers belong to the writing thread (kafkalite.failures.transaction_writer) during
a transaction, otherwise to the runner's thread.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from kafkalite.failures.adapters.listening import Listening
from kafkalite.failures.transaction_writer import TransactionFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalite.failures.transaction_writer import Written
    from kafkalite.model import TopicPartition

logger = logging.getLogger(__name__)


class OutcomeUnknown(Exception):
    """It is unknown whether a transaction was committed.

    The exception ends the member. After the member's restart, the committed offsets show the outcome.
    """


class Writing(Listening):
    """Base of adapters that write transactions; see the module. Subclasses implement each step for their client."""

    by_partition = False
    _failures: ClassVar[tuple[type[Exception], ...]]
    """Exceptions of the client for refused requests."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__()
        self._transactional_id = transactional_id
        self._transactional: Any = None
        self._plain: Any = None

    @abstractmethod
    def _new_producer(self, *, transactional: bool) -> Any:
        """Create a producer with acks=all. Initialize the transactional id of a transactional producer."""

    @abstractmethod
    def _send(self, producer: Any, records: Sequence[Written]) -> None:
        """Send records, and wait for their acknowledgements."""

    @abstractmethod
    def _add_offsets(self, producer: Any, offsets: Mapping[TopicPartition, int], member: Any) -> None:
        """Add offsets with the group's metadata, so that the broker rejects a member that was replaced."""

    @abstractmethod
    def _commit(self, producer: Any) -> None:
        """Commit, and return when the outcome is known. Raises OutcomeUnknown."""

    @abstractmethod
    def _abort(self, producer: Any) -> None:
        """Abort the open transaction. The producer is not used again."""

    @abstractmethod
    def _discard(self, producer: Any) -> None:
        """Release a failed producer that has no transactional id. It is not used again."""

    @abstractmethod
    def _is_too_large(self, error: Exception) -> bool:
        """Return whether this error means that a record was too large."""

    def claim(self) -> None:
        self._transactional = self._new_producer(transactional=True)

    def transact(
        self,
        records: Sequence[Written],
        offsets: Mapping[TopicPartition, int],
        scope: TopicPartition | None,
        member: object,
    ) -> None:
        assert scope is None, "the group metadata names the member"
        try:
            if self._transactional is None:
                self.claim()
            self._transactional.begin_transaction()
            self._send(self._transactional, records)
            self._add_offsets(self._transactional, offsets, member)
            self._commit(self._transactional)
        except self._failures as error:
            self._give_up()
            raise TransactionFailed(str(error), too_large=self._is_too_large(error)) from error

    def _give_up(self) -> None:
        """Abort the transaction and drop the producer.

        If the transaction is still open, the start of the next producer aborts it.
        """
        producer, self._transactional = self._transactional, None
        expected: tuple[type[Exception], ...] = (*self._failures, RuntimeError)
        if producer is not None:
            try:
                self._abort(producer)
            except expected as error:
                logger.info("the transaction of %s was not aborted: %s", self._transactional_id, error)

    def write(self, records: Sequence[Written]) -> None:
        try:
            if self._plain is None:
                self._plain = self._new_producer(transactional=False)
            self._send(self._plain, records)
        except self._failures as error:
            producer, self._plain = self._plain, None  # it may refuse everything after the record that was too large
            if producer is not None:
                self._discard(producer)
            raise TransactionFailed(str(error), too_large=self._is_too_large(error)) from error
