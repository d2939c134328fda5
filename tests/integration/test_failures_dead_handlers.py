"""Dead-letter handlers against a broker: each letter has its call, also after kills, and its output is there once."""

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite import failures
from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.failures.letters import LetterBox
from kafkalite.failures.rows import State
from kafkalite.model import TopicPartition
from tests.kit.harness.failing_groups import (
    MemberThread,
    is_done,
    numbered_topic,
    numbers,
    rows_of,
    small_broker,
    states,
)
from tests.kit.processes.broker import REPOSITORY, wait_until

if TYPE_CHECKING:
    from kafkalite.failures.events import Alarm

pytestmark = pytest.mark.integration
TIMEOUT_S = 120.0
COUNT = 40
DEAD = [number for number in range(COUNT) if number % 5 == 3]
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
calls = 0

@failures.handler(topics=topic, group=topic, retry=["1 s"], fatal=LookupError)
def bill(order):
    if int(order.value) % 5 == 3:
        raise LookupError("nobody ordered this")

@bill.dead
{kind} refund(letter, transaction):
    global calls
    calls += 1
    print("called", int(letter.record.value), flush=True)
    transaction.send(topic + "-refunds", letter.record.value, partition=0)
    if calls == int(kill_at) or int(letter.record.value) == int(poison):
        os.kill(os.getpid(), signal.SIGKILL)

bill.run(servers, client=client, consumer=consumers[client], member="m-" + topic)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with small_broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


def orders(client: Client, partitions: int = 1) -> str:
    topic = numbered_topic(client, COUNT, partitions)
    client.admin.create_topic(f"{topic}-refunds", 1)
    return topic


def is_over(client: Client, topic: str) -> bool:
    """Whether the group has read all letters that there are, transaction markers included."""
    place = TopicPartition(f"dlq.{topic}.{topic}", 0)
    if not is_done(client, topic, {TopicPartition(topic, 0): COUNT}):
        return False
    committed = client.groups.committed(topic)
    last = max((entry.message.offset for entry in LetterBox(client, topic).entries()), default=-1)
    return place in committed and committed[place].offset > last


@pytest.mark.parametrize("member", CLIENTS)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_each_letter_has_its_call_and_its_output_once(
    client: Client, broker: Broker, member: str, is_async: bool
) -> None:
    topic = orders(client)
    calls: Counter[int] = Counter()
    alarms: list[Alarm] = []
    failed: list[bytes | None] = []

    @failures.handler(topics=topic, group=topic, retry=["200 ms"], fatal=LookupError)
    def bill(order: failures.Message) -> None:
        if int(order.value or b"") % 5 == 3:
            raise LookupError("nobody ordered this")

    def work(letter: failures.DeadLetter, transaction: failures.Transaction) -> None:
        number = int(letter.record.value or b"")
        assert (letter.record.topic, letter.record.offset, letter.record.headers) == (topic, number, (("h", b"\xff"),))
        assert letter.failure.text == "nobody ordered this"
        calls[number] += 1
        transaction.send(f"{topic}-refunds", letter.record.value, partition=0)
        if number == 8 and calls[8] < 3:
            raise ConnectionError("not now")

    async def coroutine(letter: failures.DeadLetter, transaction: failures.Transaction) -> None:
        await asyncio.sleep(0.001)
        work(letter, transaction)

    bill.dead(coroutine if is_async else work)
    stop = threading.Event()

    def run() -> None:
        bill.run(
            broker.bootstrap_servers,
            client=member,
            stop=stop,
            on_alarm=alarms.append,
            on_failed=lambda message, failure: failed.append(message.value),
        )

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: is_over(client, topic), TIMEOUT_S, "all letters had their calls", 0.1)
    finally:
        stop.set()
        thread.join()
    assert calls == Counter({**dict.fromkeys(DEAD, 1), 8: 3})
    assert sorted(numbers(client, f"{topic}-refunds")) == DEAD
    assert states(client, topic) == {State.DEAD: len(DEAD)}
    assert [alarm.kind for alarm in alarms] == ["dead-handler"]
    assert sorted(int(value or b"") for value in failed) == DEAD


def start(
    servers: str, topic: str, member: str, path: Path, kill_at: int = 0, poison: int = -1
) -> "subprocess.Popen[bytes]":
    words = [sys.executable, str(path), servers, topic, member, str(kill_at), str(poison)]
    with path.with_suffix(".out").open("ab") as out:
        return subprocess.Popen(words, env={"PYTHONPATH": str(REPOSITORY)}, stdout=out, stderr=out)


