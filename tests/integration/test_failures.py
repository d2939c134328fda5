"""Members of kafkalite.failures against a broker: what fails is tried again, dies once, and a kill loses nothing."""

import random
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.errors import CorruptMessage, KafkaError, StartupError
from kafkalite.failures import (
    Failed,
    Ignore,
    Ledger,
    Limit,
    Message,
    Policy,
    RetryForever,
    RetryHere,
    RetryTopics,
    Transaction,
    run,
)
from kafkalite.failures.adapters.columnar import ColumnarPort
from kafkalite.failures.events import Alarm, Failure
from kafkalite.failures.letters import LetterBox
from kafkalite.failures.rows import Row, State
from kafkalite.failures.runner import Fetch
from kafkalite.failures.topics import faults, operations
from kafkalite.failures.transaction_writer import Written
from kafkalite.model import TopicPartition, uuid_text
from kafkalite.wire.record.columns import Record
from tests.kit.harness.failing_groups import (
    MemberThread,
    Script,
    broker_process,
    is_done,
    numbered_topic,
    play,
    records,
    rows_of,
    small_broker,
    states,
)
from tests.kit.processes.broker import BrokerProcess, wait_until

pytestmark = pytest.mark.integration
TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with small_broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


def test_a_failing_record_goes_through_its_topics_and_dies_with_all_that_is_known(
    client: Client, broker: Broker
) -> None:
    topic = numbered_topic(client, 20)
    calls: list[tuple[str, int, float]] = []

    def handle(record: Message) -> None:
        calls.append((record.topic, int(record.value or b""), time.time()))
        if record.value == b"3":
            raise RuntimeError("no such customer") from KeyError("customer")

    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryTopics(["1 s", "2 s"], jitter=0.0))
    told: list[tuple[object, ...]] = []

    def failed(message: Message, failure: Failure) -> None:
        told.append((message.value, failure.name, message.attempt))
        raise AssertionError("what a hook raises ends nobody")

    def moved(message: Message, goal: str, where: str) -> None:
        told.append((message.value, goal, where.rpartition(".")[2]))

    play(broker.bootstrap_servers, policy, handle, 20, on_failed=failed, on_moved=moved)
    assert told == [
        (b"3", "RuntimeError", 0),
        (b"3", "retry", "1s"),
        (b"3", "RuntimeError", 1),
        (b"3", "retry", "2s"),
        (b"3", "RuntimeError", 2),
        (b"3", "dead", topic),
    ]
    mine = [(name.rpartition(".")[2], at) for name, number, at in calls if number == 3]
    assert [name for name, _ in mine] == [topic, "1s", "2s"]
    assert [
        later - earlier >= wait for (_, earlier), (_, later), wait in zip(mine, mine[1:], (1, 2), strict=False)
    ] == [
        True,
        True,
    ]
    (letter,) = records(client, policy.layout.dead(topic))
    found = dict(letter.headers)
    assert (letter.key, letter.value, letter.headers[0]) == (b"k3", b"3", ("h", b"\xff"))
    assert {name: found[f"dlq.{name}"].decode() for name in ("topic", "partition", "offset", "group", "attempt")} == {
        "topic": topic,
        "partition": "0",
        "offset": "3",
        "group": policy.group,
        "attempt": "3",
    }
    assert (found["dlq.exception"], found["dlq.cause"], found["dlq.error"]) == (
        b"RuntimeError",
        b"KeyError",
        b"no such customer",
    )
    assert b"no such customer" in found["dlq.stacktrace"]
    assert struct.unpack(">iq", found["kafka_dlt-original-partition"] + found["kafka_dlt-original-offset"]) == (0, 3)
    assert found["kafka_dlt-original-topic"] == topic.encode()
    assert states(client, policy.group) == {State.DEAD: 1}
    assert list(faults(policy, client)) == []


def test_a_member_that_creates_no_topics_does_not_start_without_one(client: Client, broker: Broker) -> None:
    topic = numbered_topic(client, 1)
    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryTopics(["1 s"]))
    made = {name for name in operations(policy) if name != policy.layout.retry(topic, 1000)} - {topic}
    for name in made:
        client.admin.create_topic(name, 1)
    stop = threading.Event()
    with pytest.raises(StartupError, match=rf"topics are missing.*: {policy.layout.retry(topic, 1000)};"):
        run(policy, lambda _: stop.set(), broker.bootstrap_servers, stop=stop, create_topics=False)
    client.admin.create_topic(policy.layout.retry(topic, 1000), 1)
    run(policy, lambda _: stop.set(), broker.bootstrap_servers, stop=stop, create_topics=False)
    assert stop.is_set()


