"""confluent-kafka (librdkafka, current) in consumer groups: rebalances, commits, seeking, administration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.addresses import librdkafka_at
from tests.compat.confluent.test_confluent import produce, take
from tests.compat.records import plain
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import wait_until

TIMEOUT_S = 30
PARTITION_COUNT = 4
RECORD_COUNT = 40


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient(librdkafka_at(bootstrap))


@pytest.fixture
def filled(bootstrap: str, topic: str, admin: AdminClient) -> str:
    """A topic of 4 partitions with records in the first."""
    for future in admin.create_topics([NewTopic(topic, PARTITION_COUNT, 1)]).values():
        future.result(TIMEOUT_S)
    produce(bootstrap, topic, plain(RECORD_COUNT))
    return topic


@pytest.fixture
def member(bootstrap: str, filled: str) -> Iterator[Callable[..., Consumer]]:
    """`member(**settings)`: a consumer subscribed to the topic in a group of the topic's name."""
    made: list[Consumer] = []

    def make(**settings: object) -> Consumer:
        wanted = {
            **librdkafka_at(bootstrap),
            "group.id": f"group-{filled}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 300,
            **settings,
        }
        consumer = Consumer({key: value for key, value in wanted.items() if value is not None})
        consumer.subscribe([filled])
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def share_out(*members: Consumer) -> list[set[int]]:
    """Polls until every partition has one owner and every member some; who has which."""

    def look() -> list[set[int]] | None:
        for each in members:
            each.poll(0.05)
        owned = [{part.partition for part in each.assignment()} for each in members]
        return owned if all(owned) and sum(map(len, owned)) == PARTITION_COUNT else None

    return wait_until(look, TIMEOUT_S, "a settled group")


@pytest.mark.capability("groups")
@pytest.mark.parametrize("strategy", sample(["cooperative-sticky", "range", "roundrobin"], 2))
def test_members_join_and_leave(member: Callable[..., Consumer], strategy: str) -> None:
    settings = {"partition.assignment.strategy": strategy}
    first = member(**settings)
    assert share_out(first) == [set(range(PARTITION_COUNT))]
    second = member(**settings)
    assert sorted(map(len, share_out(first, second))) == [2, 2]
    third = member(**settings)
    assert sorted(map(len, share_out(first, second, third))) == [1, 1, 2]
    second.close()
    assert sorted(map(len, share_out(first, third))) == [2, 2]


@pytest.mark.capability("groups")
def test_commits_are_found_again(member: Callable[..., Consumer], filled: str) -> None:
    first = member()
    assert len(take(first, 15)) == 15
    (committed,) = [part for part in first.commit(asynchronous=False) if part.offset >= 0]
    assert (committed.partition, committed.offset, committed.error) == (0, 15, None)
    first.close()
    second = member()
    assert take(second, 1)[0].offset() == 15
    found = second.committed([TopicPartition(filled, number) for number in range(2)], TIMEOUT_S)
    assert [part.offset for part in found] == [15, -1001]
    second.seek(TopicPartition(filled, 0, 3))
    assert take(second, 1)[0].offset() == 3


@pytest.mark.capability("groups")
def test_static_member_comes_back_without_a_rebalance(member: Callable[..., Consumer]) -> None:
    first = member(**{"group.instance.id": "one"})
    second = member(**{"group.instance.id": "two"})
    before = share_out(first, second)
    second.close()  # static members do not leave
    again = member(**{"group.instance.id": "two"})
    assert share_out(first, again) == before


@pytest.mark.capability("admin")
def test_administration(admin: AdminClient, member: Callable[..., Consumer], filled: str) -> None:
    group = f"group-{filled}"
    consumer = member()
    share_out(consumer)
    take(consumer, 10)
    consumer.commit(asynchronous=False)
    listed = {row.group_id: row for row in admin.list_consumer_groups().result(TIMEOUT_S).valid}
    assert listed[group].state.name == "STABLE"
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert described.state.name == "STABLE"
    (only,) = described.members
    assert {part.partition for part in only.assignment.topic_partitions} == set(range(PARTITION_COUNT))
    with pytest.raises(KafkaException):
        admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    consumer.close()
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(filled, 0, 4)])
    admin.alter_consumer_group_offsets([asked])[group].result(TIMEOUT_S)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(TIMEOUT_S)
    assert [(part.partition, part.offset) for part in found.topic_partitions] == [(0, 4)]
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert group not in {row.group_id for row in admin.list_consumer_groups().result(TIMEOUT_S).valid}


@pytest.mark.capability("groups")
def test_auto_commit(member: Callable[..., Consumer], filled: str) -> None:
    consumer = member(**{"enable.auto.commit": True, "auto.commit.interval.ms": 100})
    take(consumer, RECORD_COUNT)

    def committed() -> bool:
        consumer.poll(0.05)
        return consumer.committed([TopicPartition(filled, 0)], TIMEOUT_S)[0].offset == RECORD_COUNT

    began = time.monotonic()
    wait_until(committed, TIMEOUT_S, f"the automatic commit since {began}")
