"""What members promise over many records: nothing is early, keys keep their order, alarms say the truth, groups wait.

Figures are printed, for `pytest -s`; what a machine does in a second is not judged here.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import READ_COMMITTED, Client
from kafkalite.errors import KafkaError
from kafkalite.failures import Ignore, Ledger, Loss, Message, Policy, RetryTopics
from kafkalite.failures.rows import Row, State, encode_row
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record
from tests.kit.harness.failing_groups import (
    MemberThread,
    broker_process,
    numbers,
    percentile,
    rows_of,
    small_broker,
)
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, wait_until

pytestmark = pytest.mark.integration
TIMEOUT_S = 300.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with small_broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path) as process:
        yield process


# --- delays -----------------------------------------------------------------------------------------------------------


@dataclass
class Storm:
    """A handler that notes when it was called. `failing`: records with the key `bad` fail the first time."""

    topic: str
    failing: bool
    main: list[float] = field(default_factory=list)
    retried: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    failed_at: dict[bytes | None, float] = field(default_factory=dict)

    def __call__(self, record: Message) -> None:
        now = time.monotonic()
        if record.topic != self.topic:
            self.retried.append(now)
            self.late.append(now - self.failed_at[record.value] - 10.0)
            return
        self.main.append(now)
        if self.failing and record.key == b"bad":
            self.failed_at[record.value] = now
            raise RuntimeError("not now")

    def rate(self, begin: float, end: float) -> float:
        """Records of the topic itself a second, meanwhile."""
        return sum(begin <= at < end for at in self.main) / (end - begin)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_that_fail_at_once_are_not_early_and_hold_nobody_up(process: BrokerProcess) -> None:
    """`KAFKALITE_QUIET_S`: how long the group is watched for rebalances afterwards (default: 60)."""
    good, bad = 600_000, 10_000
    with Client(process.bootstrap) as client:
        for group, failing in (("calm", 0), ("storm", bad)):
            topic = f"orders-{group}"
            client.admin.create_topic(topic, 1)
            client.produce(topic, 0, [Record(-1, -1, b"bad", b"%d" % number) for number in range(failing)])
            for first in range(0, good, 50_000):
                rows = [Record(-1, -1, b"good", b"%d" % number) for number in range(first, first + 50_000)]
                client.produce(topic, 0, rows)
            policy = Policy(group=group, topics=[topic], strategy=RetryTopics(["10 s"], jitter=0.0))
            storm = Storm(topic, bool(failing))
            with MemberThread(process.bootstrap, policy, storm, max_poll_interval_s=30.0) as member:
                handled = good + 2 * failing
                wait_until(
                    lambda storm=storm, handled=handled: len(storm.main) + len(storm.retried) >= handled,
                    TIMEOUT_S,
                    "all are handled",
                    0.1,
                )
                generation = member.generation
                if failing:  # time in which nothing happens
                    threading.Event().wait(float(os.environ.get("KAFKALITE_QUIET_S", "60")))
                assert member.generation == generation > 0
            print(f"{group}: {storm.rate(storm.main[0], storm.main[-1]):.0f} records a second of the topic itself")
        assert len(storm.late) == bad
        assert min(storm.late) >= 0.0
    print(f"late: median {percentile(storm.late, 0.5):.3f} s, p99 {percentile(storm.late, 0.99):.3f} s")
    begin, end = storm.retried[0], min(storm.retried[-1], storm.main[-1])
    if begin < end:
        print(f"{storm.rate(begin, end):.0f} records a second while others are tried again")


# --- keys -------------------------------------------------------------------------------------------------------------


KEYED = """
import random, signal, sys, threading, time
from kafkalite.failures import Policy, RetryTopics, run
bootstrap, member, failing = sys.argv[1:4]
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
def handle(record, transaction):
    number = int(record.value)
    fate = random.Random(number).random()
    if failing == "failing" and fate < 0.05 and record.attempt <= number % 3:
        raise RuntimeError("not now")
    first = b"1" if record.topic == "orders" else b"0"
    said = b"%d %s %f" % (number, first, time.time() * 1000 - record.timestamp)
    transaction.send("done", said, record.key, partition=record.partition)
