"""Consumer groups that stop at a mirror's source and resume at its target: each record once, in order."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.mirror import GroupFilter, Mirror, SyncOptions, TopicFilter
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, wait_until

pytestmark = pytest.mark.integration

TIMEOUT_S = 60
PROTOCOLS = ["classic", "consumer"]
KAFKA = pytest.mark.slow, pytest.mark.compat


class Sides(NamedTuple):
    source: str
    target: str
    compacts: bool
    """Whether the source compacts within moments."""


def kafkalite() -> Broker:
    return Broker(
        flush_on_acks_all=False,
        transaction_state_log_num_partitions=2,
        offsets_topic_num_partitions=4,
        log_cleaner_backoff_ms=50,
    )


@pytest.fixture(
    scope="module",
    params=[
        "kafkalite to kafkalite",
        pytest.param("apache to kafkalite", marks=KAFKA),
        pytest.param("kafkalite to apache", marks=KAFKA),
    ],
)
def sides(request: pytest.FixtureRequest) -> Iterator[Sides]:
    if request.param == "kafkalite to kafkalite":
        with kafkalite() as one, kafkalite() as two:
            yield Sides(one.bootstrap_servers, two.bootstrap_servers, compacts=True)
        return
    other = request.getfixturevalue("apache_kafka").bootstrap
    with kafkalite() as own:
        if request.param[0] == "a":
            yield Sides(other, own.bootstrap_servers, compacts=False)
        else:
            yield Sides(own.bootstrap_servers, other, compacts=True)


@pytest.fixture
def clients(sides: Sides) -> Iterator[tuple[Client, Client]]:
    with Client(sides.source, retry_timeout_s=60) as one, Client(sides.target, retry_timeout_s=60) as two:
        yield one, two


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def fill(client: Client, topic: str, first: int = 0, count: int = 40) -> list[bytes]:
    """Transactions of ten records in each of two partitions, every third aborted; the committed values of each."""
    kept = []
    with client.producer(transactional_id=f"fill-{topic}") as producer:
        for number in range(first, first + count):
            values = [b"%d.%d" % (number, i) for i in range(10)]
            producer.begin_transaction()
            for partition in range(2):
                producer.send(topic, partition, [Record(-1, 1000, b"k%d" % (number % 7), value) for value in values])
            if number % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                kept += values
    return kept


def read(bootstrap: str, topic: str, group: str, count: int, protocol: str = "classic") -> dict[int, list[bytes]]:
    """Return `count` records by partition, read by a group member, which commits and leaves. Without a position it
    fails.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "error" if protocol == "classic" else "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    found: dict[int, list[bytes]] = {}
    deadline = time.monotonic() + TIMEOUT_S
    try:
        consumer.subscribe([topic])
        while sum(map(len, found.values())) < count:
            assert time.monotonic() < deadline, f"{found} is not {count} records"
            message = consumer.poll(0.5)
            if message is None:
                continue
            assert message.error() is None, message.error()
            found.setdefault(message.partition(), []).append(message.value())
            consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()
    return found


def mirror(sides: Sides, topic: str, *options: str) -> int:
    both = ["--from", sides.source, "--to", sides.target, "--name", topic, "--topics", topic, "-e", "-q"]
    return main(["mirror", *both, "--sync-group-offsets", "--groups", f"g-{topic}.*", *options])


