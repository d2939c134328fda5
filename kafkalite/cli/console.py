"""Serve the web console of a cluster until SIGTERM or Ctrl-C: topics, messages, groups, dead letters, events.

  kafkalite console
  kafkalite console -b broker:9092 --command-config client.properties --registry http://127.0.0.1:8081
  kafkalite console --listen https://0.0.0.0:8090 --tls-config tls.properties --users users --masks masks.toml

The console works with any Kafka cluster. By default it listens on http://127.0.0.1:8090, requires no login and allows
changes. If it listens on an address that other machines can reach, it is read-only and requires --users, a file that
`kafkalite web` manages. --allow-changes then lets operators and admins make changes. Each change is logged. With
--audit-topic it is also written to a topic.

--masks names a file that lists data to hide. --base-path serves the console under a path of a reverse proxy. Every page
is JSON if the request says Accept: application/json.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from kafkalite.base.ending import until_stdin_ends
from kafkalite.cli import UsageError
from kafkalite.cli.common import add_client_arguments, count, security_from
from kafkalite.cli.serving import Ready, add_serving_arguments, serve
from kafkalite.web.server import Address, parse_address
from kafkalite.web.users import Users

PORT_DEFAULT: Final = 8090
LISTEN_DEFAULT: Final = f"http://127.0.0.1:{PORT_DEFAULT}"
THREADS_DEFAULT: Final = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser, json_output=False)
    parser.add_argument(
        "--listen",
        metavar="URL",
        action="append",
        default=[],
        help=(
            "address to listen on: HOST:PORT, http://HOST:PORT or https://HOST:PORT; can be repeated (default: "
            f"{LISTEN_DEFAULT})"
        ),
    )
    parser.add_argument(
        "--base-path", metavar="PATH", default="", help="path prefix used by a reverse proxy, such as /kafka"
    )
    parser.add_argument("--tls-config", metavar="FILE", help=".properties file with Kafka's TLS settings, for https")
    parser.add_argument("--users", metavar="FILE", type=Path, help="file with the users, created by `kafkalite web`")
    parser.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[],
        help="additional host name that browsers may use; * allows any; can be repeated",
    )
    changes = parser.add_mutually_exclusive_group()
    changes.add_argument(
        "--allow-changes", action="store_true", help="let operators and admins make changes from other machines"
    )
    changes.add_argument("--read-only", action="store_true", help="allow no changes, not even from this machine")
    parser.add_argument("--audit-topic", metavar="TOPIC", help="topic that records every change")
    parser.add_argument(
        "--clusters",
        metavar="FILE",
        type=Path,
        help="TOML file with several clusters, used instead of --bootstrap-server",
    )
    parser.add_argument("--masks", metavar="FILE", type=Path, help="file with the masking rules for sensitive data")
    parser.add_argument("--registry", metavar="URL", help="schema registry for Avro values")
    parser.add_argument("--zookeeper", metavar="HOST:PORT", help="ZooKeeper of a Kafka 0.7 cluster to show")
    parser.add_argument(
        "--metrics-url",
        metavar="URL",
        action="append",
        default=[],
        help="metrics URL of a broker, for latency charts; can be repeated",
    )
    parser.add_argument("--metrics-token-file", metavar="FILE", type=Path, help="file with the token for --metrics-url")
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        type=Path,
        help="directory that keeps the charts' history across restarts (default: none)",
    )
    parser.add_argument(
        "--threads",
        metavar="N",
        type=count,
        default=THREADS_DEFAULT,
        help="maximum number of requests served at a time (default: 8)",
    )
    parser.add_argument("--until-stdin-ends", action="store_true", help=argparse.SUPPRESS)
    add_serving_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.base import logging

    logging.configure(level=arguments.log_level, json_lines=arguments.log_format == "json")
    from kafkalite.console.clusters import read_clusters
    from kafkalite.console.masks import Masks
    from kafkalite.console.server import LIMITS, ConsoleServer

    addresses = [address_of(text) for text in arguments.listen or [LISTEN_DEFAULT]]
    tls = None
    if arguments.tls_config is not None:
        from kafkalite.web.tls import Tls

        tls = Tls.from_file(Path(arguments.tls_config))
    elif any(address.scheme == "https" for address in addresses):
        raise UsageError("--listen https://… requires --tls-config")
    if arguments.metrics_token_file is not None and not arguments.metrics_url:
        raise UsageError("--metrics-token-file requires --metrics-url")
    users = None if arguments.users is None else Users.from_file(arguments.users)
    try:
        server = ConsoleServer(
            arguments.bootstrap_server,
            addresses,
            security=security_from(arguments.command_config),
            tls=tls,
            users=users,
            allowed_hosts=arguments.allowed_host,
            masks=None if arguments.masks is None else Masks.from_file(arguments.masks),
            registry=arguments.registry,
            zookeeper=arguments.zookeeper,
            metrics=arguments.metrics_url,
            metrics_token=arguments.metrics_token_file,
            limits=LIMITS._replace(threads=arguments.threads),
            timeout_s=arguments.timeout,
            writes=True if arguments.allow_changes else False if arguments.read_only else None,
            audit_topic=arguments.audit_topic,
            state=arguments.state_dir,
            base_path=arguments.base_path,
            clusters=() if arguments.clusters is None else read_clusters(arguments.clusters),
        )
    except ValueError as error:
        raise UsageError(f"--bootstrap-server: {error}") from error

    def ready() -> Ready:
        where = ", ".join(address.url for address in server.addresses)
        return Ready(server.addresses[0].authority, f"kafkalite console is ready: {where}")

    with until_stdin_ends(wanted=arguments.until_stdin_ends):
        return serve(server, ready, arguments.ready_file, reload=None if tls is None else tls.reload)


def address_of(text: str, flag: str = "--listen") -> Address:
    """Parse an address with or without http://. UsageError if it is invalid."""
    try:
        return parse_address(text if "://" in text else f"http://{text}", PORT_DEFAULT)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error
