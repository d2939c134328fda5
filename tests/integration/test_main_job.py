"""The main job: real text, sent line by line, read back byte-identical and in order, with kill -9 in between.

The text is what a Debian machine has: package indexes, documentation, manual pages, Python's own sources. The lines of
a file go to one partition, in order, by an idempotent librdkafka producer with acks=all; the broker is killed twice on
the way and once more before reading. Each partition's lines are compared by a running hash, so that any size fits.

KAFKALITE_MAIN_JOB_BYTES sets the size of the slow run (default 2 GB; the text is repeated when there is less).
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import sysconfig
import threading
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kit.harness.load import create_topic
from tests.kit.processes.broker import BrokerProcess

PARTITION_COUNT = 8
SOURCES = ("/var/lib/apt/lists", "/usr/share/doc", "/usr/share/man", "/usr/share/perl", sysconfig.get_path("stdlib"))
COMPRESSED_OR_TEXT = {".gz", ".txt", ".html", ".md", ".rst", ".py", ".pm", ".pod", ".log", ""}
LINE_SIZE_MAX = 900_000
KILLS_AT = (0.3, 0.6)
READ_TIMEOUT_S = 60.0
HASHED_TOGETHER = 10_000
SMALL_SIZE = 12_000_000


def text_files() -> Iterator[Path]:
    """Readable text of this machine, biggest sources first."""
    for source in SOURCES:
        for folder, _, names in sorted(os.walk(source)):
            for name in sorted(names):
                path = Path(folder) / name
                if (path.suffix in COMPRESSED_OR_TEXT or "Packages" in name) and path.is_file():
                    yield path


def lines_of(path: Path) -> Iterator[bytes]:
    """Lines without their ends; compressed files are unpacked, unreadable ones are no text."""
    opener = gzip.open if path.suffix == ".gz" else open
    with contextlib.suppress(OSError, EOFError), opener(path, "rb") as file:
        for line in file:
            yield line.rstrip(b"\n")[:LINE_SIZE_MAX]


def numbered_lines(size: int) -> Iterator[tuple[int, bytes]]:
    """(partition, line) until `size` bytes came; the files are gone through again when they do not suffice."""
    total = 0
    while total < size:
        before = total
        for number, path in enumerate(text_files()):
            for line in lines_of(path):
                total += len(line)
                yield number % PARTITION_COUNT, line
            if total >= size:
                return
        assert total > before, f"no text in {SOURCES}"


@dataclass
class Digest:
    """Running hash, count and size of one partition's lines; where one line ends and the next begins is part of it."""

    count: int = 0
    size: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)
    _waiting: list[bytes] = field(default_factory=list)

    def add(self, line: bytes) -> None:
        self._waiting.append(line)
        if len(self._waiting) >= HASHED_TOGETHER:
            self._work_off()

    def extend(self, lines: list[bytes]) -> None:
        for line in lines:
            self.add(line)

    def value(self) -> tuple[int, int, str]:
        self._work_off()
        return self.count, self.size, self._hash.hexdigest()

    def _work_off(self) -> None:
        text = b"".join(self._waiting)
        self._hash.update(text + array("I", map(len, self._waiting)).tobytes())
        self.count += len(self._waiting)
        self.size += len(text)
        self._waiting.clear()


def send(broker: BrokerProcess, topic: str, size: int, kills_at: tuple[float, ...]) -> list[Digest]:
    """Sends `size` bytes of text; kills and restarts the broker when these shares of it were handed to the producer."""
    failures: list[str] = []
    digests = [Digest() for _ in range(PARTITION_COUNT)]
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 20,
        "batch.num.messages": 10_000,
        "queue.buffering.max.messages": 200_000,
        "message.timeout.ms": 120_000,
        "reconnect.backoff.max.ms": 200,
        "delivery.report.only.error": True,
        "log_level": 0,
    }
    producer = Producer(settings)
    report = lambda error, _: failures.append(str(error))  # noqa: E731
    pending, total, killers = [share * size for share in kills_at], 0, []
    for partition, line in numbered_lines(size):
        while True:
            try:
                producer.produce(topic, line, partition=partition, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.05)
        digests[partition].add(line)
        total += len(line)
        if pending and total >= pending[0]:
            pending.pop(0)
            killers.append(threading.Thread(target=kill_and_restart, args=(broker, killers[-1:])))
            killers[-1].start()
    for killer in killers:
        killer.join()
    assert producer.flush(180) == 0
    assert not failures, failures[:5]
    assert broker.start_count == 1 + len(kills_at), "the broker was not killed on the way"
    return digests


def kill_and_restart(broker: BrokerProcess, after: list[threading.Thread]) -> None:
    for earlier in after:
        earlier.join()
    broker.kill()
    broker.start()


def receive(broker: BrokerProcess, topic: str, partition: int, count: int) -> Digest:
    """`count` lines of a partition from its start, offsets dense."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "main-job",
        "enable.auto.commit": False,
        "check.crcs": True,
        "queued.min.messages": 1_000_000,
        "fetch.queue.backoff.ms": 5,  # the default waits a second whenever the queue is full, however fast we read
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0)])
    digest, read, deadline = Digest(), 0, time.monotonic() + READ_TIMEOUT_S
    while read < count:
        messages = consumer.consume(5_000, 0.05)
        assert time.monotonic() < deadline, f"partition {partition}: {read} of {count}, then nothing"
        if messages:
            assert [message.error() for message in messages if message.error()] == []
            assert [messages[0].offset(), messages[-1].offset()] == [read, read + len(messages) - 1]
            digest.extend([message.value() or b"" for message in messages])
            read += len(messages)
            deadline = time.monotonic() + READ_TIMEOUT_S
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
    consumer.close()
    assert (low, high) == (0, count), "more or fewer records than were sent"
    return digest


def slow_size() -> int:
    return int(os.environ.get("KAFKALITE_MAIN_JOB_BYTES", "2000000000"))


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(
    ("size", "kills_at"),
    [
        pytest.param(SMALL_SIZE, (), id="control", marks=pytest.mark.slow),
        pytest.param(SMALL_SIZE, KILLS_AT, id="small"),
        pytest.param(slow_size(), KILLS_AT, id="large", marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def test_real_text_survives_kills_line_by_line(tmp_path: Path, size: int, kills_at: tuple[float, ...]) -> None:
    broker = BrokerProcess(tmp_path, {"log.segment.bytes": str(256 << 20)})
    try:
        broker.start()
        create_topic(broker.port, "lines", PARTITION_COUNT)
        began = time.monotonic()
        sent = send(broker, "lines", size, kills_at)
        lines, octets = (sum(digest.value()[number] for digest in sent) for number in (0, 1))
        print(f"sent {lines:,} lines, {octets:,} B in {time.monotonic() - began:.1f} s")
        if kills_at:
            broker.kill()
            broker.start()
            print(f"last start after kill: {broker.ready_s:.2f} s")
        began = time.monotonic()
        for partition, digest in enumerate(sent):
            assert receive(broker, "lines", partition, digest.value()[0]).value() == digest.value(), (
                f"partition {partition}"
            )
        print(f"read back in {time.monotonic() - began:.1f} s")
        assert broker.stop() < 30
    finally:
        broker.close()
        print(broker.log()[-4000:])
