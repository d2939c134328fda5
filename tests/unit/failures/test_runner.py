"""A member's loop around a client that answers commits of offsets only when it is polled, or asked to settle them."""

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.failures.calls import Transaction
from kafkalite.failures.events import Failure, Message
from kafkalite.failures.lanes import COMMIT_COUNT
from kafkalite.failures.policy import Policy
from kafkalite.failures.retry_strategies import RetryForever
from kafkalite.failures.runner import DamagedBatch, Fetch, Runner
from kafkalite.failures.transaction_writer import Written
from kafkalite.model import OFFSET_LATEST, TopicPartition

ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("orders", 1)
COUNT = 2 * COMMIT_COUNT


class Client:
    """Partitions that were empty when they came, of a group that had committed nothing."""

    groups = SimpleNamespace(committed=lambda group, require_stable: {})

    def partition_counts(self, names: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(names, 1)

    def described(self, names: Sequence[str]) -> dict[str, Any]:
        return {}

    def list_offsets(self, wanted: Mapping[TopicPartition, int], isolation: int = 0) -> dict[TopicPartition, Any]:
        return {key: SimpleNamespace(offset=0) for key in wanted}


class ScriptedPort:
    """A port whose polls are steps of a script; between two of them no commit ends."""

    by_partition = False
    reports_damage = True

    def __init__(self, script: Callable[["ScriptedPort"], list[Fetch]]) -> None:
        self._script = script
        self._under_way: list[Callable[[Exception | None], None]] = []
        self.begun: list[int] = []
        """Offsets of ORDERS in commits that nobody waited for,"""
        self.waited_for: list[int] = []
        """and in those that were waited for."""
        self.written: list[bytes | None] = []
        self.revoked: Callable[[list[TopicPartition]], None] = lambda partitions: None

    def claim(self) -> None: ...

    def open(self, group: str, topics: Sequence[str], assigned: Any, revoked: Any, lost: Any) -> None:
        self.revoked = revoked
        assigned([ORDERS, OTHERS])

    def poll(self, timeout_s: float) -> list[Fetch]:
        return self._script(self)

    def position(self, partition: TopicPartition) -> int:
        return 0

    def pause(self, partition: TopicPartition) -> None: ...

    def resume(self, partition: TopicPartition) -> None: ...

    def member(self) -> object:
        return None

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.settle()
        self.waited_for.append(offsets[ORDERS])

    def commit_soon(self, offsets: Mapping[TopicPartition, int], ended: Callable[[Exception | None], None]) -> None:
        self.begun.append(offsets[ORDERS])
        self._under_way.append(ended)

    def settle(self) -> None:
        while self._under_way:
            self._under_way.pop(0)(None)

    def transact(self, records: Sequence[Written], offsets: object, scope: object, member: object) -> None:
        self.written += [one.message.value for one in records]

    def close(self) -> None: ...


def fetched(first: int, end: int) -> Fetch:
    return Fetch(ORDERS, [Message(*ORDERS, offset, 0, None, b"%d" % offset) for offset in range(first, end)], end)


def ran(port: ScriptedPort, handler: Callable[..., None], stop: threading.Event) -> None:
    policy = Policy(group="billing", topics=["orders"], strategy=RetryForever("1 s"), on_damage="stop")
    Runner(policy, handler, port, Client(), create_topics=False).run(stop)  # type: ignore[arg-type]


def test_no_commit_is_left_under_way_while_partitions_are_given_up() -> None:
    stop = threading.Event()
    handled: list[int] = []

    def script(port: ScriptedPort) -> list[Fetch]:
        if not handled:
            return [fetched(0, 1)]
        if len(handled) == 1 and port.begun:
            return [fetched(1, COUNT)]
        if len(handled) == COUNT:
            port.revoked([OTHERS])  # it hears that the first is committed; the second is begun in here
            stop.set()
        return []

    port = ScriptedPort(script)
    ran(port, lambda record: handled.append(record.offset), stop)
    assert port.begun == [1]
    assert [1 < offset <= COUNT for offset in port.waited_for] == [True]  # as far as it had heard by then


def test_what_was_read_before_damage_is_written_though_a_commit_was_under_way() -> None:
    handled: list[int] = []

    def handler(record: Message, transaction: Transaction) -> None:
        if record.offset:
            transaction.send("out", record.value)
        handled.append(record.offset)

    def script(port: ScriptedPort) -> list[Fetch]:
        if not handled:
            return [fetched(0, 1)]
        if len(handled) == 1:
            return [fetched(1, 2)] if port.begun else []
        raise DamagedBatch("no batch", ORDERS, 2)

    port = ScriptedPort(script)
    with pytest.raises(DamagedBatch):
        ran(port, handler, threading.Event())
    assert (port.begun[:1], port.written) == ([1], [b"1"])


def test_what_was_handled_before_an_exit_is_committed_and_nothing_is_handled_after_it() -> None:
    handled: list[int] = []

    def handler(record: Message) -> None:
        if record.offset == 3:
            raise SystemExit("enough")
        handled.append(record.offset)

    def script(port: ScriptedPort) -> list[Fetch]:
        return [] if handled else [fetched(0, 10)]

    port = ScriptedPort(script)
    port.close = lambda: port.revoked([ORDERS, OTHERS])  # type: ignore[method-assign]
    with pytest.raises(SystemExit, match="enough"):
        ran(port, handler, threading.Event())
    assert (handled, port.waited_for) == ([0, 1, 2], [3])


def test_the_exit_is_raised_though_the_client_cannot_be_closed() -> None:
    def handler(record: Message) -> None:
        raise KeyboardInterrupt

    def script(port: ScriptedPort) -> list[Fetch]:
        return [fetched(0, 1)]

    def close() -> None:
        raise OSError("no broker")

    port = ScriptedPort(script)
    port.close = close  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        ran(port, handler, threading.Event())


def test_an_exit_inside_a_group_of_exceptions_ends_the_run() -> None:
    def handler(record: Message) -> None:
        raise BaseExceptionGroup("two tasks", [ValueError("one"), SystemExit(3)])

    with pytest.raises(BaseExceptionGroup, match="two tasks"):
        ran(ScriptedPort(lambda port: [fetched(0, 1)]), handler, threading.Event())


def test_a_hook_that_is_cancelled_disturbs_nobody() -> None:
    stop = threading.Event()
    seen: list[int] = []

    def hook(message: Message, failure: Failure) -> None:
        raise asyncio.CancelledError

    def handler(record: Message) -> None:
        seen.append(record.offset)
        if len(seen) == 1:
            raise Aborted(record.offset)
        stop.set()

    policy = Policy(group="billing", topics=["orders"], strategy=RetryForever("1 ms"))
    port = ScriptedPort(lambda port: [] if seen else [fetched(0, 1)])
    Runner(policy, handler, port, Client(), on_failed=hook, create_topics=False).run(stop)  # type: ignore[arg-type]
    assert seen == [0, 0]


class Aborted(BaseException):
    """A program's own, outside of Exception."""

    def __str__(self) -> str:
        raise Aborted


class Filled(Client):
    """Partitions that had COUNT records when they came."""

    def list_offsets(self, wanted: Mapping[TopicPartition, int], isolation: int = 0) -> dict[TopicPartition, Any]:
        return {key: SimpleNamespace(offset=COUNT if at == OFFSET_LATEST else 0) for key, at in wanted.items()}


class CountingBell:
    """What workers ring; counts how often somebody waits for it."""

    def __init__(self) -> None:
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.put = self._rings.put
        self.get_nowait = self._rings.get_nowait
        self.waits = 0

    def get(self, timeout: float) -> None:
        assert timeout > 0
        self.waits += 1
        self._rings.get(timeout=timeout)


def test_a_turn_waits_while_a_partition_is_paused_before_its_end() -> None:
    """Otherwise the member takes the interpreter from its handler, turn after turn."""
    turns, ahead_max = 20, 8
    stop, goes_on = threading.Event(), threading.Event()
    paused: list[TopicPartition] = []
    polls = 0

    def script(port: ScriptedPort) -> list[Fetch]:
        nonlocal polls
        if not paused:
            return [fetched(0, ahead_max)]
        polls += 1
        assert ORDERS in runner.session.behind
        if polls == turns:
            stop.set()
            goes_on.set()
        return []

    port = ScriptedPort(script)
    port.pause = paused.append  # type: ignore[method-assign]
    port.position = lambda partition: ahead_max if partition == ORDERS and paused else 0  # type: ignore[method-assign]
    strategy = RetryForever("1 s")
    policy = Policy(group="billing", topics=["orders"], strategy=strategy, on_damage="stop", ahead_max=ahead_max)
    runner = Runner(policy, lambda record: goes_on.wait(), port, Filled(), create_topics=False)  # type: ignore[arg-type]
    runner._bell = bell = CountingBell()  # type: ignore[assignment]
    runner.run(stop)
    assert paused == [ORDERS]
    assert polls == turns
    assert bell.waits >= turns - 1  # the last turn may find the handler ready
