"""Readers from any offset while segments roll and are deleted: what they are given is what was written there."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.errors import ErrorCode
from tests.kit.harness import wire
from tests.kit.harness.load import create_topic
from tests.kit.processes.broker import BrokerProcess, wait_until

MakeBroker = Callable[..., BrokerProcess]
FETCHES = [pytest.param(2_000, id="2000"), pytest.param(200_000, id="200000", marks=pytest.mark.slow)]


@pytest.mark.parametrize("fetch_count", FETCHES)
@pytest.mark.scenario("F5")
def test_readers_from_any_offset_while_segments_roll_and_go(
    make_broker: MakeBroker, seed: int, fetch_count: int
) -> None:
    """The value of each record says its offset; a reader may get that record, a gap at the front, or error 1."""
    settings = {"log.retention.check.interval.ms": "50"}
    broker = make_broker(settings=settings).start()
    configs = {"segment.bytes": "20000", "retention.bytes": "200000", "file.delete.delay.ms": "10"}
    create_topic(broker.port, "rolling", 1, configs)
    stopping, written, problems = threading.Event(), [0], []

    def write() -> None:
        chance = random.Random(seed)
        with wire.Connection(broker.port) as connection:
            while not stopping.is_set():
                count = chance.randint(1, 30)
                rows = [wire.Record(None, b"%d" % (written[0] + number)) for number in range(count)]
                rows[0] = rows[0]._replace(key=b"k" * chance.randint(0, 2000))
                answer = connection.produce("rolling", 0, wire.batch_of(rows))
                if answer.error or answer.base_offset != written[0]:
                    problems.append(f"produce at {written[0]}: {answer}")
                    return
                written[0] += count

    writer = threading.Thread(target=write)
    writer.start()
    outcomes = {"data": 0, "empty": 0, "out of range": 0}
    try:
        chance = random.Random(seed + 1)
        with wire.Connection(broker.port) as connection:
            for number in range(fetch_count):
                outcomes[fetch_once(connection, chance, written[0])] += 1
                if number % 20 == 0:
                    timestamp = int(time.time() * 1000) - chance.randint(0, 3000)
                    assert connection.list_offset("rolling", 0, timestamp)[0] == 0
            start = connection.list_offset("rolling", 0, -2)[2]
    finally:
        stopping.set()
        writer.join()
    assert not problems, problems
    assert start > 0, "retention deleted nothing: the test showed nothing"
    assert outcomes["data"] > fetch_count // 10, outcomes
    wait_until(lambda: not held_but_deleted(broker), 10, "descriptors of deleted segments")
    assert broker.alive


def held_but_deleted(broker: BrokerProcess) -> list[str]:
    """Files without a name that the broker still keeps the space of."""
    links = []
    for descriptor in Path(f"/proc/{broker.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(descriptor))
    return [link for link in links if link.endswith("(deleted)")]


def fetch_once(connection: wire.Connection, chance: random.Random, end: int) -> str:
    start = connection.list_offset("rolling", 0, -2)[2] if chance.random() < 0.2 else max(0, end - 8000)
    offset = chance.randint(start, end + 1)
    answer = connection.fetch("rolling", 0, offset, partition_max_bytes=chance.choice([1, 1000, 100_000]))
    if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
        return "out of range"
    assert answer.error == 0, answer.error
    assert answer.log_start_offset <= offset, (answer.log_start_offset, offset)
    rows = []
    for found in wire.split_batches(answer.records):
        assert found.crc_is_right
        rows += wire.decode_records(found)
    if not rows:
        return "empty"
    assert rows[0][0] <= offset <= rows[-1][0], (rows[0][0], offset, rows[-1][0])
    for at, _, value in rows:
        assert value == b"%d" % at, (at, value)
    return "data"
