"""A group of three clients is rolled from the classic protocol to the newer one (KIP-848), one by one, and back.

Java's, librdkafka's and franz-go's member read under load all along. Each is stopped and comes back in the other
protocol; after every step each partition is read on within one session, and in the end no record was skipped. Slow:
franz-go's build takes a minute and a half the first time, and a JVM some seconds at each start.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from kafkalite.client import Client
from tests.compat.addresses import librdkafka_at, security_at
from tests.compat.members import COMMANDS, Program, Taken
from tests.compat.toolchains import NotAvailable
from tests.kit.harness.load import quiet
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.slow

PARTITION_COUNT = 6
EVERY = range(PARTITION_COUNT)
SESSION_S = 45.0
"""Of either protocol, as these clients and the broker have it."""
STRATEGIES = {"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}


class Librdkafka(threading.Thread):
    """The same in a thread."""

    def __init__(self, bootstrap: str, topic: str, protocol: dict[str, Any], taken: Taken) -> None:
        super().__init__(daemon=True)
        fixed = {**librdkafka_at(bootstrap), "group.id": f"group-{topic}", "auto.offset.reset": "earliest"}
        self.consumer = Consumer({**fixed, "enable.auto.commit": False, **protocol}, logger=quiet)
        self.consumer.subscribe([topic])
        self.taken = taken
        self.failed: list[Exception] = []
        self._ending = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ending.is_set():
            messages = [message for message in self.consumer.consume(500, 0.1) if message.error() is None]
            for message in messages:
                self.taken.add(message.partition(), [message.offset()])
            try:
                if messages:
                    self.consumer.commit(asynchronous=False)
            except KafkaException as error:
                if error.args[0].fatal():
                    self.failed.append(error)
                    return

    def close(self) -> None:
        self._ending.set()
        self.join(60)
        self.consumer.close()
        assert not self.failed, self.failed


@pytest.fixture
def load(bootstrap: str, topic: str) -> Iterator[Callable[[], dict[int, int]]]:
    """A producer that writes all along; call it to end that: the end of each partition."""
    with Client(bootstrap, security=security_at(bootstrap)) as client:
        client.admin.create_topic(topic, PARTITION_COUNT)
    ends: dict[int, int] = dict.fromkeys(range(PARTITION_COUNT), 0)
    ending = threading.Event()

    def delivered(error: object, message: Any) -> None:
        assert error is None, error
        ends[message.partition()] = max(ends[message.partition()], message.offset() + 1)

    def produce() -> None:
        producer = Producer(librdkafka_at(bootstrap), logger=quiet)
        while not ending.wait(0.05):
            for number in range(PARTITION_COUNT):
                producer.produce(topic, b"x", partition=number, on_delivery=delivered)
            producer.poll(0)
        producer.flush(60)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()

    def end() -> dict[int, int]:
        ending.set()
        thread.join(90)
        return ends

    yield end
    end()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_record_is_skipped_while_a_group_is_rolled(
    bootstrap: str,
    topic: str,
    load: Callable[[], dict[int, int]],
    not_run: Callable[[str, str], NoReturn],
    tmp_path: Path,
    strategy: str,
) -> None:
    try:
        commands = {kind: COMMANDS[folder]() for kind, folder in (("java", "java"), ("franz-go", "franz_go"))}
    except (NotAvailable, FileNotFoundError, subprocess.CalledProcessError) as missing:
        not_run("a rolled group", str(missing))
    taken = Taken()
    classic = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 300}

    def member(kind: str, *, newer: bool) -> Program | Librdkafka:
        if kind == "librdkafka":
            return Librdkafka(bootstrap, topic, {"group.protocol": "consumer"} if newer else classic, taken)
        argument = STRATEGIES[strategy] if kind == "java" else strategy
        words = [bootstrap, "rolled", topic, "next" if newer else argument]
        return Program([*commands[kind], *words], taken.line, tmp_path / f"{kind}.log")

    kinds = ["java", "librdkafka", "franz-go"]
    members = {kind: member(kind, newer=False) for kind in kinds}
    began = time.monotonic()
    wait_until(taken.read_on(EVERY), 2 * SESSION_S, "everything read by a classic group")
    for newer in (True, False):
        for kind in kinds:
            members.pop(kind).close()
            members[kind] = member(kind, newer=newer)
            wait_until(taken.read_on(EVERY), SESSION_S, f"every partition read on, {kind} changed, newer: {newer}")
            wait_until(lambda: settled(bootstrap, topic), 60, f"a settled group, {kind} changed, newer: {newer}")
            wait_until(taken.read_on(EVERY), SESSION_S, f"every partition read on, {kind} settled, newer: {newer}")
    ends = load()
    whole = {number: set(range(end)) for number, end in ends.items()}
    wait_until(lambda: all(taken.offsets[number] >= each for number, each in whole.items()), 60, "everything read")
    for each in members.values():
        each.close()
    seconds = time.monotonic() - began
    print(f"{sum(ends.values())} records, {seconds:.0f} s; no partition was unread for {taken.longest_s:.1f} s")


def settled(bootstrap: str, topic: str) -> bool:
    """Return whether three members share all partitions and no revocation is pending."""
    with Client(bootstrap, security=security_at(bootstrap)) as client:
        group = client.groups.describe(f"group-{topic}")
    owned = sorted(key.partition for member in group.members for key in member.partitions)
    return group.state == "Stable" and len(group.members) == 3 and owned == list(EVERY)
