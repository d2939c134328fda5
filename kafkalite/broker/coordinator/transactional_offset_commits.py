"""Commit offsets in a transaction: AddOffsetsToTxn and TxnOffsetCommit.

    AddOffsetsToTxn    adds the group's partition of `__consumer_offsets` to the transaction
    TxnOffsetCommit    checks that the partition was added, and writes the offsets. In TV2 (KIP-890) it adds the
                       partition first

No marker of the transaction can come between the check and the write. If this broker coordinates the transaction, both
are under the transactional id's lock. Otherwise a `Watch` notes a marker, and the write is refused.

Thread rule: as in `transaction_coordinator`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafkalite.base.deferred import Deferred, completed
from kafkalite.broker.coordinator.marker_requests import Ask
from kafkalite.broker.coordinator.state_log import OFFSETS_TOPIC
from kafkalite.broker.coordinator.transaction_rules import ONGOING, TV1, TV2
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.broker.coordinator.groups import GroupCoordinator
    from kafkalite.broker.coordinator.offset_requests import Offset
    from kafkalite.broker.coordinator.remote import Remote
    from kafkalite.broker.coordinator.state_log import Watch
    from kafkalite.broker.coordinator.transactional_id import Transaction
    from kafkalite.broker.limits.holder import Holder

ADD_SINCE: Final = 5
"""First version of TxnOffsetCommit that adds its partition to the transaction."""
MEMBER_EPOCH_SINCE: Final = 6
"""First version of TxnOffsetCommit whose clients know STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND."""
ABORTABLE_SINCE: Final = 4
"""First version of TxnOffsetCommit whose clients know TRANSACTION_ABORTABLE."""


class _Commit(NamedTuple):
    """A TxnOffsetCommit."""

    transactional_id: str
    producer_id: int
    epoch: int
    group_id: str
    member: tuple[str, str | None, int]
    """Member id, instance id, generation."""
    offsets: list[Offset]
    version: int
    holder: Holder | None

    @property
    def abortable(self) -> bool:
        """Whether the client knows TRANSACTION_ABORTABLE."""
        return self.version >= ABORTABLE_SINCE

    def refused(self, code: int) -> list[int]:
        """Return the response if no offset may be committed: this error code for every offset."""
        return [int(code)] * len(self.offsets)


class Transactions(Protocol):
    """The methods of TransactionCoordinator that OffsetCommits uses."""

    remote: Remote | None

    def error_of(self, transactional_id: str) -> int: ...

    def lookup(self, transactional_id: str) -> tuple[Transaction | None, int]: ...

    def add(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: frozenset[TopicPartition], version: int
    ) -> Deferred[int]: ...

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition, *, abortable: bool
    ) -> int: ...


class OffsetCommits:
    """Handles transactional offset commits, of transactions that this broker or another broker coordinates."""

    def __init__(self, transactions: Transactions, groups: GroupCoordinator) -> None:
        self._transactions = transactions
        self._groups = groups

    def add_group(self, transactional_id: str, producer_id: int, epoch: int, group_id: str) -> Deferred[int]:
        """Handle AddOffsetsToTxn: add to the transaction the partition of `__consumer_offsets` that has a group's
        offsets.
        """
        where = frozenset((self.partition_of_group(group_id),))
        return self._transactions.add(transactional_id, producer_id, epoch, where, TV1)

    def partition_of_group(self, group_id: str) -> TopicPartition:
        """Return the partition of `__consumer_offsets` that has a group's offsets."""
        return TopicPartition(OFFSETS_TOPIC, self._groups.log.partition_of(group_id))

    def commit(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        group_id: str,
        member: tuple[str, str | None, int],
        offsets: list[Offset],
        request_version: int,
        holder: Holder | None = None,
    ) -> Deferred[list[int]]:
        """Handle TxnOffsetCommit. The Deferred gets a code for each of `offsets`, in their order.

        `member` is (member id, instance id, generation). If the group does not exist yet, it is charged to `holder`.
        """
        asked = _Commit(transactional_id, producer_id, epoch, group_id, member, offsets, request_version, holder)
        where = self.partition_of_group(group_id)
        code = self._groups.error_of(group_id)
        if code:
            return completed(asked.refused(code))
        remote = self._transactions.remote
        if remote is not None and self._transactions.error_of(transactional_id) == ErrorCode.NOT_COORDINATOR:
            return self._commit_of_remote(asked, where)
        answer: Deferred[list[int]] = Deferred()

        def commit(code: int) -> None:
            if code:
                answer.complete(asked.refused(code))
            else:
                self._commit_within(asked, where, answer)

        if request_version >= ADD_SINCE:
            added = self._transactions.add(transactional_id, producer_id, epoch, frozenset((where,)), TV2)
            answer.abandoned = added.abandoned
            added.then(lambda code: commit(_offsets_code(code)))
        else:
            commit(0)
        return answer

    def _commit_of_remote(self, asked: _Commit, where: TopicPartition) -> Deferred[list[int]]:
        """Ask the coordinator on another broker, then commit. Refuse the commit if a marker of its transaction arrives
        meanwhile.

        Markers of the previous transaction may arrive, too, since the request waits until that transaction is complete.
        In TV2 their epoch is at most the commit's, and the markers of the commit's own transaction have a higher epoch
        (KIP-890). In TV1 the epochs do not differ, but AddOffsetsToTxn has already waited for the earlier markers.
        """
        remote = self._transactions.remote
        assert remote is not None, "in a cluster alone"
        only_verify = asked.version < ADD_SINCE
        ended_by = asked.epoch if only_verify else asked.epoch + 1
        watch = self._groups.offsets.watch(where.partition, asked.producer_id, ended_by)
        answer: Deferred[list[int]] = Deferred()

        def commit(code: int) -> None:
            code = _offsets_code(code)
            if code:
                self._groups.offsets.unwatch(watch)
                answer.complete(asked.refused(code))
            else:
                self._write(asked, watch).then(answer.complete)

        who = asked.transactional_id, asked.producer_id, asked.epoch
        remote.ask(Ask(*who, where, only_verify, asked.abortable)).then(commit)
        return answer

    def _commit_within(self, asked: _Commit, where: TopicPartition, answer: Deferred[list[int]]) -> None:
        """Queue the commit under the transactional id's lock, so that no marker of the transaction can precede it."""
        transaction, code = self._transactions.lookup(asked.transactional_id)
        if transaction is None:
            answer.complete(asked.refused(code or ErrorCode.INVALID_PRODUCER_ID_MAPPING))
            return
        with transaction.changing():
            coming = transaction.coming
            if transaction.dropped:  # the id may have been loaded again, with another lock
                code = int(ErrorCode.NOT_COORDINATOR)
            else:
                code = self._transactions.verify(
                    asked.transactional_id, asked.producer_id, asked.epoch, where, abortable=asked.abortable
                )
            code = _offsets_code(code)
            if not code and coming is not None and coming.state is not ONGOING:
                code = _offsets_code(ErrorCode.CONCURRENT_TRANSACTIONS)
            if not code:
                done = self._write(asked)
        if code:
            answer.complete(asked.refused(code))
        else:
            done.then(answer.complete)

    def _write(self, asked: _Commit, watch: Watch | None = None) -> Deferred[list[int]]:
        from kafkalite.wire.record.batches import Producer

        producer = Producer(asked.producer_id, asked.epoch, -1, transactional=True)
        done = self._groups.offsets.commit(
            asked.group_id, *asked.member, asked.offsets, producer=producer, watch=watch, holder=asked.holder
        )
        if asked.version >= MEMBER_EPOCH_SINCE:
            return done
        return done.map(lambda codes: [_OLDER_CODES.get(code, code) for code in codes])


_OLDER_CODES: Final[Mapping[int, int]] = {
    ErrorCode.GROUP_ID_NOT_FOUND: int(ErrorCode.ILLEGAL_GENERATION),
    ErrorCode.STALE_MEMBER_EPOCH: int(ErrorCode.ILLEGAL_GENERATION),
}
"""Codes for clients of earlier versions, which treat the newer codes as fatal."""


def fenced_as_old(code: int) -> int:
    """Return the code that Produce and TxnOffsetCommit report: INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED."""
    return int(ErrorCode.INVALID_PRODUCER_EPOCH if code == ErrorCode.PRODUCER_FENCED else code)


def _offsets_code(code: int) -> int:
    """Return the code that TxnOffsetCommit reports. Instead of CONCURRENT_TRANSACTIONS, it is one after which clients
    of every version retry.
    """
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:
        return int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return fenced_as_old(code)
