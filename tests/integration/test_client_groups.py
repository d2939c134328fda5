"""Members of kafkalite.client in groups of several, on kafkalite and on Apache Kafka: the same expectations of both.

Who owns what is noted in the callbacks, between "taken" and "given up": two owners at any moment fail the test.
"""

from __future__ import annotations

import random
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from kafkalite.broker import Broker
from kafkalite.client import Client, CommitFailed, GroupReader
from kafkalite.client.group.membership import Phase
from kafkalite.errors import FencedInstanceId, InconsistentGroupProtocol, NonEmptyGroup
from kafkalite.model import TopicPartition
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import BrokerProcess, wait_until

pytestmark = pytest.mark.integration

TIMEOUT_S = 60
PARTITION_COUNT = 6
RECORD_COUNT = 30
"""In each partition."""
STRATEGIES = [("range",), ("cooperative-sticky",)]


@pytest.fixture(
    scope="module",
    params=["kafkalite", pytest.param("apache-kafka", marks=[pytest.mark.slow, pytest.mark.compat])],
)
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "kafkalite":
        with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=4) as broker:
            yield broker.bootstrap_servers
        return
    yield request.getfixturevalue("apache_kafka").bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """With records 0, 1, … in each partition."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Client(bootstrap) as client:
        client.admin.create_topic(name, PARTITION_COUNT)
        for partition in range(PARTITION_COUNT):
            client.produce(name, partition, [b"%d" % i for i in range(RECORD_COUNT)])
    return name


@pytest.fixture
def member(bootstrap: str, topic: str) -> Iterator[Callable[..., GroupReader]]:
    """`member(**options)`: a reader of the topic, in the group of the same name, with a separate Client."""
    made: list[Any] = []

    def make(**options: Any) -> GroupReader:
        client = Client(bootstrap)
        made.append(client)
        options = {"reset": "earliest", "heartbeat_interval_s": 0.2, "max_wait_ms": 50, **options}
        reader = client.group_reader(f"group-{topic}", options.pop("topics", topic), **options)
        made.append(reader)
        return reader

    yield make
    for each in reversed(made):
        each.close()


def share_out(*members: GroupReader, count: int = PARTITION_COUNT) -> list[list[int]]:
    """Polls until every partition has one owner and every member some; who has which."""

    def look() -> list[list[int]] | None:
        for each in members:
            each.poll(0.02)
        owned = [[key.partition for key in each.assignment] for each in members]
        return owned if all(owned) and sum(map(len, owned)) == count else None

    return wait_until(look, TIMEOUT_S, "a settled group", 0.0)


def take(reader: GroupReader, count: int) -> list[tuple[int, int]]:
    """Return (partition, offset) of at least `count` records."""
    found: list[tuple[int, int]] = []

    def enough() -> bool:
        for chunk in reader.poll(0.1):
            found.extend((chunk.partition.partition, offset) for offset in chunk.columns.offsets.tolist())
        return len(found) >= count

    wait_until(enough, TIMEOUT_S, f"{count} records", 0.0)
    return found


@pytest.mark.parametrize("assignors", STRATEGIES, ids=lambda names: names[0])
def test_members_join_and_leave(member: Callable[..., GroupReader], assignors: tuple[str, ...]) -> None:
    first = member(assignors=assignors)
    assert share_out(first) == [list(range(PARTITION_COUNT))]
    second, third = member(assignors=assignors), member(assignors=assignors)
    assert [len(owned) for owned in share_out(first, second, third)] == [2, 2, 2]
    second.close()
    assert [len(owned) for owned in share_out(first, third)] == [3, 3]


@pytest.mark.parametrize("assignors", sample([pytest.param(names, id=names[0]) for names in STRATEGIES], 1))
def test_members_share_with_one_of_the_newer_protocol(
    member: Callable[..., GroupReader], bootstrap: str, topic: str, assignors: tuple[str, ...]
) -> None:
    """The group is upgraded around them (KIP-848), and is theirs again when that one has left."""
    first, second = member(assignors=assignors), member(assignors=assignors)
    share_out(first, second)
    newer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{topic}", "group.protocol": "consumer"})
    newer.subscribe([topic])

    def shared() -> bool:
        newer.poll(0.02)
        owned = [[key.partition for key in each.assignment] for each in (first, second) if each.poll(0.02) is not None]
        owned.append([part.partition for part in newer.assignment()])
        return [len(each) for each in owned] == [2, 2, 2] and len(set().union(*owned)) == PARTITION_COUNT

    try:
        wait_until(shared, TIMEOUT_S, "a group of both protocols", 0.0)
    finally:
        newer.close()
    assert [len(owned) for owned in share_out(first, second)] == [3, 3]


def test_a_group_with_members_is_not_deleted(member: Callable[..., GroupReader], bootstrap: str, topic: str) -> None:
    share_out(member())
    with Client(bootstrap) as client, pytest.raises(NonEmptyGroup):
        client.groups.delete(f"group-{topic}")


@pytest.mark.parametrize("assignors", STRATEGIES, ids=lambda names: names[0])
def test_the_next_member_resumes_at_the_last_commit(member, topic, assignors) -> None:
    first = member(assignors=assignors)
    assert len(take(first, PARTITION_COUNT * RECORD_COUNT)) == PARTITION_COUNT * RECORD_COUNT
    first.commit({TopicPartition(topic, 0): 10})
    first.commit_async({TopicPartition(topic, 1): 20})
    first.close()
    second = member(assignors=assignors)
    seen = take(second, 20 + 10 + (PARTITION_COUNT - 2) * RECORD_COUNT)
    assert min(offset for partition, offset in seen if partition == 0) == 10
    assert min(offset for partition, offset in seen if partition == 1) == 20
    keys = [TopicPartition(topic, partition) for partition in (0, 1, 2)]
    found = second.committed(keys)
    assert [row.offset if row is not None else None for row in found.values()] == [10, 20, None]


def test_cooperative_members_read_on_while_others_come(member, topic) -> None:
    """Nothing but what moves is given up, and positions of what stays do not go back."""
    given_up: list[TopicPartition] = []
    first = member(assignors=("cooperative-sticky",), on_revoked=given_up.extend)
    take(first, PARTITION_COUNT * RECORD_COUNT)
    positions = first.positions
    second = member(assignors=("cooperative-sticky",))
    share_out(first, second)
    assert sorted(given_up) == second.assignment
    assert len(given_up) == PARTITION_COUNT // 2
    assert first.positions == {key: positions[key] for key in first.assignment}


def test_cooperative_members_commit_while_they_rejoin(bootstrap, member, topic) -> None:
    """Other members may take minutes to join, and records read meanwhile must not be delivered again."""
    first, second = (member(assignors=("cooperative-sticky",)) for _ in range(2))
    share_out(first, second)
    third = member(assignors=("cooperative-sticky",))

    def rejoins() -> bool:  # second does not poll, and so does not join
        first.poll(0.01)
        third.poll(0.01)
        return first._membership.phase == Phase.JOINING

    wait_until(rejoins, TIMEOUT_S, "the first rejoins")
    kept = first.assignment[0]
    outcomes: list[Exception | None] = []
    first.commit_async({kept: 7}, lambda _, error: outcomes.append(error))
    wait_until(lambda: first.poll(0.01) is not None and outcomes != [], TIMEOUT_S, "the commit is answered")
    assert (outcomes, first._membership.phase) == ([None], Phase.JOINING)
    with Client(bootstrap) as client:
        assert client.groups.committed(f"group-{topic}")[kept].offset == 7
    share_out(first, second, third)


def test_static_member_comes_back_without_a_rebalance(member) -> None:
    first, second = member(instance_id="one"), member(instance_id="two")
    before = share_out(first, second)
    generation = first.group_metadata.generation
    second.close()
    again = member(instance_id="two")
    assert share_out(first, again) == before
    assert first.group_metadata.generation == generation == again.group_metadata.generation


def test_a_second_member_of_the_same_instance_fences_the_first(member) -> None:
    first = member(instance_id="one")
    share_out(first)
    share_out(member(instance_id="one"))

    def poll() -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            first.poll(0.05)

    with pytest.raises(FencedInstanceId):
        poll()
    with pytest.raises(CommitFailed):
        first.commit({TopicPartition("t", 0): 1})


def test_who_does_not_poll_loses_its_partitions_and_its_commit(member, topic) -> None:
    lost: list[TopicPartition] = []
    slow = member(max_poll_interval_s=1.0, on_lost=lost.extend)
    take(slow, PARTITION_COUNT * RECORD_COUNT)
    other = member()
    share_out(other)
    with pytest.raises(CommitFailed, match="this reader is not in group"):
        slow.commit()
    share_out(slow, other)
    assert len(lost) == PARTITION_COUNT


def test_pattern_finds_topics_that_come(bootstrap, member, topic) -> None:
    reader = member(topics=re.compile(f"{topic}.*"), topics_age_max_s=0.2)
    share_out(reader)
    with Client(bootstrap) as client:
        client.admin.create_topic(f"{topic}-more", 2)
        client.admin.add_partitions(topic, PARTITION_COUNT + 1)
    wait_until(lambda: reader.poll(0.05) is not None and len(reader.assignment) == 9, TIMEOUT_S, "nine partitions")
    assert reader.subscription == (topic, f"{topic}-more")


def test_members_that_cannot_agree(member) -> None:
    first = member(assignors=("range",))
    share_out(first)
    other = member(assignors=("cooperative-sticky",))

    def poll() -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            other.poll(0.05)

    with pytest.raises(InconsistentGroupProtocol):
        poll()


@pytest.mark.parametrize("assignors", STRATEGIES, ids=lambda names: names[0])
def test_a_group_with_a_member_of_librdkafka(bootstrap, member, topic, assignors) -> None:
    """Ours leads first, then the other one, then ours again."""
    from confluent_kafka import Consumer

    ours = member(assignors=assignors)
    share_out(ours)
    theirs = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-{topic}",
            "partition.assignment.strategy": assignors[0],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
        }
    )
    theirs.subscribe([topic])

    def shared(*readers: GroupReader) -> bool:
        theirs.poll(0.05)
        for reader in readers:
            reader.poll(0.05)
        owned = [key.partition for reader in readers for key in reader.assignment]
        owned += [part.partition for part in theirs.assignment()]
        even = all(len(reader.assignment) == PARTITION_COUNT // (len(readers) + 1) for reader in readers)
        return even and sorted(owned) == list(range(PARTITION_COUNT))

    try:
        wait_until(lambda: shared(ours), TIMEOUT_S, "two members")
        ours.close()
        wait_until(shared, TIMEOUT_S, "theirs alone, leading")
        again, third = member(assignors=assignors), member(assignors=assignors)
        wait_until(lambda: shared(again, third), TIMEOUT_S, "three members, led by theirs")
    finally:
        theirs.close()
    share_out(again, third)


class Owners:
    """Who owns what, as the callbacks say."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: dict[TopicPartition, str] = {}
        self.faults: list[str] = []

    def take(self, name: str, keys: list[TopicPartition]) -> None:
        with self.lock:
            self.faults += [f"{name} took {key} of {self.owner[key]}" for key in keys if key in self.owner]
            self.owner |= dict.fromkeys(keys, name)

    def give_up(self, name: str, keys: list[TopicPartition]) -> None:
        with self.lock:
            self.faults += [f"{name} had no {key}" for key in keys if self.owner.get(key) != name]
            for key in keys:
                self.owner.pop(key, None)


