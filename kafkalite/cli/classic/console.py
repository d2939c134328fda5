"""Run the tools console-producer and console-consumer of Kafka 0.7: send lines, print messages."""

from __future__ import annotations

import logging
import random
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from kafkalite.base import plugins
from kafkalite.base.ending import on_ending
from kafkalite.classic.config import LARGEST, SMALLEST, ConsumerConfig, ProducerConfig
from kafkalite.classic.consumer import Consumer
from kafkalite.classic.errors import ClassicError, ConsumerTimeout
from kafkalite.classic.messages import Message
from kafkalite.classic.producer import Producer, ProducerData
from kafkalite.cli import UsageError
from kafkalite.cli.classic.common import session
from kafkalite.cli.common import assignments, count
from kafkalite.cli.output import data_stream, note
from kafkalite.zookeeper.nodes import GroupPaths
from kafkalite.zookeeper.session import delete_tree
from kafkalite.zookeeper.topic_filter import Blacklist, Whitelist

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from kafkalite.classic.connector import ConsumerConnector
    from kafkalite.zookeeper.topic_filter import TopicFilter

logger = logging.getLogger(__name__)

GZIP: Final = 1
GROUP_NUMBER_MAX: Final = 100_000


def console_producer_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", required=True)
    parser.add_argument("--zookeeper", required=True, metavar="HOST:PORT")
    parser.add_argument("--sync", action="store_true", help="send each line before reading the next one")
    parser.add_argument("--compress", action="store_true", help="compress with gzip (the default, as in 0.7)")
    parser.add_argument("--no-compress", action="store_true", help="send uncompressed; not available in 0.7")
    parser.add_argument("--batch-size", type=count, default=200, metavar="N", help="lines per request (default: 200)")
    parser.add_argument(
        "--timeout",
        type=count,
        default=1000,
        metavar="MS",
        help="maximum milliseconds before a line is sent (default: 1000)",
    )
    parser.add_argument(
        "--message-encoder",
        metavar="MODULE:CLASS",
        help="class that converts a line to a Message (default: the unchanged line)",
    )
    parser.add_argument(
        "--line-reader",
        metavar="MODULE:CLASS",
        help="class that splits standard input into lines (default: at newlines)",
    )
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting for the line reader; can be repeated",
    )


def console_producer(arguments: argparse.Namespace) -> int:
    config = ProducerConfig(
        zk_connect=arguments.zookeeper,
        producer_type="sync" if arguments.sync else "async",
        compression_codec=0 if arguments.no_compress else GZIP,
        batch_size=arguments.batch_size,
        queue_time=arguments.timeout,
        queue_enqueue_timeout_ms=-1,
        serializer_class=arguments.message_encoder,
    )
    reader = _make(arguments.line_reader) if arguments.line_reader else LineReader(text=arguments.message_encoder)
    reader.init(sys.stdin.buffer, assignments("--property", arguments.property))
    with Producer(config) as producer:
        while (event := reader.read_message()) is not None:
            producer.send(ProducerData(arguments.topic, [event]))
        lost = producer.failed_count
    reader.close()
    if lost or producer.failed_count:
        raise ClassicError(f"{producer.failed_count} lines could not be sent")
    return 0


class LineReader:
    """Reads standard input line by line (kafka.producer.ConsoleProducer.LineMessageReader)."""

    _input: BinaryIO

    def __init__(self, *, text: object = False) -> None:
        """If `text`, lines are str, for an encoder. Otherwise they are Message objects."""
        self._text = bool(text)

    def init(self, stream: BinaryIO, properties: dict[str, str]) -> None:
        """Do nothing, since this reader has no properties."""
        del properties
        self._input = stream

    def read_message(self) -> Any:
        """Return the next line, without its line end. None at the end of the input."""
        line = self._input.readline()
        if not line:
            return None
        payload = line.rstrip(b"\n").removesuffix(b"\r")
        return payload.decode("utf-8", "surrogateescape") if self._text else Message(payload)

    def close(self) -> None:
        """Do nothing, so that standard input stays open."""


