"""Compare kafkalite's throughput with a C broker that only checks the CRC and appends, through librdkafka.

Messages of 200 bytes are produced with acks=1 in batches of 50 and 10,000, then consumed. Target: rate ≥ 0.95 of the
yardstick, broker CPU per million messages ≤ 1.25 times, consuming rate ≥ 0.95.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.path.harness import Case, Kafkalite, NullBroker, Row, Server, client, run_suite

BATCHES = (50, 10_000)
MESSAGE_SIZE = 200


def produce_case(batch: int, count: int) -> Case:
    def run(server: Server, repeat: int) -> Row:
        return produce(server, f"p{batch}-{repeat}", batch, count)

    return Case(f"produce-batch-{batch}", run)


def produce(server: Server, topic: str, batch: int, count: int) -> Row:
    options = [f"batch.num.messages={batch}", "linger.ms=5", "acks=1", "queue.buffering.max.messages=1000000"]
    options += ["queue.buffering.max.kbytes=1000000", "batch.size=4000000"]
    if batch > 1000:
        options += ["message.max.bytes=4000000"]
    flags = [part for option in options for part in ("-X", option)]
    target = ["--brokers", f"127.0.0.1:{server.port}", "--topic", topic, "--count", count, "--size", MESSAGE_SIZE]
    return client("rdk_bench", "produce", *target, *flags)


def consume_case(batch: int, count: int) -> Case:
    """Read what the produce case with the same batch size wrote in the same repeat."""

    def run(server: Server, repeat: int) -> Row:
        target = ["--brokers", f"127.0.0.1:{server.port}", "--topic", f"p{batch}-{repeat}", "--count", count]
        return client("rdk_bench", "consume", *target)

    return Case(f"consume-batch-{batch}", run)


def raw_case(records: int, count: int) -> Case:
    """Send requests of `records` × 200 B, five in flight on two connections, so that the broker is the limit."""

    def run(server: Server, repeat: int) -> Row:
        topic = f"raw{records}-{repeat}"
        load = ["--count", count, "--size", MESSAGE_SIZE, "--records", records, "--in-flight", 5, "--connections", 2]
        row = client("raw_bench", "produce", "--port", server.port, "--topic", topic, *load, "--partitions", 2)
        row["unit_count"] = row["count"] * records
        return row

    return Case(f"raw-produce-{records}-records", run)


def raw_fetch_case(records: int, size: int) -> Case:
    def run(server: Server, repeat: int) -> Row:
        row = client("raw_bench", "fetch", "--port", server.port, "--topic", f"raw{records}-{repeat}", "--count", size)
        row["unit_count"] = row["end_offset"]
        return row

    return Case(f"raw-fetch-{records}-records", run)


def servers(folder: Path) -> Sequence[Server]:
    settings = {"message.max.bytes": "4194304"}
    return [
        NullBroker("null-append", folder / "append"),
        Kafkalite("kafkalite", folder / "kafkalite", settings=settings),
        NullBroker("null-ack", folder / "ack", mode="ack"),
    ]


def storing_servers(folder: Path) -> Sequence[Server]:
    return servers(folder)[:2]


def main(*, small: bool) -> list[Path]:
    count, repeat_count = (20_000, 1) if small else (2_000_000, 5)
    produce_paths = run_suite("throughput-produce", [produce_case(b, count) for b in BATCHES], servers, repeat_count)
    both = [case for batch in BATCHES for case in (produce_case(batch, count), consume_case(batch, count))]
    consume_path = run_suite("throughput-consume", both, storing_servers, repeat_count)
    requests = 50 if small else 4_000
    raw = [raw_case(80, requests * 4), raw_case(500, requests), raw_fetch_case(500, requests * 50_000)]
    return [produce_paths, consume_path, run_suite("throughput-raw", raw, storing_servers, repeat_count)]
