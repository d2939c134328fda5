"""A8, F2 and F3: committed offsets over kill -9, members that come and go over kill -9, a member that was asleep."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.kit.harness import wire
from tests.kit.processes.broker import BrokerProcess, wait_until
from tests.reliability.test_killed_under_load import slow

MakeBroker = Callable[..., BrokerProcess]
PARTITION_COUNT = 4
SETTINGS = {"offsets.topic.num.partitions": "3", "group.min.session.timeout.ms": "1000"}


def consumer(broker: BrokerProcess, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 2000,
            "reconnect.backoff.max.ms": 200,
            **settings,
        }
    )


def create(broker: BrokerProcess, topic: str) -> None:
    with wire.Connection(broker.port) as connection:
        assert connection.create_topic(topic, PARTITION_COUNT) == 0


@pytest.mark.parametrize("kill_count", [2, slow(20)])
@pytest.mark.scenario("A8")
def test_acknowledged_commit_never_goes_back(make_broker: MakeBroker, seed: int, kill_count: int) -> None:
    chance = random.Random(seed)
    broker = make_broker(settings=SETTINGS)
    broker.start()
    create(broker, "t")
    partitions = [TopicPartition("t", number) for number in range(PARTITION_COUNT)]
    acknowledged = dict.fromkeys(range(PARTITION_COUNT), -1001)
    client = consumer(broker, "g")
    for _ in range(kill_count):
        until = time.monotonic() + chance.uniform(0.1, 0.5)
        count = 0
        while time.monotonic() < until or count == 0:
            number = chance.randrange(PARTITION_COUNT)
            offset = max(acknowledged[number], 0) + 1
            try:
                client.commit(offsets=[TopicPartition("t", number, offset)], asynchronous=False)
            except KafkaException:
                continue  # not acknowledged: it may be there or not
            acknowledged[number] = offset
            count += 1
        broker.kill()
        broker.start()
        found = wait_until(lambda: committed(client, partitions), 30, "the committed offsets")
        assert all(found[number] >= acknowledged[number] for number in acknowledged), (found, acknowledged)
        acknowledged.update(found)
    client.close()


def committed(client: Consumer, partitions: list[TopicPartition]) -> dict[int, int] | None:
    try:
        return {part.partition: part.offset for part in client.committed(partitions, 5)}
    except KafkaException:
        return None


@pytest.mark.parametrize("change_count", [6, slow(200)])
@pytest.mark.scenario("F2")
def test_members_come_and_go_while_the_broker_is_killed(make_broker: MakeBroker, seed: int, change_count: int) -> None:
    """After every change: one owner a partition, everything owned, within 30 seconds."""
    chance = random.Random(seed)
    broker = make_broker(settings=SETTINGS)
    broker.start()
    create(broker, "t")
    members: list[Consumer] = []

    def settled() -> bool:
        for member in members:
            member.poll(0.02)
        owned = [part.partition for member in members for part in member.assignment()]
        return sorted(owned) == list(range(PARTITION_COUNT))

    for number in range(change_count):
        what = chance.choice(["join", "join", "leave", "kill"])
        if what == "kill" and number > 0:
            broker.kill()
            broker.start()
        elif what == "leave" and len(members) > 1:
            members.pop(chance.randrange(len(members))).close()
        elif len(members) < 6:
            members.append(consumer(broker, "g"))
            members[-1].subscribe(["t"])
        wait_until(settled, 30, f"change {number} ({what}) of seed {seed}, {len(members)} members")
    for member in members:
        member.close()


@pytest.mark.parametrize("turn_count", [2, slow(50)])
@pytest.mark.scenario("F3")
def test_member_that_was_asleep_may_not_commit(make_broker: MakeBroker, turn_count: int) -> None:
    """A consumer that is not polled beyond max.poll.interval.ms leaves its group; so its late commit is refused."""
    broker = make_broker(settings=SETTINGS)
    broker.start()
    create(broker, "t")
    for turn in range(turn_count):
        group = f"g{turn}"
        sleeper = consumer(broker, group, **{"max.poll.interval.ms": 2000})
        gone: list[TopicPartition] = []
        sleeper.subscribe(["t"], on_revoke=lambda _, partitions, gone=gone: gone.extend(partitions))
        wait_until(lambda s=sleeper: s.poll(0.05) or len(s.assignment()) == PARTITION_COUNT, 30, "the first member")
        heir = consumer(broker, group)
        heir.subscribe(["t"])
        wait_until(lambda h=heir: h.poll(0.05) or len(h.assignment()) == PARTITION_COUNT, 30, "the heir")
        heir.commit(offsets=[TopicPartition("t", 0, 9)], asynchronous=False)
        with pytest.raises(KafkaException):
            sleeper.commit(offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
        assert heir.committed([TopicPartition("t", 0)], 5)[0].offset == 9
        heir.close()
        # Awake it learns of its loss and returns. (If it learns only in close(), librdkafka sometimes hangs.)
        wait_until(lambda s=sleeper, gone=gone: (s.poll(0.05), gone)[1], 30, "what the sleeper lost")
        wait_until(lambda s=sleeper: (s.poll(0.05), len(s.assignment()) == PARTITION_COUNT)[1], 30, "its return")
        sleeper.close()
