"""F2 with members of both group protocols: fifty join, leave and die at random, and so does the broker.

In the end the group settles, nothing was skipped, and all that was written is committed. `KAFKALITE_CHURN_S` sets
the duration of the changes in the long test.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkalite.client import Client
from kafkalite.errors import KafkaError
from tests.kit.checkers.ledger import Ledger
from tests.kit.checkers.transaction_ledger import judge_positions
from tests.kit.harness.load import Producers, create_topic, quiet
from tests.kit.processes.broker import BrokerProcess, wait_until
from tests.reliability.test_crowd_of_members import GROUP, SESSION_MS, SETTINGS, Crowd, committed

MakeBroker = Callable[..., BrokerProcess]
NEWER = {
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "300",
}
SETTLES_S = 120


class MixedCrowd(Crowd):
    """Half of those who join speak the newer protocol."""

    def join(self) -> None:
        if self.member_count < self.member_count_max:
            self._next += 1
            name = f"{self.chance.choice(['newer', 'm'])}{self._next}"
            min(self.workers, key=lambda worker: len(worker.members)).tell("join", name)


def settled(broker: BrokerProcess, found: Crowd) -> bool:
    """Whether the living members share everything, as the broker sees it."""
    try:
        with Client(broker.bootstrap) as client:
            group = client.groups.describe(GROUP)
    except (KafkaError, OSError):
        return False
    return group.state == "Stable" and len(group.members) == found.member_count


def all_committed(broker: BrokerProcess, partition_count: int) -> bool:
    """Whether the group is at the end of each partition."""
    at = committed(broker, partition_count)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "looking"}, logger=quiet)
    try:
        ends = {n: consumer.get_watermark_offsets(TopicPartition("load", n), 30)[1] for n in range(partition_count)}
    finally:
        consumer.close()
    return at == ends


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.scenario("F2")
@pytest.mark.parametrize(
    ("worker_count", "member_count", "partition_count", "churn_s", "kill_every_s"),
    [
        pytest.param(3, 12, 8, 15.0, 5.0, id="12-members"),
        pytest.param(10, 50, 100, float(os.environ.get("KAFKALITE_CHURN_S", "300")), 30.0, id="50-members"),
    ],
)
def test_crowd_of_both_protocols(
    make_broker: MakeBroker,
    seed: int,
    worker_count: int,
    member_count: int,
    partition_count: int,
    churn_s: float,
    kill_every_s: float,
) -> None:
    chance = random.Random(seed)
    broker = make_broker(settings={**SETTINGS, **NEWER}).start()
    create_topic(broker.port, "load", partition_count)
    ledger = Ledger()
    producers = Producers(
        broker.bootstrap, "load", ledger, partition_count, producer_count=1, rate_per_s=300, seed=seed
    ).start()
    crowd = MixedCrowd(broker, worker_count, member_count, chance)
    kill_count = 0
    try:
        for _ in range(member_count):
            crowd.join()
        wait_until(lambda: settled(broker, crowd), SETTLES_S, "everybody in a settled group", 0.5)
        until = time.monotonic() + churn_s
        kill_at = time.monotonic() + kill_every_s
        while time.monotonic() < until:
            crowd.change()
            if time.monotonic() > kill_at:
                broker.kill()
                broker.start()
                kill_count += 1
                kill_at = time.monotonic() + kill_every_s
            time.sleep(chance.uniform(0.05, 0.6))
        wait_until(lambda: settled(broker, crowd), SETTLES_S, "a settled group after the last change", 0.5)
        producers.stop()
        wait_until(lambda: all_committed(broker, partition_count), SETTLES_S, "everything consumed", 0.5)
    finally:
        for worker in crowd.workers:
            worker.close()
    final = committed(broker, partition_count)
    print(
        f"{crowd.change_count} changes, {crowd.killed_count} members killed, {kill_count} kills of the broker, "
        f"{ledger.acknowledged_count} records acknowledged, {sum(final.values())} committed"
    )
    positions = judge_positions(crowd.given(), final)
    assert positions, str(positions)
    assert sum(final.values()) >= ledger.acknowledged_count
    assert "Traceback" not in broker.log()
