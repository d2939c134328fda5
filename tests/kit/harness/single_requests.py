"""A transactional producer made of single requests, so that each can be delayed, repeated, or left unanswered.

TV1 asks for its partitions (AddPartitionsToTxn 3), writes (Produce 11) and ends (EndTxn 4) in one epoch; in TV2
(KIP-890) writing adds the partition (Produce 12), and each EndTxn 5 raises the epoch. One thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkalite.wire.protocol.messages.end_txn import EndTxnRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.harness import wire
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from tests.kit.harness.typed import TypedConnection

TRANSACTIONAL = 0x10
BUSY = {14, 15, 16, 51}
"""Codes that ask to come again: the coordinator is loading, absent or elsewhere, or a transaction is just ending."""


@dataclass(frozen=True)
class Sent:
    """A request that can be sent again."""

    key: int
    version: int
    message: Any


@dataclass
class TypedProducer:
    """One transactional id over one connection; sequences are counted for each partition."""

    connection: TypedConnection
    transactional_id: str
    topic: str
    tv2: bool = False
    timeout_ms: int = 60_000
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)

    def init(self) -> None:
        """Takes the id over; waits while an older transaction of it is being ended."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms)

        def ask() -> Any:
            answer = self.connection.ask(api.INIT_PRODUCER_ID, 5 if self.tv2 else 4, request)
            return None if answer.error_code in BUSY else answer

        answer = wait_until(ask, 60, f"InitProducerId of {self.transactional_id}")
        assert answer.error_code == 0, answer
        self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}

    def add_request(self, partitions: Sequence[int]) -> Sent:
        topics = [AddPartitionsToTxnTopic(name=self.topic, partitions=list(partitions))]
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        return Sent(api.ADD_PARTITIONS_TO_TXN, 3, message)

    def produce_request(self, partition: int, records: Sequence[wire.Record]) -> Sent:
        """Counts the sequence on: the batch is meant to be sent, once or more."""
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(records)
        batch = wire.batch_of(
            records,
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        data = [
            TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        ]
        message = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=30_000, topic_data=data)
        return Sent(api.PRODUCE, 12 if self.tv2 else 11, message)

    def end_request(self, *, commit: bool) -> Sent:
        message = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        return Sent(api.END_TXN, 5 if self.tv2 else 4, message)

    def send(self, sent: Sent) -> int:
        """Send a request until the error is not retriable; return the last error code. EndTxn moves the epoch."""

        def ask() -> Any:
            answer = self.connection.ask(sent.key, sent.version, sent.message)
            return None if code_of(sent.key, answer) in BUSY else answer

        answer = wait_until(ask, 60, f"an answer to API {sent.key}")
        if sent.key == api.END_TXN and self.tv2 and answer.error_code == 0 and answer.producer_epoch >= 0:
            if answer.producer_id != self.producer_id or answer.producer_epoch != self.epoch:
                self.sequences = {}
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return code_of(sent.key, answer)

    def send_late(self, sent: Sent) -> int:
        """Send a stale request once; return its error code. The state does not change."""
        return code_of(sent.key, self.connection.ask(sent.key, sent.version, sent.message))

    def send_and_forget(self, sent: Sent) -> None:
        """Sends a request and does not wait for its answer."""
        with contextlib.suppress(OSError):
            self.connection.send_message(sent.key, sent.version, sent.message)

    def add(self, partitions: Sequence[int]) -> None:
        """In TV1; in TV2 writing does it."""
        if not self.tv2:
            assert self.send(self.add_request(partitions)) == 0

    def write(self, partition: int, records: Sequence[wire.Record]) -> Sent:
        sent = self.produce_request(partition, records)
        code = self.send(sent)
        assert code == 0, f"Produce: {code}"
        return sent

    def end(self, *, commit: bool) -> Sent:
        sent = self.end_request(commit=commit)
        code = self.send(sent)
        assert code == 0, f"EndTxn: {code}"
        return sent


def code_of(key: int, answer: Any) -> int:
    """The one error code of an answer about one partition."""
    if key == api.PRODUCE:
        return int(answer.responses[0].partition_responses[0].error_code)
    if key == api.ADD_PARTITIONS_TO_TXN:
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    return int(answer.error_code)
