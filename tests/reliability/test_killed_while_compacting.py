"""A9 and F5 of compaction: a broker killed while it compacts and deletes, readers at every offset meanwhile.

The broker rolls every 8 KiB and its cleaner never rests, so that kills hit every step. Afterwards a real client reads
the whole topic: for each key it must find the last value that was acknowledged.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from tests.kit.harness.load import create_topic
from tests.kit.harness.samples import sample
from tests.kit.processes.apache_kafka import NotAvailable, dump_log, jars
from tests.kit.processes.broker import BrokerProcess, wait_until

MakeBroker = Callable[..., BrokerProcess]
KEY_COUNT = 40
SETTINGS = {
    "log.segment.bytes": "8192",
    "log.cleaner.backoff.ms": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "200",
    "log.retention.check.interval.ms": "50",
    "log.segment.delete.delay.ms": "100",
    "flush.on.acks.all": "false",
    "compression.type": "producer",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Writer:
    """Writes keys repeatedly; remembers the last acknowledged value of each, and the value at each offset."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self.acknowledged: dict[bytes, tuple[int, bytes | None]] = {}  # key → (offset, value)
        self.by_offset: dict[int, tuple[bytes, bytes | None]] = {}
        self.stopping = threading.Event()
        self._chance = random.Random(seed)
        self._topic = topic
        self._producers = [
            confluent_kafka.Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "enable.idempotence": True,
                    "compression.type": codec,
                    "linger.ms": 2,
                    "reconnect.backoff.max.ms": 100,
                    "message.timeout.ms": 60_000,
                }
            )
            for codec in CODECS
        ]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            producer = self._producers[number // 50 % len(CODECS)]
            key = b"key-%d" % self._chance.randrange(KEY_COUNT)
            value = None if self._chance.random() < 0.1 else b"%d-" % number + bytes(self._chance.choice([0, 90, 300]))
            number += 1
            producer.produce(self._topic, value, key, on_delivery=self._delivered)
            if number % 50 == 0:
                producer.flush()  # one producer at a time, so that the order of values is known
                self.stopping.wait(0.02)  # readers shall reach the end now and then

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            return
        key, value, offset = message.key(), message.value(), message.offset()
        self.by_offset[offset] = (key, value)
        if offset > self.acknowledged.get(key, (-1, b""))[0]:
            self.acknowledged[key] = (offset, value)

    def close(self) -> None:
        self.stopping.set()
        self._thread.join()
        for producer in self._producers:
            assert producer.flush(60) == 0


def read_topic(bootstrap: str, topic: str, start: int, timeout_s: float = 30) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) from an offset to the end, by librdkafka with CRC checks."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, start)])
    _, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=timeout_s)
    found: list[tuple[int, bytes, bytes | None]] = []
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            if found and found[-1][0] >= high - 1:
                return found  # while somebody writes on there is no end to wait for
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is not None:
                if message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    return found
                if message.error().retriable() or message.error().code() < 0:
                    continue
                raise AssertionError(message.error())
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()
    raise TimeoutError(f"no end of {topic} within {timeout_s} s")


