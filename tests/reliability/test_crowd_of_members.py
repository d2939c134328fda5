"""F2 at scale: fifty members join, leave and die at random. One owner a generation, nothing skipped, soon stable again.

Members run in separate processes (several members in each), so that they can be killed: a worker reads on its standard
input which member is to join or leave, and reports each assignment, with its generation, and each position it commits.
`KAFKALITE_CHURN_S` sets the duration of the changes in the slow test.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from tests.kit.checkers.ledger import Ledger
from tests.kit.checkers.transaction_ledger import Assignment, judge_ownership, judge_positions
from tests.kit.harness.load import Producers, create_topic, quiet
from tests.kit.harness.typed import TypedConnection
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, wait_until

MakeBroker = Callable[..., BrokerProcess]
GROUP = "crowd"
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
SESSION_MS = 4000


class Worker:
    """A process with some members in it."""

    def __init__(self, broker: BrokerProcess, number: int, sink: list[dict[str, Any]]) -> None:
        self.number = number
        self.members: set[str] = set()
        command = [
            sys.executable,
            "-m",
            "tests.kit.processes.group_members",
            broker.bootstrap,
            GROUP,
            "load",
            str(SESSION_MS),
        ]
        with Path(broker.directory, f"worker-{number}.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
            )
        self._reader = threading.Thread(target=self._read, args=(sink,), daemon=True)
        self._reader.start()

    def _read(self, sink: list[dict[str, Any]]) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:  # a killed worker may leave half a line
            sink.extend(json.loads(line) for line in lines if line.endswith("\n"))

    def tell(self, what: str, member: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what} {member}\n")
        (self.members.add if what == "join" else self.members.discard)(member)

    def kill(self) -> int:
        """All members of the process die; how many they were."""
        self.process.kill()
        self.close()
        count = len(self.members)
        self.members.clear()
        return count

    def close(self) -> None:
        """Its members leave, unless it was killed."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)


class Crowd:
    """Workers, what they reported, and the changes made to them."""

    def __init__(self, broker: BrokerProcess, worker_count: int, member_count_max: int, chance: random.Random) -> None:
        self.broker, self.chance, self.member_count_max = broker, chance, member_count_max
        self.events: list[dict[str, Any]] = []
        self.workers = [Worker(broker, number, self.events) for number in range(worker_count)]
        self.change_count = self.killed_count = 0
        self._next = 0

    @property
    def member_count(self) -> int:
        return sum(len(worker.members) for worker in self.workers)

    def change(self) -> None:
        """Somebody joins, leaves or dies."""
        self.change_count += 1
        what = self.chance.choices(["join", "leave", "kill"], [5, 3, 1])[0]
        number = self.chance.randrange(len(self.workers))
        if what == "kill" and self.member_count > 1:
            self.killed_count += self.workers[number].kill()
            self.workers[number] = Worker(self.broker, number, self.events)
        elif what == "leave" and len(self.workers[number].members) > 0 and self.member_count > 1:
            self.workers[number].tell("leave", self.chance.choice(sorted(self.workers[number].members)))
        else:
            self.join()

    def join(self) -> None:
        if self.member_count < self.member_count_max:
            self._next += 1
            min(self.workers, key=lambda worker: len(worker.members)).tell("join", f"m{self._next}")

    def assignments(self) -> list[Assignment]:
        found = [event for event in list(self.events) if event["event"] == "assigned"]
        return [Assignment(event["generation"], event["member"], frozenset(event["partitions"])) for event in found]

    def given(self) -> dict[int, set[int]]:
        """Offsets of each partition that some member had in its hands."""
        found: dict[int, set[int]] = defaultdict(set)
        for event in list(self.events):
            if event["event"] == "given":
                found[event["partition"]].update(range(event["first"], event["last"] + 1))
        return found


@contextmanager
def crowd(broker: BrokerProcess, *arguments: object) -> Iterator[Crowd]:
    found = Crowd(broker, *arguments)  # type: ignore[arg-type]
    try:
        yield found
    finally:
        for worker in found.workers:
            worker.close()


