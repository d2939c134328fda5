"""What the ports of confluent-kafka and kafka-python share when they write: a transaction from its claim to its end.

    claim ─▶ begin ─▶ records ─▶ offsets ─▶ commit, until its outcome is known
               └──────── what fails ───────────▶ abort; the next one has a producer of its own

Thread rule: one thread at a time. Producers are the mover's while it moves; before and after that the runner's.
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
    """Nobody can say whether a transaction is committed: the member ends, and its next life finds out."""


class Writing(Listening):
    """See the module. A port says by `_new_producer` and the methods behind it how its client does each step."""

    by_partition = False
    _failures: ClassVar[tuple[type[Exception], ...]]
    """What the client raises when something was refused."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__()
        self._transactional_id = transactional_id
        self._transactional: Any = None
        self._plain: Any = None

    @abstractmethod
    def _new_producer(self, *, transactional: bool) -> Any:
        """A producer that waits for all acknowledgements; a transactional one has taken its id."""

    @abstractmethod
    def _send(self, producer: Any, records: Sequence[Written]) -> None:
        """Waits until all are acknowledged."""

    @abstractmethod
    def _add_offsets(self, producer: Any, offsets: Mapping[TopicPartition, int], member: Any) -> None:
        """With the group's metadata, so that a member that was replaced is refused."""

    @abstractmethod
    def _commit(self, producer: Any) -> None:
        """Comes back when the outcome is known; OutcomeUnknown."""

    @abstractmethod
    def _abort(self, producer: Any) -> None:
        """Ends what is open, and the producer."""

    @abstractmethod
    def _discard(self, producer: Any) -> None:
        """Ends a producer without transactions that has failed."""

    @abstractmethod
    def _is_too_large(self, error: Exception) -> bool:
        """Whether a record did not fit."""

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
        """The next transaction has a producer of its own, whose beginning ends what this one has left."""
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
            producer, self._plain = self._plain, None  # it may refuse all that comes after what did not fit
            if producer is not None:
                self._discard(producer)
            raise TransactionFailed(str(error), too_large=self._is_too_large(error)) from error
