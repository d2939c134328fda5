"""Build Python's ssl.SSLContext objects for clients and for the HTTP server.

The broker's own listeners use native contexts instead (`kafkalite._native.tls`). A ConfigError names the setting that
is invalid.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Final

from kafkalite._native.tls.tls_context import cipher_name
from kafkalite.errors import ConfigError
from kafkalite.security.stores import read_file, read_key_store, read_trust_store
from kafkalite.settings.areas.tls import NAME_CHECK_KEY, TLS_SETTINGS, TlsSettings
from kafkalite.settings.rows import parse_all

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_EPHEMERAL_KEYS: Final = {"kx-ecdhe", "kx-dhe"}


def choose_versions(context: ssl.SSLContext, config: TlsSettings) -> None:
    """Set the TLS versions from the settings ssl.enabled.protocols and ssl.protocol."""
    oldest, newest = config.versions
    context.minimum_version, context.maximum_version = _VERSIONS[oldest], _VERSIONS[newest]


def choose_suites(context: ssl.SSLContext, config: TlsSettings) -> None:
    """Set the cipher suites for TLS up to 1.2. ConfigError if OpenSSL does not support one of them.

    Python cannot select the suites of TLS 1.3, which are all secure.
    """
    names = [cipher_name(suite) for suite in config.ssl_cipher_suites]
    if None in names:
        raise ConfigError(
            "ssl.cipher.suites", f"OpenSSL does not support {config.ssl_cipher_suites[names.index(None)]!r}"
        )
    older = [name for name in names if name is not None and not name.startswith("TLS_")]
    if older:
        context.set_ciphers(":".join(older))


def load_key(context: ssl.SSLContext, config: TlsSettings) -> None:
    """Load the private key and certificates into a context.

    Python loads them only from files, so they pass through an anonymous file in memory.
    """
    key, chain = read_key_store(config).to_pem()
    fd = os.memfd_create("kafkalite-key", os.MFD_CLOEXEC)
    with os.fdopen(fd, "wb") as file:
        file.write(key + chain)
        file.flush()
        try:
            context.load_cert_chain(f"/proc/self/fd/{fd}")
        except ssl.SSLError as error:
            raise ConfigError("ssl.keystore.location", error.reason or str(error)) from None


def context_of_client(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS context of a client for Kafka's TLS settings.

    Without a trust store, it trusts the system's CAs.
    """
    config = TlsSettings(**parse_all(TLS_SETTINGS, settings))  # type: ignore[arg-type]  # each field's own type
    trusted = read_trust_store(config)
    context = ssl.create_default_context()
    if trusted is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=trusted.to_pem().decode("ascii"))
    if config.ssl_crl_location:
        _load_revocations(context, config.ssl_crl_location)
    choose_versions(context, config)
    check = settings.get(NAME_CHECK_KEY, "https").strip().lower()
    if check not in {"", "https"}:
        raise ConfigError(NAME_CHECK_KEY, f"must be https or empty, not {check[:64]!r}")
    context.check_hostname = check == "https"
    if config.ssl_cipher_suites:
        choose_suites(context, config)
    if config.ssl_keystore_location or config.ssl_keystore_key:
        load_key(context, config)
    return context


def server_context(config: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context of an HTTPS listener."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    choose_versions(context, config)
    # Up to TLS 1.2, the default suites are those of the broker's own listeners.
    strong = [suite for suite in context.get_ciphers() if suite["aead"] and suite["kea"] in _EPHEMERAL_KEYS]
    context.set_ciphers(":".join(suite["name"] for suite in strong))
    if config.ssl_cipher_suites:
        choose_suites(context, config)
    load_key(context, config)
    if config.ssl_client_auth != "none":
        trusted = read_trust_store(config)
        if trusted is None:
            raise ConfigError("ssl.client.auth", f"{config.ssl_client_auth} requires ssl.truststore.location")
        context.load_verify_locations(cadata=trusted.to_pem().decode("ascii"))
        context.verify_mode = ssl.CERT_REQUIRED if config.ssl_client_auth == "required" else ssl.CERT_OPTIONAL
        if config.ssl_crl_location:
            _load_revocations(context, config.ssl_crl_location)
    return context


def _load_revocations(context: ssl.SSLContext, path: str) -> None:
    read_file("ssl.crl.location", path)  # reports an unreadable file as a ConfigError
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("ssl.crl.location", f"{path} has no certificate revocation lists: {error}") from None
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
