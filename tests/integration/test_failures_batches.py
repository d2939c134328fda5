"""Handlers that take lists, against a broker: only what fails is retried, and what a call sends is there once."""

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite import failures
from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.failures.rows import State
from kafkalite.model import TopicPartition
from tests.kit.harness.failing_groups import is_done, numbered_topic, numbers, rows_of, small_broker, states
from tests.kit.processes.broker import REPOSITORY, wait_until

pytestmark = pytest.mark.integration
TIMEOUT_S = 120.0
COUNT = 400
OTHERS = [pytest.param(client, marks=pytest.mark.slow) for client in ("aiokafka",)]
CLIENTS = ["kafkalite", "confluent-kafka", *OTHERS]
PROGRAM = """
import os, signal, sys
from kafkalite import failures

servers, topic, client, kill_at, poison = sys.argv[1:6]
consumers = {{
    "kafkalite": None,
    "confluent-kafka": {{"group.instance.id": "m", "session.timeout.ms": 6000}},
    "kafka-python": {{}},
    "aiokafka": {{}},
}}
handled = 0

@failures.handler(topics=topic, group=topic, retry=["1 s"], fatal=LookupError, batch=50)
{kind} bill(orders, transaction):
    global handled
    print("called", *(int(order.value) for order in orders), flush=True)
    for order in orders:
        handled += 1
        if handled == int(kill_at) or int(order.value) == int(poison):
            os.kill(os.getpid(), signal.SIGKILL)
        if int(order.value) % 100 == 7:
            raise LookupError("nobody ordered this")
        transaction.send(topic + "-done", order.value, partition=0)

bill.run(servers, client=client, consumer=consumers[client], member="m-" + topic)
"""
DEAD = [number for number in range(COUNT) if number % 100 == 7]
DONE = [number for number in range(COUNT) if number % 100 != 7]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with small_broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


def orders(client: Client) -> str:
    topic = numbered_topic(client, COUNT)
    client.admin.create_topic(f"{topic}-done", 1)
    return topic


def is_over(client: Client, topic: str) -> bool:
    return is_done(client, topic, {TopicPartition(topic, 0): COUNT})


@pytest.mark.parametrize("member", CLIENTS)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("order", ["none", "key"])
def test_only_the_failing_records_of_a_batch_are_retried_and_outputs_are_there_once(
    client: Client, broker: Broker, member: str, is_async: bool, order: str
) -> None:
    topic = orders(client)
    sizes: Counter[int] = Counter()
    failed: Counter[int] = Counter()

    def work(batch: list[failures.Message], transaction: failures.Transaction) -> None:
        sizes[len(batch)] += 1
        for record in batch:
            number = int(record.value or b"")
            if number % 100 == 7:
                raise LookupError("nobody ordered this")
            if number % 100 == 50 and not record.attempt:
                raise RuntimeError("not yet")
            transaction.send(f"{topic}-done", record.value, partition=0)

    async def coroutine(batch: list[failures.Message], transaction: failures.Transaction) -> None:
        await asyncio.sleep(0)
        work(batch, transaction)

    def note(message: failures.Message, failure: object) -> None:
        failed[int(message.value or b"")] += 1

    bill = failures.handler(topics=topic, group=topic, retry=["1 s"], fatal=LookupError, batch=50, order=order)(
        coroutine if is_async else work
    )
    stop = threading.Event()
    given = {"client": member, "stop": stop, "on_failed": note}
    thread = threading.Thread(target=bill.run, args=(broker.bootstrap_servers,), kwargs=given)
    thread.start()
    try:
        wait_until(lambda: is_over(client, topic), TIMEOUT_S, "all is handled", 0.1)
    finally:
        stop.set()
        thread.join()
    assert max(sizes) == 50
    assert failed == Counter([number for number in range(COUNT) if number % 100 in {7, 50}])
    assert sorted(numbers(client, f"{topic}-done")) == DONE
    assert states(client, topic) == {State.DEAD: len(DEAD)}


def start(
    servers: str, topic: str, member: str, path: Path, kill_at: int = 0, poison: int = -1
) -> subprocess.Popen[bytes]:
    words = [sys.executable, str(path), servers, topic, member, str(kill_at), str(poison)]
    with path.with_suffix(".out").open("ab") as out:
        return subprocess.Popen(words, env={"PYTHONPATH": str(REPOSITORY)}, stdout=out, stderr=out)


def calls(path: Path) -> list[list[int]]:
    lines = path.with_suffix(".out").read_text().splitlines()
    return [[int(word) for word in line.split()[1:]] for line in lines if line.startswith("called")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("member", CLIENTS)
@pytest.mark.parametrize("kind", ["def", pytest.param("async def", marks=pytest.mark.slow)])
def test_a_kill_within_a_batch_loses_and_doubles_nothing(
    client: Client, broker: Broker, tmp_path: Path, member: str, kind: str
) -> None:
    topic = orders(client)
    path = tmp_path / "shop.py"
    path.write_text(PROGRAM.format(kind=kind))
    for kill_at in (130, 90):
        assert start(broker.bootstrap_servers, topic, member, path, kill_at).wait(TIMEOUT_S) == -9
    process = start(broker.bootstrap_servers, topic, member, path)
    try:
        wait_until(lambda: is_over(client, topic), TIMEOUT_S, "all is handled", 0.1)
    finally:
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    assert max(map(len, calls(path))) == 50
    assert sorted(numbers(client, f"{topic}-done")) == DONE
    assert {where: row.state for where, row in rows_of(client, topic).items()} == {
        f"{topic}-0-{number}": State.DEAD for number in DEAD
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "member", ["kafkalite", *(pytest.param(name, marks=pytest.mark.slow) for name in ("confluent-kafka",))]
)
def test_a_record_of_a_batch_that_ends_the_process_is_a_dead_letter_and_no_other_is_blamed(
    client: Client, broker: Broker, tmp_path: Path, member: str
) -> None:
    topic = orders(client)
    path = tmp_path / "shop.py"
    path.write_text(PROGRAM.format(kind="def"))
    process = start(broker.bootstrap_servers, topic, member, path, poison=70)

    def is_ended() -> bool:
        nonlocal process
        if process.poll() is not None:
            assert process.returncode == -9
            process = start(broker.bootstrap_servers, topic, member, path, poison=70)
        return is_over(client, topic)

    try:
        wait_until(is_ended, 4 * TIMEOUT_S, "all is handled", 0.1)
    finally:
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    last = [call for call in calls(path) if 70 in call][-1]
    assert last == [70]  # it was found in hand alone
    assert sorted(numbers(client, f"{topic}-done")) == [number for number in DONE if number != 70]
    rows = rows_of(client, topic)
    assert {where: row.exception for where, row in rows.items()} == {
        **{f"{topic}-0-{number}": "LookupError" for number in DEAD},
        f"{topic}-0-70": "crashed",
    }
