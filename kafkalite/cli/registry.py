"""Run a schema registry until SIGTERM or Ctrl-C: the REST interface of Confluent's, kept in a topic.

  kafkalite registry
  kafkalite registry --bootstrap-server 127.0.0.1:9092 --port 8081 --topic _schemas
  kafkalite registry --port 0 --ready-file ready

Schemas are kept in a compacted topic of the broker, kafkalite or Apache Kafka; several registries may share it. One
line on stdout says that it serves and where; the log goes to stderr. A second signal ends at once. Needs waitress
(`pip install 'kafkalite[registry]'`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.cli import UsageError
from kafkalite.cli.common import add_client_arguments, count, security_from
from kafkalite.cli.serving import Ready, add_serving_arguments, serve

if TYPE_CHECKING:
    import argparse

HOST_DEFAULT = "127.0.0.1"
PORT_DEFAULT = 8081
TOPIC_DEFAULT = "_schemas"
THREADS_DEFAULT = 8
CONNECTIONS_DEFAULT = 500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser, json_output=False)
    parser.add_argument("--host", default=HOST_DEFAULT, help=f"address to listen on (default: {HOST_DEFAULT})")
    parser.add_argument("--port", metavar="N", type=port, default=PORT_DEFAULT, help="0 takes a free one (8081)")
    parser.add_argument("--topic", default=TOPIC_DEFAULT, help=f"where schemas are kept (default: {TOPIC_DEFAULT})")
    parser.add_argument(
        "--threads", metavar="N", type=count, default=THREADS_DEFAULT, help="requests served at a time (8)"
    )
    parser.add_argument(
        "--connections-max", metavar="N", type=count, default=CONNECTIONS_DEFAULT, help="sockets at a time (500)"
    )
    add_serving_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from kafkalite import logging

    logging.configure(level=arguments.log_level, json_lines=arguments.log_format == "json")
    from kafkalite.schema_registry.server import RegistryServer

    try:
        server = RegistryServer(
            arguments.bootstrap_server,
            host=arguments.host,
            port=arguments.port,
            topic=arguments.topic,
            threads=arguments.threads,
            connections_max=arguments.connections_max,
            timeout_s=arguments.timeout,
            security=security_from(arguments.command_config),
        )
    except ValueError as error:
        raise UsageError(f"--bootstrap-server: {error}") from error

    def ready() -> Ready:
        line = f"kafkalite registry is ready: {server.url}, schemas in the topic {arguments.topic}"
        return Ready(server.address, line)

    return serve(server, ready, arguments.ready_file)


def port(text: str) -> int:
    """A port's number, 0 for a free one, for argparse."""
    import argparse

    if not text.isascii() or not text.isdigit() or int(text[:10]) > 65535:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no port")
    return int(text)
