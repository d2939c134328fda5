"""confluent-kafka (librdkafka, current) in groups of the newer protocol (KIP-848), over kills of the broker too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.addresses import librdkafka_at
from tests.compat.confluent.test_confluent import produce
from tests.compat.records import plain
from tests.kit.processes.broker import BrokerProcess, wait_until

TIMEOUT_S = 60
PARTITION_COUNT = 4
RECORD_COUNT = 40


def share_out(*members: Consumer) -> list[set[int]]:
    """Polls until every partition has one owner and every member some; who has which."""

    def look() -> list[set[int]] | None:
        for each in members:
            each.poll(0.05)
        owned = [{part.partition for part in each.assignment()} for each in members]
        return owned if all(owned) and sum(map(len, owned)) == PARTITION_COUNT else None

    return wait_until(look, TIMEOUT_S, "a settled group")


class Members:
    """Consumers of one group; closed in the end."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.made: list[Consumer] = []

    def __call__(self, **settings: object) -> Consumer:
        consumer = Consumer(
            {
                **librdkafka_at(self.bootstrap),
                "group.id": f"group-{self.topic}",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        consumer.subscribe([self.topic])
        self.made.append(consumer)
        return consumer

    def close(self) -> None:
        for consumer in self.made:
            consumer.close()


@pytest.fixture
def member(bootstrap: str, topic: str) -> Iterator[Members]:
    """`member(**settings)`: a consumer of a topic of 4 partitions with records in the first."""
    admin = AdminClient(librdkafka_at(bootstrap))
    for future in admin.create_topics([NewTopic(topic, PARTITION_COUNT, 1)]).values():
        future.result(TIMEOUT_S)
    produce(bootstrap, topic, plain(RECORD_COUNT))
    members = Members(bootstrap, topic)
    yield members
    members.close()


@pytest.mark.capability("groups")
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_join_and_leave(member: Members, assignor: str) -> None:
    first = member(**{"group.remote.assignor": assignor})
    assert share_out(first) == [set(range(PARTITION_COUNT))]
    second = member(**{"group.remote.assignor": assignor})
    assert sorted(map(len, share_out(first, second))) == [2, 2]
    third = member(**{"group.remote.assignor": assignor})
    assert sorted(map(len, share_out(first, second, third))) == [1, 1, 2]
    second.close()
    assert sorted(map(len, share_out(first, third))) == [2, 2]
    first.close()
    assert share_out(third) == [set(range(PARTITION_COUNT))]


def test_commits_are_found_again(member: Members) -> None:
    first = member()
    share_out(first)
    first.commit(offsets=[TopicPartition(member.topic, 0, 25)], asynchronous=False)
    first.close()
    second = member()
    message = wait_until(lambda: second.poll(0.05), TIMEOUT_S, "a record")
    assert (message.error(), message.offset()) == (None, 25)


def test_static_member_keeps_its_place(member: Members) -> None:
    first, second = member(**{"group.instance.id": "a"}), member(**{"group.instance.id": "b"})
    had = share_out(first, second)[1]
    second.close()
    third = member(**{"group.instance.id": "b"})
    assert share_out(first, third)[1] == had


def test_described_and_listed(member: Members) -> None:
    first = member()
    share_out(first)
    admin = AdminClient(librdkafka_at(member.bootstrap))
    group_id = f"group-{member.topic}"
    described = admin.describe_consumer_groups([group_id])[group_id].result(TIMEOUT_S)
    assert (described.type, described.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
    assert [len(row.assignment.topic_partitions) for row in described.members] == [PARTITION_COUNT]
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(TIMEOUT_S)
    assert group_id in {row.group_id for row in listed.valid}


def test_an_empty_group_changes_its_protocol(member: Members) -> None:
    classic = {"group.protocol": "classic"}
    for settings in (classic, {}, classic):
        consumer = member(**settings)
        share_out(consumer)
        (committed,) = consumer.committed([TopicPartition(member.topic, 1)], TIMEOUT_S)
        consumer.commit(offsets=[TopicPartition(member.topic, 1, max(committed.offset, 0) + 1)], asynchronous=False)
        consumer.close()
    (committed,) = member().committed([TopicPartition(member.topic, 1)], TIMEOUT_S)
    assert committed.offset == 3


def test_a_group_continues_when_the_broker_is_killed(tmp_path: Path) -> None:
    """Members stay members, and what was committed stays committed."""
    settings = {"group.consumer.heartbeat.interval.ms": "300", "num.partitions": str(PARTITION_COUNT)}
    broker = BrokerProcess(tmp_path, settings)
    broker.start()
    members = Members(broker.bootstrap, "orders")
    try:
        produce(broker.bootstrap, "orders", plain(RECORD_COUNT))
        first, second = members(), members(**{"group.instance.id": "a"})
        had = share_out(first, second)
        first.commit(offsets=[TopicPartition("orders", 0, 25)], asynchronous=False)
        broker.kill()
        broker.start()
        assert share_out(first, second) == had
        third = members()
        assert sorted(map(len, share_out(first, second, third))) == [1, 1, 2]
        (committed,) = first.committed([TopicPartition("orders", 0)], TIMEOUT_S)
        assert committed.offset == 25
    finally:
        members.close()
        broker.stop()
