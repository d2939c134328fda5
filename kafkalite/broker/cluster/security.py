"""Secure the connections that a broker opens to controllers and other brokers, with TLS and SASL.

    connection to   listener                                           SASL mechanism
    controllers     the first of controller.listener.names             sasl.mechanism.controller.protocol
    brokers         inter.broker.listener.name, or the listener of     sasl.mechanism.inter.broker.protocol
                    security.inter.broker.protocol

For example:

    listener.security.protocol.map=CONTROLLER:SASL_SSL,INSIDE:SASL_SSL,…
    listener.name.controller.ssl.truststore.location=ca.pem                    or without the prefix
    listener.name.inside.scram-sha-512.sasl.jaas.config=…ScramLoginModule required username="b7" password="…";

Mechanisms are SCRAM-SHA-512, SCRAM-SHA-256 and PLAIN. Any thread.

Source: ChannelBuilders.clientChannelBuilder of Kafka 4.1.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.errors import ConfigError
from kafkalite.security import jaas
from kafkalite.security.sasl import PLAIN
from kafkalite.security.sasl_client import PlainClient, sign_in
from kafkalite.security.scram import HASHES, ScramClient
from kafkalite.settings.areas.cluster import BROKERS_MECHANISM_KEY, MECHANISM_KEY
from kafkalite.settings.areas.tls import NAME_CHECK_KEY, TLS_SETTINGS

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from kafkalite.security.sasl_client import MechanismClient
    from kafkalite.settings.broker import BrokerConfig

logger = logging.getLogger("kafkalite.broker.cluster")


class Door(NamedTuple):
    """A listener of the controllers or of the other brokers, as this broker's settings describe it."""

    listener: str
    protocol: str
    mechanism: str
    mechanism_key: str
    whose: str


def of_controllers(config: BrokerConfig) -> Security | None:
    """Return the security for connections to controllers, or None for plaintext. Raises ConfigError."""
    name, mechanism = config.controller_listener_names[0], config.sasl_mechanism_controller_protocol
    return _made(config, Door(name, config.controller_protocol, mechanism, MECHANISM_KEY, "the controllers"))


def of_brokers(config: BrokerConfig) -> Security | None:
    """Return the security for connections to other brokers, or None for plaintext. Raises ConfigError."""
    listener, mechanism = config.inner_listener, config.sasl_mechanism_inter_broker_protocol
    return _made(config, Door(listener.name, listener.protocol, mechanism, BROKERS_MECHANISM_KEY, "other brokers"))


def _made(config: BrokerConfig, door: Door) -> Security | None:
    return None if door.protocol == "PLAINTEXT" else Security(config, door)


class Security:
    """The TLS and SASL of connections to controllers, or of connections to other brokers.

    Host names are verified, unless ssl.endpoint.identification.algorithm is empty.
    """

    def __init__(self, config: BrokerConfig, door: Door) -> None:
        """Load the certificates and the login. Raises ConfigError if a certificate cannot be loaded, or if the login
        lacks a user name or password.
        """
        self._config = config
        self._door = door
        self._context = self._tls() if door.protocol.endswith("SSL") else None
        self.mechanism = door.mechanism if door.protocol.startswith("SASL") else None
        """The SASL mechanism; None for no authentication."""
        self._user, self._password = ("", "") if self.mechanism is None else self._login(self.mechanism)

    def reload(self) -> None:
        """Load the certificates again, for new connections. If that fails, log the error and keep the current ones."""
        if self._context is None:
            return
        try:
            self._context = self._tls()
        except ConfigError as error:
            logger.warning(
                "could not reload the certificates for connections to %s; the present ones stay in use: %s",
                self._door.whose,
                error,
            )

    def _tls(self) -> ssl.SSLContext:
        from kafkalite.security.ssl_contexts import context_of_client

        given, texts = self._config.static_texts, {}
        for key in (*TLS_SETTINGS, NAME_CHECK_KEY):
            for name in (key, f"listener.name.{self._door.listener.lower()}.{key}"):
                if name in given:
                    texts[key] = given[name]
        return context_of_client(texts)

    def _login(self, mechanism: str) -> tuple[str, str]:
        door = self._door
        key = f"listener.name.{door.listener.lower()}.{mechanism.lower()}.{jaas.KEY}"
        module = jaas.parse(self._config.static_texts.get(key, ""), key)
        if module.kind != ("SCRAM" if mechanism in HASHES else mechanism):
            raise ConfigError(key, f"has a login module for {module.kind}, but {door.mechanism_key} is {mechanism}")
        user, password = module.options.get("username"), module.options.get("password")
        if not user or not password:
            raise ConfigError(
                key, f"must have the username and password with which the broker authenticates to {door.whose}"
            )
        return user, password

    def wrap(self, sock: socket.socket, host: str) -> socket.socket:
        """Return the socket to use. With TLS, it has completed the handshake. Raises OSError, including
        ssl.SSLError.
        """
        return sock if self._context is None else self._context.wrap_socket(sock, server_hostname=host)

    def sign_in(self, ask: Callable[[int, int, object], Any]) -> int:
        """Authenticate with SASL. Return the session's lifetime in milliseconds, 0 for unlimited. Raises Refused.

        `ask` sends a request with this API key and version, and returns its response.
        """
        assert self.mechanism is not None, "asked for"
        client: MechanismClient
        if self.mechanism == PLAIN:
            client = PlainClient(self._user, self._password)
        else:
            client = ScramClient(self.mechanism, self._user, self._password)
        return sign_in(self.mechanism, client, ask)