def positions(client: Client, group: str) -> dict[int, int]:
    return {key.partition: row.offset for key, row in client.groups.committed(group).items()}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_resumes_where_it_stopped(
    sides: Sides, clients: tuple[Client, Client], topic: str, protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = clients
    one.admin.create_topic(topic, 2)
    group = f"g-{topic}"
    kept = fill(one, topic)
    one.groups.commit(group, {TopicPartition(topic, partition): 0 for partition in range(2)})
    first = read(sides.source, topic, group, 317, protocol)
    assert mirror(sides, topic, "--json", "--commit-size", "2000") == 0
    carried = json.loads(capsys.readouterr().out)["groups"]
    assert carried.keys() == {group}
    assert carried[group] == {f"{topic}-{partition}": at for partition, at in positions(two, group).items()}
    second = read(sides.target, topic, group, 2 * len(kept) - 317, protocol)
    for partition in range(2):
        assert first.get(partition, []) + second.get(partition, []) == kept


def test_every_position_between_two_records_is_carried_exactly(
    sides: Sides, clients: tuple[Client, Client], topic: str
) -> None:
    """Also those within gaps, and at the end; by several runs of the mirror."""
    one, two = clients
    one.admin.create_topic(topic, 2)
    key = TopicPartition(topic, 0)
    fill(one, topic, count=6)
    assert mirror(sides, topic, "--commit-size", "300") == 0
    fill(one, topic, first=6, count=6)
    end = one.end_offset(topic, 0)
    for offset in range(0, end + 1, 7):
        one.groups.commit(f"g-{topic}-{offset}", {key: offset})
    assert mirror(sides, topic, "--commit-size", "300") == 0
    for offset in range(0, end + 1, 7):
        at = positions(two, f"g-{topic}-{offset}")[0]
        assert values(two, topic, at) == values(one, topic, offset)


def values(client: Client, topic: str, start: int) -> list[bytes | None]:
    """Committed, from an offset on."""
    chunks = client.read(topic, 0, start, client.end_offset(topic, 0), isolation=1)
    return [record.value for chunk in chunks for record in chunk.records()]


def test_who_reads_in_the_target_is_never_moved(sides: Sides, clients: tuple[Client, Client], topic: str) -> None:
    one, two = clients
    one.admin.create_topic(topic, 2)
    fill(one, topic, count=3)
    key, group = TopicPartition(topic, 0), f"g-{topic}"
    one.groups.commit(group, {key: 5})
    assert mirror(sides, topic) == 0
    assert positions(two, group) == {0: 5}
    with two.twin() as other, other.group_reader(group, [topic]) as member:
        wait_until(lambda: member.poll(0.1) is not None and member.assignment, TIMEOUT_S, "partitions")
        one.groups.commit(group, {key: 8})
        assert mirror(sides, topic) == 0
        assert positions(two, group) == {0: 5}
    two.groups.commit(group, {key: 7})
    assert mirror(sides, topic) == 0
    assert positions(two, group) == {0: 8}
    two.groups.commit(group, {key: 10})
    assert mirror(sides, topic) == 0
    assert positions(two, group) == {0: 10}


def test_a_group_that_goes_back_is_followed_while_it_stands_where_it_was_put(
    sides: Sides, clients: tuple[Client, Client], topic: str
) -> None:
    one, two = clients
    one.admin.create_topic(topic, 2)
    fill(one, topic, count=3)
    key, group = TopicPartition(topic, 0), f"g-{topic}"
    one.groups.commit(group, {key: 9})
    with following(sides, topic, f"g-{topic}"):
        wait_for(lambda: positions(two, group) == {0: 9}, "the position")
        one.groups.commit(group, {key: 4})
        wait_for(lambda: positions(two, group) == {0: 4}, "the position before it")
        two.groups.commit(group, {key: 6})
        one.groups.commit(group, {key: 2})
        one.groups.commit(f"{group}-late", {key: 3})  # not one of ours
        fill(one, topic, first=3, count=3)
        wait_for(lambda: two.end_offset(topic, 0, isolation=1) > 40, "records")
        assert positions(two, group) == {0: 6}
    assert positions(two, f"{group}-late") == {}


def test_a_group_that_reached_the_same_position_itself_is_not_moved_back(
    sides: Sides, clients: tuple[Client, Client], topic: str
) -> None:
    one, two = clients
    for client in clients:
        client.admin.create_topic(topic, 2)
    fill(one, topic, count=3)
    key, group, other = TopicPartition(topic, 0), f"g-{topic}", f"h-{topic}"

    def move_and_await(position: int) -> None:
        one.groups.commit(other, {key: position})
        wait_for(lambda: positions(two, other) == {0: position}, "the other group's position")

    for client in clients:
        client.groups.commit(group, {key: 6})
    with following(sides, topic, f"[gh]-{topic}"):
        for position in (1, 2):  # the second one is copied by a later round than the first
            move_and_await(position)
        for position in (3, 4):
            one.groups.commit(group, {key: position - 1})
            move_and_await(position)
        assert positions(two, group) == {0: 6}


@contextlib.contextmanager
def following(sides: Sides, topic: str, groups: str) -> Iterator[None]:
    """Mirrors a topic and the positions of these groups meanwhile."""
    stop = threading.Event()

    def work() -> None:
        with Client(sides.source) as from_, Client(sides.target) as to:
            wanted = SyncOptions(group_offsets=True, groups=GroupFilter(groups), interval_s=0.05)
            worker = Mirror(from_, to, name=topic, topics=TopicFilter(topic), sync=wanted, commit_interval_s=0.05)
            worker.run(stop)
            worker.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, TIMEOUT_S, what)


