"""Copies a topic with transactions, positions included: run as a separate process, so that it can be killed.

    python -m tests.kit.processes.copier BOOTSTRAP SOURCE TARGET PARTITIONS BATCH SEED

Reads its position from the group `copier`, begins there, writes each record to the same partition of TARGET, commits
records and position together, and aborts a quarter of its transactions on purpose, whose records it marks in their
keys. Ends when every partition is copied to the end that it had at the start. One thread; any other
error ends the process with status 3, and its parent starts it again.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.kit.harness.load import quiet
from tests.kit.harness.transactional_load import again

GROUP = "copier"
ABORTED_KEY = b"aborted on purpose"
FLUSH_S = 60
OPTIONS = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    # When all brokers are gone librdkafka starts again from its bootstrap servers and forgets its coordinator; a
    # send_offsets_to_transaction then never looks up the new one (seen with 2.16).
    "metadata.recovery.strategy": "none",
}


class Copier:
    """One life of the application."""

    def __init__(self, bootstrap: str, source: str, target: str, partition_count: int, batch: int, seed: int) -> None:
        self.source, self.target, self.batch = source, target, batch
        self.chance = random.Random(f"{seed}/{os.getpid()}")
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": GROUP, "linger.ms": 2, **OPTIONS},
        )
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                **OPTIONS,
            },
            logger=quiet,
        )
        self.partitions = [TopicPartition(source, number) for number in range(partition_count)]
        # First claim the id, which ends a transaction that an earlier process left open; only then fetch the position.
        again(self.producer.init_transactions)
        self.ends = {part.partition: self.consumer.get_watermark_offsets(part, 30)[1] for part in self.partitions}
        self.positions: dict[int, int] = {}

    def rewind(self) -> None:
        """Back to what is committed."""
        found = self.consumer.committed(self.partitions, 30)
        self.positions = {part.partition: 0 if part.offset == OFFSET_INVALID else part.offset for part in found}
        self.consumer.assign(
            [TopicPartition(self.source, number, position) for number, position in self.positions.items()]
        )

    def run(self) -> None:
        self.rewind()
        while not self.done():
            messages = [message for message in self.consumer.consume(self.batch, 0.2) if message.error() is None]
            if messages:
                try:
                    self.copy(messages)
                except KafkaException as error:
                    cause = error.args[0]
                    if not isinstance(cause, KafkaError) or not cause.txn_requires_abort():
                        raise
                    again(self.producer.abort_transaction)
                    self.rewind()

    def done(self) -> bool:
        """Whether every partition is copied to the end that it had at the start."""
        return all(self.positions[number] >= end for number, end in self.ends.items())

    def copy(self, messages: list) -> None:
        """One transaction."""
        abort = self.chance.random() < 0.25
        self.producer.begin_transaction()
        ahead = dict(self.positions)
        delivered: list[None] = []

        def note(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                delivered.append(None)

        for message in messages:
            key = ABORTED_KEY if abort else message.key()
            while True:
                with contextlib.suppress(BufferError):
                    self.producer.produce(self.target, message.value(), key, message.partition(), on_delivery=note)
                    break
                self.producer.poll(0.05)
            ahead[message.partition()] = message.offset() + 1
        moved = [
            TopicPartition(self.source, number, at) for number, at in ahead.items() if at != self.positions[number]
        ]
        again(lambda t: self.producer.send_offsets_to_transaction(moved, self.consumer.consumer_group_metadata(), t))
        if abort:
            again(self.producer.abort_transaction)
            self.rewind()
        else:
            # librdkafka 2.16 has committed what it had not sent, after an abort whose first call had timed out.
            self.producer.flush(FLUSH_S)
            if len(delivered) < len(messages):
                raise KafkaException(f"{len(delivered)} of {len(messages)} records were delivered")
            again(self.producer.commit_transaction)
            self.positions = ahead


def main() -> None:
    bootstrap, source, target, partition_count, batch, seed = sys.argv[1:]
    try:
        Copier(bootstrap, source, target, int(partition_count), int(batch), int(seed)).run()
    except KafkaException as error:
        sys.stderr.write(f"copier: {error}\n")
        os._exit(3)
    os._exit(0)  # librdkafka's threads have nothing left to do


if __name__ == "__main__":
    main()