policy = Policy(group="keyed", topics=["orders"], strategy=RetryTopics(["1 s"] * 3), order="key")
run(policy, handle, bootstrap, stop=stop, member=member, session_timeout_s=6.0)
"""


def keyed(
    process: BrokerProcess, directory: Path, *, failing: bool, kills: int
) -> list[tuple[bytes, int, bool, float]]:
    """1,000 keys with 100 records each; what was done, in order: key, number, at first, ms since it was written."""
    script = directory / "keyed.py"
    script.write_text(KEYED)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}

    def start(number: int) -> subprocess.Popen[bytes]:
        words = [sys.executable, str(script), process.bootstrap, f"m{number}", "failing" if failing else "calm"]
        with (directory / f"member-{number}").open("ab") as out:
            return subprocess.Popen(words, env=environment, stdout=out, stderr=out)

    with Client(process.bootstrap) as client:
        for topic in ("orders", "done"):
            client.admin.create_topic(topic, 4)
        members = [start(0), start(1)]

        def settled() -> bool:
            try:
                group = client.groups.describe("keyed")
            except KafkaError:
                return False  # nobody has come yet
            return group.state == "Stable" and len(group.members) == 2

        try:
            wait_until(settled, TIMEOUT_S, "both are in the group", 0.1)  # how long that takes is not what is asked
            for first in range(0, 100_000, 1000):  # a record of each key
                for partition in range(4):
                    numbers = range(first + partition * 250, first + (partition + 1) * 250)
                    rows = [Record(-1, -1, b"k%d" % (number % 1000), b"%d" % number) for number in numbers]
                    client.produce("orders", partition, rows)
                if kills and first % (100_000 // kills) == 0:
                    members[0].kill()
                    members[0].wait()
                    members[0] = start(0)
                if kills and first == 50_000:
                    members.append(start(2))
                threading.Event().wait(0.2)  # the rate at which records come, not a wait for something

            def done() -> bool:
                try:
                    committed = client.groups.committed("keyed", require_stable=True)
                    handled = sum(row.offset for key, row in committed.items() if key.topic == "orders")
                    return handled == 100_000 and all(
                        row.state is State.DEAD for row in rows_of(client, "keyed").values()
                    )
                except KafkaError:
                    return False

            wait_until(done, 4 * TIMEOUT_S, "all is done", 0.5)
        finally:
            for member in members:
                member.send_signal(signal.SIGTERM)
            for member in members:
                member.wait(60)
        found = []
        for partition in range(4):
            for chunk in client.read("done", partition, isolation=READ_COMMITTED):
                for record in chunk.columns.records():
                    number, at_first, ms = (record.value or b"").split()
                    found.append((record.key or b"", int(number), at_first == b"1", float(ms)))
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [0, 10])
def test_a_thousand_keys_keep_their_order_while_records_fail(
    process: BrokerProcess, tmp_path: Path, kills: int
) -> None:
    found = keyed(process, tmp_path, failing=True, kills=kills)
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for key, number, _, _ in found:
        by_key[key].append(number)
    assert Counter(number for _, number, _, _ in found) == Counter(range(100_000))
    assert {key: numbers for key, numbers in by_key.items() if numbers != sorted(numbers)} == {}
    others = [ms for _, _, at_first, ms in found if at_first]
    print(f"{len(others)} at first, p50 {percentile(others, 0.5):.0f} ms, p99 {percentile(others, 0.99):.0f} ms")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_thousand_keys_of_which_none_fails(process: BrokerProcess, tmp_path: Path) -> None:
    """What the figures of those that fail are held against."""
    others = [ms for _, _, _, ms in keyed(process, tmp_path, failing=False, kills=0)]
    assert len(others) == 100_000
    print(f"{len(others)} at first, p50 {percentile(others, 0.5):.0f} ms, p99 {percentile(others, 0.99):.0f} ms")


# --- alarms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("every", "kinds"), [(1112, []), (909, ["loss"])], ids=["0.09 %", "0.11 %"])
def test_a_loss_above_its_share_is_an_alarm_and_the_count_is_exact(
    client: Client, broker: Broker, every: int, kinds: list[str]
) -> None:
    count = 20_000
    client.admin.create_topic("orders", 1)
    client.produce("orders", 0, [b"%d" % number for number in range(count)])
    seen = 0
    kinds_seen: list[str] = []

    def handle(record: Message) -> None:
        nonlocal seen
        seen += 1
        if record.offset % every == every - 1:
            raise RuntimeError("no")

    policy = Policy(group="billing", topics=["orders"], strategy=Ignore(alarm=Loss(0.001, "1 h", least=1000)))
    ends = TopicPartition("orders", 0)
    with MemberThread(
        broker.bootstrap_servers, policy, handle, on_alarm=lambda alarm: kinds_seen.append(alarm.kind)
    ) as member:

        def done() -> bool:
            found = client.groups.committed("billing").get(ends)
            return found is not None and found.offset == count

        wait_until(done, TIMEOUT_S, "all are handled", 0.1)
        assert member.runner is not None
        metrics = member.runner.metrics()
    assert seen == count
    assert kinds_seen[:1] == kinds
    assert f'kafkalite_failures_ignored_total{{group="billing",topic="orders"}} {count // every}\n' in metrics


# --- groups that wait for groups --------------------------------------------------------------------------------------


def test_a_ledger_is_read_behind_a_transaction_that_is_open_still(client: Client, broker: Broker) -> None:
    """Markers of a transaction reach its partitions one by one: an offset may be there before the row of its record."""
    topic = "kafkalite.failures.fraud"
    client.admin.create_topic(topic, 1)
    row = encode_row(Row(State.RETRYING, "id"))
    with client.twin() as other, other.producer(transactional_id="fraud") as producer, client.twin() as third:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, 0, [Record(-1, -1, b"orders-0-7", row)])
        producer.flush()
        found: list[State] = []

        def read() -> None:
            ledger = Ledger(third, "fraud")
            ledger.refresh()
            found.extend(one.state for _, one in ledger.records())

        reader = threading.Thread(target=read)
        reader.start()
        stable = client.read(topic, 0, isolation=READ_COMMITTED)  # the control: this reader knows of no row
        assert [record for chunk in stable for record in chunk.columns.records()] == []
        assert reader.is_alive()
        producer.commit_transaction()
        reader.join(TIMEOUT_S)
    assert found == [State.RETRYING]


FRAUD = """
import signal, sys, threading, time
from kafkalite.failures import Policy, RetryTopics, run
bootstrap, group, log = sys.argv[1:4]
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
out = open(log, "a", buffering=1)
def handle(record, transaction):
    number = int(record.value)
    if group == "fraud" and record.attempt == 0 and number % 3 == 0:
        raise RuntimeError("not yet")
    out.write(f"{number} {time.monotonic()}\\n")
    transaction.send(f"{group}-done", record.value, partition=0)
