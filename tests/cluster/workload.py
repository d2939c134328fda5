"""Clients of a cluster under faults, one kind a process, which write events as `tests.cluster.judge` knows them.

    python -m tests.cluster.workload KIND BOOTSTRAP SEED CHEAT

Ends orderly when its standard input does. Kinds: producers, transactions, copier, followers, bursts, sweep, and the
names of the plain groups, which are groups of two members. librdkafka all of them. CHEAT is empty, or clients tell what
they would of a cluster that answers too early, which the judge has to find.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.cluster import plan
from tests.cluster.links import DYING_WITH_US
from tests.kit.checkers.ledger import Identity, ReadRecord, make_key, make_value, parse_record
from tests.kit.harness import wire
from tests.kit.harness.load import RECONNECTING, Producers, quiet
from tests.kit.harness.transactional_load import TransactionalProducers
from tests.kit.processes.copier import Copier

PRODUCERS = 2
RATE_PER_S = 150
"""Records a second of each producer."""
SIZES = (40, 100, 400)
"""Bytes of a value: enough for its value alone to identify a record."""
TRANSACTIONAL_PRODUCERS = 2
TRANSACTION_PAUSE_S = 0.05
FIRST_TRANSACTIONAL = 100
"""Their numbers begin here."""
MEMBERS = 2
COPIES_MAX = 200
"""Records of one transaction of the copier's."""
STUCK_S = 15.0
"""Without a copy, after which a copier's life ends."""
BURST = 20
"""Commits of a group without members."""
BURST_PAUSE_S = 0.05
TELL_EVERY_S = 0.1
TOLD_OF_GROUPS = "cgrp,broker"
"""What librdkafka writes to standard error, also while a call of it does not return; a logger would hear it later."""
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50, "socket.timeout.ms": 6000}
READING = {
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 100,
    "check.crcs": True,
    "topic.metadata.refresh.interval.ms": 2000,
    **QUICK,
    "retry.backoff.ms": 500,
}
"""More between two tries than it takes to learn who coordinates: see README.md, of librdkafka."""

EARLY_ANSWERS = "early-answers"
"""A cheat: records are reported as acknowledged once a leader has them."""
EARLY_COMMITS = "early-commits"
"""A cheat: commits are reported as acknowledged once they are sent."""

_telling = threading.Lock()
_ending = threading.Event()


def tell(event: str, **fields: object) -> None:
    """Writes one event."""
    line = json.dumps({"event": event, **fields}, separators=(",", ":"))
    with _telling:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


SKIPPED = re.compile(
    r"ProduceRequest for (\S+) \[(\d+)\] .* skipped sequence numbers \(PID\{Id:(\d+),Epoch:(\d+)\}, base seq (\d+) >"
)
"""What librdkafka (2.16) logs before it raises its epoch."""


class Refusals(logging.Handler):
    """Reports batches refused because they do not follow the log's last sequence."""

    def emit(self, record: logging.LogRecord) -> None:
        if found := SKIPPED.search(record.getMessage()):
            topic, partition, producer_id, epoch, sequence = found.groups()
            place = plan.place_of(topic, int(partition))
            tell("refused", id=int(producer_id), epoch=int(epoch), place=place, sequence=int(sequence))


def refusals() -> logging.Logger:
    """Return a logger that gets the messages about producers' epochs."""
    logger = logging.getLogger("tests.cluster.workload")
    logger.addHandler(Refusals())
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    return logger