def test_no_record_of_a_topic_that_was_created_again_is_skipped(client: Client, broker: Broker) -> None:
    topic = numbered_topic(client, 4)
    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryHere(1))
    seen: list[int] = []

    def handle(record: Message) -> None:
        seen.append(record.offset)
        if record.value in {b"1", b"3"}:
            raise RuntimeError("no")

    play(broker.bootstrap_servers, policy, handle, 4)
    client.admin.delete_topic(topic)
    client.admin.create_topic(topic, 1)
    client.produce(topic, 0, [b"new"] * 3 + [b"3"])
    play(broker.bootstrap_servers, policy, handle, 4)
    assert seen == [0, 1, 2, 3] * 2
    old, new = (rows_of(client, policy.group)[f"{topic}-0-{offset}"] for offset in (1, 3))
    assert (old.state, new.state, new.topic_id) == (State.DEAD, State.DEAD, uuid_text(client.topic(topic).topic_id))
    assert old.topic_id not in {"", new.topic_id}
    client.groups.commit(policy.group, {TopicPartition(topic, 0): 0})
    play(broker.bootstrap_servers, policy, handle, 4)
    assert seen[8:] == [0, 1, 2]  # offset 3 is dead in this topic


def test_a_member_ends_after_an_output_that_is_too_large(client: Client, broker: Broker) -> None:
    topic = numbered_topic(client, 3)
    client.admin.create_topic(f"small-{topic}", 1, configs={"max.message.bytes": "1000"})
    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryTopics(["1 s"]))

    def handle(record: Message, transaction: Transaction) -> None:
        transaction.send(f"small-{topic}", b"x" * (5000 if record.offset == 1 else 1), partition=0)

    reason = run(policy, handle, broker.bootstrap_servers)
    assert reason.startswith(f"the handler's output for {topic}-0-1 is too large for topic small-{topic};")
    assert client.groups.committed(policy.group)[TopicPartition(topic, 0)].offset == 1


def test_an_output_that_is_too_large_takes_nothing_from_larger_records_of_the_transaction(
    client: Client, broker: Broker
) -> None:
    topic = f"orders-{time.time_ns():x}"
    client.admin.create_topic(topic, 1)
    client.admin.create_topic(f"wide-{topic}", 1)
    client.admin.create_topic(f"small-{topic}", 1, configs={"max.message.bytes": "1000"})
    client.produce(topic, 0, [b"v" * 5000, b"wide", b"small"])
    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryTopics(["1 min"]))

    def handle(record: Message, transaction: Transaction) -> None:
        if record.offset == 0:
            raise RuntimeError("no")
        if record.offset == 1:
            transaction.send(f"wide-{topic}", b"x" * 4000, partition=0)
        else:
            transaction.send(f"small-{topic}", b"x" * 2000, partition=0)

    reason = run(policy, handle, broker.bootstrap_servers)
    assert reason.startswith(f"the handler's output for {topic}-0-2 is too large for topic small-{topic};")
    assert client.groups.committed(policy.group)[TopicPartition(topic, 0)].offset == 2
    assert [record.value for record in records(client, policy.layout.retry(topic, 60_000))] == [b"v" * 5000]
    assert [record.value for record in records(client, f"wide-{topic}")] == [b"x" * 4000]


def test_two_groups_on_one_topic_see_nothing_of_each_others_retries(client: Client, broker: Broker) -> None:
    topic = numbered_topic(client, 30)
    seen: dict[str, Counter[int]] = {"a": Counter(), "b": Counter()}
    strategies = {"a": RetryTopics(["1 s"]), "b": RetryHere(2, "10 ms", then=RetryTopics(["1 s", "1 s"]))}
    policies = {
        name: Policy(group=f"{name}-{topic}", topics=[topic], strategy=strategy)
        for name, strategy in strategies.items()
    }

    def handler(name: str, bad: int) -> Callable[[Message], None]:
        def handle(record: Message) -> None:
            seen[name][int(record.value or b"")] += 1
            if int(record.value or b"") == bad:
                raise RuntimeError("no")

        return handle

    with (
        MemberThread(broker.bootstrap_servers, policies["a"], handler("a", 5)) as first,
        MemberThread(broker.bootstrap_servers, policies["b"], handler("b", 6)) as second,
    ):
        for member, policy in ((first, policies["a"]), (second, policies["b"])):
            ends = {TopicPartition(topic, 0): 30}
            member.wait_until(lambda group=policy.group, ends=ends: is_done(client, group, ends), "all is handled")
    assert seen["a"] == Counter(range(30)) + Counter([5])
    assert seen["b"] == Counter(range(30)) + Counter([6] * 3)
    for name, bad in (("a", b"5"), ("b", b"6")):
        assert [letter.value for letter in records(client, policies[name].layout.dead(topic))] == [bad]