def console_consumer_arguments(parser: argparse.ArgumentParser) -> None:
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--topic")
    chosen.add_argument("--whitelist", metavar="REGEX")
    chosen.add_argument("--blacklist", metavar="REGEX")
    parser.add_argument("--zookeeper", required=True, metavar="HOST:PORT")
    parser.add_argument("--group", help="consumer group (default: console-consumer-NUMBER, deleted at the end)")
    parser.add_argument("--fetch-size", type=count, default=1_048_576, metavar="BYTES")
    parser.add_argument("--socket-buffer-size", type=count, default=2_097_152, metavar="BYTES")
    parser.add_argument(
        "--consumer-timeout-ms",
        type=int,
        default=-1,
        metavar="MS",
        help="stop after this many milliseconds without a message (default: -1, never)",
    )
    parser.add_argument("--formatter", default="newline", help="newline, checksum or MODULE:CLASS (default: newline)")
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting for the formatter; can be repeated",
    )
    parser.add_argument(
        "--from-beginning", action="store_true", help="discard the group's offsets and read from the beginning"
    )
    parser.add_argument("--autocommit.interval.ms", dest="commit_ms", type=count, default=10_000, metavar="MS")
    parser.add_argument("--max-messages", type=count, metavar="N")
    parser.add_argument(
        "--skip-message-on-error", action="store_true", help="skip messages that cannot be printed instead of stopping"
    )


def console_consumer(arguments: argparse.Namespace) -> int:
    group = arguments.group or f"console-consumer-{random.randrange(GROUP_NUMBER_MAX)}"
    chosen = _filter(arguments)
    formatter = _formatter(arguments.formatter)
    formatter.init(assignments("--property", arguments.property))
    if arguments.from_beginning:
        _forget(arguments.zookeeper, group)
    config = ConsumerConfig(
        groupid=group,
        zk_connect=arguments.zookeeper,
        fetch_size=arguments.fetch_size,
        socket_buffer_size=arguments.socket_buffer_size,
        consumer_timeout_ms=arguments.consumer_timeout_ms,
        auto_commit_interval_ms=arguments.commit_ms,
        auto_offset_reset=SMALLEST if arguments.from_beginning else LARGEST,
    )
    try:
        # A signal ends the streams first, so that the offsets of printed messages are committed.
        with Consumer.create(config) as connector, on_ending(connector.shutdown):
            number = _print_all(connector, chosen, formatter, arguments)
    finally:
        if arguments.group is None:
            _forget(arguments.zookeeper, group)
    formatter.close()
    note(f"Consumed {number} messages")
    return 0


def _print_all(
    connector: ConsumerConnector, chosen: TopicFilter, formatter: NewlineFormatter, arguments: argparse.Namespace
) -> int:
    (stream,) = connector.create_message_streams_by_filter(chosen)
    number = 0
    out = data_stream()
    try:
        for item in stream:
            try:
                formatter.write(item.message, out)
            except BrokenPipeError:
                raise
            except Exception:
                if not arguments.skip_message_on_error:
                    raise
                logger.exception("skipped a message that cannot be printed")
                continue
            number += 1
            if number == arguments.max_messages:
                break
            if stream.idle:
                out.flush()
    except ConsumerTimeout:
        pass
    out.flush()
    return number


class NewlineFormatter:
    """Writes each payload on its own line (kafka.consumer.NewlineMessageFormatter)."""

    def init(self, properties: dict[str, str]) -> None:
        """Do nothing, since this formatter has no properties."""

    def write(self, message: Message, out: BinaryIO) -> None:
        out.write(message.payload)
        out.write(b"\n")

    def close(self) -> None:
        """Do nothing, since this formatter has nothing to close."""


class ChecksumFormatter(NewlineFormatter):
    """Writes each message's checksum, after the topic that a property names
    (kafka.consumer.ChecksumMessageFormatter)."""

    _prefix = b""

    def init(self, properties: dict[str, str]) -> None:
        topic = properties.get("topic")
        self._prefix = b"" if topic is None else f"{topic}-".encode()

    def write(self, message: Message, out: BinaryIO) -> None:
        out.write(b"%bchecksum:%d\n" % (self._prefix, message.checksum))


def _formatter(name: str) -> NewlineFormatter:
    known: dict[str, Callable[[], NewlineFormatter]] = {"newline": NewlineFormatter, "checksum": ChecksumFormatter}
    short = name.rpartition(".")[2].removesuffix("MessageFormatter").lower()
    return known[short]() if short in known else _make(name)


def _filter(arguments: argparse.Namespace) -> TopicFilter:
    try:
        if arguments.blacklist is not None:
            return Blacklist(arguments.blacklist)
        return Whitelist(arguments.topic if arguments.whitelist is None else arguments.whitelist)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _forget(servers: str, group: str) -> None:
    """Delete all nodes of a group in ZooKeeper."""
    with session(servers) as client:
        delete_tree(client, GroupPaths(group).root)


def _make(text: str) -> Any:
    try:
        return plugins.make(text)
    except ValueError as error:
        raise UsageError(str(error)) from error
