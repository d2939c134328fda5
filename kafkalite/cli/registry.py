"""Run a schema registry until SIGTERM or Ctrl-C: the REST interface of Confluent's, kept in a topic.

  kafkalite registry
  kafkalite registry --bootstrap-server 127.0.0.1:9092 --port 8081 --topic _schemas
  kafkalite registry --port 0 --ready-file ready
  kafkalite registry --listen https://0.0.0.0:8081 --tls-config tls.properties --users users

Schemas are kept in a compacted topic of the broker, kafkalite or Apache Kafka; several registries may share it. One
line on stdout says that it serves and where; the log goes to stderr. A second signal ends at once. Needs waitress
(the extra `registry`).

HTTPS takes its certificate from Kafka's settings in the file of --tls-config (ssl.keystore.location, …), and reads it
again on SIGHUP and when it changes. `kafkalite web` keeps the file of --users. --metrics HOST:PORT serves metrics and
health for Prometheus and whoever supervises it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.cli import UsageError
from kafkalite.cli.common import add_client_arguments, count, security_from
from kafkalite.cli.metrics_page import add_metrics_arguments, metrics_page
from kafkalite.cli.serving import Ready, add_serving_arguments, serve
from kafkalite.web.guard import tell_open
from kafkalite.web.server import Address, parse_address
from kafkalite.web.users import Users

if TYPE_CHECKING:
    import argparse

HOST_DEFAULT: Final = "127.0.0.1"
PORT_DEFAULT: Final = 8081
TOPIC_DEFAULT: Final = "_schemas"
THREADS_DEFAULT: Final = 8
CONNECTIONS_DEFAULT: Final = 500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser, json_output=False)
    parser.add_argument("--host", default=HOST_DEFAULT, help=f"address to listen on (default: {HOST_DEFAULT})")
    parser.add_argument("--port", metavar="N", type=port, default=PORT_DEFAULT, help="0 takes a free one (8081)")
    parser.add_argument(
        "--listen",
        metavar="URL",
        action="append",
        default=[],
        help="http://HOST:PORT or https://HOST:PORT, in place of --host and --port; may be given again",
    )
    parser.add_argument("--tls-config", metavar="FILE", help="certificates for https, by Kafka's settings")
    parser.add_argument("--users", metavar="FILE", help="who may ask; without it everybody may")
    parser.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a name by which clients ask, beside this machine's; * is any",
    )
    parser.add_argument("--topic", default=TOPIC_DEFAULT, help=f"where schemas are kept (default: {TOPIC_DEFAULT})")
    parser.add_argument(
        "--threads", metavar="N", type=count, default=THREADS_DEFAULT, help="requests served at a time (8)"
    )
    parser.add_argument(
        "--connections-max", metavar="N", type=count, default=CONNECTIONS_DEFAULT, help="sockets at a time (500)"
    )
    add_metrics_arguments(parser)
    add_serving_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from kafkalite import logging

    logging.configure(level=arguments.log_level, json_lines=arguments.log_format == "json")
    from kafkalite.schema_registry.server import LIMITS, RegistryServer

    addresses = [_address(text) for text in arguments.listen] or [Address("http", arguments.host, arguments.port)]
    tls = None
    if arguments.tls_config is not None:
        from kafkalite.web.tls import Tls

        tls = Tls.from_file(Path(arguments.tls_config))
    elif any(address.scheme == "https" for address in addresses):
        raise UsageError("--listen https://… needs --tls-config")
    users = None if arguments.users is None else Users.from_file(Path(arguments.users))
    try:
        server = RegistryServer(
            arguments.bootstrap_server,
            addresses=addresses,
            topic=arguments.topic,
            limits=LIMITS._replace(threads=arguments.threads, connections=arguments.connections_max),
            timeout_s=arguments.timeout,
            security=security_from(arguments.command_config),
            tls=tls,
            users=users,
            allowed_hosts=arguments.allowed_host,
        )
    except ValueError as error:
        raise UsageError(f"--bootstrap-server: {error}") from error
    tell_open(addresses, signs_in=users is not None)

    def ready() -> Ready:
        where = ", ".join(address.url for address in server.addresses)
        line = f"kafkalite registry is ready: {where}, schemas in the topic {arguments.topic}"
        return Ready(server.addresses[0].authority, line)

    with metrics_page(arguments, [server.status.families], ready=server.status.not_ready):
        return serve(server, ready, arguments.ready_file, reload=None if tls is None else tls.reload)


def _address(text: str) -> Address:
    try:
        return parse_address(text, PORT_DEFAULT)
    except ValueError as error:
        raise UsageError(f"--listen: {error}") from error


def port(text: str) -> int:
    """A port's number, 0 for a free one, for argparse."""
    import argparse

    if not text.isascii() or not text.isdigit() or int(text[:10]) > 65535:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no port")
    return int(text)
