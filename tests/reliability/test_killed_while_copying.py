"""T2: consume, transform, produce, the position in the transaction; broker and client killed: output is the input."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kit.checkers.transaction_ledger import judge_copy, judge_stable_offsets
from tests.kit.harness.load import create_topic, quiet
from tests.kit.harness.transactional_load import Follower, StableWatch, read_committed
from tests.kit.processes import copier
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, wait_until

if TYPE_CHECKING:
    from tests.kit.checkers.ledger import ReadRecord

MakeBroker = Callable[..., BrokerProcess]
PARTITION_COUNT = 4
SETTINGS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
COPY_TIMEOUT_S = 1800


class OrderedFollower(Follower):
    """Checks each record as it comes, for copies too large to keep: value i of a partition is its i-th record."""

    def __init__(self, bootstrap: str, topic: str, partition_count: int) -> None:
        self.next: Counter[int] = Counter()
        self.problems: list[str] = []
        super().__init__(bootstrap, topic, partition_count)

    def take(self, partition: int, record: ReadRecord) -> None:
        expected = value_of(partition, self.next[partition])
        if record.key == copier.ABORTED_KEY:
            self.problems.append(f"{partition}@{record.offset}: a record of an aborted transaction")
        elif record.value != expected:
            self.problems.append(f"{partition}@{record.offset}: {record.value!r} in the place of {expected!r}")
        self.next[partition] += 1


def value_of(partition: int, number: int) -> bytes:
    return b"%d/%d" % (partition, number)


def fill(broker: BrokerProcess, count: int) -> None:
    """Writes `count` records to each partition of the source."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "acks": "all"}, logger=quiet)
    for number in range(count):
        for partition in range(PARTITION_COUNT):
            while True:
                try:
                    producer.produce("source", value_of(partition, number), b"k", partition)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0


class CopierProcess:
    """Lives of the application, one after the other."""

    def __init__(self, broker: BrokerProcess, batch: int, seed: int) -> None:
        self.log_path = Path(broker.directory) / "copier.log"
        self._command = [sys.executable, "-m", "tests.kit.processes.copier", broker.bootstrap, "source", "target"]
        self._command += [str(PARTITION_COUNT), str(batch), str(seed)]
        self.process: subprocess.Popen[bytes] | None = None
        self.start_count = 0

    def start(self) -> None:
        self.start_count += 1
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(self._command, cwd=REPOSITORY, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def done(self) -> bool:
        """Whether it has copied everything; one that ended with an error is started again."""
        assert self.process is not None
        status = self.process.poll()
        if status is not None and status != 0:
            assert status == 3, self.log_path.read_text()[-4000:]
            self.start()
        return status == 0


CONTROL = pytest.param(0, 500, 200, marks=pytest.mark.slow)
FULL = pytest.param(10, 250_000, 2000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)], id="a-million")


@pytest.mark.parametrize(("kill_count", "count", "batch"), [CONTROL, (2, 1200, 100), FULL])
@pytest.mark.scenario("T2")
def test_output_is_the_input(make_broker: MakeBroker, seed: int, kill_count: int, count: int, batch: int) -> None:
    """`count` records in each of four partitions; `kill_count` kills of the broker and as many of the client."""
    chance = random.Random(seed)
    broker = make_broker(settings=SETTINGS).start()
    for topic in ("source", "target"):
        create_topic(broker.port, topic, PARTITION_COUNT)
    fill(broker, count)
    follower = OrderedFollower(broker.bootstrap, "target", PARTITION_COUNT)
    watch = StableWatch(broker.port, "target", PARTITION_COUNT)
    client = CopierProcess(broker, batch, seed)
    began = time.monotonic()
    client.start()
    hit_count = kill_in_between(broker, client, follower, chance, kill_count, count)
    wait_until(client.done, COPY_TIMEOUT_S, "the copy's end", 0.1)
    print(f"{count * PARTITION_COUNT} records copied in {time.monotonic() - began:.1f} s, {hit_count} kills hit")
    assert hit_count == 2 * kill_count, f"only {hit_count} kills came before the end: nothing is shown"
    wait_until(lambda: sum(follower.next.values()) >= count * PARTITION_COUNT, 300, "the follower's end")
    follower.close()
    watch.close()
    assert not follower.problems, follower.problems[:5]
    source = {partition: [value_of(partition, i) for i in range(count)] for partition in range(PARTITION_COUNT)}
    verdict = judge_copy(source, read_committed(broker.port, "target", PARTITION_COUNT), positions(broker))
    assert verdict, f"seed {seed}: {verdict}"
    stable = judge_stable_offsets(watch.samples)
    assert stable, str(stable)
    assert "Traceback" not in broker.log()
    print(
        f"{client.start_count} lives of the client, {broker.start_count} of the broker, {stable.read_count} LSO samples"
    )


def kill_in_between(
    broker: BrokerProcess,
    client: CopierProcess,
    follower: OrderedFollower,
    chance: random.Random,
    kill_count: int,
    count: int,
) -> int:
    """Kills broker and client in turn, spread over the copy by what a reader has seen of it; how many hit."""
    hit_count = 0
    for number in range(2 * kill_count):
        threshold = count * PARTITION_COUNT * (number + 1) // (2 * kill_count + 2)
        wait_until(lambda t=threshold: client.done() or sum(follower.next.values()) >= t, COPY_TIMEOUT_S, "progress")
        time.sleep(chance.uniform(0, 0.2))
        if client.done():
            break
        hit_count += 1
        if number % 2:
            client.kill()
            client.start()
        else:
            broker.kill()
            broker.start()
    return hit_count


def positions(broker: BrokerProcess) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": copier.GROUP}, logger=quiet)
    try:
        found = consumer.committed([TopicPartition("source", number) for number in range(PARTITION_COUNT)], 30)
        return {part.partition: part.offset for part in found}
    finally:
        consumer.close()