def state(broker: BrokerProcess) -> tuple[str, int]:
    """(state of the group, members)."""
    with TypedConnection(broker.port) as connection:
        group = connection.ask(api.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[GROUP])).groups[0]
    return group.group_state, len(group.members)


SAMPLE = pytest.param(3, 12, 8, 4.0, id="12-members")
FULL = pytest.param(
    10, 50, 100, float(os.environ.get("KAFKALITE_CHURN_S", "300")), marks=[pytest.mark.slow, pytest.mark.timeout(1800)]
)


@pytest.mark.parametrize(("worker_count", "member_count", "partition_count", "churn_s"), [SAMPLE, FULL])
@pytest.mark.scenario("F2")
def test_crowd_of_members(
    make_broker: MakeBroker, seed: int, worker_count: int, member_count: int, partition_count: int, churn_s: float
) -> None:
    chance = random.Random(seed)
    broker = make_broker(settings=SETTINGS).start()
    create_topic(broker.port, "load", partition_count)
    ledger = Ledger()
    producers = Producers(
        broker.bootstrap, "load", ledger, partition_count, producer_count=1, rate_per_s=500, seed=seed
    ).start()
    with crowd(broker, worker_count, member_count, chance) as found:
        for _ in range(member_count):
            found.join()
        wait_until(lambda: state(broker) == ("Stable", member_count), 120, "everybody in a stable group")
        until = time.monotonic() + churn_s
        while time.monotonic() < until:
            found.change()
            time.sleep(chance.uniform(0.05, 0.6))
        took_s = until_stable(broker, found)
        producers.stop()
        wait_until(lambda: lag(broker, partition_count, ledger) == 0, 120, "everything consumed", 0.2)
    final = committed(broker, partition_count)
    owners, positions = judge_ownership(found.assignments()), judge_positions(found.given(), final)
    generations = len({assignment.generation for assignment in found.assignments()})
    print(
        f"{found.change_count} changes, {found.killed_count} members killed, {generations} generations, "
        f"{ledger.acknowledged_count} records; stable {took_s:.1f} s after the last change"
    )
    assert owners, str(owners)
    assert positions, str(positions)
    assert sum(final.values()) == ledger.acknowledged_count
    assert "Traceback" not in broker.log()


def until_stable(broker: BrokerProcess, found: Crowd) -> float:
    """Seconds until the group has exactly its living members and every one its partitions."""
    began = time.monotonic()
    wait_until(lambda: state(broker) == ("Stable", found.member_count), 60, "stable after the last change", 0.05)
    return time.monotonic() - began


def committed(broker: BrokerProcess, partition_count: int) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP}, logger=quiet)
    try:
        found = consumer.committed([TopicPartition("load", number) for number in range(partition_count)], 30)
        return {part.partition: max(part.offset, 0) for part in found}
    finally:
        consumer.close()


def lag(broker: BrokerProcess, partition_count: int, ledger: Ledger) -> int:
    return ledger.acknowledged_count - sum(committed(broker, partition_count).values())


@pytest.mark.slow
@pytest.mark.parametrize("turn_count", [3, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.scenario("F2")
def test_rebalance_of_three(make_broker: MakeBroker, turn_count: int) -> None:
    """From the third member's start to a stable group of three, measured by asking the broker; printed, not judged."""
    broker = make_broker(settings=SETTINGS).start()
    create_topic(broker.port, "load", 6)
    seconds = []
    with crowd(broker, 1, 3, random.Random(1)) as found:
        for _ in range(2):
            found.join()
        wait_until(lambda: state(broker) == ("Stable", 2), 60, "two members")
        for turn in range(turn_count):
            began = time.monotonic()
            found.workers[0].tell("join", f"third-{turn}")
            wait_until(lambda: state(broker) == ("Stable", 3), 60, "three members", 0.002)
            seconds.append(time.monotonic() - began)
            found.workers[0].tell("leave", f"third-{turn}")
            wait_until(lambda: state(broker) == ("Stable", 2), 60, "two members again")
    print(f"a third member: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
    assert not judge_ownership(found.assignments()).kinds
