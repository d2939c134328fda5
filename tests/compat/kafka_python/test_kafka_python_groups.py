"""kafka-python 3 in consumer groups: polled by one thread, and by a thread each.

A member asks for its topic's partitions before it first polls. Otherwise its join may overtake the topic's metadata,
and a `poll` that times out during the second join that follows loses the assignment for good (FINDINGS.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from tests.compat.kafka_python.reach import kafka_python_at
from tests.compat.kafka_python.test_kafka_python import admin, produce
from tests.compat.records import plain
from tests.kit.processes.broker import wait_until

__all__ = ["admin"]

TIMEOUT_S = 30


@pytest.fixture
def filled(bootstrap: str, topic: str, admin: KafkaAdminClient) -> str:
    """A topic of 2 partitions with 20 records in the first."""
    admin.create_topics([NewTopic(topic, 2, 1)])
    produce(bootstrap, topic, plain(20))
    return topic


@pytest.fixture
def member(bootstrap: str, filled: str) -> Iterator[Callable[[], KafkaConsumer]]:
    """`member()`: a consumer subscribed to the topic in a group of the topic's name."""
    made: list[KafkaConsumer] = []

    def make() -> KafkaConsumer:
        consumer = KafkaConsumer(
            filled,
            **kafka_python_at(bootstrap),
            group_id=f"group-{filled}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )
        made.append(consumer)
        assert consumer.partitions_for_topic(filled) == {0, 1}
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def share_out(*members: KafkaConsumer) -> None:
    """Polls until every partition has one owner and every member some."""

    def settled() -> bool:
        for each in members:
            each.poll(timeout_ms=100)
        owned = [len(each.assignment()) for each in members]
        return all(owned) and sum(owned) == 2

    wait_until(settled, TIMEOUT_S, "a settled group")


def offsets(consumer: KafkaConsumer, count: int) -> list[int]:
    """Offsets of the next records."""
    found: list[int] = []

    def enough() -> bool:
        found.extend(row.offset for rows in consumer.poll(timeout_ms=200).values() for row in rows)
        return len(found) >= count

    wait_until(enough, TIMEOUT_S, f"{count} records")
    return found


@pytest.mark.capability("groups")
def test_members_join_leave_and_commit(
    member: Callable[[], KafkaConsumer], filled: str, admin: KafkaAdminClient
) -> None:
    partition = TopicPartition(filled, 0)
    first = member()
    assert offsets(first, 20) == list(range(20))
    first.commit({partition: OffsetAndMetadata(17, "note", -1)})
    second = member()
    share_out(first, second)
    assert [group["group_state"] for group in admin.describe_groups([f"group-{filled}"]).values()] == ["Stable"]
    first.close()
    share_out(second)
    assert second.assignment() == {partition, TopicPartition(filled, 1)}
    assert second.committed(partition, metadata=True) == OffsetAndMetadata(17, "note", -1)
    second.seek(partition, 7)
    assert offsets(second, 13) == list(range(7, 20))


@pytest.mark.capability("groups")
def test_members_polled_by_threads_of_their_own(member: Callable[[], KafkaConsumer]) -> None:
    """Made in one thread and polled in another, as servers do."""
    ended = threading.Event()
    first, second = member(), member()

    def poll(consumer: KafkaConsumer) -> None:
        while not ended.is_set():
            consumer.poll(timeout_ms=100)

    threads = [threading.Thread(target=poll, args=(consumer,)) for consumer in (first, second)]
    for thread in threads:
        thread.start()
    try:
        owned = [set(), set()]

        def settled() -> bool:
            owned[:] = [set(first.assignment()), set(second.assignment())]
            return all(owned) and not owned[0] & owned[1]

        wait_until(settled, TIMEOUT_S, "one partition each")
    finally:
        ended.set()
        for thread in threads:
            thread.join(TIMEOUT_S)