class Reader(threading.Thread):
    """Reads from random offsets during the run; its records are judged afterwards."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        super().__init__()
        self.seen: list[tuple[int, list[tuple[int, bytes, bytes | None]]]] = []
        self.stopping = threading.Event()
        self._server, self._table, self._chance = bootstrap, topic, random.Random(seed)

    def run(self) -> None:
        end = 1
        while not self.stopping.is_set():
            start = self._chance.randrange(end)
            try:
                found = read_topic(self._server, self._table, start, timeout_s=60)
            except confluent_kafka.KafkaException:
                continue  # the broker is down at this moment
            self.seen.append((start, found))
            end = max([end, *(offset for offset, _, _ in found)])


def verify(writer: Writer, found: list[tuple[int, bytes, bytes | None]]) -> None:
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    last = {key: value for _, key, value in found}
    for key, (_, value) in writer.acknowledged.items():
        assert last.get(key) == value, f"{key!r} must be the last value acknowledged"
    for offset, key, value in found:
        assert writer.by_offset.get(offset, (key, value)) == (key, value), f"wrong record at {offset}"


@pytest.mark.parametrize("kill_count", sample([2, 0, 10], 1))
@pytest.mark.scenario("A9")
def test_kill_during_compaction(make_broker: MakeBroker, seed: int, kill_count: int) -> None:
    broker = make_broker(settings=SETTINGS).start()
    create_topic(broker.port, "table", 1, {"cleanup.policy": "compact"})
    chance = random.Random(seed)
    writer = Writer(broker.bootstrap, "table", seed)
    reader = Reader(broker.bootstrap, "table", seed)
    reader.start()
    try:
        for _ in range(kill_count):
            time.sleep(chance.uniform(0.3, 1.0))
            broker.kill()
            broker.start()
        wait_until(lambda: len(writer.by_offset) > 3000, 60, "enough acknowledged")
        wait_until(lambda: len(reader.seen) > 3, 60, "enough read meanwhile")
    finally:
        reader.stopping.set()
        reader.join()
        writer.close()
    found = read_topic(broker.bootstrap, "table", 0)
    verify(writer, found)
    for start, seen in reader.seen:
        assert all(offset >= start for offset, _, _ in seen)
        for offset, key, value in seen:
            assert writer.by_offset.get(offset, (key, value)) == (key, value), f"a reader saw it wrong at {offset}"
    assert "log compacted" in broker.log()
    assert len(found) < len(writer.by_offset) / 2, "compaction hardly did anything"
    assert "damaged" not in broker.log()
    check_with_kafkas_tool(broker.data_dir / "table-0", broker)


def check_with_kafkas_tool(directory: Path, broker: BrokerProcess) -> None:
    """Apache Kafka's dump tool, where it can be had, must read every compacted segment."""
    broker.stop()
    try:
        jars()
    except NotAvailable as missing:
        print(f"NOT CHECKED WITH KAFKA'S DUMP TOOL: {missing}")
        return
    text = dump_log(*sorted(directory.glob("*.log")))
    assert "isvalid: false" not in text
    assert "Found" not in text, text[-2000:]


@pytest.mark.slow
@pytest.mark.scenario("A9")
def test_kill_during_compaction_and_retention(make_broker: MakeBroker, seed: int) -> None:
    """compact,delete: nothing younger than the retention is gone; what is older goes."""
    broker = make_broker(settings=SETTINGS).start()
    topic_settings = {"cleanup.policy": "compact,delete", "retention.ms": "3000"}
    create_topic(broker.port, "window", 1, topic_settings)
    chance = random.Random(seed)
    writer = Writer(broker.bootstrap, "window", seed)
    try:
        for _ in range(3):
            time.sleep(chance.uniform(0.3, 1.0))
            broker.kill()
            broker.start()
        wait_until(lambda: len(writer.by_offset) > 1500, 60, "enough acknowledged")
    finally:
        writer.close()
    low = first_offset(broker.bootstrap)
    recent = dict(list(writer.by_offset.items())[-KEY_COUNT:])
    found = {offset: (key, value) for offset, key, value in read_topic(broker.bootstrap, "window", low)}
    for offset, (key, value) in recent.items():
        if writer.acknowledged[key][0] == offset and value is not None:
            assert found.get(offset) == (key, value), f"the newest value of {key!r} at {offset} is gone"
    wait_until(lambda: first_offset(broker.bootstrap) > low or low > 0, 30, "retention deletes what is old")


def first_offset(bootstrap: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody"})
    try:
        low, _ = consumer.get_watermark_offsets(confluent_kafka.TopicPartition("window", 0), timeout=30)
        return int(low)
    finally:
        consumer.close()
