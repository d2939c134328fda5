"""TLS and SASL of connections to controllers: what the first of `controller.listener.names` asks for.

    listener.security.protocol.map=CONTROLLER:SASL_SSL,…
    listener.name.controller.ssl.truststore.location=ca.pem                    or without the prefix
    sasl.mechanism.controller.protocol=SCRAM-SHA-512                           or SCRAM-SHA-256, PLAIN
    listener.name.controller.scram-sha-512.sasl.jaas.config=…ScramLoginModule required username="b7" password="…";

The controllers' host names are checked unless ssl.endpoint.identification.algorithm is empty. TLS is the standard
library's. Immutable once made; any thread.

Source: ChannelBuilders.clientChannelBuilder of Kafka 4.1, as NodeToControllerChannelManager uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.errors import ConfigError
from kafkalite.protocol import api
from kafkalite.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkalite.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kafkalite.security import jaas
from kafkalite.security.sasl import PLAIN, Refused
from kafkalite.security.scram import HASHES, ScramClient
from kafkalite.settings.areas.cluster import MECHANISM_KEY
from kafkalite.settings.areas.tls import NAME_CHECK_KEY, TLS_SETTINGS

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from kafkalite.settings.broker import BrokerConfig

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2


class ControllerSecurity:
    """See the module."""

    def __init__(self, config: BrokerConfig) -> None:
        """ConfigError for what cannot be read, or says nobody's name."""
        self._listener = config.controller_listener_names[0].lower()
        protocol = config.controller_protocol
        self._context = self._tls(config) if protocol.endswith("SSL") else None
        self.mechanism = config.sasl_mechanism_controller_protocol if protocol.startswith("SASL") else None
        """How the broker signs in; None: it does not."""
        self._user, self._password = ("", "") if self.mechanism is None else self._login(config, self.mechanism)

    def _tls(self, config: BrokerConfig) -> ssl.SSLContext:
        from kafkalite.security.ssl_contexts import context_of_client

        texts = {}
        for key in (*TLS_SETTINGS, NAME_CHECK_KEY):
            for name in (key, f"listener.name.{self._listener}.{key}"):
                if name in config.static_texts:
                    texts[key] = config.static_texts[name]
        return context_of_client(texts)

    def _login(self, config: BrokerConfig, mechanism: str) -> tuple[str, str]:
        key = f"listener.name.{self._listener}.{mechanism.lower()}.{jaas.KEY}"
        module = jaas.parse(config.static_texts.get(key, ""), key)
        if module.kind != ("SCRAM" if mechanism in HASHES else mechanism):
            raise ConfigError(key, f"names a login module of {module.kind}, and {MECHANISM_KEY} is {mechanism}")
        user, password = module.options.get("username"), module.options.get("password")
        if not user or not password:
            raise ConfigError(key, "has no username and password, by which the broker signs in at the controllers")
        return user, password

    def wrap(self, sock: socket.socket, host: str) -> socket.socket:
        """The socket to go on with, its handshake done; OSError (ssl.SSLError among them) when there is none."""
        return sock if self._context is None else self._context.wrap_socket(sock, server_hostname=host)

    def sign_in(self, ask: Callable[[int, int, object], Any]) -> int:
        """The whole exchange; how long the session lasts in ms, 0 for ever. Refused.

        `ask` sends a request of (API key, version) and gives its answer.
        """
        assert self.mechanism is not None, "asked for"
        shaken = ask(api.SASL_HANDSHAKE, HANDSHAKE_VERSION, SaslHandshakeRequest(mechanism=self.mechanism))
        if shaken.error_code:
            raise Refused(f"{', '.join(shaken.mechanisms) or 'no mechanism'} is offered, not {self.mechanism}")
        client = None if self.mechanism == PLAIN else ScramClient(self.mechanism, self._user, self._password)
        token = f"\0{self._user}\0{self._password}".encode() if client is None else client.respond(b"")
        while True:
            answer = ask(api.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, SaslAuthenticateRequest(auth_bytes=token))
            if answer.error_code:
                raise Refused(answer.error_message or f"error {answer.error_code}")
            if client is not None:
                token = client.respond(bytes(answer.auth_bytes))
            if client is None or client.done:
                return int(answer.session_lifetime_ms)