def test_a_handler_that_fails_for_all_opens_the_breaker_which_closes_after_the_repair(
    client: Client, broker: Broker
) -> None:
    topic = numbered_topic(client, 500)
    mended = threading.Event()
    done: Counter[int] = Counter()
    alarms: list[str] = []

    def handle(record: Message) -> None:
        if not mended.is_set():
            raise RuntimeError("all fail")
        done[int(record.value or b"")] += 1

    limit = Limit(0.5, "1 min", least=20)
    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryTopics(["1 s"]), limit=limit)

    def alarmed(alarm: Alarm) -> None:
        alarms.append(alarm.text)
        raise AssertionError("what a hook raises ends nobody")

    options = {"on_alarm": alarmed}
    with MemberThread(broker.bootstrap_servers, policy, handle, **options) as member:
        member.wait_until(lambda: bool(alarms), "the breaker is open")
        assert member.runner is not None
        assert member.runner.session.breaker_open
        member.wait_until(lambda: bool(breakers(client, policy.group)), "the ledger tells of it")
        ((name, row),) = breakers(client, policy.group).items()
        assert (row.member, row.reason) == (name, "the breaker is open: the failure limit is exceeded")
        assert 0 < row.first <= row.last
        mended.set()
        ends = {TopicPartition(topic, 0): 500}
        member.wait_until(lambda: is_done(client, policy.group, ends), "all is handled")
        assert not member.runner.session.breaker_open
        member.wait_until(lambda: not breakers(client, policy.group), "the ledger tells that it is closed")
    assert [text.partition(":")[0] for text in alarms] == [
        "the breaker is open",
        "the breaker is closed",
    ]
    assert done == Counter(range(500))
    retried = sum(client.end_offset(name, 0) for name in policy.layout.retries(topic) if name in client.topics())
    assert retried <= 2 * (limit.least + 10)  # with the markers of their transactions
    assert records(client, policy.layout.dead(topic)) == []


def test_a_member_that_ends_while_its_breaker_is_open_takes_that_back(client: Client, broker: Broker) -> None:
    topic = numbered_topic(client, 100)

    def handle(record: Message) -> None:
        raise ConnectionError("the database is down")

    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryTopics(["1 s"]), outage=[ConnectionError])
    with MemberThread(broker.bootstrap_servers, policy, handle) as member:
        member.wait_until(lambda: bool(breakers(client, policy.group)), "the ledger tells of it")
    assert breakers(client, policy.group) == {}


def breakers(client: Client, group: str) -> dict[str, Row]:
    ledger = Ledger(client, group)
    ledger.refresh()
    return ledger.breakers


def test_a_group_that_starts_over_handles_all_but_the_dead_or_the_dead_alone(client: Client, broker: Broker) -> None:
    topic = numbered_topic(client, 100)
    place = TopicPartition(topic, 0)
    dead = {n for n in range(100) if n % 10 == 7}

    def fail(record: Message) -> None:
        if int(record.value or b"") in dead:
            raise RuntimeError("no")

    options = {"group": f"g-{topic}", "topics": [topic], "strategy": RetryHere(1)}
    play(broker.bootstrap_servers, Policy(**options), fail, 100)
    for mode, wanted in (("skip", set(range(100)) - dead), ("letters", dead)):
        seen: Counter[int] = Counter()
        client.groups.commit(options["group"], {place: 0})

        def count(record: Message, seen: Counter[int] = seen) -> None:
            seen[int(record.value or b"")] += 1

        play(broker.bootstrap_servers, Policy(**options, reprocess=mode), count, 100)
        assert (mode, seen) == (mode, Counter(wanted))
    assert states(client, options["group"]) == {}  # the dead were handled after all