@pytest.mark.parametrize("assignors", STRATEGIES, ids=lambda names: names[0])
def test_random_life_of_a_group(bootstrap, topic, assignors) -> None:
    """Members come, go and pause; each partition has one owner at a time, and what is committed is not read again."""
    owners = Owners()
    seen: dict[tuple[int, int], int] = {}
    source = random.Random(5)
    stopping = threading.Event()

    def live(name: str, lives: int, seed: int) -> None:
        own = random.Random(seed)
        for life in range(lives):
            me = f"{name}-{life}"
            with Client(bootstrap) as client:
                reader = client.group_reader(
                    f"group-{topic}",
                    topic,
                    assignors=assignors,
                    reset="earliest",
                    heartbeat_interval_s=0.1,
                    max_wait_ms=20,
                    on_assigned=lambda keys, me=me: owners.take(me, keys),
                    on_revoked=lambda keys, me=me: owners.give_up(me, keys),
                    on_lost=lambda keys, me=me: owners.faults.append(f"{me} lost {keys}"),
                )
                with reader:
                    until = time.monotonic() + own.uniform(0.2, 1.5)
                    while not stopping.is_set() and (life == lives - 1 or time.monotonic() < until):
                        for chunk in reader.poll(0.1):
                            with owners.lock:
                                for offset in chunk.columns.offsets.tolist():
                                    place = (chunk.partition.partition, offset)
                                    seen[place] = seen.get(place, 0) + 1
                        reader.commit()

    threads = [
        threading.Thread(target=live, args=(f"m{index}", 3, source.randrange(1000)), daemon=True) for index in range(4)
    ]
    for thread in threads:
        thread.start()
    everything = PARTITION_COUNT * RECORD_COUNT
    try:
        with Client(bootstrap) as client:
            for more in range(20):
                for partition in range(PARTITION_COUNT):
                    client.produce(topic, partition, [b"more %d" % more])
            wait_until(lambda: len(seen) == everything + 20 * PARTITION_COUNT, TIMEOUT_S, "every record", 0.05)
            wait_until(lambda: len(owners.owner) == PARTITION_COUNT, TIMEOUT_S, "an owner for each", 0.05)
    finally:
        stopping.set()
        for thread in threads:
            thread.join(TIMEOUT_S)
    assert owners.faults == []
    assert not any(thread.is_alive() for thread in threads)
    assert set(seen.values()) == {1}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as process:
        yield process


def test_a_broker_killed_and_restarted_under_a_group(process: BrokerProcess) -> None:
    """Members come back by themselves, with their offsets; nothing committed is read again, nothing is skipped."""
    with Client(process.bootstrap) as client:
        client.admin.create_topic("t", 2)
        for partition in (0, 1):
            client.produce("t", partition, [b"%d" % i for i in range(100)])
        options = {"reset": "earliest", "heartbeat_interval_s": 0.1, "max_wait_ms": 50}
        with Client(process.bootstrap) as own, own.group_reader("g", "t", **options) as reader:
            seen = take(reader, 200)
            reader.commit()
            process.kill()
            process.start()
            for partition in (0, 1):
                client.produce("t", partition, [b"%d" % i for i in range(100, 150)])
            later = take(reader, 100)
            reader.commit()
        assert sorted(seen + later) == [(partition, offset) for partition in (0, 1) for offset in range(150)]
        assert {row.offset for row in client.groups.committed("g").values()} == {150}
