"""The strategies of kafkalite.failures with each client, on kafkalite, and on Apache Kafka where its jars are."""

import asyncio
import contextlib
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import pytest
from aiokafka import AIOKafkaConsumer

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client, CommittedOffset
from kafkalite.client.errors import LogTruncated
from kafkalite.failures import (
    Failed,
    Ignore,
    Ledger,
    Message,
    Policy,
    RetryForever,
    RetryHere,
    RetryTopics,
    Runner,
    Transaction,
    handler,
)
from kafkalite.failures.adapters.aio import AioPort
from kafkalite.failures.adapters.columnar import ColumnarPort
from kafkalite.failures.adapters.confluent import ConfluentPort
from kafkalite.failures.rows import State
from kafkalite.failures.runner import Port
from kafkalite.failures.transaction_writer import TransactionFailed, Written
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record
from tests.kit.harness.damaged_log import CUT, DAMAGES, damage_second_batch, fill, flip_four_bytes
from tests.kit.harness.failing_groups import records, small_broker
from tests.kit.harness.samples import sample
from tests.kit.processes.apache_kafka import ApacheKafka
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until
from tests.kit.processes.restored import grow_after_backup, numbers, produce, put_back

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in an old way
    from kafka import KafkaConsumer

    from kafkalite.failures.adapters.kafka_python import KafkaPythonPort

pytestmark = [
    pytest.mark.integration,
    pytest.mark.compat,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:importlib.resources._legacy"),
]
TIMEOUT_S = 60.0
PORTS: dict[str, Callable[[Client, str, str], Port]] = {
    "kafkalite": lambda client, _, name: ColumnarPort(client, name),
    "confluent": lambda _, servers, name: ConfluentPort({"bootstrap.servers": servers}, name),
    "kafka-python": lambda _, servers, name: KafkaPythonPort({"bootstrap_servers": servers}, name),
    "aiokafka": lambda _, servers, name: AioPort({"bootstrap_servers": servers}),
}
STRATEGIES = {
    "ignore": (Ignore(), {}),
    "here": (RetryHere(2, "10 ms"), {4: State.DEAD}),
    "forever": (RetryForever("10 ms"), {}),
    "topics": (RetryTopics(["1 s"]), {4: State.DEAD}),
}
"""With what becomes of record 4, which fails five times; record 2 is fatal, record 3 undecodable, 5 has no value."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with small_broker() as broker:
        yield broker


def decode(value: bytes) -> int:
    return int(value.decode())


def play(servers: str, port: str, name: str) -> None:
    """One strategy with one client, and what is there in the end."""
    strategy, more = STRATEGIES[name]
    seen: Counter[int] = Counter()

    def handle(record: Message) -> None:
        seen[record.offset if "." not in record.topic else -1] += 1
        if record.value == 2:
            raise Failed("cannot be", "fatal")
        if record.value == 4:
            seen[104] += 1
            if seen[104] < 5:
                raise RuntimeError("not yet")
        if record.value == 6 and seen[6] == 1:
            raise ConnectionError("away")

    with Client(servers) as client, client.twin() as other, client.twin() as control:
        topic = f"orders-{time.monotonic_ns()}"
        client.admin.create_topic(topic, 1)
        values = [b"0", b"1", b"2", b"\xff", b"4", None, b"6", b"7"]
        client.produce(topic, 0, [Record(-1, -1, b"k", value, (("h", b"x"),)) for value in values])
        policy = Policy(
            group=f"g-{topic}",
            topics=[topic],
            strategy=strategy,
            fatal=[ArithmeticError],
            outage=[ConnectionError],
            decode=decode,
        )
        runner = Runner(policy, handle, PORTS[port](other, servers, f"t-{topic}"), control)
        stop = threading.Event()
        member = threading.Thread(target=runner.run, args=(stop,))
        member.start()
        ledger = Ledger(client, policy.group)

        def done() -> bool:
            found = client.groups.committed(policy.group).get(TopicPartition(topic, 0))
            ledger.refresh()  # in this order: what is committed has its rows
            return (
                found is not None and found.offset == 8 and State.RETRYING not in {r.state for _, r in ledger.records()}
            )

        try:
            wait_until(done, TIMEOUT_S, "all is handled", 0.1)
        finally:
            stop.set()
            member.join()
        dead = {2: State.DEAD, 3: State.DEAD} | more
        ledger.refresh()
        assert {where: row.state for where, row in ledger.records()} == {f"{topic}-0-{n}": s for n, s in dead.items()}
        assert ledger.opened == {}
        letters = records(client, policy.layout.dead(topic))
        assert sorted((one.value or b"", one.headers[0]) for one in letters) == sorted(
            (values[number] or b"", ("h", b"x")) for number in dead
        )
        assert seen[6] == 2  # once while the system was away
        assert seen[5] == 1  # a record without value reaches the handler
        assert "kafkalite_failures_processed_total" in runner.metrics()


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in {"ignore", "forever"} else ()) for name in STRATEGIES]
)
def test_on_kafkalite(broker: Broker, port: str, name: str) -> None:
    play(broker.bootstrap_servers, port, name)


@pytest.mark.slow
@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_on_apache_kafka(apache_kafka: ApacheKafka, port: str, name: str) -> None:
    play(apache_kafka.bootstrap, port, name)


class Aborted(BaseException):
    """A program's own, outside of Exception."""