def called(path: Path) -> Counter[int]:
    lines = path.with_suffix(".out").read_text().splitlines()
    return Counter(int(line.split()[1]) for line in lines if line.startswith("called"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("member", CLIENTS)
@pytest.mark.parametrize("kind", ["def", pytest.param("async def", marks=pytest.mark.slow)])
def test_a_kill_during_a_call_repeats_it_and_writes_nothing_twice(
    client: Client, broker: Broker, tmp_path: Path, member: str, kind: str
) -> None:
    topic = orders(client)
    path = tmp_path / "shop.py"
    path.write_text(PROGRAM.format(kind=kind))
    for kill_at in (2, 4):
        assert start(broker.bootstrap_servers, topic, member, path, kill_at).wait(TIMEOUT_S) == -9
    process = start(broker.bootstrap_servers, topic, member, path)
    try:
        wait_until(lambda: is_over(client, topic), TIMEOUT_S, "all letters had their calls", 0.1)
    finally:
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    calls = called(path)
    assert sorted(calls) == DEAD
    assert max(calls.values()) <= 3  # one, and one for each kill
    assert sorted(numbers(client, f"{topic}-refunds")) == DEAD
    assert {where: row.state for where, row in rows_of(client, topic).items()} == {
        f"{topic}-0-{number}": State.DEAD for number in DEAD
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize("member", [pytest.param(name, marks=pytest.mark.slow) for name in CLIENTS[:2]])
def test_a_letter_that_ends_the_process_is_given_up_and_no_other_is(
    client: Client, broker: Broker, tmp_path: Path, member: str
) -> None:
    topic = orders(client)
    path = tmp_path / "shop.py"
    path.write_text(PROGRAM.format(kind="def"))
    process = start(broker.bootstrap_servers, topic, member, path, poison=13)

    def is_ended() -> bool:
        nonlocal process
        if process.poll() is not None:
            assert process.returncode == -9
            process = start(broker.bootstrap_servers, topic, member, path, poison=13)
        return is_over(client, topic)

    try:
        wait_until(is_ended, 4 * TIMEOUT_S, "all letters had their calls", 0.1)
    finally:
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    assert sorted(called(path)) == DEAD
    assert sorted(numbers(client, f"{topic}-refunds")) == [number for number in DEAD if number != 13]
    rows = rows_of(client, topic)
    assert Counter(row.state for row in rows.values()) == {State.DEAD: len(DEAD), State.SKIPPED: 1}
    (row,) = [row for row in rows.values() if row.state is State.SKIPPED]
    assert row.exception == "crashed"


def test_letters_from_before_the_handler_are_called_unless_they_are_redriven(client: Client, broker: Broker) -> None:
    topic = orders(client)
    repaired = False
    seen: list[int] = []

    @failures.handler(topics=topic, group=topic, strategy=failures.RetryHere(1))
    def bill(order: failures.Message) -> None:
        if int(order.value or b"") % 5 == 3 and not repaired:
            raise LookupError

    with MemberThread(broker.bootstrap_servers, bill.policy, bill.function) as member:
        member.wait_until(lambda: is_done(client, topic, {TopicPartition(topic, 0): COUNT}), "all is handled")
    repaired = True
    box = LetterBox(client, topic)
    box.redrive(lambda entry: entry.found.letter.offset == 3)
    box.resolve(f"{topic}-0-8", "me")
    bill.dead(lambda letter: seen.append(int(letter.record.value)))
    with MemberThread(broker.bootstrap_servers, bill.policy, bill.function, dead=bill.dead_function) as member:
        member.wait_until(lambda: is_over(client, topic), "all letters had their calls")
    assert seen == [number for number in DEAD if number not in {3, 8}]


def test_an_async_handler_runs_in_the_loop_that_serves_its_records(client: Client, broker: Broker) -> None:
    topic = orders(client)
    loops = set()
    told: list[int] = []

    @failures.handler(topics=topic, group=topic, retry=["1 s"], fatal=LookupError)
    async def bill(order: failures.Message) -> None:
        loops.add(asyncio.get_running_loop())
        if int(order.value or b"") % 5 == 3:
            raise LookupError

    @bill.dead
    async def refund(letter: failures.DeadLetter) -> None:
        loops.add(asyncio.get_running_loop())
        told.append(int(letter.record.value or b""))
        if letter.record.value == b"38":
            await asyncio.sleep(3600)  # until the member is cancelled

    async def main() -> None:
        serving = asyncio.create_task(bill.serve(broker.bootstrap_servers, workers=4))
        while len(told) < len(DEAD):
            assert not serving.done()
            await asyncio.sleep(0.05)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert loops == {asyncio.get_running_loop()}
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert sorted(told) == DEAD
    assert not client.groups.describe(topic).members
    assert not is_over(client, topic)  # the call for 38 was cancelled, and is repeated