class ToldLedger:
    """A ledger for the loads of `tests.kit.harness` that reports each event; partitions are places."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[tuple[int, int], int] = defaultdict(int)
        self._transactions = itertools.count()

    def begin(self, producer: int) -> tuple[int, int]:
        """Producer and number of a new transaction."""
        transaction = (producer + FIRST_TRANSACTIONAL, next(self._transactions))
        tell("begun", producer=transaction[0], transaction=transaction[1])
        return transaction

    def end(self, transaction: tuple[int, int], outcome: Any) -> None:
        tell("ended", producer=transaction[0], transaction=transaction[1], outcome=outcome.value)

    def next_record(self, sender: int | tuple[int, int], place: int, size: int) -> tuple[Identity, bytes, bytes]:
        """Identity, key and value of the next record of a producer, or of a transaction."""
        producer, transaction = sender if isinstance(sender, tuple) else (sender, None)
        with self._lock:
            identity = Identity(producer, place, self._next[producer, place])
            self._next[producer, place] += 1
        tell("sent", producer=producer, place=place, count=1, transaction=transaction)
        value = make_value(identity, size)
        return identity, make_key(identity, value), value

    def acknowledge(self, identity: Identity, offset: int) -> None:
        tell("acknowledged", producer=identity.producer, records=[[identity.partition, identity.sequence, offset]])

    def fail(self, identity: Identity, reason: str) -> None:
        tell("failed", producer=identity.producer, records=[[identity.partition, identity.sequence]], error=reason)


class WideTransactions(TransactionalProducers):
    """Transactions over several topics."""

    def _produce(self, producer: Producer, transaction: Any, chance: random.Random) -> None:
        topic, partition = chance.choice(plan.TRANSACTIONAL), chance.randrange(plan.PARTITIONS)
        place = plan.place_of(topic, partition)
        _, key, value = self.ledger.next_record(transaction, place, chance.choice(SIZES))
        producer.produce(topic, value, key, partition)

    def _end(self, producer: Producer, transaction: Any, *, commit: bool) -> None:
        super()._end(producer, transaction, commit=commit)
        self._stopping.wait(TRANSACTION_PAUSE_S)


class GivenRecords:
    """The records that readers got, reported in pieces; a record whose checksums do not fit is reported as such."""

    def __init__(self, group: str | None) -> None:
        self._group = group
        self._records: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        self._told_at = 0.0

    def take(self, reader: str, message: Any) -> None:
        """The next record of a reader."""
        record = ReadRecord(message.offset(), message.key(), message.value())
        identity = parse_record(record)
        if isinstance(identity, str):
            tell("spoiled", reader=reader, text=f"{message.topic()}-{message.partition()}@{record.offset}: {identity}")
            return
        place = plan.place_of(message.topic(), message.partition())
        self._records[reader].append((place, record.offset, record.key.hex()))

    def tell(self, *, now: bool = False) -> None:
        """Report all pending records, unless a report was sent a moment ago."""
        if now or time.monotonic() > self._told_at + TELL_EVERY_S:
            for reader, records in self._records.items():
                tell("given", reader=reader, group=self._group, records=records)
            self._records.clear()
            self._told_at = time.monotonic()


def reading(bootstrap: str, group: str, **more: object) -> dict[str, object]:
    """Settings of a consumer."""
    return {"bootstrap.servers": bootstrap, "group.id": group, **READING, **more}


def consumer_of(bootstrap: str, group: str, **more: object) -> Consumer:
    return Consumer(reading(bootstrap, group, **more), logger=quiet)


class Member(threading.Thread):
    """One member of a plain group: reports the records it gets, then commits them."""

    def __init__(self, bootstrap: str, group: str, number: int) -> None:
        super().__init__(name=f"{group}-{number}", daemon=True)
        self._group = group
        self._given = GivenRecords(group)
        self._stretch: dict[int, int] = {}  # by place
        self._stretches = itertools.count()
        self._positions: dict[int, int] = {}
        protocol = (
            {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
            if plan.GROUPS[group] == "classic"
            else {"group.protocol": "consumer"}
        )
        settings = reading(bootstrap, group, **{"auto.offset.reset": "earliest", "debug": TOLD_OF_GROUPS, **protocol})
        self._consumer = Consumer(settings)
        self.start()

    def run(self) -> None:
        self._consumer.subscribe([plan.PLAIN], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone)
        committed_at = time.monotonic()
        while not _ending.is_set():
            message = self._consumer.poll(0.1)  # one at a time, so that no rebalance hides between two
            if message is not None and message.error() is None:
                place = plan.place_of(message.topic(), message.partition())
                self._given.take(f"{self.name}/{self._stretch[place]}", message)
                self._positions[place] = message.offset() + 1
            if self._positions and time.monotonic() > committed_at + TELL_EVERY_S:
                self._commit()
                committed_at = time.monotonic()
        self._given.tell(now=True)
        self._consumer.close()

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for part in partitions:
            self._stretch[plan.place_of(part.topic, part.partition)] = next(self._stretches)

    def _gone(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for part in partitions:
            self._positions.pop(plan.place_of(part.topic, part.partition), None)

    def _commit(self) -> None:
        self._given.tell(now=True)
        positions, self._positions = self._positions, {}
        wanted = [TopicPartition(*plan.topic_of(place), offset) for place, offset in positions.items()]
        commit(self._consumer, self._group, wanted)


class Copies(Copier):
    """The copier, which reports its positions and runs until it is told to end."""

    copied_at = 0.0
    """When the last transaction ended."""

    def done(self) -> bool:
        return _ending.is_set()

    def copy(self, messages: list[Any]) -> None:
        super().copy(messages)
        self.copied_at = time.monotonic()
        tell("committed", group=plan.COPIERS, at=time.monotonic(), positions=self.positions)


def copy(bootstrap: str, seed: int) -> None:
    """Run one copier; status 3 when its state is unknown, or when it makes no progress."""
    try:
        copies = Copies(bootstrap, plan.PLAIN, plan.COPY, plan.PARTITIONS, COPIES_MAX, seed)
        threading.Thread(target=end_when_stuck, args=(copies,), daemon=True).start()
        copies.run()
    except KafkaException as error:
        sys.stderr.write(f"copier: {error}\n")
        os._exit(3)
    os._exit(0)


def end_when_stuck(copies: Copies) -> None:
    """End a stuck process: librdkafka 2.16 may wait without end for a group's former coordinator, despite
    the time-out.
    """
    began = time.monotonic()
    while time.monotonic() < max(began, copies.copied_at) + STUCK_S:
        time.sleep(1.0)
    sys.stderr.write("copier: does not go on\n")
    faulthandler.dump_traceback()
    os._exit(3)


def copiers(bootstrap: str, seed: int) -> None:
    """One life after the other."""
    command = [*DYING_WITH_US, sys.executable, "-m", "tests.cluster.workload", "one-copier", bootstrap]
    for life in itertools.count(seed * 1000):
        with subprocess.Popen([*command, str(life), ""], stdin=subprocess.PIPE) as process:
            while process.poll() is None and not _ending.wait(0.05):
                pass
        if _ending.is_set():
            return


def commit_in_bursts(bootstrap: str, *, early: bool) -> None:
    """Commits positions of a group, each higher than the one before, then of another: none hides that one was lost."""
    for number in itertools.count():
        group = plan.burst(number)
        client = None if early else consumer_of(bootstrap, group)
        unheard = Unheard(bootstrap, group) if early else None
        for position in range(1, BURST + 1):
            wanted = [TopicPartition(plan.PLAIN, partition, position) for partition in range(plan.PARTITIONS)]
            if client is not None:
                commit(client, group, wanted)
            if unheard is not None:
                unheard.commit(wanted)
            if _ending.wait(BURST_PAUSE_S):
                return
        if client is not None:
            client.close()


def commit(client: Consumer, group: str, wanted: list[TopicPartition]) -> None:
    """Commits positions, and tells it when it is acknowledged."""
    with contextlib.suppress(KafkaException):  # then it is not
        if all(part.error is None for part in client.commit(offsets=wanted, asynchronous=False)):
            tell_committed(group, wanted)


def tell_committed(group: str, parts: list[TopicPartition]) -> None:
    """That these positions of a group are acknowledged."""
    positions = {plan.place_of(part.topic, part.partition): part.offset for part in parts}
    tell("committed", group=group, at=time.monotonic(), positions=positions)


class Unheard:
    """Commits whose responses are not awaited, on one connection to the coordinator: reported at once, never resent."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._group = group
        self._connection: wire.Connection | None = None
        for server in bootstrap.split(","):
            host, _, port = server.partition(":")
            with contextlib.suppress(OSError), wire.Connection(int(port), host=host, timeout_s=2) as asked:
                error, host, found = asked.find_coordinator(group)
                if not error:
                    self._connection = wire.Connection(found, host=host, timeout_s=2)
                    return

    def commit(self, wanted: list[TopicPartition]) -> None:
        with contextlib.suppress(OSError):
            if self._connection is not None:
                offsets = [(part.partition, part.offset) for part in wanted]
                body = wire.offset_commit_body(self._group, plan.PLAIN, offsets)
                self._connection.send(wire.OFFSET_COMMIT, 2, body)
                tell_committed(self._group, wanted)