def raise_one(kind: type[BaseException], *, in_loop: bool) -> Callable[[Message], object]:
    """A handler, sync or async, that raises this at record 1."""

    def handle(record: Message) -> None:
        if record.offset == 1 and "." not in record.topic:
            raise kind(3)

    async def handle_in_loop(record: Message) -> None:
        handle(record)

    return handle_in_loop if in_loop else handle


@contextlib.contextmanager
def one_member(
    servers: str, port: str, handler: Callable[[Message], object]
) -> Iterator[tuple[Runner, TopicPartition, Client]]:
    """A member for a topic of four records that has not begun, with two workers; the topic, its policy, a client."""
    with Client(servers) as client, client.twin() as other, client.twin() as control:
        topic = f"orders-{time.monotonic_ns()}"
        client.admin.create_topic(topic, 1)
        client.produce(topic, 0, [b"%d" % number for number in range(4)])
        policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryHere(2, "10 ms"))
        yield (
            Runner(policy, handler, PORTS[port](other, servers, f"t-{topic}"), control, workers=2),
            TopicPartition(topic, 0),
            client,
        )


@pytest.mark.parametrize("port", sample(PORTS, 2))
@pytest.mark.parametrize("in_loop", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("kind", [asyncio.CancelledError, Aborted, GeneratorExit])
def test_what_is_no_exception_is_a_failure_of_its_record(
    broker: Broker, port: str, kind: type[BaseException], *, in_loop: bool
) -> None:
    stop = threading.Event()
    with one_member(broker.bootstrap_servers, port, raise_one(kind, in_loop=in_loop)) as (runner, place, client):
        member = threading.Thread(target=runner.run, args=(stop,))
        member.start()

        def done() -> bool:
            found = client.groups.committed(runner.policy.group).get(place)
            return found is not None and found.offset == 4

        try:
            wait_until(done, TIMEOUT_S, "all is handled", 0.1)
        finally:
            stop.set()
            member.join()
        (letter,) = records(client, runner.policy.layout.dead(place.topic))
        assert letter.value == b"1"
        assert dict(letter.headers)["dlq.exception"].endswith(kind.__name__.encode())


@pytest.mark.parametrize("port", sample(PORTS, 2))
@pytest.mark.parametrize("in_loop", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_handler_that_exits_ends_the_run_with_that_and_its_record_comes_again(
    broker: Broker, port: str, kind: type[BaseException], *, in_loop: bool
) -> None:
    stop = threading.Event()
    with one_member(broker.bootstrap_servers, port, raise_one(kind, in_loop=in_loop)) as (runner, place, client):
        with pytest.raises(kind):
            runner.run(stop)
        ledger = Ledger(client, runner.policy.group)
        ledger.refresh()
        assert client.groups.committed(runner.policy.group)[place].offset == 1
        assert (list(ledger.records()), ledger.opened) == ([], {})
        assert records(client, runner.policy.layout.dead(place.topic)) == []
        wait_until(
            lambda: not client.groups.describe(runner.policy.group).members, TIMEOUT_S, "the member has left its group"
        )


@pytest.mark.parametrize("port", sample(PORTS, 1))
@pytest.mark.parametrize("told", [True, False], ids=["the broker knows", "the broker does not know"])
def test_a_damaged_batch_becomes_letters_and_the_rest_is_handled(tmp_path: Path, port: str, *, told: bool) -> None:
    settings = {"log_dirs": str(tmp_path / "data")}
    with small_broker(**settings) as broker:
        fill(broker.bootstrap_servers)
    if told:
        flip_four_bytes(tmp_path / "data")
    with small_broker(**settings) as broker:
        if not told:
            flip_four_bytes(tmp_path / "data")
        check_letters_of_damage(broker.bootstrap_servers, port, 2000)


@pytest.mark.parametrize("port", sample(PORTS, 1))
@pytest.mark.parametrize("how", sample(["length", CUT, *(one for one in DAMAGES if one not in {"length", CUT})], 2))
def test_whatever_of_a_batch_is_damaged_becomes_letters(tmp_path: Path, port: str, how: str) -> None:
    settings = {"log_dirs": str(tmp_path / "data")}
    with small_broker(**settings) as broker:
        fill(broker.bootstrap_servers)
    damage_second_batch(tmp_path / "data", how)
    with small_broker(**settings) as broker:
        check_letters_of_damage(broker.bootstrap_servers, port, 3000 if how == CUT else 2000)


def check_letters_of_damage(servers: str, port: str, end: int) -> None:
    """Of 3,000 records those from 1,000 up to `end` cannot be read: they become letters, the others are handled."""
    handled: list[int] = []
    with Client(servers) as client, client.twin() as other, client.twin() as control:
        policy = Policy(group="g", topics=["orders"], strategy=RetryTopics(["1 s"]), on_damage="skip")
        stop = threading.Event()
        runner = Runner(policy, lambda record: handled.append(record.offset), PORTS[port](other, servers, "t"), control)
        member = threading.Thread(target=runner.run, args=(stop,))
        member.start()

        def done() -> bool:
            found = client.groups.committed("g").get(TopicPartition("orders", 0))
            return found is not None and found.offset == 3000

        try:
            wait_until(done, TIMEOUT_S, "all is handled", 0.1)
        finally:
            stop.set()
            member.join()
        ledger = Ledger(client, "g")
        ledger.refresh()
        assert handled == [*range(1000), *range(end, 3000)]
        assert {where: row.state for where, row in ledger.records()} == {
            f"orders-0-{number}": State.UNREADABLE for number in range(1000, end)
        }
        assert len(records(client, "dlq.g.orders")) == end - 1000


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("comes", [True, False], ids=["it comes", "the member is stopped"])
def test_a_member_waits_for_a_broker_that_is_down_at_its_start(
    tmp_path: Path, port: str, caplog: pytest.LogCaptureFixture, *, comes: bool
) -> None:
    settings = {"log_dirs": str(tmp_path / "data"), "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    handled: list[int] = []
    with small_broker(**settings) as broker, Client(broker.bootstrap_servers) as client:
        servers = broker.bootstrap_servers
        client.admin.create_topic("orders", 1)
        client.produce("orders", 0, [b"0", b"1"])
    stop = threading.Event()
    with Client(servers) as other, Client(servers) as control:
        policy = Policy(group="g", topics=["orders"], strategy=RetryHere(1))
        runner = Runner(policy, lambda record: handled.append(record.offset), PORTS[port](other, servers, "t"), control)
        with ThreadPoolExecutor(1) as pool:
            try:
                ended = pool.submit(runner.run, stop)
                wait_until(lambda: "no broker is reachable" in caplog.text, TIMEOUT_S, "it waits")
                if comes:
                    with small_broker(**settings):
                        wait_until(lambda: handled == [0, 1] or ended.done(), TIMEOUT_S, "all is handled")
                        stop.set()
                        ended.result(TIMEOUT_S)
            finally:
                stop.set()
            assert ended.result(TIMEOUT_S) == ""
    assert handled == ([0, 1] if comes else [])


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("strategy", [Ignore(record=False), RetryForever()], ids=["ignore", "forever"])
def test_a_member_that_keeps_no_ledger_and_makes_no_topics_waits_for_a_broker_too(
    port: str, strategy: Ignore | RetryForever, caplog: pytest.LogCaptureFixture
) -> None:
    servers = f"127.0.0.1:{free_port()}"
    policy = Policy(group="g", topics=["orders"], strategy=strategy)
    assert not policy.keeps_ledger
    stop = threading.Event()
    with Client(servers) as other, Client(servers) as control, ThreadPoolExecutor(1) as pool:
        made = PORTS[port](other, servers, "t")
        runner = Runner(policy, lambda record: None, made, control, create_topics=False)
        try:
            ended = pool.submit(runner.run, stop)
            wait_until(lambda: "no broker is reachable" in caplog.text or ended.done(), TIMEOUT_S, "it waits")
            assert not ended.done()
        finally:
            stop.set()
        assert ended.result(TIMEOUT_S) == ""


def test_an_exit_inside_aiokafkas_loop_ends_the_run_in_good_order(broker: Broker) -> None:
    with one_member(broker.bootstrap_servers, "aiokafka", lambda record: None) as (runner, _, client):
        port = runner._port
        assert isinstance(port, AioPort)

        def end() -> None:
            wait_until(lambda: bool(port.owned), TIMEOUT_S, "the member has its partition")
            port._loop.call_soon_threadsafe(sys.exit, 4)

        ending = threading.Thread(target=end)
        ending.start()
        with pytest.raises(SystemExit, match="4"):
            runner.run(threading.Event())
        ending.join()
        wait_until(
            lambda: not client.groups.describe(runner.policy.group).members, TIMEOUT_S, "the member has left its group"
        )


@pytest.mark.parametrize("port", sample(PORTS, 2))
@pytest.mark.parametrize("exact", [True, False], ids=["in a transaction", "plainly"])
def test_what_does_not_fit_is_told_as_that_and_a_smaller_one_goes_after_it(
    broker: Broker, port: str, *, exact: bool
) -> None:
    servers, topic = broker.bootstrap_servers, f"orders-{time.monotonic_ns()}"
    with Client(servers) as client, client.twin() as other:
        client.admin.create_topic(topic, 1, configs={"max.message.bytes": "1000"})
        member = PORTS[port](other, servers, f"t-{topic}")
        place = TopicPartition(topic, 0)
        owned: list[TopicPartition] = []
        if exact:
            member.claim()
        member.open(f"g-{topic}", [topic], owned.extend, lambda _: None, lambda _: None)

        def write(size: int) -> None:
            records = [Written(topic, 0, Message(topic, 0, -1, -1, b"k", b"x" * size))]
            if exact:
                member.transact(records, {place: size}, place if member.by_partition else None, member.member())
            else:
                member.write(records)

        def joined() -> bool:
            member.poll(0.1)
            return owned == [place]

        try:
            wait_until(joined, TIMEOUT_S, "the member is in its group")
            with pytest.raises(TransactionFailed) as failure:
                write(5000)
            assert failure.value.too_large
            write(500)
        finally:
            member.close()

        assert [record.value for record in records(client, topic)] == [b"x" * 500]
        committed = client.groups.committed(f"g-{topic}", require_stable=True)
        assert {key: row.offset for key, row in committed.items()} == ({place: 500} if exact else {})


@pytest.mark.parametrize("port", sample(reversed(PORTS), 2))
def test_members_that_poll_without_waiting_come_into_their_group(broker: Broker, port: str) -> None:
    """A poll of kafka-python that ends in the middle of a rebalance forgot the rebalance."""
    servers, group = broker.bootstrap_servers, f"g-{time.monotonic_ns()}"
    stop = threading.Event()
    with Client(servers) as client, client.twin() as other, client.twin() as third:
        topics = [f"{group}-{number}" for number in range(3)]
        for topic in topics:
            client.admin.create_topic(topic, 2)
        owned: list[set[TopicPartition]] = [set(), set()]

        def join(mine: set[TopicPartition], own: Client, name: str) -> None:
            member = PORTS[port](own, servers, name)
            member.open(group, topics, mine.update, mine.difference_update, mine.difference_update)
            try:
                while not stop.is_set():
                    member.poll(0.0)
            finally:
                member.close()

        members = [
            threading.Thread(target=join, args=(mine, own, f"{group}-{number}"))
            for number, (mine, own) in enumerate(zip(owned, (other, third), strict=True))
        ]
        for member in members:
            member.start()
        try:
            wait_until(
                lambda: [len(mine) for mine in owned] == [3, 3], TIMEOUT_S / 2, "each has its half"
            )  # which is less than a session
        finally:
            stop.set()
            for member in members:
                member.join()


@pytest.mark.parametrize(
    "refused",
    [
        lambda: ConfluentPort({"enable.auto.commit": True}, "x"),
        lambda: KafkaPythonPort({"enable_auto_commit": True}, "x"),
        lambda: AioPort({"enable_auto_commit": True}),
    ],
)
def test_automatic_commits_are_refused(refused: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="the member commits offsets itself"):
        refused()


class Member:
    """A member of `g-TOPIC` in a thread: what it handled, and what ended it."""

    def __init__(self, servers: str, port: str, topic: str) -> None:
        self.handled: list[int | bytes] = []
        self.error: BaseException | None = None
        self.group = f"g-{topic}"
        self._place = servers, port, topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        servers, port, topic = self._place
        with Client(servers, retry_timeout_s=TIMEOUT_S) as control, control.twin() as other:
            policy = Policy(group=self.group, topics=[topic], strategy=RetryHere(2, "10 ms"))
            made = PORTS[port](other, servers, f"t-{topic}")
            runner = Runner(policy, lambda record: self.handled.append(record.value), made, control)
            try:
                runner.run(self._stop)
            except LogTruncated as error:
                self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.parametrize("port", sample(reversed(PORTS), 1))
def test_a_log_that_went_back_below_a_committed_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], port: str
) -> None:
    """The runner looks, for every client; those that have leader epochs commit them. The choice is where to go on."""
    place = TopicPartition("orders", 0)
    with BrokerProcess(tmp_path / "live") as live:
        grow_after_backup(live, "orders", tmp_path / "saved")
        with Client(live.bootstrap, retry_timeout_s=TIMEOUT_S) as client:

            def committed() -> CommittedOffset:
                return client.groups.committed("g-orders").get(place, CommittedOffset(-1))

            with Member(live.bootstrap, port, "orders") as before:
                wait_until(lambda: committed().offset == 150, TIMEOUT_S, "all is handled")
            assert before.handled == numbers(0, 150)
            position = committed()
            assert position.leader_epoch == (-1 if port == "aiokafka" else 0)
            put_back(live, tmp_path / "saved")
            # Without an epoch only a log that ends below the offset is noticed.
            count = 10 if port == "aiokafka" else 60
            produce(live.bootstrap, "orders", numbers(100, 100 + count, "new"))
            client.groups.commit("g-orders", {place: position})  # the log alone went back, as by an unclean election
            with Member(live.bootstrap, port, "orders") as stopped:
                wait_until(lambda: stopped.error is not None, TIMEOUT_S, "it ends")
            assert stopped.handled == []
            where = "--to-earliest" if port == "aiokafka" else "--to-offset 100"
            assert f"kafkalite groups reset-offsets g-orders --topic orders:0 {where} --execute" in str(stopped.error)
            assert committed() == position
            command = ["groups", "reset-offsets", "g-orders", "--topic", "orders:0", *where.split(), "--execute"]
            wait_until(lambda: main([*command, "-b", live.bootstrap]) == 0, TIMEOUT_S, "the member has left")
            with Member(live.bootstrap, port, "orders") as after:
                wait_until(lambda: committed().offset == 100 + count, TIMEOUT_S, "all is handled")
            again = numbers(0, 100) if port == "aiokafka" else []
            assert after.handled == again + numbers(100, 100 + count, "new")
            assert after.error is None
    capsys.readouterr()


def configured(client: str, servers: str, group: str) -> object:
    """A configuration as the client documents it; or a consumer, where it shows its settings."""
    if client == "confluent-kafka":
        return {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": "false", "linger.ms": 1}
    config = {"bootstrap_servers": servers, "group_id": group, "enable_auto_commit": False, "session_timeout_ms": 10000}
    if not client.endswith("object"):
        return {**config, "linger_ms": 1}
    more: dict[str, object] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    if client == "kafka-python object":
        return KafkaConsumer(**config, **more)

    async def made() -> object:
        return AIOKafkaConsumer(**config, **more)

    return asyncio.run(made())


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "client", ["confluent-kafka", "kafka-python", "kafka-python object", "aiokafka", "aiokafka object"]
)
def test_a_decorated_handler_runs_with_the_consumer_of_each_client(broker: Broker, client: str, is_async: bool) -> None:
    topic, stop = f"orders-{time.monotonic_ns()}", threading.Event()
    seen: Counter[bytes | None] = Counter()

    def work(record: Message, transaction: Transaction) -> None:
        seen[record.value] += 1
        if record.value == b"?":
            raise LookupError
        if record.value == b"3" and not record.attempt:
            raise RuntimeError
        transaction.send(f"{topic}-done", record.value, partition=0)

    async def coroutine(record: Message, transaction: Transaction) -> None:
        await asyncio.sleep(0)
        work(record, transaction)

    handle = coroutine if is_async else work
    bill = handler(topics=topic, group=topic, retry=["1 s"], fatal=LookupError)(handle)
    with Client(broker.bootstrap_servers) as control:
        for name in (topic, f"{topic}-done"):
            control.admin.create_topic(name, 1)
        control.produce(topic, 0, [b"1", b"?", b"3", b"4"])
        consumer = configured(client, broker.bootstrap_servers, topic)
        options: dict[str, object] = {"consumer": consumer, "workers": 4}
        if not client.endswith("object"):  # whose class names the client
            options["client"] = client
        ended: list[str] = []
        member = threading.Thread(target=lambda: ended.append(bill.run(stop=stop, **options)))
        member.start()
        try:
            wait_until(
                lambda: not member.is_alive() or len(records(control, f"{topic}-done")) == 3, TIMEOUT_S, "all", 0.1
            )
        finally:
            stop.set()
            member.join()
        assert ended == [""]
        assert sorted(one.value or b"" for one in records(control, f"{topic}-done")) == [b"1", b"3", b"4"]
        assert [one.value for one in records(control, f"dlq.{topic}.{topic}")] == [b"?"]
        assert seen == {b"1": 1, b"?": 1, b"3": 2, b"4": 1}
