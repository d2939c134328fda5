"""A transaction coordinator of one transactional id, for tests of the client: what was committed can be looked at.

Both protocols; `second` is KIP-890's. Methods answer one request each; `code` other than 0 is what a Fault asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kafkalite._native.wire import batch as native
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)
from kafkalite.wire.record.batches import decode


@dataclass
class FakeTransactions:
    second: bool = False
    producer_id: int = 7000
    epoch: int = -1
    partitions: set[tuple[str, int]] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    written: list[tuple[tuple[str, int], list[bytes | None]]] = field(default_factory=list)
    """By the open transaction."""
    pending: dict[tuple[str, str, int], int] = field(default_factory=dict)
    committed: dict[tuple[str, int], list[bytes | None]] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    last_end: tuple[int, bool] | None = None
    """Epoch and outcome of the transaction before."""
    members: list[tuple[int, str]] = field(default_factory=list)

    # --- what producers write ----------------------------------------------------------------------------------------

    def admit(self, key: tuple[str, int], raw: bytes) -> int:
        """The error code for a batch; 0 when it may be written."""
        info = native.read_info(raw)
        if not info.is_transactional:
            return 0
        if info.producer_id != self.producer_id or info.producer_epoch != self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.second:
            self.partitions.add(key)
        return 0 if key in self.partitions else ErrorCode.INVALID_TXN_STATE

    def wrote(self, key: tuple[str, int], raw: bytes) -> None:
        if native.read_info(raw).is_transactional:
            self.written.append((key, list(decode(raw).values)))

    # --- the coordinator ---------------------------------------------------------------------------------------------

    def _end(self, commit: bool) -> None:
        for key, values in self.written if commit else ():
            self.committed.setdefault(key, []).extend(values)
        if commit:
            self.offsets |= self.pending
        self.written.clear()
        self.pending.clear()
        self.partitions.clear()
        self.groups.clear()

    def _refusal(self, producer_id: int, epoch: int) -> int:
        if producer_id != self.producer_id:
            return 49
        return 0 if epoch == self.epoch else ErrorCode.PRODUCER_FENCED

    def initialise(self, node: int, request: Any, code: int) -> Any:
        if not code and request.producer_epoch >= 0 and self._refusal(request.producer_id, request.producer_epoch):
            code = ErrorCode.PRODUCER_FENCED
        if code:
            return init_producer_id.InitProducerIdResponse(error_code=code)
        self._end(commit=False)
        self.epoch += 1
        self.last_end = None
        return init_producer_id.InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)

    def add_partitions(self, node: int, request: Any, code: int) -> Any:
        code = code or self._refusal(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        results = []
        for topic in request.v3_and_below_topics:
            if not code:
                self.partitions |= {(topic.name, number) for number in topic.partitions}
            rows = [
                add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=code
                )
                for number in topic.partitions
            ]
            results.append(
                add_partitions_to_txn.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=rows)
            )
        return add_partitions_to_txn.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def add_offsets(self, node: int, request: Any, code: int) -> Any:
        code = code or self._refusal(request.producer_id, request.producer_epoch)
        if not code:
            self.groups.add(request.group_id)
        return add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=code)

    def commit_offsets(self, node: int, request: Any, code: int) -> Any:
        code = code or self._refusal(request.producer_id, request.producer_epoch)
        if not code and not self.second and request.group_id not in self.groups:
            code = ErrorCode.INVALID_TXN_STATE
        self.members.append((request.generation_id, request.member_id))
        for topic in request.topics if not code else ():
            for row in topic.partitions:
                self.pending[request.group_id, topic.name, row.partition_index] = row.committed_offset
        return txn_offset_commit.TxnOffsetCommitResponse(
            topics=[
                txn_offset_commit.TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitResponsePartition(
                            partition_index=row.partition_index, error_code=code
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def end(self, node: int, request: Any, code: int) -> Any:
        repeated = self.last_end == (request.producer_epoch, request.committed)
        if self.second and repeated and request.producer_epoch == self.epoch - 1:
            return end_txn.EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch, error_code=code)
        code = code or self._refusal(request.producer_id, request.producer_epoch)
        if not code and not self.second and repeated and not self.partitions and not self.groups:
            return end_txn.EndTxnResponse()
        if code:
            return end_txn.EndTxnResponse(error_code=code)
        self._end(request.committed)
        self.last_end = (request.producer_epoch, request.committed)
        if self.second:
            self.epoch += 1
            return end_txn.EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
        return end_txn.EndTxnResponse()