def test_a_topic_that_is_gone_holds_up_no_other(sides: Sides, clients: tuple[Client, Client], topic: str) -> None:
    one, two = clients
    names = [f"{topic}-a", f"{topic}-b"]
    for name in names:
        one.admin.create_topic(name, 1)
        one.produce(name, 0, [b"x"] * 9)
    both = ["--from", sides.source, "--to", sides.target, "--name", topic, "--topics", f"{topic}.*", "-e", "-q"]
    command = ["mirror", *both, "--sync-group-offsets", "--groups", f"g-{topic}"]
    assert main(command) == 0
    for client in clients:
        client.admin.delete_topic(names[0])
    one.groups.commit(f"g-{topic}", {TopicPartition(names[1], 0): 4})
    assert main(command) == 0
    assert positions(two, f"g-{topic}") == {0: 4}


def test_what_was_copied_without_offsets_is_not_guessed(
    sides: Sides, clients: tuple[Client, Client], topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = clients
    one.admin.create_topic(topic, 2)
    kept = fill(one, topic, count=3)
    plain = ["--from", sides.source, "--to", sides.target, "--name", topic, "--topics", topic, "-e", "-q"]
    assert main(["mirror", *plain]) == 0
    group = f"g-{topic}"
    one.groups.commit(group, {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): one.end_offset(topic, 1)})
    capsys.readouterr()
    assert mirror(sides, topic) == 0
    assert f"group {group}, {topic}-0: offset not synchronized" in capsys.readouterr().err
    more = fill(one, topic, first=3, count=1)
    assert mirror(sides, topic) == 0
    assert positions(two, group).keys() == {1}
    found = read(sides.target, topic, f"{group}-other", 0)
    assert found == {}
    assert len(kept) == 20
    assert [value for value in values(two, topic, positions(two, group)[1]) if value in more] == more


def test_a_compacted_topic(clients: tuple[Client, Client], sides: Sides, topic: str) -> None:
    """Gaps within batches. Both sides keep compacting: the newest value of each key is there, nothing too early."""
    one, two = clients
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"}
    one.admin.create_topic(topic, 1, configs=settings)
    for turn in range(12):
        sent = [Record(-1, 1000, b"k%d" % (i % (7 + turn)), b"%d.%d " % (turn, i) + bytes(9000)) for i in range(30)]
        one.produce(topic, 0, sent)
    if sides.compacts:
        wait_until(lambda: len(keyed(one, topic, 0)) < 340, TIMEOUT_S, "compaction")
    end = one.end_offset(topic, 0)
    for offset in range(0, end + 1, 9):
        one.groups.commit(f"g-{topic}-{offset}", {TopicPartition(topic, 0): offset})
    before = {offset: keyed(one, topic, offset) for offset in range(0, end + 1, 9)}
    assert mirror(sides, topic, "--commit-size", "100000") == 0
    for offset, wanted in before.items():
        found = keyed(two, topic, positions(two, f"g-{topic}-{offset}")[0])
        assert set(found) <= set(wanted)
        assert dict(found) == dict(wanted)


def keyed(client: Client, topic: str, start: int) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values, from an offset on."""
    chunks = client.read(topic, 0, start, client.end_offset(topic, 0), isolation=1)
    return [(record.key, record.value) for chunk in chunks for record in chunk.records()]


@pytest.mark.slow
def test_kill_minus_nine_leaves_positions_exact(tmp_path: Path) -> None:
    """What the mirror keeps of offsets is of the transactions that were committed, and of all."""
    dice = random.Random(11)
    topic, turns = "killed", 120
    with (
        BrokerProcess(tmp_path / "source") as live,
        BrokerProcess(tmp_path / "target") as other,
        Client(live.bootstrap) as one,
        Client(other.bootstrap, retry_timeout_s=60) as two,
    ):
        one.admin.create_topic(topic, 2)
        fill(one, topic, count=turns)
        end = one.end_offset(topic, 0)
        command = [sys.executable, "-m", "kafkalite", "mirror", "--from", live.bootstrap, "--to", other.bootstrap]
        command += ["--name", "m", "--topics", topic, "-e", "-q", "--sync-group-offsets", "--commit-size", "300"]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        killed = 0
        for share in sorted(dice.random() * 0.8 for _ in range(4)):
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
            while process.poll() is None and written(two, topic) < share * end:
                time.sleep(0.001)
            killed += process.poll() is None
            process.kill()
            process.wait()
        assert killed >= 2, "on a busy machine, it can end before it is killed"
        checked = range(0, end + 1, 11)
        for offset in checked:
            one.groups.commit(f"g-{offset}", {TopicPartition(topic, 0): offset})
        assert subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode == 0
        whole = values(two, topic, 0)
        assert whole == values(one, topic, 0)
        for offset in checked:
            at = positions(two, f"g-{offset}")[0]
            assert values(two, topic, at) == values(one, topic, offset)


def written(client: Client, topic: str) -> int:
    return client.end_offset(topic, 0) if client.partition_counts([topic]) else 0
