"""Run the interactive test tools of Kafka 0.7: producer-shell, consumer-shell and simple-consumer-shell."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final

from kafkalite.classic.config import ConsumerConfig, ProducerConfig
from kafkalite.classic.consumer import Consumer
from kafkalite.classic.errors import ClassicError, ConsumerTimeout
from kafkalite.classic.handlers import StringDecoder, StringEncoder
from kafkalite.classic.producer import Producer, ProducerData
from kafkalite.classic.simple_consumer import SimpleConsumer
from kafkalite.classic.wire import FetchRequest
from kafkalite.cli.classic.common import server
from kafkalite.cli.common import count, natural
from kafkalite.cli.output import say, write_value

if TYPE_CHECKING:
    import argparse

    from kafkalite.classic.stream import KafkaStream

EMPTY_PAUSE_S: Final = 0.1


def producer_shell_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--props", required=True, metavar="FILE", help="file with producer properties")
    parser.add_argument("--topic", required=True)


def producer_shell(arguments: argparse.Namespace) -> int:
    config = ProducerConfig.load(arguments.props)
    with Producer(config, encoder=None if config.serializer_class else StringEncoder()) as producer:
        for line in sys.stdin:
            text = line.strip()
            producer.send(ProducerData(arguments.topic, [text]))
            say(f"Sent: {text} ({len(text.encode())} bytes)", flush=True)
    return 0


def consumer_shell_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", required=True)
    parser.add_argument("--props", required=True, metavar="FILE", help="file with consumer properties")
    parser.add_argument("--partitions", type=count, default=1, metavar="N", help="streams (default: 1)")


def consumer_shell(arguments: argparse.Namespace) -> int:
    with Consumer.create(ConsumerConfig.load(arguments.props)) as connector:
        streams = connector.create_message_streams({arguments.topic: arguments.partitions}, StringDecoder())
        threads = [
            threading.Thread(target=_print_stream, args=(stream,), daemon=True) for stream in streams[arguments.topic]
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            connector.shutdown()
            for thread in threads:
                thread.join()
    return 0


def _print_stream(stream: KafkaStream) -> None:
    name = threading.current_thread().name
    say(f"Starting consumer thread {name}", flush=True)
    number = 0
    try:
        for item in stream:
            write_value(f"consumed: {item.message}\n", flush=stream.idle)
            number += 1
    except ConsumerTimeout:
        pass
    say(f"Received {number} messages")
    say(f"thread {name} done", flush=True)


def simple_consumer_shell_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", required=True, metavar="kafka://HOST:PORT")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partition", type=natural, default=0)
    parser.add_argument("--offset", type=natural, default=0)
    parser.add_argument("--fetchsize", type=count, default=1_000_000, metavar="BYTES")
    parser.add_argument("--print-offsets", action="store_true")
    parser.add_argument("--print-messages", action="store_true")


def simple_consumer_shell(arguments: argparse.Namespace) -> int:
    """Fetch the messages of a partition until interrupted. The flags select what is printed."""
    where = server(arguments.server)
    offset = arguments.offset
    pause = threading.Event()
    with SimpleConsumer(where.host, where.port) as consumer:
        while True:
            request = FetchRequest(arguments.topic, arguments.partition, offset, arguments.fetchsize)
            (found,) = consumer.multifetch([request])
            if isinstance(found, ClassicError):
                raise found
            before = offset
            for item in found:
                offset = item.offset
                if arguments.print_messages:
                    write_value(f"consumed: {item.message.payload.decode('utf-8', 'replace')}\n")
                if arguments.print_offsets:
                    say(f"next offset = {offset}")
            sys.stdout.flush()
            if offset == before:
                pause.wait(EMPTY_PAUSE_S)
