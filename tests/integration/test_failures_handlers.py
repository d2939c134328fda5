"""Decorated handlers against a broker: as a program that signals end, in an event loop, and from the command line."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite import failures
from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.errors import ConfigError, StartupError
from kafkalite.failures.rows import State
from kafkalite.model import TopicPartition
from tests.kit.harness.failing_groups import (
    MemberThread,
    is_done,
    numbered_topic,
    numbers,
    records,
    small_broker,
    states,
)
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import REPOSITORY, wait_until

pytestmark = pytest.mark.integration
TIMEOUT_S = 60.0
COUNT = 40
SHOP = """
import asyncio, sys
from kafkalite import failures

@failures.handler(topics="{topic}", group="{topic}", retry=["1 s"], fatal=LookupError)
{kind} bill(order, transaction):
    if order.value == b"3":
        raise LookupError("nobody ordered this")
    if order.value == b"5" and not order.attempt:
        raise RuntimeError("not yet")
    transaction.send("{topic}-done", order.value, partition=0)

if __name__ == "__main__":
    assert bill.run(sys.argv[1], workers=4) == ""
    print("ended cleanly")
"""
DONE = sorted({*range(COUNT)} - {3})


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
    client.admin.create_topic(f"{topic}-done", 1)
    return topic


def ends(topic: str, partitions: int = 1) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, number): COUNT for number in range(partitions)}


def is_given_up(client: Client, topic: str) -> bool:
    """Whether no member is in the group."""
    return not client.groups.describe(topic).members


@pytest.mark.parametrize("kind", sample(["def", "async def"], 1))
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_ends_cleanly_at_a_signal(
    client: Client, broker: Broker, tmp_path: Path, kind: str, number: int
) -> None:
    topic = orders(client)
    program = tmp_path / "shop.py"
    program.write_text(SHOP.format(topic=topic, kind=kind))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    words = [sys.executable, str(program), broker.bootstrap_servers]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        wait_until(
            lambda: process.poll() is not None or is_done(client, topic, ends(topic)), TIMEOUT_S, "all is handled"
        )
        process.send_signal(number)
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (0, b"ended cleanly\n")
    assert is_given_up(client, topic)
    assert sorted(numbers(client, f"{topic}-done")) == DONE
    assert states(client, topic) == {State.DEAD: 1}
    (letter,) = records(client, f"dlq.{topic}.{topic}")
    assert dict(letter.headers)["dlq.error"] == b"nobody ordered this"


@pytest.mark.parametrize("kind", sample(["def", "async def"], 1))
def test_the_command_needs_no_policy_file(client: Client, broker: Broker, tmp_path: Path, kind: str) -> None:
    topic = orders(client)
    (tmp_path / "shop.py").write_text(SHOP.format(topic=topic, kind=kind))
    words = [sys.executable, "-m", "kafkalite", "failures", "run", "shop:bill", "-b", broker.bootstrap_servers]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(words, env=environment, cwd=tmp_path) as process:
        wait_until(
            lambda: process.poll() is not None or is_done(client, topic, ends(topic)), TIMEOUT_S, "all is handled"
        )
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    assert sorted(numbers(client, f"{topic}-done")) == DONE


def test_a_plain_function_needs_a_policy_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain_shop.py").write_text("def handle(order): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["failures", "run", "plain_shop:handle"]) == 2
    assert "plain_shop:handle has no @failures.handler: name its policy with --policy FILE" in capsys.readouterr().err


def test_async_handlers_run_in_the_loop_that_serves_them_many_at_a_time(client: Client, broker: Broker) -> None:
    topic = orders(client, 2)
    loops, running, most = set(), 0, 0

    @failures.handler(topics=topic, group=topic, retry=["1 s"], fatal=LookupError)
    async def bill(order: failures.Message, transaction: failures.Transaction) -> None:
        nonlocal running, most
        loops.add(asyncio.get_running_loop())
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        if order.value == b"3":
            raise LookupError
        if order.value == b"5" and not order.attempt:
            raise RuntimeError
        transaction.send(f"{topic}-done", order.value, partition=0)

    async def main() -> None:
        stop = threading.Event()
        before = threading.active_count()
        serving = asyncio.create_task(bill.serve(broker.bootstrap_servers, stop=stop, workers=16))
        while not await asyncio.to_thread(is_done, client, topic, ends(topic, 2)):
            assert not serving.done()
            await asyncio.sleep(0.05)
        assert threading.active_count() - before < 16  # to_thread has one or two
        stop.set()
        assert await serving == ""
        assert loops == {asyncio.get_running_loop()}
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert 2 < most <= 16
    assert sorted(numbers(client, f"{topic}-done")) == sorted(DONE * 2)
    assert states(client, topic) == {State.DEAD: 2}


@pytest.mark.parametrize("is_async", [True, False])
def test_a_cancelled_member_leaves_its_group_and_loses_nothing(client: Client, broker: Broker, is_async: bool) -> None:
    topic = orders(client)
    begun, release = Counter[bytes | None](), threading.Event()

    def handle(order: failures.Message) -> None:
        begun[order.value] += 1
        if order.value == b"7":
            assert release.wait(TIMEOUT_S)

    async def coroutine(order: failures.Message) -> None:
        begun[order.value] += 1
        if order.value == b"7" and not release.is_set():
            await asyncio.sleep(3600)

    bill = failures.handler(topics=topic, group=topic, retry=["1 s"])(coroutine if is_async else handle)

    async def main() -> None:
        serving = asyncio.create_task(bill.serve(broker.bootstrap_servers))
        while not begun[b"7"]:
            assert not serving.done()
            await asyncio.sleep(0.01)
        serving.cancel()
        asyncio.get_running_loop().call_later(0.1, serving.cancel)  # a second time, while it leaves
        if not is_async:
            asyncio.get_running_loop().call_later(0.3, release.set)
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert is_given_up(client, topic)
    release.set()
    seen = Counter(begun)
    with MemberThread(broker.bootstrap_servers, bill.policy, bill.function) as member:
        member.wait_until(lambda: is_done(client, topic, ends(topic)), "all is handled")
    assert sorted(begun, key=str) == sorted((b"%d" % number for number in range(COUNT)), key=str)
    assert begun[b"7"] == (2 if is_async else 1)  # the sync handler was waited for
    assert {value: begun[value] for value in (b"0", b"6")} == {value: seen[value] for value in (b"0", b"6")}
    assert not states(client, topic)


def test_what_ends_a_member_is_raised_where_it_is_served(client: Client, broker: Broker) -> None:
    topic = orders(client)
    started: list[failures.Runner] = []

    @failures.handler(topics=topic, group=topic, strategy=failures.RetryHere(1, then="stop"))
    async def bill(order: failures.Message) -> None:
        if order.value == b"3":
            raise RuntimeError("no more")

    async def serve() -> str:
        return await bill.serve(broker.bootstrap_servers, on_start=started.append)

    assert "no more" in asyncio.run(serve())
    assert "kafkalite_failures_processed_total" in started[0].metrics()

    def fail(runner: failures.Runner) -> None:
        raise StartupError("not today")

    with pytest.raises(StartupError, match="not today"):
        asyncio.run(bill.serve(broker.bootstrap_servers, on_start=fail))
    with pytest.raises(ConfigError, match=r"security\.protocol"):
        bill.run(broker.bootstrap_servers, security={"security.protocol": "TLS"})