@pytest.mark.parametrize(
    ("strategy", "calls", "dead"),
    [(Ignore(), 1, 0), (RetryHere(3, "10 ms"), 3, 1), (RetryForever("10 ms"), 5, 0), (RetryTopics(["1 s"]), 2, 1)],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("moves", ["exactly once", "at least once"])
def test_strategies(client: Client, broker: Broker, strategy: object, calls: int, dead: int, moves: str) -> None:
    topic = numbered_topic(client, 10)
    seen: Counter[int] = Counter()

    def handle(record: Message) -> None:
        number = int(record.value or b"")
        seen[number] += 1
        if number == 2:
            raise Failed("cannot be", "fatal")
        if number == 4 and seen[number] < 5:
            raise RuntimeError("not yet")

    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=strategy, fatal=[ArithmeticError], moves=moves)
    play(broker.bootstrap_servers, policy, handle, 10)
    assert (seen[2], seen[4]) == (1, calls)
    letters = [letter.value for letter in records(client, policy.layout.dead(topic))]
    assert sorted(letters) == [b"2", b"4"][: 1 + dead]


def test_order_by_key_holds_while_a_key_fails(client: Client, broker: Broker) -> None:
    topic = numbered_topic(client, 100)
    seen: Counter[int] = Counter()
    done: list[int] = []

    def handle(record: Message) -> None:
        number = int(record.value or b"")
        seen[number] += 1
        said = dict(record.headers).get("dlq.attempt") or b"0"
        assert (record.attempt, int(said)) == (seen[number] - 1,) * 2
        if number in {11, 31} and record.attempt < 2:
            raise RuntimeError("not yet")
        done.append(number)

    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryTopics(["1 s", "1 s"]), order="key")
    play(broker.bootstrap_servers, policy, handle, 100)
    for key in range(5):
        mine = [number for number in done if number % 5 == key]
        assert mine == sorted(mine)
        assert len(mine) == 20
    assert done.index(99) < done.index(11)  # other keys did not wait
    assert records(client, policy.layout.dead(topic)) == []


@pytest.mark.parametrize("moves", ["exactly once", "at least once"])
def test_records_are_handled_while_what_failed_is_being_written(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch, moves: str
) -> None:
    topic = numbered_topic(client, 10)
    others = threading.Event()
    done: list[int] = []
    name = "transact" if moves == "exactly once" else "write"
    write = getattr(ColumnarPort, name)

    def write_late(self: ColumnarPort, records: list[Written], *more: object) -> None:
        if any(record.topic != policy.layout.ledger for record in records):
            assert others.wait(TIMEOUT_S)
        write(self, records, *more)

    def handle(record: Message) -> None:
        number = int(record.value or b"")
        if number == 3 and record.attempt == 0:
            raise RuntimeError("not yet")
        done.append(number)
        if number == 19:
            others.set()
        elif number == 9:
            with client.twin() as other:
                other.produce(topic, 0, [Record(-1, -1, b"later", b"%d" % number) for number in range(10, 20)])

    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryTopics(["1 s"]), moves=moves)
    monkeypatch.setattr(ColumnarPort, name, write_late)
    play(broker.bootstrap_servers, policy, handle, 20)
    assert done == [*range(3), *range(4, 20), 3]


def test_a_member_that_has_to_stop_while_something_is_being_written_ends_in_good_order(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = numbered_topic(client, 10)
    stopping = threading.Event()
    transact = ColumnarPort.transact

    def transact_late(self: ColumnarPort, records: list[Written], *more: object) -> None:
        if any(record.topic != policy.layout.ledger for record in records):
            assert stopping.wait(TIMEOUT_S)
        transact(self, records, *more)

    def handle(record: Message) -> None:
        if record.value == b"2":
            raise Failed("cannot be", "fatal")
        if record.value == b"6":
            raise RuntimeError("no")

    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryHere(1, then="stop"), fatal=[ArithmeticError])
    monkeypatch.setattr(ColumnarPort, "transact", transact_late)
    why = run(policy, handle, broker.bootstrap_servers, on_alarm=lambda alarm: stopping.set())
    assert why.startswith(f"{topic}-0-6 failed and the policy stops the member")
    assert [letter.value for letter in records(client, policy.layout.dead(topic))] == [b"2"]
    assert client.groups.committed(policy.group)[TopicPartition(topic, 0)].offset == 6
    ledger = Ledger(client, policy.group)
    ledger.refresh()
    assert ledger.opened == {}


