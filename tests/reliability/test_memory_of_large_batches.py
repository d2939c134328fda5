"""C6: batches that unpack to far more than they are, produced by many and compacted: memory stays within its bounds."""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite._native.base.crc32c import crc32c
from kafkalite.broker.limits import budget
from kafkalite.settings.broker import BrokerConfig
from kafkalite.wire.record.compression import Codec, compress
from tests.kit.harness import wire
from tests.kit.harness.load import create_topic
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import BrokerProcess, wait_until

MakeBroker = Callable[..., BrokerProcess]
MIB = 1 << 20
UNPACKED_SIZE = 120 * 1_000_000
SLACK = 64 * MIB
"""Requests and answers of this test's clients, and what the sampling of the peak may count beside the bound."""
PRODUCERS = 6
SETTINGS = {"log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": str(MIB)}


def large_batch(codec: int, *, tombstone: bool) -> bytes:
    """120 MB of 90 keys, compressed; with a tombstone, compaction copies what stays to give it a horizon."""
    value = bytes(1_000_000)
    records = [wire.Record(b"k%d" % (i % 90), value) for i in range(UNPACKED_SIZE // len(value))]
    if tombstone:
        records[-1] = records[-1]._replace(value=None)
    plain = wire.batch_of(records)
    head, body = bytearray(plain[: wire.BATCH_HEADER_SIZE]), compress(codec, plain[wire.BATCH_HEADER_SIZE :])
    struct.pack_into(">i", head, 8, len(head) + len(body) - 12)
    struct.pack_into(">h", head, 21, codec)
    struct.pack_into(">I", head, 17, crc32c(bytes(head[21:]) + body))
    return bytes(head) + body


class Peak:
    """The most anonymous memory that a process was seen with."""

    def __init__(self, pid: int) -> None:
        self._path = Path(f"/proc/{pid}/status")
        self.size = 0

    def look(self) -> None:
        for line in self._path.read_text().splitlines():
            if line.startswith("RssAnon:"):
                self.size = max(self.size, int(line.split()[1]) * 1024)


@contextlib.contextmanager
def watched(pid: int) -> Iterator[Peak]:
    peak, stop = Peak(pid), threading.Event()

    def run() -> None:
        while not stop.is_set():
            peak.look()
            time.sleep(0.002)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def bounds(broker: BrokerProcess) -> dict[str, int]:
    config = BrokerConfig.load(overrides={"log.dirs": str(broker.data_dir), **SETTINGS})
    return {part.name: part.size for part in budget.parts(config, 0)}


@pytest.mark.scenario("C6")
@pytest.mark.parametrize("tombstone", sample([False, True], 1), ids=["values", "tombstone"])
@pytest.mark.parametrize("codec", sample([Codec.ZSTD, Codec.GZIP, Codec.LZ4], 1))
def test_compaction_of_large_batches_stays_within_its_bound(
    make_broker: MakeBroker, codec: Codec, tombstone: bool
) -> None:
    broker = make_broker(settings=SETTINGS).start()
    configs = {"cleanup.policy": "compact", "segment.bytes": str(MIB), "min.cleanable.dirty.ratio": "0.01"}
    create_topic(broker.port, "compacted", 1, configs)
    batch = large_batch(codec, tombstone=tombstone)
    allowed = bounds(broker)
    with wire.Connection(broker.port, timeout_s=120) as connection, watched(broker.pid) as peak:
        for data in (batch, batch, wire.batch_of([wire.Record(b"z", bytes(900_000))])):
            assert connection.produce("compacted", 0, data).error == 0
        roll = wire.batch_of([wire.Record(b"z", bytes(900_000))])
        assert connection.produce("compacted", 0, roll).error == 0
        wait_until(lambda: "log compacted" in broker.log(), 120, "it is compacted")
    assert peak.size > UNPACKED_SIZE, "no batch was seen unpacked"
    assert peak.size <= allowed["program"] + allowed["decompression"] + allowed["compaction"] + SLACK
    assert peak.size <= allowed["program"] + 2 * UNPACKED_SIZE + SLACK, "one copy, and one more with horizons"


@pytest.mark.slow
@pytest.mark.scenario("C6")
def test_producers_of_large_batches_wait_for_each_other(make_broker: MakeBroker) -> None:
    settings = {**SETTINGS, "num.io.threads": str(PRODUCERS)}
    broker = make_broker(settings=settings).start()
    create_topic(broker.port, "large", PRODUCERS)
    batch = large_batch(Codec.ZSTD, tombstone=False)
    errors: list[int] = []

    def produce(partition: int) -> None:
        with wire.Connection(broker.port, timeout_s=120) as connection:
            errors.extend(connection.produce("large", partition, batch).error for _ in range(2))

    threads = [threading.Thread(target=produce, args=(partition,)) for partition in range(PRODUCERS)]
    with watched(broker.pid) as peak:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == [0] * PRODUCERS * 2
    assert peak.size > UNPACKED_SIZE, "no batch was seen unpacked"
    assert peak.size <= bounds(broker)["program"] + bounds(broker)["decompression"] + SLACK
