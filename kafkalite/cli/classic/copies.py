"""Run the tools replay and mirror of Kafka 0.7: copy messages to another topic or cluster."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from kafkalite.base.ending import Ending
from kafkalite.classic.config import SMALLEST, ConsumerConfig, ProducerConfig
from kafkalite.classic.consumer import Consumer
from kafkalite.classic.errors import ConsumerTimeout
from kafkalite.classic.producer import Producer, ProducerData
from kafkalite.cli import CommandError, UsageError
from kafkalite.cli.classic.common import ZOOKEEPER_DEFAULT, broker_info, codec, session
from kafkalite.cli.common import count, natural
from kafkalite.cli.output import note
from kafkalite.zookeeper.nodes import GroupPaths
from kafkalite.zookeeper.session import delete_tree
from kafkalite.zookeeper.topic_filter import Blacklist, Whitelist

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from kafkalite.classic.connector import ConsumerConnector
    from kafkalite.classic.messages import Message
    from kafkalite.classic.stream import KafkaStream, MessageAndMetadata

logger = logging.getLogger(__name__)

REPLAY_GROUP: Final = "replay-log-producer"
REPLAY_TIMEOUT_MS: Final = 10_000


def replay_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--zookeeper", default=ZOOKEEPER_DEFAULT, metavar="HOST:PORT", help="cluster to read from")
    parser.add_argument(
        "--brokerinfo",
        required=True,
        metavar="KEY=VALUE",
        help="cluster to write to: broker.list=... or zk.connect=...",
    )
    parser.add_argument("--inputtopic", required=True)
    parser.add_argument("--outputtopic", help="topic to write to (default: the input topic)")
    parser.add_argument(
        "--messages", type=int, default=-1, metavar="N", help="maximum number of messages (default: all)"
    )
    parser.add_argument("--async", dest="asynchronous", action="store_true")
    parser.add_argument("--delay-btw-batch-ms", type=natural, default=0, metavar="MS")
    parser.add_argument("--batch-size", type=count, default=200, metavar="N")
    parser.add_argument("--threads", type=count, default=1, metavar="N")
    parser.add_argument("--reporting-interval", type=count, default=5000, metavar="MS")
    parser.add_argument("--compression-codec", type=codec, default=0, metavar="0|1|2")


def replay(arguments: argparse.Namespace) -> int:
    """Copy a topic from its smallest offset, until --messages are copied or no data arrives for ten seconds."""
    with session(arguments.zookeeper) as client:
        delete_tree(client, GroupPaths(REPLAY_GROUP).root)
    config = ConsumerConfig(
        groupid=REPLAY_GROUP,
        zk_connect=arguments.zookeeper,
        consumer_timeout_ms=REPLAY_TIMEOUT_MS,
        auto_offset_reset=SMALLEST,
        fetch_size=1_048_576,
    )
    producer_config = ProducerConfig.from_properties(
        broker_info(arguments.brokerinfo),
        producer_type="async" if arguments.asynchronous else "sync",
        compression_codec=arguments.compression_codec,
        batch_size=arguments.batch_size,
        queue_enqueue_timeout_ms=-1,
    )
    copied = Counter(arguments.reporting_interval / 1000)
    left = itertools.count() if arguments.messages < 0 else iter(range(arguments.messages))
    with Consumer.create(config) as connector:
        streams = connector.create_message_streams({arguments.inputtopic: arguments.threads})[arguments.inputtopic]
        work = [
            threading.Thread(target=_replay, args=(stream, producer_config, arguments, left, copied))
            for stream in streams
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
    note(f"copied {copied.number} messages")
    if copied.failures:
        raise CommandError(f"the copy is incomplete: {copied.failures[0]}")
    return 0


def _replay(
    stream: KafkaStream,
    config: ProducerConfig,
    arguments: argparse.Namespace,
    left: Iterator[int],
    copied: Counter,
) -> None:
    topic = arguments.outputtopic or arguments.inputtopic
    try:
        with Producer(config) as producer:
            for batch in _batches(stream, arguments.batch_size, left):
                producer.send(ProducerData(topic, batch))
                copied.add(len(batch))
                if arguments.delay_btw_batch_ms:
                    time.sleep(arguments.delay_btw_batch_ms / 1000)
    except Exception as error:
        logger.exception("stopped copying a stream")
        copied.failures.append(str(error))


def _batches(stream: KafkaStream, size: int, left: Iterator[int]) -> Iterator[list[Message]]:
    batch: list[Message] = []
    try:
        for _ in left:
            batch.append(next(stream).message)
            if len(batch) == size:
                yield batch
                batch = []
    except (ConsumerTimeout, StopIteration):
        pass
    if batch:
        yield batch


class Counter:
    """Counts the messages that several threads copy, and prints the number periodically."""

    def __init__(self, interval_s: float) -> None:
        self._lock = threading.Lock()
        self._interval_s = interval_s
        self._next = time.monotonic() + interval_s
        self.number = 0
        self.failures: list[str] = []

    def add(self, number: int) -> None:
        with self._lock:
            self.number += number
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + self._interval_s
                note(f"copied {self.number} messages")


def mirror_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--consumer.config", dest="consumers", action="append", required=True, metavar="FILE",
        help="consumer properties of a source; can be repeated",
    )  # fmt: skip
    parser.add_argument("--producer.config", dest="producer", required=True, metavar="FILE")
    parser.add_argument("--num.producers", dest="producer_count", type=count, default=1, metavar="N")
    parser.add_argument(
        "--num.streams", dest="stream_count", type=count, default=1, metavar="N", help="streams per source (default: 1)"
    )
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--whitelist", metavar="REGEX")
    chosen.add_argument("--blacklist", metavar="REGEX")


def mirror(arguments: argparse.Namespace) -> int:
    """Copy each message to the topic of the same name in the target, without a key, until SIGTERM or Ctrl-C."""
    try:
        chosen = Whitelist(arguments.whitelist) if arguments.blacklist is None else Blacklist(arguments.blacklist)
    except ValueError as error:
        raise UsageError(str(error)) from error
    configs = [ConsumerConfig.load(path) for path in arguments.consumers]
    producers = [Producer(ProducerConfig.load(arguments.producer)) for _ in range(arguments.producer_count)]
    connectors: list[ConsumerConnector] = []
    failures: list[str] = []
    threads: list[threading.Thread] = []
    with Ending() as ending:
        try:
            for config in configs:
                connector = Consumer.create(config)
                connectors.append(connector)
                threads += [
                    threading.Thread(target=_mirror, args=(stream, producers, failures, ending))
                    for stream in connector.create_message_streams_by_filter(chosen, arguments.stream_count)
                ]
            for thread in threads:
                thread.start()
            ending.wait()
        finally:
            _shut_down(connectors, threads, producers)
    if failures:
        raise CommandError(f"mirroring stopped: {failures[0]}")
    return 0


def _shut_down(connectors: list[ConsumerConnector], threads: list[threading.Thread], producers: list[Producer]) -> None:
    """Stop the connectors, then the threads, then the producers. So the last messages that were read are still sent."""
    for connector in connectors:
        connector.shutdown()
    for thread in threads:
        thread.join()
    for producer in producers:
        producer.close()


def _mirror(stream: KafkaStream, producers: list[Producer], failures: list[str], ending: Ending) -> None:
    turns = itertools.cycle(producers)
    try:
        item: MessageAndMetadata
        for item in stream:
            next(turns).send(ProducerData(item.topic, [item.message]))
    except Exception as error:
        logger.exception("stopped mirroring a stream")
        failures.append(str(error))
        ending.failed()
