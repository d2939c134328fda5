"""A7: killed while another client creates and deletes topics. Each is complete or absent, and other topics
are intact.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from kafkalite.errors import ErrorCode
from tests.kit.checkers.ledger import Ledger
from tests.kit.harness import wire
from tests.kit.harness.load import Producers, create_topic, read_all
from tests.kit.processes.broker import BrokerProcess, wait_until
from tests.reliability.test_killed_under_load import slow

MakeBroker = Callable[..., BrokerProcess]
PARTITION_COUNT = 3


class Changes(threading.Thread):
    """Creates and deletes topics until stopped, over kills; remembers what was acknowledged."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.there: set[str] = set()
        self.gone: set[str] = set()
        self.unknown: set[str] = set()
        self.acknowledged_count = 0
        self.problems: list[str] = []
        self._port, self._chance, self._number = port, random.Random(seed), 0

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with wire.Connection(self._port) as connection:
                    while not self.stopping.is_set():
                        self._step(connection)
            except OSError:
                time.sleep(0.01)  # the broker is down: how the last request ended stays unknown

    def _step(self, connection: wire.Connection) -> None:
        if self.there and self._chance.random() < 0.45:
            name = self._chance.choice(sorted(self.there))
            self.there.discard(name)
            self.unknown.add(name)
            self._note(name, connection.delete_topic(name), self.gone)
        else:
            self._number += 1
            name = f"topic-{self._number}"
            self.unknown.add(name)
            self._note(name, connection.create_topic(name, PARTITION_COUNT), self.there)

    def _note(self, name: str, error: int, where: set[str]) -> None:
        if error:
            self.problems.append(f"{name}: error {error}")
        self.unknown.discard(name)
        where.add(name)
        self.acknowledged_count += 1


def whole(connection: wire.Connection, name: str) -> bool:
    """Whether every partition takes a record and gives it back; False when none is there; anything else fails."""
    errors = []
    for partition in range(PARTITION_COUNT):
        answer = connection.produce(name, partition, wire.batch_of([wire.Record(None, b"whole")]), acks=-1)
        errors.append(answer.error)
        if answer.error == 0:
            batch = wire.split_batches(connection.fetch(name, partition, answer.base_offset).records)[0]
            assert wire.decode_records(batch) == [(answer.base_offset, None, b"whole")]
    assert set(errors) in ({0}, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}), f"{name} is neither whole nor absent: {errors}"
    return errors[0] == 0


@pytest.mark.parametrize("kill_count", [slow(0), 2, slow(10)])
@pytest.mark.scenario("A7")
def test_killed_while_topics_come_and_go(make_broker: MakeBroker, seed: int, kill_count: int) -> None:
    chance = random.Random(seed)
    settings = {"auto.create.topics.enable": "false", "log.segment.delete.delay.ms": "50"}
    broker = make_broker(settings=settings).start()
    create_topic(broker.port, "load", 4)
    ledger = Ledger()
    producers = Producers(broker.bootstrap, "load", ledger, 4, seed=seed, rate_per_s=500).start()
    changes = Changes(broker.port, seed)
    changes.start()
    for _ in range(kill_count):
        before = changes.acknowledged_count
        wait_until(lambda before=before: changes.acknowledged_count > before + 5, 30, "changes between kills")
        time.sleep(chance.uniform(0, 0.3))
        broker.kill()
        broker.start()
    wait_until(lambda: changes.acknowledged_count > 20 and ledger.acknowledged_count > 500, 60, "enough acknowledged")
    changes.stopping.set()
    changes.join(60)
    producers.stop()
    assert not changes.problems, changes.problems
    verdict = ledger.judge(read_all(broker.port, "load", 4))
    assert verdict, f"seed {seed}: {verdict}"
    judge(broker, changes)
    broker.kill()
    broker.start()
    judge(broker, changes)
    assert "Traceback" not in broker.log()


def judge(broker: BrokerProcess, changes: Changes) -> None:
    with wire.Connection(broker.port) as connection:
        for name in sorted(changes.there):
            assert whole(connection, name), f"{name} was created and is not there"
        for name in sorted(changes.gone):
            assert not whole(connection, name), f"{name} was deleted and is there"
        for name in sorted(changes.unknown):
            (changes.there if whole(connection, name) else changes.gone).add(name)
        changes.unknown.clear()
    wait_until(lambda: directories(broker) == expected(changes), 30, "directories of exactly the topics that are there")


def directories(broker: BrokerProcess) -> set[str]:
    return {path.name for path in broker.data_dir.iterdir() if path.is_dir() and path.name.startswith("topic-")}


def expected(changes: Changes) -> set[str]:
    return {f"{name}-{partition}" for name in changes.there for partition in range(PARTITION_COUNT)}
