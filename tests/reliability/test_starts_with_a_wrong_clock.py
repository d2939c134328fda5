"""G1, over restarts: a broker that is started with a wrong clock deletes nothing early and keeps nothing forever."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkalite.broker.log import files
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kafkalite.wire.protocol.messages.list_transactions import ListTransactionsRequest
from tests.kit.harness import wire
from tests.kit.harness.load import create_topic, quiet
from tests.kit.harness.scrape import ask
from tests.kit.harness.typed import TypedConnection
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until
from tests.reliability.test_clock_jumps_and_pauses import (
    HOUR_S,
    FakeTime,
    commit_and_leave,
    committed,
    write_segments,
)

DAY_S = 24 * HOUR_S
SEGMENTS = 6
SETTINGS = {
    "log.retention.check.interval.ms": "50",
    "producer.id.expiration.check.interval.ms": "50",
    "offsets.retention.check.interval.ms": "50",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


@dataclass
class Content:
    """The data of each kind that expires, as a broker has it."""

    log_start: int
    committed: int
    producers: int
    transactional_ids: list[str]


WHOLE = Content(0, 7, 2, ["idle"])


@dataclass
class Bench:
    """A broker, its clock and its metrics."""

    broker: BrokerProcess
    fake: FakeTime
    url: str

    def start(self, off_s: int, **settings: str) -> None:
        self.fake.set(off_s)
        self.broker.start({key.replace("_", "."): value for key, value in settings.items()})
        wait_until(lambda: ask(self.url, "/health/ready").status == 200, 60, "groups and transactions loaded")

    def fill(self) -> None:
        create_topic(self.broker.port, "kept", 1, {"segment.bytes": "2000"})
        create_topic(self.broker.port, "producers", 1, {"retention.ms": "-1"})
        write_segments(self.broker, "kept", SEGMENTS)
        commit_and_leave(self.broker)
        idle = Producer({"bootstrap.servers": self.broker.bootstrap, "transactional.id": "idle"}, logger=quiet)
        idle.init_transactions(30)
        idle.begin_transaction()
        idle.produce("producers", b"x", partition=0)
        idle.commit_transaction(30)
        idempotent = Producer({"bootstrap.servers": self.broker.bootstrap, "enable.idempotence": True}, logger=quiet)
        idempotent.produce("producers", b"x", partition=0)
        assert idempotent.flush(30) == 0

    def content(self) -> Content:
        with TypedConnection(self.broker.port) as connection:
            connection.read_partition("producers", 0)  # has its producers loaded
            asked = DescribeProducersRequest(topics=[TopicRequest(name="producers", partition_indexes=[0])])
            producers = connection.ask(api.DESCRIBE_PRODUCERS, 0, asked)
            ids = connection.ask(api.LIST_TRANSACTIONS, 0, ListTransactionsRequest()).transaction_states
            return Content(
                connection.list_offset("kept", 0, -2)[2],
                committed(self.broker),
                len(producers.topics[0].partitions[0].active_producers),
                [each.transactional_id for each in ids],
            )

    def hold(self) -> tuple[int, int] | None:
        """(seconds that the clock is ahead, seconds of the hold that are left) by health; None: it is followed."""
        notes = ask(self.url, "/health/ready").json.get("notes", [])
        found = [re.search(r"wall clock is (\d+) s ahead .* for another (\d+) s", note) for note in notes]
        return next(((int(match[1]), int(match[2])) for match in found if match), None)

    def await_retention(self) -> None:
        """Retention has run: a sealed segment with a record of 1970 is gone."""
        name = f"witness-{self.broker.start_count}"
        create_topic(self.broker.port, name, 1, {"segment.bytes": "100", "retention.ms": "1000"})
        with wire.Connection(self.broker.port) as connection:
            for _ in range(2):
                batch = wire.batch_of([wire.Record(None, bytes(90))], base_timestamp=1000)
                assert connection.produce(name, 0, batch, acks=-1).error == 0
            wait_until(lambda: connection.list_offset(name, 0, -2)[2] > 0, 30, "a retention that ran")


@pytest.fixture
def bench(make_broker: Callable[..., BrokerProcess], tmp_path: Path) -> Bench:
    fake = FakeTime(tmp_path)
    url = f"http://127.0.0.1:{free_port()}"
    broker = make_broker(settings={**SETTINGS, "metrics.listeners": url}, environment=fake.environment)
    return Bench(broker, fake, url)


@pytest.mark.slow
@pytest.mark.scenario("G1")
def test_starts_with_a_wrong_clock_delete_nothing_early_and_keep_nothing_forever(bench: Bench) -> None:
    bench.start(0)
    bench.fill()
    assert bench.content() == WHOLE
    bench.broker.stop()
    for off_s, end in ((8 * DAY_S, bench.broker.kill), (HOUR_S, bench.broker.stop), (-HOUR_S, bench.broker.kill)):
        bench.start(off_s)
        bench.await_retention()
        assert bench.content() == WHOLE, f"{off_s} s off"
        hold = bench.hold()
        assert (hold is not None) == (off_s > 0)
        assert hold is None or 0 <= hold[0] - off_s < 600
        end()
    log = bench.broker.log()
    assert log.count("ahead of the trusted time (a clock jump, or downtime)") == 2
    bench.start(8 * DAY_S, clock_jump_hold_ms="3000")
    gone = Content(SEGMENTS, -1001, 0, [])
    wait_until(lambda: bench.content() == gone, 60, "all of it expired, once the clock has stayed so")
    assert bench.broker.log().count("has stayed ahead for clock.jump.hold.ms") == 1
    assert bench.hold() is None
    assert "Traceback" not in bench.broker.log()


@pytest.mark.slow
@pytest.mark.scenario("G1")
def test_hold_adds_up_over_kills(bench: Bench) -> None:
    bench.start(0)
    bench.fill()
    bench.broker.stop()
    stored = bench.broker.data_dir / files.EXPIRY_TIME_NAME
    left = [HOUR_S]
    for _ in range(3):
        bench.start(8 * DAY_S, log_flush_offset_checkpoint_interval_ms="100")
        bench.await_retention()
        wait_until(lambda: (bench.hold() or (0, HOUR_S))[1] < left[-1] - 1, 30, "two seconds of the hold")
        left.append((bench.hold() or (0, HOUR_S))[1])
        for _ in range(2):
            before = stored.read_text()
            wait_until(lambda before=before: stored.read_text() != before, 30, "a time stored later")
        bench.broker.kill()
    assert bench.broker.log().count("ahead of the trusted time (a clock jump, or downtime)") == 3


@pytest.mark.slow
@pytest.mark.scenario("G1")
def test_open_transaction_outlives_a_start_eight_days_ahead(bench: Bench) -> None:
    bench.start(0)
    bench.fill()
    producer = Producer(
        {
            "bootstrap.servers": bench.broker.bootstrap,
            "transactional.id": "open",
            "transaction.timeout.ms": 600_000,
            "reconnect.backoff.max.ms": 200,
        },
        logger=quiet,
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("producers", b"y", partition=0)
    assert producer.flush(30) == 0
    bench.broker.stop()
    bench.start(8 * DAY_S)
    bench.await_retention()
    producer.produce("producers", b"z", partition=0)
    producer.commit_transaction(60)