def follow(bootstrap: str, isolation: str, topics: Iterable[str]) -> None:
    """Reads all partitions of topics from their beginnings on, until the end."""
    name = f"follower-{isolation}"
    given = GivenRecords(None)
    client = consumer_of(bootstrap, name, **{"auto.offset.reset": "error", "isolation.level": isolation})
    client.assign([TopicPartition(topic, number, 0) for topic in topics for number in range(plan.PARTITIONS)])
    while not _ending.is_set():
        message = client.poll(0.1)
        if message is not None:
            take(given, name, message)
        given.tell()
    given.tell(now=True)
    client.close()


def take(given: GivenRecords, name: str, message: Any) -> None:
    """Take a record or an error; the consumer reports an error when it must restart because records were removed."""
    if message.error() is None:
        given.take(name, message)
    elif message.error().code() == KafkaError._AUTO_OFFSET_RESET:
        tell("spoiled", reader=name, text=f"{message.topic()}-{message.partition()}: {message.error()}")


def sweep(bootstrap: str) -> None:
    """Reads what is committed in all topics, once, from beginning to end."""
    given = GivenRecords(None)
    client = consumer_of(
        bootstrap,
        "sweep",
        **{"auto.offset.reset": "error", "isolation.level": "read_committed", "enable.partition.eof": True},
    )
    left = {(topic, number) for topic in plan.TOPICS for number in range(plan.PARTITIONS)}
    client.assign([TopicPartition(*part, 0) for part in left])
    while left and not _ending.is_set():
        message = client.poll(0.5)
        if message is not None and message.error() and message.error().code() == KafkaError._PARTITION_EOF:
            left.discard((message.topic(), message.partition()))
        elif message is not None:
            take(given, "sweep", message)
    given.tell(now=True)
    if not left:
        tell("swept", reader="sweep")
    client.close()