@pytest.mark.parametrize("moves", ["exactly once", "at least once"])
def test_partitions_that_are_lost_while_something_is_written_are_waited_for_and_not_committed(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch, moves: str
) -> None:
    topic = numbered_topic(client, 10)
    writing, closing = threading.Event(), threading.Event()
    closed_meanwhile: list[bool] = []
    committed: list[object] = []
    name = "transact" if moves == "exactly once" else "write"
    write, close, commit = getattr(ColumnarPort, name), ColumnarPort.close, ColumnarPort.commit

    def write_late(self: ColumnarPort, records: list[Written], *more: object) -> None:
        if any(record.topic != policy.layout.ledger for record in records):
            writing.set()
            closed_meanwhile.append(closing.wait(1.0))
        write(self, records, *more)

    def be_fenced(self: ColumnarPort, timeout_s: float) -> list[Fetch]:
        if not writing.is_set():
            return poll(self, timeout_s)
        committed.clear()
        self.reader._lose()
        raise LookupError("fenced")

    def note(self: ColumnarPort, offsets: dict[TopicPartition, int]) -> None:
        committed.append(offsets)
        commit(self, offsets)

    def note_close(self: ColumnarPort) -> None:
        closing.set()
        close(self)

    def handle(record: Message) -> None:
        raise RuntimeError("no")

    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryTopics(["1 s"]), moves=moves)
    poll = ColumnarPort.poll
    monkeypatch.setattr(ColumnarPort, name, write_late)
    monkeypatch.setattr(ColumnarPort, "poll", be_fenced)
    monkeypatch.setattr(ColumnarPort, "commit", note)
    monkeypatch.setattr(ColumnarPort, "close", note_close)
    with pytest.raises(LookupError, match="fenced"):
        run(policy, handle, broker.bootstrap_servers)
    assert closed_meanwhile == [False]
    assert committed == []


@pytest.mark.parametrize("name", ["claim", "open"])
def test_a_member_that_cannot_begin_leaves_no_threads(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    topic = numbered_topic(client, 1)

    def fail(*_: object) -> None:
        raise LookupError("not now")

    def left() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("failures-")]

    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryTopics(["1 s"]))
    monkeypatch.setattr(ColumnarPort, name, fail)
    with pytest.raises(LookupError, match="not now"):
        run(policy, lambda record: None, broker.bootstrap_servers)
    wait_until(lambda: not left(), TIMEOUT_S, "its threads have ended")


def test_what_a_client_raises_while_it_writes_ends_the_member(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = numbered_topic(client, 10)

    def fail(*_: object) -> None:
        raise LookupError("nobody knows")

    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryTopics(["1 s"]))
    monkeypatch.setattr(ColumnarPort, "transact", fail)
    with pytest.raises(LookupError, match="nobody knows"):
        run(policy, lambda record: None, broker.bootstrap_servers)