after = ["fraud"] if group == "billing" else []
policy = Policy(group=group, topics=["orders"], strategy=RetryTopics(["1 s"]), after=after)
run(policy, handle, bootstrap, stop=stop, member="m1", session_timeout_s=6.0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "kills"), [(60, 2), pytest.param(3000, 40, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_a_group_never_passes_the_one_that_it_waits_for_whoever_is_killed(
    process: BrokerProcess, tmp_path: Path, count: int, kills: int
) -> None:
    """A third of the records fail once in the group `fraud`: so many times `billing` has to wait for a retry."""
    script = tmp_path / "member.py"
    script.write_text(FRAUD)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}

    def start(group: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"out-{group}").open("ab") as out:
            words = [sys.executable, str(script), process.bootstrap, group, str(tmp_path / group)]
            return subprocess.Popen(words, env=environment, stdout=out, stderr=out)

    with Client(process.bootstrap) as client:
        for topic in ("orders", "fraud-done", "billing-done"):
            client.admin.create_topic(topic, 1)
        members = {group: start(group) for group in ("fraud", "billing")}
        try:
            for number in range(kills):
                client.produce(
                    "orders", 0, [b"%d" % n for n in range(count * number // kills, count * (number + 1) // kills)]
                )
                threading.Event().wait(1.0 + (number % 7) / 10)  # a moment by number, not a wait for something
                group = ("fraud", "billing")[number % 2]
                members[group].kill()
                members[group].wait()
                members[group] = start(group)

            def done() -> bool:
                return len(numbers(client, "billing-done")) == count

            wait_until(done, TIMEOUT_S, "both have handled all", 0.5)
        finally:
            for member in members.values():
                member.terminate()
            for member in members.values():
                member.wait(60)
        assert sorted(numbers(client, "fraud-done")) == sorted(numbers(client, "billing-done")) == list(range(count))
    decided, billed = (first_times(tmp_path / group) for group in ("fraud", "billing"))
    assert [number for number in range(count) if billed[number] < decided[number]] == []
    waits = [billed[number] - decided[number] for number in range(0, count, 3)]
    print(f"{len(waits)} waits, {kills} kills: p50 {percentile(waits, 0.5):.2f} s, p99 {percentile(waits, 0.99):.2f} s")


def first_times(log: Path) -> dict[int, float]:
    found: dict[int, float] = {}
    for line in log.read_text().splitlines():
        number, at = line.split()
        found.setdefault(int(number), float(at))
    return found
