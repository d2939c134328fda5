"""G1 to G3: the wall clock jumps, the process is frozen, records claim impossible times.

The clock is libfaketime's: the broker alone is started with it, and reads the offset from a file at each look. Its
monotonic clock is left alone, as it is when an operator or NTP sets a machine's clock.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kit.checkers.ledger import Ledger
from tests.kit.harness import wire
from tests.kit.harness.load import Producers, create_topic, quiet, read_all
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import BrokerProcess, wait_until
from tests.reliability.test_killed_under_load import slow

MakeBroker = Callable[..., BrokerProcess]
HOUR_S = 3600
YEAR_S = 365 * 24 * HOUR_S
PARTITION_COUNT = 4
SESSION_MS = 2000
FAR_MS = str(20 * YEAR_S * 1000)


def libfaketime() -> Path:
    """The library, which `make test` installs."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        pytest.skip("libfaketime is not installed: `make packages`")
    return found[0]


class FakeTime:
    """The broker's wall clock, some seconds off."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock-offset"
        self.set(0)
        self.environment = {
            "LD_PRELOAD": str(libfaketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, offset_s: int) -> None:
        """The whole file at once: the broker never reads half of a number."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset_s:+d}\n")
        fresh.replace(self._file)


class Member(threading.Thread):
    """A consumer in a group that is polled until stopped; counts how often it was given partitions."""

    def __init__(self, broker: BrokerProcess, group: str, topic: str, **settings: object) -> None:
        super().__init__(daemon=True)
        self.assigned_count = 0
        self.read_count = 0
        self.owned: list[int] = []
        self.stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 300,
                "partition.assignment.strategy": "range",
                "reconnect.backoff.max.ms": 200,
                **settings,
            }
        )
        self._topic = topic
        self.start()

    def run(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned)
        while not self.stopping.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.read_count += 1
        self._consumer.close()

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned = [part.partition for part in partitions]
        self.assigned_count += 1


@contextmanager
def members(broker: BrokerProcess, count: int) -> Iterator[list[Member]]:
    """Members of one group that own every partition between them."""
    found = [Member(broker, "sleepers", "load") for _ in range(count)]
    try:
        wait_until(
            lambda: sorted(part for member in found for part in member.owned) == list(range(PARTITION_COUNT)),
            60,
            "every partition owned once",
        )
        yield found
    finally:
        for member in found:
            member.stopping.set()
        for member in found:
            member.join(30)


def progress(ledger: Ledger, found: list[Member], when: str) -> None:
    """Waits until producing and every member's reading have gone on."""
    acknowledged, read = ledger.acknowledged_count, [member.read_count for member in found]
    wait_until(lambda: ledger.acknowledged_count > acknowledged + 100, 60, f"producing {when}")
    wait_until(
        lambda: all(member.read_count > was + 20 for member, was in zip(found, read, strict=True)),
        60,
        f"reading {when}",
    )


# ---- G1 -------------------------------------------------------------------------------------------------------------

CLOCK_SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "log.retention.check.interval.ms": "50",
    "producer.id.expiration.check.interval.ms": "50",
    "offsets.retention.check.interval.ms": "50",
    "log.cleaner.backoff.ms": "50",
    "log.message.timestamp.after.max.ms": FAR_MS,
    "log.message.timestamp.before.max.ms": FAR_MS,
    "offsets.topic.num.partitions": "3",
}


@pytest.mark.parametrize("jump_count", [slow(0), 3, slow(20)])
@pytest.mark.scenario("G1")
def test_wall_clock_jumps(make_broker: MakeBroker, tmp_path: Path, seed: int, jump_count: int) -> None:
    """No session or transaction ends, no group loses its offsets, nothing is deleted, by the jump alone."""
    chance = random.Random(seed)
    fake = FakeTime(tmp_path)
    broker = make_broker(settings=CLOCK_SETTINGS, environment=fake.environment).start()
    create_topic(broker.port, "load", PARTITION_COUNT)
    create_topic(broker.port, "kept", 1, {"segment.bytes": "2000", "retention.ms": str(HOUR_S * 500)})
    write_segments(broker, "kept", 20)
    commit_and_leave(broker)
    open_transaction = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "open"}, logger=quiet)
    open_transaction.init_transactions(30)
    open_transaction.begin_transaction()
    open_transaction.produce("kept", b"committed after the jumps", partition=0)
    assert open_transaction.flush(30) == 0
    ledger = Ledger()
    producers = Producers(broker.bootstrap, "load", ledger, PARTITION_COUNT, seed=seed, rate_per_s=500).start()
    with members(broker, 1) as (member,):
        for number in range(jump_count):
            fake.set((HOUR_S, -HOUR_S, 10 * YEAR_S, 0)[number] if number < 4 else chance.randint(-YEAR_S, 10 * YEAR_S))
            progress(ledger, [member], "after a jump")
        producers.stop()
        assert member.assigned_count == 1, "a jump must not end a session"
    open_transaction.commit_transaction(30)  # its timeout is a minute of the monotonic clock
    verdict = ledger.judge(read_all(broker.port, "load", PARTITION_COUNT))
    assert verdict, f"seed {seed}: {verdict}"
    with wire.Connection(broker.port) as connection:
        assert connection.list_offset("kept", 0, -2)[2] == 0, "retention deleted what a jump made old"
        assert len([row for row in connection.read_partition("kept", 0) if row[2] == bytes(1900)]) == 20
    assert committed(broker) == 7, "offsets of a group expired by a jump"
    assert "Traceback" not in broker.log()