def test_a_letter_that_is_sent_back_while_a_member_looks_where_it_begins_is_handled(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = numbered_topic(client, 3)
    bad = True
    done: list[int] = []

    def handle(record: Message) -> None:
        if bad and record.value == b"1":
            raise RuntimeError("no")
        done.append(int(record.value or b""))

    policy = Policy(group=f"g-{topic}", topics=[topic], strategy=RetryTopics(["1 s"]))
    play(broker.bootstrap_servers, policy, handle, 3)
    assert states(client, policy.group) == {State.DEAD: 1}
    bad = False
    refresh = Ledger.refresh
    sent: list[int] = []

    def refresh_and_redrive(self: Ledger, *options: float) -> None:
        refresh(self, *options)
        if not sent and self.topic == policy.layout.ledger:
            sent.append(0)
            with client.twin() as other:
                sent[0] = LetterBox(other, policy.group).redrive().sent

    monkeypatch.setattr(Ledger, "refresh", refresh_and_redrive)
    with MemberThread(broker.bootstrap_servers, policy, handle) as member:
        member.wait_until(lambda: 1 in done, "the letter that was sent back is handled")
    assert (sent, done) == ([1], [0, 2, 1])
    assert states(client, policy.group) == {}


def test_a_group_waits_until_another_has_decided_retries_included(client: Client, broker: Broker) -> None:
    topic = numbered_topic(client, 30)
    decided: dict[int, float] = {}
    billed: dict[int, float] = {}
    failed: Counter[int] = Counter()

    def judge(record: Message) -> None:
        number = int(record.value or b"")
        failed[number] += 1
        if number == 7 or (number == 11 and failed[number] == 1):
            raise RuntimeError("not yet")
        decided[number] = time.monotonic()

    def bill(record: Message) -> None:
        billed[int(record.value or b"")] = time.monotonic()

    fraud = Policy(group=f"fraud-{topic}", topics=[topic], strategy=RetryTopics(["1 s"]))
    billing = Policy(group=f"b-{topic}", topics=[topic], strategy=RetryTopics(["1 s"]), after=[fraud.group])
    stop = threading.Event()
    other = threading.Thread(target=run, args=(fraud, judge, broker.bootstrap_servers), kwargs={"stop": stop})
    other.start()
    try:
        play(broker.bootstrap_servers, billing, bill, 30)
    finally:
        stop.set()
        other.join()
    assert billed.keys() == decided.keys() == set(range(30)) - {7}  # 7 was given up
    assert all(billed[number] > decided[number] for number in billed)
    assert states(client, billing.group) == {State.SKIPPED: 1}


def test_a_group_waits_for_what_another_gave_up_until_it_was_sent_back_and_processed(
    client: Client, broker: Broker
) -> None:
    topic = numbered_topic(client, 20)
    place = TopicPartition(topic, 0)
    mended = threading.Event()
    billed: list[int] = []

    def judge(record: Message) -> None:
        if record.value == b"7" and not mended.is_set():
            raise RuntimeError("no")

    fraud = Policy(group=f"fraud-{topic}", topics=[topic], strategy=RetryHere(1))
    billing = Policy(group=f"b-{topic}", topics=[topic], strategy=RetryHere(1), after=[fraud.group], on_dead="wait")
    with (
        MemberThread(broker.bootstrap_servers, fraud, judge) as first,
        MemberThread(broker.bootstrap_servers, billing, lambda record: billed.append(record.offset)) as second,
    ):
        first.wait_until(lambda: is_done(client, fraud.group, {place: 20}), "fraud has decided on all")
        second.wait_until(lambda: is_done(client, billing.group, {place: 7}), "billing is at the dead one")
        assert second.runner is not None
        runner = second.runner
        second.wait_until(lambda: runner.session.waits == {place: fraud.group}, "and waits")
        assert billed == list(range(7))
        mended.set()
        with client.twin() as other:
            assert LetterBox(other, fraud.group).redrive().sent == 1
        second.wait_until(lambda: is_done(client, billing.group, {place: 20}), "billing goes on")
    assert billed == list(range(20))


def test_groups_that_would_wait_for_each_other_do_not_start(client: Client, broker: Broker) -> None:
    topic = numbered_topic(client, 1)
    first = Policy(group=f"a-{topic}", topics=[topic], strategy=RetryTopics(["1 s"]))
    play(broker.bootstrap_servers, first, lambda record: None, 1)
    second = Policy(group=f"b-{topic}", topics=[topic], strategy=RetryTopics(["1 s"]), after=[first.group])
    play(broker.bootstrap_servers, second, lambda record: None, 1)
    circle = Policy(group=first.group, topics=[topic], strategy=RetryTopics(["1 s"]), after=[second.group])
    with pytest.raises(StartupError, match="would wait for itself"):
        run(circle, lambda record: None, broker.bootstrap_servers)


@pytest.mark.parametrize("on_damage", ["stop", "skip"])
def test_a_batch_that_cannot_be_read_ends_the_member_or_becomes_letters(tmp_path: Path, on_damage: str) -> None:
    seen: list[int] = []
    alarms: list[str] = []
    with small_broker(log_dirs=str(tmp_path)) as broker, Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("orders", 1)
        for first in range(0, 40, 10):
            client.produce("orders", 0, [b"%d" % number for number in range(first, first + 10)])
        (log,) = (tmp_path / "orders-0").glob("*.log")
        with log.open("r+b") as file:  # a bit of the second batch
            content = file.read()
            place = content.index(b"15", content.index(b"10"))
            file.seek(place)
            file.write(bytes([content[place] ^ 4]))
        policy = Policy(group="g", topics=["orders"], strategy=RetryTopics(["1 s"]), on_damage=on_damage)

        def handle(record: Message) -> None:
            if not seen:
                time.sleep(0.3)  # long enough that the damage is read while the records before it are still in hand
            seen.append(int(record.value or b""))

        if on_damage == "stop":
            with pytest.raises(CorruptMessage, match="the batch at offset 10 cannot be read"):
                run(policy, handle, broker.bootstrap_servers)
            assert seen == list(range(10))
            return
        play(broker.bootstrap_servers, policy, handle, 40, on_alarm=lambda alarm: alarms.append(alarm.kind))
        assert seen == [*range(10), *range(20, 40)]
        assert alarms == ["damaged"]
        ledger = Ledger(client, "g")
        ledger.refresh()
        assert {where: row.state for where, row in ledger.records()} == {
            f"orders-0-{number}": State.UNREADABLE for number in range(10, 20)
        }
        letters = [dict(letter.headers) for letter in records(client, "dlq.g.orders")]
        assert [(one["dlq.offset"], one["dlq.exception"], one["dlq.truncated"]) for one in letters] == [
            (b"%d" % number, b"unreadable", b"value") for number in range(10, 20)
        ]


# --- kills ------------------------------------------------------------------------------------------------------------


class Crowd:
    """Members as processes, killed and started again."""

    def __init__(self, directory: Path, count: int, *words: str) -> None:
        text = "from tests.kit.processes.failing_member import main\nmain()\n"
        bootstrap, group, topic, *more = words
        self.members = [
            Script(directory, f"member-{number}", text, bootstrap, group, topic, f"m{number}", *more)
            for number in range(count)
        ]

    def revive(self) -> None:
        """Who has ended by himself is started again, as a supervisor would."""
        for member in self.members:
            member.revive()

    def close(self) -> None:
        for member in self.members:
            member.process.terminate()
        for member in self.members:
            member.close()


def survive(
    broker: BrokerProcess, directory: Path, count: int, partitions: int, kills: int, falls: int, order: str = "none"
) -> None:
    """Kills members and the broker at random moments, then looks at what is there."""
    chance = random.Random(kills)
    with Client(broker.bootstrap) as client:
        topic = numbered_topic(client, count, partitions, keys=max(count // 33, 5))
        client.admin.create_topic(f"{topic}-done", 1)
        group = f"g-{topic}"
        ends = {TopicPartition(topic, partition): count for partition in range(partitions)}
        crowd = Crowd(directory, 3, broker.bootstrap, group, topic, order)
        moments = sorted(["member"] * kills + ["broker"] * falls, key=lambda _: chance.random())
        try:
            for moment in moments:
                threading.Event().wait(chance.uniform(0.2, 2.0))  # a moment by chance, not a wait for something
                if moment == "broker":
                    broker.kill()
                    broker.start()
                else:
                    crowd.members[chance.randrange(3)].kill()

            def done() -> bool:
                crowd.revive()
                try:
                    return is_done(client, group, ends)
                except KafkaError:
                    return False  # a broker that has just come loads its groups

            wait_until(done, 5 * TIMEOUT_S, "all is handled", 0.5)
        finally:
            crowd.close()
        processed = Counter(record.value for record in records(client, f"{topic}-done"))
        letters: Counter[tuple[bytes | None, int]] = Counter()
        crashed: set[tuple[bytes | None, int]] = set()
        for partition in range(partitions):
            for record in records(client, f"dlq.{group}.{topic}", partition):
                letters[record.value, partition] += 1
                if dict(record.headers)["dlq.exception"] == b"crashed":
                    crashed.add((record.value, partition))
        # A record that was in hand at three kills in a row cannot be told from one that causes them.
        print(f"{processed.total()} processed, {letters.total()} dead, {len(crashed)} of these in hand at three kills")
        assert len(crashed) <= kills // 20
        everything = {(b"%d" % number, partition) for number in range(count) for partition in range(partitions)}
        dead = crashed | {(value, partition) for value, partition in everything if int(value) % 100 in {7, 21}}
        assert letters == Counter(dead)
        assert processed == Counter(value for value, _ in everything - dead)
        assert states(client, group) == {State.DEAD: len(dead)}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path) as process:
        yield process


@pytest.mark.slow
def test_kills_of_members_lose_and_double_nothing(process: BrokerProcess, tmp_path: Path) -> None:
    survive(process, tmp_path, count=1000, partitions=3, kills=4, falls=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("order", ["none", "key"])
def test_two_hundred_kills_of_members_and_ten_of_the_broker(process: BrokerProcess, tmp_path: Path, order: str) -> None:
    survive(process, tmp_path, count=33_334, partitions=3, kills=200, falls=10, order=order)
