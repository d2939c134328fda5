"""TLS of a client: Kafka's settings in, what makes a socket secure out.

    security.protocol=SSL
    ssl.truststore.location=ca.pem            whom to trust; without it, the authorities that the system trusts
    ssl.keystore.location=me.pem              the client's own key and certificate, where the broker asks for one

Stores are PEM or PKCS#12, known by their first bytes; PEM text may stand in the settings themselves. A broker's host
name is checked, unless ssl.endpoint.identification.algorithm is empty. TLS itself is the standard library's.

Immutable once made; any thread.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING

from kafkalite.errors import ConfigError
from kafkalite.settings.properties import read_properties
from kafkalite.settings.rows import near_miss

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from pathlib import Path

    from kafkalite.settings.areas.tls import TlsSettings

PROTOCOL_KEY = "security.protocol"
NAME_CHECK_KEY = "ssl.endpoint.identification.algorithm"
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_WITHOUT_EFFECT = frozenset(
    {"ssl.provider", "ssl.secure.random.implementation", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm"}
)
_BROKERS_OWN = frozenset(
    {"ssl.client.auth", "ssl.principal.mapping.rules", "ssl.allow.dn.changes", "ssl.allow.san.changes"}
)


class Security:
    """How connections of a client are made secure."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """From Kafka's client settings; those that are about something else are left out. ConfigError for a bad one."""
        protocol = settings.get(PROTOCOL_KEY, "PLAINTEXT").strip().upper()
        if protocol not in {"PLAINTEXT", "SSL"}:
            raise ConfigError(PROTOCOL_KEY, f"must be PLAINTEXT or SSL, not {protocol[:64]!r}")
        _refuse_unknown(settings)
        self.protocol = protocol
        self._context = _context(settings) if protocol == "SSL" else None

    @classmethod
    def from_file(cls, path: Path) -> Security:
        """From a .properties file; StartupError when it cannot be read."""
        return cls(read_properties(path))

    def wrap(self, sock: socket.socket, host: str) -> socket.socket:
        """The socket to go on with, its handshake done; OSError (ssl.SSLError among them) when there is none."""
        return sock if self._context is None else self._context.wrap_socket(sock, server_hostname=host)


def _refuse_unknown(settings: Mapping[str, str]) -> None:
    """Protection that a setting asks for, and that would not be there, is no note but an error."""
    from kafkalite.settings.areas.tls import TLS_SETTINGS

    known = {*TLS_SETTINGS.keys() - _BROKERS_OWN, *_WITHOUT_EFFECT, NAME_CHECK_KEY}
    for key, text in settings.items():
        if key.startswith("sasl.") and text.strip():
            raise ConfigError(key, "this release has no SASL")
        if key.startswith("ssl.") and key not in known:
            raise ConfigError(key, f"unknown setting{near_miss(key, known)}")


def _context(settings: Mapping[str, str]) -> ssl.SSLContext:
    from kafkalite.security.stores import read_trust_store
    from kafkalite.settings.areas.tls import TLS_SETTINGS, TlsSettings
    from kafkalite.settings.rows import parse_all

    config = TlsSettings(**parse_all(TLS_SETTINGS, settings))  # type: ignore[arg-type]  # each field's own type
    oldest, newest = config.versions
    trusted = read_trust_store(config)
    context = ssl.create_default_context()
    if trusted is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=trusted.to_pem().decode("ascii"))
    context.minimum_version, context.maximum_version = _VERSIONS[oldest], _VERSIONS[newest]
    check = settings.get(NAME_CHECK_KEY, "https").strip().lower()
    if check not in {"", "https"}:
        raise ConfigError(NAME_CHECK_KEY, f"must be https or empty, not {check[:64]!r}")
    context.check_hostname = check == "https"
    if config.ssl_cipher_suites:
        _choose_suites(context, config)
    if config.ssl_keystore_location or config.ssl_keystore_key:
        _load_key(context, config)
    return context


def _choose_suites(context: ssl.SSLContext, config: TlsSettings) -> None:
    """The standard library chooses among suites up to TLS 1.2 only; those of 1.3 are all safe, and stay."""
    from kafkalite._native.tls.tls_context import cipher_name

    names = [cipher_name(suite) for suite in config.ssl_cipher_suites]
    if None in names:
        raise ConfigError("ssl.cipher.suites", f"OpenSSL has no {config.ssl_cipher_suites[names.index(None)]!r}")
    older = [name for name in names if name is not None and not name.startswith("TLS_")]
    if older:
        context.set_ciphers(":".join(older))


def _load_key(context: ssl.SSLContext, config: TlsSettings) -> None:
    """The library takes keys from files alone: it gets one in memory, which no other process can open by name."""
    from kafkalite.security.stores import read_key_store

    key, chain = read_key_store(config).to_pem()
    fd = os.memfd_create("kafkalite-key", os.MFD_CLOEXEC)
    with os.fdopen(fd, "wb") as file:
        file.write(key + chain)
        file.flush()
        try:
            context.load_cert_chain(f"/proc/self/fd/{fd}")
        except ssl.SSLError as error:
            raise ConfigError("ssl.keystore.location", error.reason or str(error)) from None
