"""Run Kafka 0.7's benchmarks: producer-perf, consumer-perf and simple-consumer-perf (kafka.perf.*)."""

from __future__ import annotations

import random
import sys
import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.classic import wire
from kafkalite.classic.config import LARGEST, SMALLEST, ConsumerConfig, ProducerConfig
from kafkalite.classic.consumer import Consumer
from kafkalite.classic.errors import ConsumerTimeout
from kafkalite.classic.producer import Producer, ProducerData
from kafkalite.classic.simple_consumer import SimpleConsumer
from kafkalite.cli.classic.common import broker_info, codec, server
from kafkalite.cli.common import count, natural
from kafkalite.cli.output import say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from kafkalite.classic.stream import KafkaStream

MIB: Final = 1 << 20
DATE_FORMAT: Final = "yyyy-MM-dd HH:mm:ss:SSS"
CONSUMER_TIMEOUT_MS: Final = 5000
MESSAGES_MAX: Final = 2**63 - 1
GROUP_NUMBER_MAX: Final = 100_000

_JAVA_DATE: Final = (
    ("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H"), ("mm", "%M"), ("ss", "%S"),
)  # fmt: skip


class Progress(NamedTuple):
    """The messages and bytes of one thread, or of all threads."""

    size: int
    number: int


class Report:
    """Prints the results: one row at the end, or with --show-detailed-stats one row per interval and thread."""

    def __init__(self, arguments: argparse.Namespace, columns: Sequence[str], detailed: Sequence[str]) -> None:
        self._detailed = arguments.show_detailed_stats
        self._interval_s = arguments.reporting_interval / 1000
        self._format = arguments.date_format
        self._lock = threading.Lock()
        self._size = 0
        self._number = 0
        self.began = time.time()
        if not arguments.hide_header:
            say(", ".join(detailed if self._detailed else columns))

    def add(self, size: int, number: int) -> None:
        with self._lock:
            self._size += size
            self._number += number

    def interval(self, middle: str) -> Interval:
        """Return the reporter for one thread. Its rows contain `middle` between the time and the figures."""
        return Interval(self if self._detailed else None, self._interval_s, middle)

    def date(self, at: float) -> str:
        """Format a time by a Java date pattern."""
        text = self._format
        for java, python in _JAVA_DATE:
            text = text.replace(java, python)
        moment = datetime.fromtimestamp(at).astimezone()
        return moment.strftime(text).replace("SSS", f"{moment.microsecond // 1000:03d}")

    def finish(self, middle: str, *, less_s: float = 0.0) -> None:
        """Print the final row if no detailed rows were printed. `less_s` is idle time, which does not count."""
        if self._detailed:
            return
        ended = time.time()
        elapsed_s = max(ended - self.began - less_s, 0.001)
        figures = rates(Progress(self._size, self._number), Progress(self._size, self._number), elapsed_s)
        say(f"{self.date(self.began)}, {self.date(ended)}, {middle}, {figures}")


class Interval:
    """Prints the detailed rows of one thread."""

    def __init__(self, report: Report | None, interval_s: float, middle: str) -> None:
        self._report = report
        self._interval_s = interval_s
        self._middle = middle
        self._at = time.monotonic()
        self._last = Progress(0, 0)

    def update(self, size: int, number: int) -> None:
        """Report the thread's totals. Print a row if an interval has passed."""
        now = time.monotonic()
        if self._report is None or now - self._at < self._interval_s:
            return
        so_far = Progress(size, number)
        since = Progress(size - self._last.size, number - self._last.number)
        say(f"{self._report.date(time.time())}, {self._middle}, {rates(so_far, since, now - self._at)}", flush=True)
        self._at, self._last = now, so_far


def rates(total: Progress, since: Progress, elapsed_s: float) -> str:
    """Format MB, MB/s, messages and messages/s."""
    return f"{total.size / MIB:.2f}, {since.size / MIB / elapsed_s:.4f}, {total.number}, {since.number / elapsed_s:.4f}"


def _shared_arguments(parser: argparse.ArgumentParser, *, messages_required: bool = False) -> None:
    parser.add_argument("--topic", required=True)
    parser.add_argument("--messages", type=natural, required=messages_required, default=MESSAGES_MAX, metavar="N")
    parser.add_argument("--reporting-interval", type=count, default=5000, metavar="MS")
    parser.add_argument(
        "--date-format",
        default=DATE_FORMAT,
        metavar="FORMAT",
        help="date format, in Java's notation (default: yyyy-MM-dd HH:mm:ss:SSS)",
    )
    parser.add_argument("--show-detailed-stats", action="store_true", help="print a row for each interval")
    parser.add_argument("--hide-header", action="store_true")


def producer_perf_arguments(parser: argparse.ArgumentParser) -> None:
    _shared_arguments(parser, messages_required=True)
    parser.add_argument(
        "--brokerinfo",
        required=True,
        metavar="KEY=VALUE",
        help="cluster to write to: broker.list=... or zk.connect=...",
    )
    parser.add_argument("--message-size", type=natural, default=100, metavar="BYTES")
    parser.add_argument(
        "--vary-message-size", action="store_true", help="vary message sizes from 1 byte to --message-size"
    )
    parser.add_argument("--async", dest="asynchronous", action="store_true")
    parser.add_argument("--batch-size", type=count, default=200, metavar="N")
    parser.add_argument("--threads", type=count, default=10, metavar="N")
    parser.add_argument("--compression-codec", type=codec, default=0, metavar="0|1|2")


