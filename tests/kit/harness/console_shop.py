"""A shop with some hours behind it, for pictures of the console: topics that live, groups that keep up and some that do
not, dead letters. Everything is real but the time: a clock that is wound on between the console's looks.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import random
import threading
import time
from typing import TYPE_CHECKING, Final

from kafkalite.failures import Policy, RetryTopics, run
from kafkalite.failures.retry_strategies import Limit
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.client import Client
    from kafkalite.client.group.group_reader import GroupReader
    from kafkalite.client.write.producer import Producer
    from kafkalite.console.sampler import Sampler

TOPICS: Final = {"orders": 6, "payments": 3, "shipments": 3, "clicks": 6, "stock-levels": 2, "returns": 1, "mails": 1}
STEPS: Final = 720
STEP_MS: Final = 5000
COMMITTERS: Final = {
    "fraud-check": ("orders",),
    "warehouse": ("orders", "payments", "returns"),
    "analytics": ("clicks",),
    "search-index": ("stock-levels",),
}
CITIES: Final = ("Lisbon", "Oslo", "Ghent", "Turin", "Brno", "Cork")
EVENT: Final = "order-4711"


def fill_shop(client: Client) -> None:
    """Topics, and what is in them at the beginning: an order that went wrong among them."""
    for name, partitions in TOPICS.items():
        configs = {"cleanup.policy": "compact"} if name == "stock-levels" else {"retention.ms": "604800000"}
        client.admin.create_topic(name, partitions, configs=configs)
    now = int(time.time() * 1000)
    client.groups.commit("fraud-check", dict.fromkeys(keys_of("payments", TOPICS["payments"]), 10_000))
    for number in range(9):
        document = {"order": f"order-{number}", "customer": f"c-{number}", "city": "Cork", "total": 4 + number / 10}
        record = Record(-1, now - 120_000 + 5000 * number, b"c-%d" % number, json.dumps(document).encode())
        client.produce("payments", number % 3, [record])
    for name, after in (("orders", 0), ("payments", 1300), ("mails", 1900)):
        document = {"order": EVENT, "customer": "c-2208", "city": "Ghent", "total": 59.9, "kind": name}
        headers = (("correlation-id", EVENT.encode()), ("source", b"shop"))
        record = Record(-1, now - 90_000 + after, b"c-2208", json.dumps(document).encode(), headers)
        client.produce(name, 0, [record])


def fail_some(servers: str) -> None:
    """The group billing works off the first payments, of which some are no good and some wait for another try."""
    stop, seen = threading.Event(), set[bytes]()

    def handle(message: object) -> None:
        value = getattr(message, "value", b"") or b""
        seen.add(value)
        if len(seen) == 10:
            threading.Timer(1.5, stop.set).start()
        if b"order-4711" in value or b'"total": 4.0' in value or b'"total": 4.3' in value:
            raise ValueError("the card was declined: no such account")
        if b'"total": 4.5' in value:
            raise TimeoutError("the bank did not answer in 2 s")

    policy = Policy(
        group="billing",
        topics=["payments"],
        strategy=RetryTopics(["10 s", "10 min"], dead_letters=True),
        fatal=[ValueError],
        after=["fraud-check"],
        limit=Limit(ratio=0.9, over="1 min", least=500),
    )
    threading.Timer(45, stop.set).start()
    run(policy, handle, servers, stop=stop)


@contextlib.contextmanager
def lived(client: Client, sampler: Sampler, rng: random.Random, steps: int = STEPS) -> Iterator[None]:
    """Sample `steps` times, the last time about now; the members stay until the end."""
    begin = int(time.time() * 1000) - steps * STEP_MS
    known = client.topics()
    ends = {
        key: client.end_offset(*key) for name, count in TOPICS.items() if name in known for key in keys_of(name, count)
    }
    commits: dict[tuple[str, TopicPartition], int] = {}
    with members(client) as readers, client.producer() as producer:
        for step in itertools.count():
            if begin + step * STEP_MS > time.time() * 1000:  # it has caught up with the clock
                break
            for name, partitions in TOPICS.items():
                write(producer, rng, name, partitions, step, ends)
            producer.flush()
            for group, topics in COMMITTERS.items():
                moved = {}
                for key, end in ends.items():
                    if key.topic in topics:
                        at = commits.get((group, key), 0)
                        commits[group, key] = moved[key] = min(end, at + pace(group, step, end - at, rng))
                if group == "warehouse":
                    client.groups.commit(group, moved)
                else:
                    readers[group].commit(moved, timeout_s=10)
            sampler.sample(begin + step * STEP_MS)
        yield


def pace(group: str, step: int, lag: int, rng: random.Random) -> int:
    """How many records of a partition a group reads in a step."""
    match group:
        case "warehouse":
            return 0 if 200 < step < 420 else max(lag // 12, 4)
        case "analytics":
            return max(lag // 9, 6) if step < 520 else rng.randrange(3, 8)
        case "search-index":
            return lag if step < 560 else 0
        case _:
            return max(lag - rng.randrange(4), 0)


def write(
    producer: Producer, rng: random.Random, name: str, partitions: int, step: int, ends: dict[TopicPartition, int]
) -> None:
    """What comes in during a step: more by day than by night, so to speak."""
    tide = 1 + 0.6 * math.sin(step / 90) + 0.15 * math.sin(step / 7)
    weight = {"orders": 8, "payments": 4, "clicks": 14, "stock-levels": 3}.get(name, 1)
    for partition in range(partitions):
        count = max(int(weight * tide + rng.random() * 2), 0)
        if not count:
            continue
        values = [
            json.dumps(
                {
                    "order": f"order-{rng.randrange(5000, 99_999)}",
                    "customer": f"c-{rng.randrange(3000)}",
                    "city": rng.choice(CITIES),
                    "total": round(rng.random() * 90, 2),
                }
            ).encode()
            for _ in range(count)
        ]
        now = int(time.time() * 1000)
        records = [Record(-1, now, b"c-%d" % rng.randrange(3000), value) for value in values]
        producer.send(name, partition, records)
        key = TopicPartition(name, partition)
        ends[key] = ends.get(key, 0) + count


def keys_of(topic: str, count: int) -> list[TopicPartition]:
    """Its partitions."""
    return [TopicPartition(topic, number) for number in range(count)]


@contextlib.contextmanager
def members(client: Client) -> Iterator[dict[str, GroupReader]]:
    """A member of each group that has some, joined."""
    with contextlib.ExitStack() as stack:
        readers = {}
        for group, topics in COMMITTERS.items():
            if group == "warehouse":
                continue
            reader = stack.enter_context(client.twin().group_reader(group, list(topics), reset="earliest"))
            deadline = time.monotonic() + 30
            while not reader.assignment and time.monotonic() < deadline:
                reader.poll(0.1)
            readers[group] = reader
        yield readers
