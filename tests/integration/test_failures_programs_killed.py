"""The four programs of examples/failures, while they and the broker are killed: each order is processed, or a dead
letter, once; by each client, with sync and async handlers."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.client import Client
from kafkalite.errors import KafkaError
from kafkalite.failures.rows import State
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record
from tests.kit.harness.failing_groups import broker_process, is_done, records, rows_of
from tests.kit.harness.samples import sample
from tests.kit.processes import decorated_program
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.compat]
PROGRAMS = REPOSITORY / "examples" / "failures"
LINES_MAX = 15
GROUP, TOPIC, DONE, DEAD = "billing", "orders", "invoices", "dlq.billing.orders"
STRATEGIES = ("topics", "here", "forever", "ignore")
CLIENTS = ("kafkalite", "confluent-kafka", "kafka-python", "aiokafka")
FORMS = ("run", "async", "serve")
PARTITIONS = 2
ORDERS = 150
"""In each round and partition."""
KILLS = ("program", "broker", "program", "both", "program", "")
"""What each round kills, while its orders are handled."""
KILL_AFTER_S = {"ignore": 0.2, **dict.fromkeys(("topics", "here", "forever"), 2.5)}
"""A kill comes at a random moment within this time after the round's first invoice: while it is handled."""
TIMEOUT_S = 240.0


def cases() -> list[tuple[str, str, str]]:
    """All cases; first those of `make test`."""
    first = [("topics", "kafkalite", "run"), ("here", "aiokafka", "serve")]
    every = [(program, client, form) for program in STRATEGIES for client in CLIENTS for form in FORMS]
    return first + [case for case in every if case not in first]


class Program:
    """A program that is killed and started again."""

    def __init__(self, name: str, servers: str, client: str, form: str, out: Path) -> None:
        path = str(PROGRAMS / f"{name}.py")
        self._words = [sys.executable, path, servers]
        if (client, form) != ("kafkalite", "run"):
            self._words = [sys.executable, decorated_program.__file__, path, servers, client, form]
        self._end = signal.SIGINT if form == "serve" else signal.SIGTERM
        self._out = out
        self.ended = 0
        """How many times it has ended by itself."""
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._out.open("ab") as out:
            environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
            return subprocess.Popen(self._words, env=environment, stdout=out, stderr=out)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def start(self) -> None:
        self._process = self._start()

    def revive(self) -> None:
        """Start it again, as a supervisor would, where it has ended by itself."""
        if self._process.poll() is not None:
            self.ended += 1
            self.start()

    def close(self) -> int:
        """A signal, and its status."""
        self._process.send_signal(self._end)
        return self._process.wait(60)


VALUES = (b"good", b"late", b"broken")


def value_of(number: int) -> bytes:
    """5 of a hundred orders can never be handled, 10 work at their third attempt."""
    return b"broken" if number % 20 == 7 else b"late" if number % 10 == 3 else b"good"


def count(client: Client, topic: str) -> int:
    with contextlib.suppress(KafkaError):  # the topic is created for its first record
        return client.end_offset(topic, 0)
    return 0


def play(
    name: str, client_name: str, form: str, broker: BrokerProcess, directory: Path
) -> tuple[Counter[str], Client, dict[bytes, bytes]]:
    """All rounds. Returns what was killed and how many orders were unfinished then, and the orders by key."""
    orders: dict[bytes, bytes] = {}
    counts: Counter[str] = Counter()
    client = Client(broker.bootstrap, retry_timeout_s=TIMEOUT_S)
    client.admin.create_topic(TOPIC, PARTITIONS)
    client.admin.create_topic(DONE, 1)
    program = Program(name, broker.bootstrap, client_name, form, directory / "out")

    def awaited(condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            program.revive()
            return condition()

        wait_until(holds, TIMEOUT_S, what, 0.1)

    try:
        for number, kind in enumerate(KILLS):
            before = count(client, DONE)
            for partition in range(PARTITIONS):
                keys = [b"%d-%d-%d" % (number, partition, place) for place in range(ORDERS)]
                batch = {key: value_of(place) for place, key in enumerate(keys)}
                client.produce(TOPIC, partition, [Record(-1, -1, key, value) for key, value in batch.items()])
                orders |= batch
            awaited(lambda before=before: count(client, DONE) > before, "the first invoice of a round")  # type: ignore[misc]
            time.sleep(random.uniform(0, KILL_AFTER_S[name]))
            ends = {TopicPartition(TOPIC, one): ORDERS * (number + 1) for one in range(PARTITIONS)}
            counts["kills amid work"] += bool(kind) and not is_done(client, GROUP, ends)
            if kind in {"program", "both"}:
                program.kill()
                counts["kills of the program"] += 1
            if kind in {"broker", "both"}:
                broker.kill()
                counts["kills of the broker"] += 1
            if kind in {"program", "both"}:
                program.start()  # with `both` it waits for the broker
            if not broker.alive:
                broker.start()
        awaited(lambda: is_done(client, GROUP, ends), "all orders are handled")
        counts["ended by itself"] = program.ended
    finally:
        counts["status"] = program.close()
    return counts, client, orders


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("name", "client_name", "form"), sample(cases(), 2))
def test_each_order_is_processed_or_a_dead_letter(tmp_path: Path, name: str, client_name: str, form: str) -> None:
    with broker_process(tmp_path) as broker:
        counts, client, orders = play(name, client_name, form, broker, tmp_path)
        with client:
            invoices = Counter(record.key or b"" for record in records(client, DONE))
            letters = [record for one in range(PARTITIONS) for record in records(client, DEAD, one)]
            rows = Counter(row.state for row in rows_of(client, GROUP).values())
    # Which of two causes has killed a process nobody knows: an order that is in hand at three kills is dead, too.
    crashed = {letter.key or b"": 1 for letter in letters if dict(letter.headers)["dlq.exception"] == b"crashed"}
    counts["blamed for kills"] = len(crashed)
    of = {kind: Counter(key for key in orders if orders[key] == kind and key not in crashed) for kind in VALUES}
    dead = Counter(letter.key or b"" for letter in letters)
    assert dead == of[b"broken"] + Counter(crashed)
    assert invoices == (of[b"good"] if name == "ignore" else of[b"good"] + of[b"late"])
    assert rows[State.DEAD] == dead.total()
    assert rows[State.IGNORED] == (of[b"late"].total() if name == "ignore" else 0)
    assert len(crashed) < counts["kills of the program"]
    print(f"{name}, {client_name}, {form}: {len(orders)} orders, {dead.total()} dead letters, {dict(counts)}")
    assert counts["ended by itself"] == 0
    assert counts["status"] in {0, 130, -2}


def test_a_program_has_fifteen_lines_at_most() -> None:
    found = {path.stem: path.read_text() for path in PROGRAMS.glob("*.py")}
    assert found.keys() == set(STRATEGIES)
    for text in found.values():
        assert len([line for line in text.splitlines() if line.strip()]) <= LINES_MAX
