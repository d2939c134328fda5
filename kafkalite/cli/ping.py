"""Check that the broker on this machine responds, for health checks.

kafkalite ping
kafkalite ping --config server.properties

The command reads the listeners from the broker's configuration, connects to one of them, and requests the API versions.
A broker responds to that before a client authenticates, so the command needs no credentials. It does not verify the
broker's certificate. It prefers listeners without TLS; at a listener that requires client certificates, it checks only
the TLS handshake. --set and --listeners are those of `kafkalite start`.

Exit status 0 means that the broker responds.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.cli import UsageError
from kafkalite.cli.common import SET_HELP, seconds
from kafkalite.cli.output import say

if TYPE_CHECKING:
    import argparse

    from kafkalite.client.security import Security
    from kafkalite.settings.listeners import Listener

LOOPBACK: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # compared with, not bound


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, help="the broker's .properties file")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="settings", help=SET_HELP)
    parser.add_argument("--listeners", metavar="LIST", help="addresses that the broker listens on")
    parser.set_defaults(data_dir=None)
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, default=5.0, help="response timeout in seconds (default: 5)"
    )


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.cli.start import overrides_from
    from kafkalite.settings.broker import BrokerConfig

    config = BrokerConfig.load(arguments.config, overrides_from(arguments))
    listeners = [each for each in config.bound_listeners if each.port and not each.classic]
    if not listeners:
        raise UsageError("listeners: no listener of Kafka's protocol has a fixed port")

    def requires_certificate(listener: Listener) -> bool:
        return listener.tls and config.tls_of(listener.name).ssl_client_auth == "required"

    listener = min(listeners, key=lambda each: (requires_certificate(each), each.tls))
    host = LOOPBACK.get(listener.host, listener.host)
    if requires_certificate(listener):
        shake_hands(host, listener.port, _unverified(), arguments.timeout)
    else:
        ask(host, listener.port, _unverified() if listener.tls else None, arguments.timeout)
    say(f"the broker responds at {dataclasses.replace(listener, host=host)}")
    return 0


def ask(host: str, port: int, security: Security | None, timeout_s: float) -> None:
    """Request the API versions. Raises BrokerUnreachable."""
    from kafkalite.client.connection import Connection

    Connection.connect(
        host,
        port,
        client_id="kafkalite-cli",
        connect_timeout_s=timeout_s,
        request_timeout_s=timeout_s,
        security=security,
    ).close()


def shake_hands(host: str, port: int, security: Security, timeout_s: float) -> None:
    """Do the TLS handshake without a client certificate. Raises BrokerUnreachable if it fails."""
    import socket

    from kafkalite.client.errors import BrokerUnreachable

    try:
        with socket.create_connection((host, port), timeout_s) as sock:
            security.wrap(sock, host).close()
    except OSError as error:
        raise BrokerUnreachable(f"TLS handshake with {host}:{port} failed: {error}") from error


def _unverified() -> Security:
    """Return TLS settings that accept every certificate: nothing secret is sent."""
    import ssl

    from kafkalite.client.security import Security

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return Security({"security.protocol": "SSL"}, context=context)