def load(make: Callable[..., Any], bootstrap: str, **fields: Any) -> None:
    """Runs producers of a kind."""
    running = make(bootstrap, ledger=ToldLedger(), partition_count=plan.PARTITIONS, **fields).start()
    _ending.wait()
    running.stop()


def both(*targets: Callable[[], None]) -> None:
    """Run each target in its own thread until all end."""
    threads = [threading.Thread(target=target, daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run(kind: str, bootstrap: str, seed: int, cheat: str) -> None:
    """One kind of client."""
    match kind:
        case "producers":
            early = {"acks": 1, "enable.idempotence": False, "max.in.flight": 1} if cheat == EARLY_ANSWERS else {}
            fields: dict[str, Any] = {"rate_per_s": RATE_PER_S, "sizes": SIZES, "producer_count": PRODUCERS}
            fields["settings"] = {"socket.timeout.ms": 6000, "debug": "eos", **early}
            fields["logger"] = refusals()
            load(Producers, bootstrap, topic=plan.PLAIN, seed=seed, **fields)
        case "transactions":
            fields = {"records": (1, 5, 20), "producer_count": TRANSACTIONAL_PRODUCERS, "settings": RECONNECTING}
            load(WideTransactions, bootstrap, topic="", seed=seed, **fields)
        case "copier":
            copiers(bootstrap, seed)
        case "one-copier":
            copy(bootstrap, seed)
        case "followers":
            both(
                lambda: follow(bootstrap, "read_uncommitted", [plan.PLAIN]),
                lambda: follow(bootstrap, "read_committed", plan.TOPICS),
            )
        case plan.BURSTS:
            commit_in_bursts(bootstrap, early=cheat == EARLY_COMMITS)
        case "sweep":
            sweep(bootstrap)
        case _:
            members = [Member(bootstrap, kind, number) for number in range(MEMBERS)]
            for member in members:
                member.join()


KINDS = (
    "producers",
    "transactions",
    "copier",
    "followers",
    plan.BURSTS,
    *(name for name in plan.GROUPS if name != plan.JAVA_GROUP),
)
"""That run side by side."""


def main() -> None:
    kind, bootstrap, seed, cheat = sys.argv[1:]
    faulthandler.register(signal.SIGUSR1)  # dumps the stacks
    threading.Thread(target=lambda: (sys.stdin.read(), _ending.set()), daemon=True).start()
    run(kind, bootstrap, int(seed), cheat)


if __name__ == "__main__":
    main()