def producer_perf(arguments: argparse.Namespace) -> int:
    end = ("message.size", "batch.size", "total.data.sent.in.MB", "MB.sec", "total.data.sent.in.nMsg", "nMsg.sec")
    report = Report(
        arguments,
        ("start.time", "end.time", "compression", *end),
        ("time", "compression", "thread.id", *end),
    )
    config = ProducerConfig.from_properties(
        broker_info(arguments.brokerinfo),
        producer_type="async" if arguments.asynchronous else "sync",
        compression_codec=arguments.compression_codec,
        batch_size=arguments.batch_size,
        queue_enqueue_timeout_ms=-1,
        reconnect_interval=2**31 - 1,
    )
    _run_threads(arguments.threads, lambda number: _produce(number, config, arguments, report))
    report.finish(f"{arguments.compression_codec}, {arguments.message_size}, {arguments.batch_size}")
    return 0


def _produce(thread_number: int, config: ProducerConfig, arguments: argparse.Namespace, report: Report) -> None:
    per_send = 1 if arguments.asynchronous else arguments.batch_size
    sends = arguments.messages // arguments.threads // per_send
    rows = report.interval(
        f"{arguments.compression_codec}, {thread_number}, {arguments.message_size}, {arguments.batch_size}"
    )
    chance = random.Random(thread_number)
    fixed = [b"x" * arguments.message_size] * per_send
    size = 0
    with Producer(config) as producer:
        for turn in range(1, sends + 1):
            payloads = fixed
            if arguments.vary_message_size:
                payloads = [b"x" * chance.randint(1, max(1, arguments.message_size)) for _ in range(per_send)]
            producer.send(ProducerData(arguments.topic, payloads))
            size += sum(map(len, payloads)) if arguments.vary_message_size else arguments.message_size * per_send
            rows.update(size, turn * per_send)
    report.add(size, sends * per_send)


_CONSUMED: Final = ("fetch.size", "data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg", "nMsg.sec")


def consumer_perf_arguments(parser: argparse.ArgumentParser) -> None:
    _shared_arguments(parser)
    parser.add_argument("--zookeeper", required=True, metavar="HOST:PORT")
    parser.add_argument("--group", help="consumer group (default: perf-consumer-NUMBER)")
    parser.add_argument("--fetch-size", type=count, default=1_048_576, metavar="BYTES")
    parser.add_argument("--from-latest", action="store_true", help="start at the latest offset if the group has none")
    parser.add_argument("--socket-buffer-size", type=count, default=2_097_152, metavar="BYTES")
    parser.add_argument("--threads", type=count, default=10, metavar="N")


def consumer_perf(arguments: argparse.Namespace) -> int:
    config = ConsumerConfig(
        groupid=arguments.group or f"perf-consumer-{random.randrange(GROUP_NUMBER_MAX)}",
        zk_connect=arguments.zookeeper,
        fetch_size=arguments.fetch_size,
        socket_buffer_size=arguments.socket_buffer_size,
        auto_offset_reset=LARGEST if arguments.from_latest else SMALLEST,
        consumer_timeout_ms=CONSUMER_TIMEOUT_MS,
    )
    with Consumer.create(config) as connector:
        streams = connector.create_message_streams({arguments.topic: arguments.threads})[arguments.topic]
        report = Report(arguments, ("start.time", "end.time", *_CONSUMED), ("time", *_CONSUMED))
        timed_out = threading.Event()
        _run_threads(len(streams), lambda number: _consume(number, streams[number], arguments, report, timed_out))
    report.finish(str(arguments.fetch_size), less_s=CONSUMER_TIMEOUT_MS / 1000 if timed_out.is_set() else 0.0)
    return 0


def _consume(
    number: int, stream: KafkaStream, arguments: argparse.Namespace, report: Report, timed_out: threading.Event
) -> None:
    rows = report.interval(f"{number}, {arguments.fetch_size}")
    wanted = arguments.messages // arguments.threads if arguments.messages != MESSAGES_MAX else MESSAGES_MAX
    size = done = 0
    try:
        for item in stream:
            size += len(item.message.payload)
            done += 1
            if not done & 0x3FF:
                rows.update(size, done)
            if done >= wanted:
                break
    except ConsumerTimeout:
        timed_out.set()
    report.add(size, done)


def simple_consumer_perf_arguments(parser: argparse.ArgumentParser) -> None:
    _shared_arguments(parser)
    parser.add_argument("--server", required=True, metavar="kafka://HOST:PORT")
    parser.add_argument("--from-latest", action="store_true")
    parser.add_argument("--partition", type=natural, default=0)
    parser.add_argument("--fetch-size", type=count, default=1_048_576, metavar="BYTES")


def simple_consumer_perf(arguments: argparse.Namespace) -> int:
    """Read until --messages are read or the partition ends."""
    where = server(arguments.server)
    report = Report(arguments, ("start.time", "end.time", *_CONSUMED), ("time", *_CONSUMED))
    rows = report.interval(str(arguments.fetch_size))
    size = number = 0
    with SimpleConsumer(where.host, where.port) as consumer:
        start = wire.LATEST if arguments.from_latest else wire.EARLIEST
        offsets = consumer.get_offsets_before(arguments.topic, arguments.partition, start, 1)
        offset = offsets[0] if offsets else 0
        while number < arguments.messages:
            found = consumer.fetch(arguments.topic, arguments.partition, offset, arguments.fetch_size)
            before = number
            for item in found:
                size += len(item.message.payload)
                number += 1
                offset = item.offset
            if number == before:
                break
            rows.update(size, number)
    report.add(size, number)
    report.finish(str(arguments.fetch_size))
    return 0


def _run_threads(number: int, work: Callable[[int], None]) -> None:
    """Run `work` in several threads until all of them end. Then raise the first exception of a thread."""
    failures: list[BaseException] = []

    def run(index: int) -> None:
        try:
            work(index)
        except BaseException as error:  # noqa: BLE001  # raised below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.flush()
    if failures:
        raise failures[0]
