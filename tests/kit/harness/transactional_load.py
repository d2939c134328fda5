"""Transactional producers that keep a ledger, readers of committed records, and a watch on the last stable offset.

`TransactionalProducers` drives librdkafka through restarts of the broker as its documentation asks: a commit that may
be tried again is, one that must be aborted is, and after a fatal error a new producer takes the id over.
`read_committed` filters by the broker's lists of aborted transactions itself; `Follower` lets librdkafka do it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.kit.checkers.ledger import Read, ReadRecord
from tests.kit.checkers.transaction_ledger import Outcome, Transaction
from tests.kit.harness import wire
from tests.kit.harness.load import RECONNECTING, Load, quiet, unpack

READ_COMMITTED = 1
TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT_MARKER = 0


@dataclass
class TransactionalProducers(Load):
    """Each thread has its own transactional id, and the ledger is one of transactions."""

    partition_count: int = 4
    abort_share: float = 0.25
    records: Sequence[int] = (1, 5, 40)

    def _run(self, number: int, chance: random.Random) -> None:
        producer = self._producer(number)
        while not self._stopping.is_set():
            transaction = self.ledger.begin(number)
            try:
                producer.begin_transaction()
                for _ in range(chance.choice(self.records)):
                    self._produce(producer, transaction, chance)
                    producer.poll(0)
                self._end(producer, transaction, commit=chance.random() >= self.abort_share)
            except KafkaException as error:
                if not self._give_up(producer, transaction, error):
                    self.ledger.end(transaction, Outcome.UNKNOWN)
                    producer = self._producer(number)
        producer.flush(10)

    def _produce(self, producer: Producer, transaction: Any, chance: random.Random) -> None:
        """One record of a transaction."""
        partition = chance.randrange(self.partition_count)
        _, key, value = self.ledger.next_record(transaction, partition, chance.choice((0, 20, 300)))
        producer.produce(self.topic, value, key, partition)

    def _end(self, producer: Producer, transaction: Transaction, *, commit: bool) -> None:
        again(producer.commit_transaction if commit else producer.abort_transaction)
        self.ledger.end(transaction, Outcome.COMMITTED if commit else Outcome.ABORTED)

    def _give_up(self, producer: Producer, transaction: Transaction, error: KafkaException) -> bool:
        """Abort where the error requires it; return whether the producer can continue."""
        if not error.args[0].txn_requires_abort():
            return False
        try:
            again(producer.abort_transaction)
        except KafkaException:
            return False
        self.ledger.end(transaction, Outcome.ABORTED)
        return True

    def _producer(self, number: int) -> Producer:
        options = {
            "bootstrap.servers": self.bootstrap,
            "transactional.id": f"load-{number}",
            "transaction.timeout.ms": 60_000,
            "linger.ms": 1,
            **RECONNECTING,
            **self.settings,
        }
        producer = Producer(options, logger=quiet)
        again(producer.init_transactions)
        return producer


def again(call: Any, attempt_count: int = 30) -> None:
    """Calls a transaction's function until it succeeds, as long as the client says that it may be tried again."""
    for attempt in range(attempt_count):
        try:
            call(10)
        except KafkaException as error:
            if not error.args[0].retriable() or attempt == attempt_count - 1:
                raise
        else:
            return


def committed_only(batches: Sequence[wire.Batch], aborted: Sequence[tuple[int, int]]) -> list[wire.Batch]:
    """Return the fetched batches that a read-committed reader keeps, given the list of aborted transactions."""
    waiting = sorted(aborted, key=lambda entry: entry[1])
    dropping: set[int] = set()
    kept = []
    for batch in batches:
        while waiting and waiting[0][1] <= batch.next_offset - 1:
            dropping.add(waiting.pop(0)[0])
        if batch.attributes & CONTROL:
            key = wire.decode_records(batch)[0][1]
            if key is not None and int.from_bytes(key[2:4], "big") == ABORT_MARKER:
                dropping.discard(batch.producer_id)
        elif not (batch.attributes & TRANSACTIONAL and batch.producer_id in dropping):
            kept.append(batch)
    return kept


def read_committed_partition(connection: wire.Connection, topic: str, partition: int) -> list[ReadRecord]:
    """Every committed record from the log's start to the last stable offset; an error or a standstill raises."""
    offset = connection.list_offset(topic, partition, -2)[2]
    end = connection.list_offset(topic, partition, -1, isolation=READ_COMMITTED)[2]
    rows: list[ReadRecord] = []
    while offset < end:
        answer = connection.fetch(topic, partition, offset, partition_max_bytes=1 << 20, isolation=READ_COMMITTED)
        assert answer.error == 0, f"{topic}-{partition}@{offset}: error {answer.error}"
        batches = wire.split_batches(answer.records)
        assert batches, f"{topic}-{partition}@{offset}: nothing, the last stable offset was {end}"
        assert batches[-1].next_offset <= answer.last_stable_offset, "records beyond the last stable offset"
        for batch in committed_only(batches, answer.aborted or ()):
            assert batch.crc_is_right
            rows += [
                row for row in (ReadRecord(*r) for r in wire.decode_records(unpack(batch))) if row.offset >= offset
            ]
        offset = batches[-1].next_offset
    return rows


def read_committed(port: int, topic: str, partition_count: int) -> Read:
    """All partitions of a topic."""
    with wire.Connection(port) as connection:
        return {
            partition: read_committed_partition(connection, topic, partition) for partition in range(partition_count)
        }


class Follower(threading.Thread):
    """librdkafka reading committed records of a topic from the start on, until stopped."""

    def __init__(self, bootstrap: str, topic: str, partition_count: int) -> None:
        super().__init__(daemon=True)
        self.found: list[tuple[int, ReadRecord]] = []
        self.stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "follower",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 100,
            },
            logger=quiet,
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partition_count)])
        self.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self.take(message.partition(), ReadRecord(message.offset(), message.key(), message.value()))
        self._consumer.close()

    def take(self, partition: int, record: ReadRecord) -> None:
        self.found.append((partition, record))

    def close(self) -> None:
        self.stopping.set()
        self.join(30)


class StableWatch(threading.Thread):
    """Asks for last stable offset and high watermark of every partition again and again, over restarts."""

    def __init__(self, port: int, topic: str, partition_count: int) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[int, int, int]] = []
        self.stopping = threading.Event()
        self._port, self._topic, self._partition_count = port, topic, partition_count
        self.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with wire.Connection(self._port, timeout_s=10) as connection:
                    while not self.stopping.is_set():
                        self._look(connection)
            except (OSError, wire.Closed):
                self.stopping.wait(0.02)

    def _look(self, connection: wire.Connection) -> None:
        for partition in range(self._partition_count):
            answer = connection.fetch(
                self._topic, partition, 0, partition_max_bytes=1, max_bytes=1, isolation=READ_COMMITTED
            )
            if answer.error == 0:
                self.samples.append((partition, answer.last_stable_offset, answer.high_watermark))
        self.stopping.wait(0.01)

    def close(self) -> None:
        self.stopping.set()
        self.join(30)
