"""The examples of docs/delivery.md, killed at the worst moment: records lost, records doubled, and neither.

Each program turns orders into invoices and prints its progress. It is stopped at the one moment between its two steps,
gets `kill -9` there, and is restarted. Then keys are counted: an order has no invoice (lost), two (doubled), or one.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import READ_COMMITTED, READ_UNCOMMITTED, Client
from kafkalite.wire.record.columns import Record
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import REPOSITORY, wait_until

pytestmark = pytest.mark.integration

EXAMPLES = REPOSITORY / "examples" / "delivery"
BEFORE, AFTER = range(10), range(10, 20)
"""Orders that are there when the program starts, and those that come after it was killed."""
TIMEOUT_S = 60.0
MOMENTS = {
    "at-most-once": "committed, not processed",
    "at-least-once": "processed, not committed",
    "exactly-once": "written, not committed",
}


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of a separate broker: programs use fixed names."""
    with (
        Broker(flush_on_acks_all="false", offsets_topic_num_partitions=2) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        for topic in ("orders", *(f"invoices-{mode}" for mode in MOMENTS)):
            client.admin.create_topic(topic, 1)
        yield client


def command(program: str, mode: str, bootstrap: str) -> list[str]:
    name = "confluent" if program == "confluent-kafka" else mode.replace("-", "_")
    words = [mode] if name == "confluent" else []
    return [sys.executable, str(EXAMPLES / f"{name}.py"), *words, bootstrap]


class Program:
    """A run of an example; ended with kill -9."""

    def __init__(self, arguments: list[str], directory: Path, pause_at: str = "") -> None:
        self.out = directory / f"out-{pause_at or 'again'}"
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PAUSE_AT": pause_at}
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT, env=environment)

    def lines(self) -> list[str]:
        status = self.process.poll()
        text = self.out.read_text()
        assert status is None, f"ended with {status}:\n{text}"
        return text.splitlines()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)


def order(client: Client, numbers: range) -> None:
    client.produce("orders", 0, [Record(-1, -1, b"%d" % number, b"a book") for number in numbers])


def invoices(client: Client, mode: str, isolation: int = READ_COMMITTED) -> Counter[int]:
    """How many there are for each order."""
    found: Counter[int] = Counter()
    for chunk in client.read(f"invoices-{mode}", 0, isolation=isolation):
        found.update(int(key) for key in chunk.columns.keys if key is not None)
    return found


def killed_and_started_again(client: Client, program: str, mode: str, directory: Path) -> tuple[int, Counter[int]]:
    """Orders that were in work when the program was killed, and what is invoiced in the end."""
    (row,) = client.brokers()
    arguments = command(program, mode, f"{row.host}:{row.port}")
    order(client, BEFORE)
    first = Program(arguments, directory, MOMENTS[mode])
    try:
        wait_until(lambda: MOMENTS[mode] in first.lines(), TIMEOUT_S, MOMENTS[mode])
    finally:
        first.kill()
    in_work = len(BEFORE) if program == "kafkalite" else 1
    order(client, AFTER)
    second = Program(arguments, directory)
    try:
        wait_until(lambda: invoices(client, mode)[AFTER[-1]] == 1, TIMEOUT_S, "the last order's invoice")
    finally:
        second.kill()
    return in_work, invoices(client, mode)


PROGRAMS = ["kafkalite", pytest.param("confluent-kafka", marks=pytest.mark.compat)]


@pytest.mark.parametrize("mode", sample(MOMENTS, 1))
@pytest.mark.parametrize("program", PROGRAMS)
def test_ctrl_c_ends_an_example_without_a_traceback(client: Client, program: str, mode: str, tmp_path: Path) -> None:
    (row,) = client.brokers()
    order(client, BEFORE)
    running = Program(command(program, mode, f"{row.host}:{row.port}"), tmp_path)
    try:
        wait_until(lambda: "processed" in running.lines(), TIMEOUT_S, "an order is processed")
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(TIMEOUT_S) == 128 + signal.SIGINT
    finally:
        running.kill()
    assert "Traceback" not in running.out.read_text()


@pytest.mark.parametrize("program", PROGRAMS)
def test_at_most_once_loses(client: Client, program: str, tmp_path: Path) -> None:
    in_work, found = killed_and_started_again(client, program, "at-most-once", tmp_path)
    lost = {number for number in (*BEFORE, *AFTER) if found[number] == 0}
    assert lost == set(range(in_work))
    assert set(found.values()) == {1}


@pytest.mark.parametrize("program", PROGRAMS)
def test_at_least_once_doubles(client: Client, program: str, tmp_path: Path) -> None:
    in_work, found = killed_and_started_again(client, program, "at-least-once", tmp_path)
    assert set(found) == {*BEFORE, *AFTER}
    doubled = {number for number in found if found[number] == 2}
    assert doubled == set(range(in_work))
    assert set(found.values()) == {1, 2}


@pytest.mark.parametrize("program", PROGRAMS)
def test_exactly_once_does_neither(client: Client, program: str, tmp_path: Path) -> None:
    """The log holds the work of both runs; who reads committed data sees one of them."""
    in_work, found = killed_and_started_again(client, program, "exactly-once", tmp_path)
    assert found == dict.fromkeys((*BEFORE, *AFTER), 1)
    everything = invoices(client, "exactly-once", READ_UNCOMMITTED)
    assert {number for number in everything if everything[number] == 2} == set(range(in_work))


@pytest.mark.parametrize("kind", ["kafkalite", pytest.param("confluent", marks=pytest.mark.compat)])
def test_what_a_dying_broker_does_with_each_producer(kind: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "broker_dies.py"), kind],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=3 * TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.returncode == 0, done.stderr
    found = [line.split("  ") for line in done.stdout.splitlines()[1:]]
    assert [[cell.strip() for cell in row if cell] for row in found] == [
        ["acks=0", "0 of 10", "10 of 10"],
        ["acks=1, sent again", "10 of 10", "20 of 10"],
        ["acks=all, idempotent", "10 of 10", "10 of 10"],
    ]


@pytest.mark.parametrize(
    ("mode", "pause_at", "times"),
    [
        ("noted-first", "noted, not sent", {0: 5, 1: 15}),
        ("sent-first", "sent, not noted", {1: 15, 2: 5}),
        ("in-a-transaction", "sent, not committed", {1: 20}),
    ],
)
def test_a_program_that_dies_between_sending_and_noting(
    client: Client, tmp_path: Path, mode: str, pause_at: str, times: dict[int, int]
) -> None:
    client.admin.create_topic("positions", 1)
    orders = [b"order %d" % number for number in range(20)]
    (tmp_path / "orders.txt").write_bytes(b"\n".join(orders))
    (row,) = client.brokers()
    words = [mode, str(tmp_path / "orders.txt"), f"{row.host}:{row.port}"]
    arguments = [sys.executable, str(EXAMPLES / "producer_dies.py"), *words]
    first = Program(arguments, tmp_path, pause_at)
    try:
        wait_until(lambda: pause_at in first.lines(), TIMEOUT_S, pause_at)
    finally:
        first.kill()
    second = Program(arguments, tmp_path, "all is sent")
    try:
        wait_until(lambda: "all is sent" in second.lines(), TIMEOUT_S, "all is sent")
    finally:
        second.kill()
    sent: Counter[bytes] = Counter()
    for chunk in client.read("orders", 0, isolation=READ_COMMITTED):
        sent.update(chunk.columns.values)
    assert Counter(sent[order] for order in orders) == times