@pytest.mark.scenario("G1")
def test_jump_that_is_believed_does_expire(make_broker: MakeBroker, tmp_path: Path) -> None:
    """The control of the fault: without the hold the same jump deletes what is sealed."""
    fake = FakeTime(tmp_path)
    settings = {**CLOCK_SETTINGS, "clock.jump.hold.ms": "0"}
    broker = make_broker(settings=settings, environment=fake.environment).start()
    create_topic(broker.port, "kept", 1, {"segment.bytes": "2000", "retention.ms": str(HOUR_S * 500)})
    write_segments(broker, "kept", 5)
    with wire.Connection(broker.port) as connection:
        assert connection.list_offset("kept", 0, -2)[2] == 0
        fake.set(10 * YEAR_S)
        wait_until(lambda: connection.list_offset("kept", 0, -2)[2] > 0, 30, "retention by the new time")


def write_segments(broker: BrokerProcess, topic: str, count: int) -> None:
    """Write `count` batches, about one a segment."""
    with wire.Connection(broker.port) as connection:
        for number in range(count):
            batch = wire.batch_of([wire.Record(b"%d" % number, bytes(1900))])
            assert connection.produce(topic, 0, batch, acks=-1).error == 0


def commit_and_leave(broker: BrokerProcess) -> None:
    """A group that is empty afterwards: its offsets expire a week later."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "gone"})
    consumer.commit(offsets=[TopicPartition("kept", 0, 7)], asynchronous=False)
    consumer.close()


def committed(broker: BrokerProcess) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "gone"})
    try:
        return int(consumer.committed([TopicPartition("kept", 0)], 10)[0].offset)
    finally:
        consumer.close()


# ---- G2 -------------------------------------------------------------------------------------------------------------


GROUP_SETTINGS = {"offsets.topic.num.partitions": "3", "group.min.session.timeout.ms": "1000"}
PAUSES = [pytest.param(0, 0.0, marks=pytest.mark.slow), (1, 1.0), pytest.param(40, 12.0, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("pause_count", "pause_s_max"), PAUSES)
@pytest.mark.scenario("G2")
def test_frozen_and_continued(make_broker: MakeBroker, seed: int, pause_count: int, pause_s_max: float) -> None:
    """Nothing acknowledged is lost; a pause, also one beyond the session timeout, costs at most one rebalance."""
    chance = random.Random(seed)
    broker = make_broker(settings=GROUP_SETTINGS).start()
    create_topic(broker.port, "load", PARTITION_COUNT)
    ledger = Ledger()
    producers = Producers(broker.bootstrap, "load", ledger, PARTITION_COUNT, seed=seed, rate_per_s=500).start()
    with members(broker, 2) as found:
        pauses = [chance.uniform(0.1, pause_s_max) for _ in range(pause_count)]
        if pauses:
            pauses[-1] = 3.5  # beyond the session timeout
        for pause_s in pauses:
            counts = [member.assigned_count for member in found]
            freeze(broker, pause_s)
            progress(ledger, found, f"after a pause of {pause_s:.1f} s")
            more = [member.assigned_count - was for member, was in zip(found, counts, strict=True)]
            assert max(more) <= 1, f"{more} rebalances after a pause of {pause_s:.1f} s"
        producers.stop()
    verdict = ledger.judge(read_all(broker.port, "load", PARTITION_COUNT))
    assert not ledger.failures, f"given up by the client: {ledger.failures}"
    assert verdict, f"seed {seed}: {verdict}"


def freeze(broker: BrokerProcess, seconds: float) -> None:
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    broker.process.send_signal(signal.SIGCONT)


# ---- G3 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timestamp", sample([0, -1, 2**63 - 1], 1), ids=["0", "-1", "2^63-1"])
@pytest.mark.scenario("G3")
def test_impossible_timestamps(make_broker: MakeBroker, timestamp: int) -> None:
    """Such records are kept; the segment being written stays; looking for times works; a restart changes nothing."""
    settings = {
        "log.retention.check.interval.ms": "50",
        "log.message.timestamp.after.max.ms": str(2**63 - 1),
        "log.message.timestamp.before.max.ms": str(2**63 - 1),
    }
    broker = make_broker(settings=settings).start()
    create_topic(broker.port, "times", 1, {"retention.ms": "3600000"})
    create_topic(broker.port, "witness", 1, {"retention.ms": "1", "segment.bytes": "100"})
    with wire.Connection(broker.port) as connection:
        for number in range(3):
            batch = wire.batch_of([wire.Record(None, b"%d" % number)] * 2, base_timestamp=timestamp)
            assert connection.produce("times", 0, batch, acks=-1).error == 0
        write_segments(broker, "witness", 3)
        wait_until(lambda: connection.list_offset("witness", 0, -2)[2] > 0, 30, "a retention that ran")
    rows = [(number, None, b"%d" % (number // 2)) for number in range(6)]
    for restart in (None, broker.kill, broker.stop):
        if restart is not None:
            restart()
            broker.start()
        with wire.Connection(broker.port) as connection:
            assert connection.read_partition("times", 0) == rows
            found = connection.list_offset("times", 0, max(timestamp, 0))
            assert found[0] == 0
            assert found[2] == (-1 if timestamp < 0 else 0), found
            assert connection.list_offset("times", 0, 1)[2] == (0 if timestamp > 1 else -1)
