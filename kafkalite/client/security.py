"""Set up TLS and SASL of client connections from Kafka's client settings.

    security.protocol=SASL_SSL                or SSL, SASL_PLAINTEXT
    ssl.truststore.location=ca.pem            trusted certificate authorities; default: the system's
    ssl.keystore.location=me.pem              the client's key and certificate, for brokers that require one

Stores are PEM or PKCS#12, recognized by their first bytes; settings may also contain PEM text. The broker's host name
is verified unless ssl.endpoint.identification.algorithm is empty. TLS comes from Python's ssl module, SASL from
`kafkalite.client.sasl`.

Thread rule: any thread.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from kafkalite.errors import ConfigError
from kafkalite.settings.properties import read_properties
from kafkalite.settings.rows import near_miss

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kafkalite.client.sasl import ClientSasl

PROTOCOL_KEY: Final = "security.protocol"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_WITHOUT_EFFECT: Final = frozenset(
    {"ssl.provider", "ssl.secure.random.implementation", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm"}
)
_BROKERS_OWN: Final = frozenset(
    {"ssl.client.auth", "ssl.principal.mapping.rules", "ssl.allow.dn.changes", "ssl.allow.san.changes"}
)


OWN: Final = ("security.", "ssl.", "sasl.")
"""Prefixes of the settings used here."""
_REFUSED: Final = {
    "sasl.client.callback.handler.class": "Java classes cannot be loaded; pass a token function to Security instead",
    "sasl.login.class": "Java classes cannot be loaded; pass a token function to Security instead",
}
"""Rejected key → reason."""


class Security:
    """TLS and SASL settings of a client."""

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        token: Callable[[], str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Read the security settings among Kafka's client settings; ignore the others. Raises ConfigError.

        `token` returns an OAUTHBEARER token. It is called for each authentication, from any thread, and may block.
        `context` replaces the ssl.* settings.
        """
        protocol = settings.get(PROTOCOL_KEY, "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise ConfigError(PROTOCOL_KEY, f"must be one of {', '.join(PROTOCOLS)}, not {protocol[:64]!r}")
        if not protocol.endswith("SSL"):
            _refuse_unknown(settings)
        self.protocol = protocol
        self._settings = {key: text for key, text in settings.items() if key.startswith(OWN)}
        self._token = token
        self._given = context
        self._context = None
        if protocol.endswith("SSL"):
            self._context = client_context(settings) if context is None else context
        self.sasl = _sasl(settings, token) if protocol.startswith("SASL") else None
        """SASL settings; None without SASL."""

    def __reduce__(self) -> tuple[type[Security], tuple[dict[str, str]]]:
        """Pickle the settings; unpickling reads the files again. A token function or context cannot be pickled."""
        if self._token is not None or self._given is not None:
            raise TypeError("a Security with a token function or an SSLContext cannot be pickled")
        return Security, (self._settings,)

    def __eq__(self, other: object) -> bool:
        mine = self._settings, self._token, self._given
        return isinstance(other, Security) and mine == (other._settings, other._token, other._given)

    def __hash__(self) -> int:
        return hash((frozenset(self._settings.items()), self._token))

    def __repr__(self) -> str:
        return f"Security({self.protocol})"

    @classmethod
    def from_file(cls, path: Path) -> Security:
        """Read a .properties file. Raises StartupError if it cannot be read."""
        return cls(read_properties(path))

    def wrap(self, sock: socket.socket, host: str) -> socket.socket:
        """Do the TLS handshake and return the socket to use. Raises OSError, including ssl.SSLError."""
        return sock if self._context is None else self._context.wrap_socket(sock, server_hostname=host)


def _refuse_unknown(settings: Mapping[str, str]) -> None:
    """Reject unknown ssl.* settings and Java classes: ignoring one could leave a connection unprotected."""
    from kafkalite.settings.areas.tls import NAME_CHECK_KEY, TLS_SETTINGS

    known = {*TLS_SETTINGS.keys() - _BROKERS_OWN, *_WITHOUT_EFFECT, NAME_CHECK_KEY}
    for key, text in settings.items():
        if key in _REFUSED and text.strip():
            raise ConfigError(key, _REFUSED[key])
        if key.startswith("ssl.") and key not in known:
            raise ConfigError(key, f"unknown setting{near_miss(key, known)}")


def _sasl(settings: Mapping[str, str], token: Callable[[], str] | None) -> ClientSasl:
    from kafkalite.client.sasl import ClientSasl

    return ClientSasl(settings, token)


def client_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Create the SSLContext from Kafka's ssl.* settings.

    Raises ConfigError for invalid and for unknown ssl.* settings.
    """
    _refuse_unknown(settings)
    from kafkalite.security.ssl_contexts import context_of_client

    return context_of_client(settings)
