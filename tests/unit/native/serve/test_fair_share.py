"""What an answer holds of each of several partitions: shares at the end of the logs, and everything in bulk."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from kafkalite._native.serve.fair_share import measured, shared_at
from kafkalite.errors import ErrorCode
from tests.kit.harness import wire
from tests.kit.harness.fetch_harness import Client, FetchHarness, Wanted, fetch_frame, partitions_of
from tests.kit.harness.log_harness import make_batch

RUN_MAX = 120
SHARE = 60
PARTITIONS = 3
VERSION = 12
FINAL, OPEN = (0, -1), (0, 0)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[FetchHarness]:
    harness = FetchHarness(tmp_path / "data", request_partitions_max=3000, partitions_max=3000)
    harness.logs.create_topic("a", PARTITIONS, {})
    yield harness
    harness.close()


@pytest.fixture
def client(harness: FetchHarness) -> Client:
    return harness.client()


def produce(harness: FetchHarness, partition: int, batches: int, records: int = 1) -> None:
    log = harness.logs.topics["a"].partitions[partition]
    for _ in range(batches):
        log.append(make_batch(records))


def record_counts(answer: object) -> dict[int, int]:
    """How many records of each partition an answer holds, in its order."""
    return {
        key[1]: sum(batch.next_offset - batch.base_offset for batch in wire.split_batches(part.records))
        for key, part in partitions_of(answer).items()
        if part.records
    }


class Drain:
    """Reads to the end of all partitions with a session, and notes what came in which order."""

    def __init__(self, client: Client, **limits: int) -> None:
        self.order: list[int] = []
        self.answers = 0
        offsets = dict.fromkeys(range(PARTITIONS), 0)
        answer = client.fetch(VERSION, OPEN, *self._wanted(offsets, offsets), **limits)
        session = answer.session_id
        while counts := record_counts(answer):
            self.answers += 1
            for partition, count in counts.items():
                self.order += [partition] * count
                offsets[partition] += count
            answer = client.fetch(VERSION, (session, self.answers), *self._wanted(offsets, counts), **limits)

    @property
    def runs(self) -> list[int]:
        return [len(list(group)) for _, group in groupby(self.order)]

    @staticmethod
    def _wanted(offsets: dict[int, int], partitions: dict[int, int]) -> list[Wanted]:
        return [Wanted(("a", each), offsets[each]) for each in sorted(partitions)]


def test_small_batches_of_several_partitions_come_in_turns(harness: FetchHarness, client: Client) -> None:
    for partition in range(PARTITIONS):
        produce(harness, partition, 500)
    drain = Drain(client)
    assert [drain.order.count(each) for each in range(PARTITIONS)] == [500] * PARTITIONS
    assert set(drain.runs[:-PARTITIONS]) == {SHARE}
    assert max(drain.runs) <= RUN_MAX


def test_uneven_partitions_come_in_turns(harness: FetchHarness, client: Client) -> None:
    for partition, count in enumerate((40, 300, 150)):
        produce(harness, partition, count)
    drain = Drain(client)
    assert drain.order == (
        [0] * 40 + [1] * 60 + [2] * 60  # the first partition has no more
        + [1] * 60 + [2] * 60
        + [1] * 60 + [2] * 30
        + [1] * 120  # in two answers: others may have records by then
    )  # fmt: skip
    assert drain.answers == 5


def test_a_request_for_one_partition_is_answered_whole(harness: FetchHarness, client: Client) -> None:
    produce(harness, 1, 500)
    assert record_counts(client.fetch(VERSION, FINAL, Wanted(("a", 1)))) == {1: 500}
    every = [Wanted(("a", each)) for each in range(PARTITIONS)]
    assert record_counts(client.fetch(VERSION, FINAL, *every)) == {1: SHARE}


def test_bulk_reads_are_answered_whole(harness: FetchHarness, client: Client) -> None:
    for partition in range(PARTITIONS):
        produce(harness, partition, 4200)
    every = [Wanted(("a", each)) for each in range(PARTITIONS)]
    assert record_counts(client.fetch(VERSION, FINAL, *every)) == {0: 4200, 1: 4200, 2: 4200}
    tail = [Wanted(("a", each), 200) for each in range(PARTITIONS)]
    assert record_counts(client.fetch(VERSION, FINAL, *tail)) == {0: SHARE, 1: SHARE, 2: SHARE}


def test_batches_of_many_records_are_sixteen_at_least(harness: FetchHarness, client: Client) -> None:
    for partition in range(PARTITIONS):
        produce(harness, partition, 20, 50)
    every = [Wanted(("a", each)) for each in range(PARTITIONS)]
    assert record_counts(client.fetch(VERSION, FINAL, *every)) == {0: 800, 1: 800, 2: 800}


def test_a_client_that_waits_for_many_bytes_is_answered_whole(harness: FetchHarness, client: Client) -> None:
    for partition in range(PARTITIONS):
        produce(harness, partition, 500)
    every = [Wanted(("a", each)) for each in range(PARTITIONS)]
    assert record_counts(client.fetch(VERSION, FINAL, *every, size_min=2)) == {0: 500, 1: 500, 2: 500}


def test_a_client_far_away_is_answered_whole() -> None:
    assert shared_at(0) == shared_at(50) == 4096
    assert shared_at(1_000) == 1200  # one millisecond of twenty for each share
    assert shared_at(20_000) == SHARE  # the share is no bound: a partition with a share left gives it anyway
    assert shared_at(100_000) < SHARE


def test_the_round_trip_is_the_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"?")
            accepted.recv(1)
            rtt_us, left_max = measured(client.fileno())
            assert rtt_us > 0
            assert left_max == shared_at(rtt_us)
    assert measured(-1) == (0, 4096)


def test_limits_of_the_client_come_first(harness: FetchHarness, client: Client) -> None:
    size = len(make_batch())
    for partition in range(PARTITIONS):
        produce(harness, partition, 500)
    every = [Wanted(("a", each), size_max=20 * size) for each in range(PARTITIONS)]
    assert record_counts(client.fetch(VERSION, FINAL, *every)) == {0: 20, 1: 20, 2: 20}
    every = [Wanted(("a", each), 7) for each in range(PARTITIONS)]
    assert record_counts(client.fetch(VERSION, FINAL, *every, size_max=10 * size)) == {0: 10}


def test_an_offset_inside_of_a_batch_begins_with_that_batch(harness: FetchHarness, client: Client) -> None:
    for partition in range(PARTITIONS):
        produce(harness, partition, 300, 3)
    every = [Wanted(("a", each), 1) for each in range(PARTITIONS)]
    answer = client.fetch(VERSION, FINAL, *every)
    assert record_counts(answer) == {0: 60, 1: 60, 2: 60}
    assert all(wire.split_batches(part.records)[0].base_offset == 0 for part in partitions_of(answer).values())


def test_a_parked_fetch_is_answered_in_shares(harness: FetchHarness, client: Client) -> None:
    client.send(fetch_frame(VERSION, FINAL, [Wanted(("a", each)) for each in range(PARTITIONS)], wait_ms=1000))
    for partition in range(PARTITIONS):
        produce(harness, partition, 200)
    harness.settle()
    assert record_counts(client.receive(VERSION)) == {0: SHARE, 1: SHARE, 2: SHARE}


def test_a_fetch_that_takes_turns_is_answered_in_shares(harness: FetchHarness, client: Client) -> None:
    harness.logs.create_topic("many", 1100, {})
    for partition in range(PARTITIONS):
        produce(harness, partition, 200)
    wanted = [Wanted(("many", each)) for each in range(1100)] + [Wanted(("a", each)) for each in range(PARTITIONS)]
    assert record_counts(client.fetch(VERSION, FINAL, *wanted)) == {0: SHARE, 1: SHARE, 2: SHARE}


def test_errors_of_others_do_not_end_the_turns(harness: FetchHarness, client: Client) -> None:
    for partition in range(PARTITIONS):
        produce(harness, partition, 200)
    answer = client.fetch(VERSION, FINAL, Wanted(("a", 0)), Wanted(("nobody", 0)), Wanted(("a", 2)))
    assert record_counts(answer) == {0: SHARE, 2: SHARE}
    assert partitions_of(answer)["nobody", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
