"""Run a schema registry until SIGTERM or Ctrl-C. Its REST interface is that of Confluent's Schema Registry.

  kafkalite registry
  kafkalite registry --bootstrap-server 127.0.0.1:9092 --port 8081 --topic _schemas
  kafkalite registry --port 0 --ready-file ready
  kafkalite registry --listen https://0.0.0.0:8081 --tls-config tls.properties --users users

Schemas are stored in a compacted topic of kafkalite or Apache Kafka, which several registries can share. When the
registry serves, it prints one line with its address on stdout. The log goes to stderr. A second signal ends the
registry at once.

--tls-config names a file with Kafka's settings for the certificate (ssl.keystore.location, …). The certificate is
reloaded on SIGHUP and when it changes. `kafkalite web` manages the file of --users. --metrics HOST:PORT serves metrics
for Prometheus and health checks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.base.numbers import whole_number
from kafkalite.cli import UsageError
from kafkalite.cli.common import add_client_arguments, count, security_from
from kafkalite.cli.metrics_page import add_metrics_arguments, metrics_page
from kafkalite.cli.serving import Ready, add_serving_arguments, serve
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
    parser.add_argument(
        "--port",
        metavar="N",
        type=port,
        default=PORT_DEFAULT,
        help="port to listen on; 0 selects a free port (default: 8081)",
    )
    parser.add_argument(
        "--listen",
        metavar="URL",
        action="append",
        default=[],
        help="http://HOST:PORT or https://HOST:PORT, used instead of --host and --port; can be repeated",
    )
    parser.add_argument(
        "--base-path", metavar="PATH", default="", help="path prefix used by a reverse proxy, such as /registry"
    )
    parser.add_argument("--tls-config", metavar="FILE", help=".properties file with Kafka's TLS settings, for https")
    parser.add_argument("--users", metavar="FILE", help="file with the users; without it, all clients have full access")
    parser.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[],
        help="additional host name that clients may use; * allows any; can be repeated",
    )
    parser.add_argument(
        "--topic", default=TOPIC_DEFAULT, help=f"topic that stores the schemas (default: {TOPIC_DEFAULT})"
    )
    parser.add_argument(
        "--threads",
        metavar="N",
        type=count,
        default=THREADS_DEFAULT,
        help="maximum number of requests served at a time (default: 8)",
    )
    parser.add_argument(
        "--connections-max",
        metavar="N",
        type=count,
        default=CONNECTIONS_DEFAULT,
        help="maximum number of open connections (default: 500)",
    )
    add_metrics_arguments(parser)
    add_serving_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.base import logging

    logging.configure(level=arguments.log_level, json_lines=arguments.log_format == "json")
    from kafkalite.schema_registry.server import LIMITS, RegistryServer

    addresses = [_address(text) for text in arguments.listen] or [Address("http", arguments.host, arguments.port)]
    tls = None
    if arguments.tls_config is not None:
        from kafkalite.web.tls import Tls

        tls = Tls.from_file(Path(arguments.tls_config))
    elif any(address.scheme == "https" for address in addresses):
        raise UsageError("--listen https://… requires --tls-config")
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
            base_path=arguments.base_path,
        )
    except ValueError as error:
        raise UsageError(f"--bootstrap-server: {error}") from error

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
    """Parse a port number, for argparse; 0 means a free port."""
    import argparse

    found = whole_number(text, 0, 65535)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a port number")
    return found
