"""K1, K2: backups under load, and backups that are killed.

What had been acknowledged when a backup began is in it; transactions are whole in it or absent; no committed offset
lies beyond its log; users, ACLs and settings hold. The broker itself loses nothing by it.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kit.checkers.ledger import Ledger
from tests.kit.checkers.transaction_ledger import Outcome, TransactionLedger
from tests.kit.harness import wire
from tests.kit.harness.load import Producers, create_topic, quiet, read_all
from tests.kit.harness.transactional_load import TransactionalProducers, again, read_committed
from tests.kit.processes.broker import BrokerProcess, wait_until
from tests.reliability.test_killed_under_load import slow

MakeBroker = Callable[..., BrokerProcess]
PARTITION_COUNT = 4
MANY = 600
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "0",
    "log.flush.offset.checkpoint.interval.ms": "300",
}
COMMAND = (sys.executable, "-m", "kafkalite")
MORE_KILLS_MAX = 20
"""Kills beyond the count of a test, none of whose own met a backup in the middle."""


def backup_of(broker: BrokerProcess, target: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "backup", str(target), "--data-dir", str(broker.data_dir), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


class Reading(threading.Thread):
    """A member of a group that commits what it has read, again and again."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.commit_count = 0
        self.stopping = threading.Event()
        options = {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        self._consumer = Consumer(options, logger=quiet)
        self._consumer.subscribe([topic])
        self.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            if self._consumer.consume(200, 0.05):
                self._consumer.commit(asynchronous=False)
                self.commit_count += 1
        self._consumer.close()

    def close(self) -> None:
        self.stopping.set()
        self.join(60)
        assert not self.is_alive()


class Upheaval(threading.Thread):
    """Topics come and go, keys are written over: retention, compaction and deletion have something to do."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.problems: list[str] = []
        self._port, self._servers, self._chance = broker.port, broker.bootstrap, random.Random(seed)
        small = {"segment.bytes": "20000", "file.delete.delay.ms": "0"}
        create_topic(self._port, "keys", 2, {**small, "cleanup.policy": "compact"})
        create_topic(self._port, "short", 2, {**small, "retention.bytes": "60000"})
        self.start()

    def run(self) -> None:
        try:
            producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 5}, logger=quiet)
            turn = 0
            while not self.stopping.is_set():
                for _ in range(100):
                    producer.produce("keys", b"x" * 100, b"%d" % self._chance.randrange(30))
                    producer.produce("short", b"y" * 200)
                producer.flush(30)
                turn += 1
                with wire.Connection(self._port) as connection:
                    if turn % 2:
                        assert connection.create_topic(f"brief-{turn}", 2) == 0
                        producer.produce(f"brief-{turn}", b"z")
                        producer.flush(30)
                    else:
                        connection.delete_topic(f"brief-{turn - 1}")
                time.sleep(0.05)
        except Exception as error:  # noqa: BLE001 - close() reports it
            self.problems.append(repr(error))

    def close(self) -> None:
        self.stopping.set()
        self.join(60)
        assert not self.problems, self.problems


def create_many(broker: BrokerProcess) -> None:
    """Logs that are looked at between those of records and those of offsets and transactions, which takes a while: a
    backup that did not take all of them at one moment would have these ahead of those."""
    create_topic(broker.port, "many", MANY)
    producer = Producer({"bootstrap.servers": broker.bootstrap}, logger=quiet)
    for partition in range(MANY):
        producer.produce("many", b"one", partition=partition)
    assert producer.flush(60) == 0


def open_transactions(port: int, topic: str) -> list[int]:
    """Partitions whose last stable offset is not their end."""
    with wire.Connection(port) as connection:
        return [
            partition
            for partition in range(PARTITION_COUNT)
            if connection.list_offset(topic, partition, -1, isolation=1)[2]
            < connection.list_offset(topic, partition, -1)[2]
        ]


def committed_offsets(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group}, logger=quiet)
    wanted = [TopicPartition(topic, partition) for partition in range(PARTITION_COUNT)]
    found = {each.partition: each.offset for each in consumer.committed(wanted, timeout=60)}
    consumer.close()
    return {partition: offset for partition, offset in found.items() if offset >= 0}


@pytest.mark.parametrize("backup_count", [1, slow(12)])
@pytest.mark.scenario("K1")
def test_backups_under_load(make_broker: MakeBroker, tmp_path: Path, seed: int, backup_count: int) -> None:
    broker = make_broker(settings=SETTINGS).start()
    create_topic(broker.port, "load", PARTITION_COUNT, {"segment.bytes": "40000"})
    create_topic(broker.port, "moved", PARTITION_COUNT, {"segment.bytes": "40000"})
    create_many(broker)
    ledger, transactions = Ledger(), TransactionLedger()
    producers = Producers(
        broker.bootstrap, "load", ledger, PARTITION_COUNT, producer_count=1, seed=seed, rate_per_s=800
    ).start()
    moving = TransactionalProducers(
        broker.bootstrap, "moved", transactions, PARTITION_COUNT, producer_count=2, seed=seed, records=(1, 5, 12)
    ).start()
    reading, upheaval = Reading(broker.bootstrap, "load"), Upheaval(broker, seed)
    made = []
    for number in range(backup_count):
        commits, ends = reading.commit_count, transactions.count(Outcome.COMMITTED)
        wait_until(lambda c=commits: reading.commit_count > c + 3, 60, "offsets committed")
        wait_until(lambda e=ends: transactions.count(Outcome.COMMITTED) > e + 10, 60, "transactions committed")
        known = ledger.acknowledged_now(), transactions.committed_now()
        target = tmp_path / f"backup-{number}"
        done = backup_of(broker, target, *(["--copy"] if number % 2 else []))
        assert done.returncode == 0, done.stderr
        assert "verified" in done.stdout
        made.append((target, *known))
    upheaval.close()
    reading.close()
    producers.stop()
    moving.stop()
    first = read_all(broker.port, "load", PARTITION_COUNT)
    assert ledger.judge(first), str(ledger.judge(first))
    wait_until(lambda: not (broker.data_dir / ".backup").exists(), 60, "the links are gone")
    assert not (broker.data_dir / "backup.request").exists()
    for target, acknowledged, committed in made:
        copy = make_broker(settings=SETTINGS)
        restored = subprocess.run([*COMMAND, "restore", str(target), "--data-dir", str(copy.data_dir)])
        assert restored.returncode == 0
        copy.start()
        read = read_all(copy.port, "load", PARTITION_COUNT)
        verdict = ledger.at(acknowledged).judge(read)
        assert verdict, f"seed {seed}: {verdict}"
        ends = {partition: records[-1].offset + 1 for partition, records in read.items() if records}
        positions = committed_offsets(copy.bootstrap, "readers", "load")
        assert positions, "no position of the group came along"
        beyond = {number: at for number, at in positions.items() if at > ends.get(number, 0)}
        assert not beyond, f"positions beyond the end: {beyond}, ends {ends}"
        for number in range(2):  # what was open belongs to producers that are gone
            options = {"bootstrap.servers": copy.bootstrap, "transactional.id": f"load-{number}"}
            again(Producer(options, logger=quiet).init_transactions)
        wait_until(lambda port=copy.port: not open_transactions(port, "moved"), 30, "an end to all transactions")
        verdict = transactions.at(committed).judge(read_committed(copy.port, "moved", PARTITION_COUNT))
        assert verdict, f"seed {seed}: {verdict}"
        producer = Producer({"bootstrap.servers": copy.bootstrap}, logger=quiet)
        for partition in range(PARTITION_COUNT):
            producer.produce("load", b"after", partition=partition)
        assert producer.flush(30) == 0
        assert "Traceback" not in copy.log()
        assert "records are missing" not in copy.log()
        copy.close()
    assert read_all(broker.port, "load", PARTITION_COUNT) == first, "a broker on a copy changed the original"
    broker.stop()
    assert "Traceback" not in broker.log()


@pytest.mark.parametrize("kill_count", [slow(1), slow(20)])
@pytest.mark.scenario("K2")
def test_backups_killed_in_the_middle(make_broker: MakeBroker, tmp_path: Path, seed: int, kill_count: int) -> None:
    """No broker starts on what they leave, and the running one takes its part away and makes the next."""
    chance = random.Random(seed)
    broker = make_broker(settings=SETTINGS).start()
    create_topic(broker.port, "load", PARTITION_COUNT, {"segment.bytes": "20000"})
    ledger = Ledger()
    producers = Producers(broker.bootstrap, "load", ledger, PARTITION_COUNT, seed=seed, sizes=(500,)).start()
    wait_until(lambda: ledger.acknowledged_count > 5000, 120, "something to copy")
    halves = 0
    for number in range(kill_count + MORE_KILLS_MAX):
        if number >= kill_count and halves:
            break
        target = tmp_path / f"half-{number}"
        command = [*COMMAND, "backup", str(target), "--data-dir", str(broker.data_dir)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if number >= kill_count:  # all of them ended too early or too late
            unfinished = target / "backup.unfinished"
            wait_until(lambda u=unfinished, p=process: u.exists() or p.poll() is not None, 60, "begun", 0.001)
        elif number % 3:
            wait_until(
                lambda t=target, p=process: (t / "meta.properties").exists() or p.poll() is not None, 60, "begun"
            )
            time.sleep(chance.uniform(0, 0.05))
        else:
            wait_until((broker.data_dir / "backup.request").exists, 60, "asked")
            time.sleep(chance.uniform(0, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until(lambda: not (broker.data_dir / "backup.request").exists(), 60, "the broker noticed")
        assert not (broker.data_dir / ".backup").exists()
        if (target / "backup.unfinished").exists():
            halves += 1
            start = [*COMMAND, "start", "--data-dir", str(target), "--listeners", "kafka://127.0.0.1:0"]
            refused = subprocess.run(start, capture_output=True, text=True, timeout=60)
            assert refused.returncode == 2
            assert "an incomplete backup" in refused.stderr
            assert refused.stderr.count("\n") == 1
    assert halves, "none was killed in the middle: the test showed nothing"
    known = ledger.acknowledged_now()
    done = backup_of(broker, tmp_path / "verified")
    assert done.returncode == 0, done.stderr
    producers.stop()
    broker.stop()
    copy = make_broker(settings=SETTINGS)
    copy.directory.mkdir(parents=True)
    (tmp_path / "verified").rename(copy.data_dir)
    copy.start()
    verdict = ledger.at(known).judge(read_all(copy.port, "load", PARTITION_COUNT))
    assert verdict, f"seed {seed}: {verdict}"
