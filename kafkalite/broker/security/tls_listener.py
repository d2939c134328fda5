"""Manage the TLS of one listener: certificate, trust store and principal mapping.

A trust store cannot be added while the broker runs. The certificate and an existing trust store can be replaced:

    1  AlterConfigs, SIGHUP or a changed file causes a reload
    2  the settings and files are read and checked
    3  if they are valid, new connections use them; otherwise the current ones stay
    4  earlier connections keep their TlsContext until they end

Thread rule: any thread may use `context` and `principal_of`. Methods that read files must not be called on network
threads; `use` and `reload` take the listener's lock.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite._native.base import native_time as time
from kafkalite._native.tls import tls_context
from kafkalite._native.tls.tls_context import TlsContext
from kafkalite.base.logging import fields
from kafkalite.errors import ConfigError, StartupError
from kafkalite.model import ANONYMOUS
from kafkalite.security.distinguished_name import alternative_names, java_text
from kafkalite.security.ssl_principal_mapping import PrincipalRules
from kafkalite.security.stores import read_key_store, read_trust_store, stamp_of, utc_date
from kafkalite.settings.areas.tls import TLS_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.security.stores import FileStamp
    from kafkalite.settings.areas.tls import TlsSettings
    from kafkalite.settings.broker import BrokerConfig
    from kafkalite.settings.listeners import Listener

logger = logging.getLogger("kafkalite.broker.security")

FILES_INTERVAL_S: Final = 10.0
"""Interval in seconds of checks for changed files."""
EXPIRY_WARNING_S: Final = 14 * 86400
"""A warning is logged once a day if a certificate expires within this number of seconds."""
DAY_S: Final = 86400.0
RSA_BITS_FAST_MAX: Final = 3072
"""Largest RSA key in bits with a fast handshake: a larger key takes a network worker milliseconds."""
_FIELDS: Final = tuple(key.replace(".", "_") for key in TLS_SETTINGS)
_TLS13_PREFIXES: Final = ("TLS_AES_", "TLS_CHACHA20_POLY1305_")


def tell_kept(listener: str, error: StartupError) -> None:
    """Log that new certificates were refused and the old ones stay. The error is logged without a traceback."""
    logger.error(
        "could not reload the certificate; the present one stays in use: %s", error, extra=fields(listener=listener)
    )


class Loaded(NamedTuple):
    """What was read from the settings and files of a listener."""

    context: TlsContext
    subject: bytes
    names: frozenset[bytes]
    expires: int
    trusts: bool
    stamps: dict[str, FileStamp | None]
    key: tuple[str, int]


def load(config: TlsSettings) -> Loaded:
    """Read the key store and the trust store.

    ConfigError for invalid stores or settings; StartupError without the OpenSSL library.
    """
    try:
        tls_context.library_version()
    except ImportError as error:
        raise StartupError(str(error)) from error
    paths = [config.ssl_keystore_location, config.ssl_truststore_location, config.ssl_crl_location]
    stamps = {path: stamp_of(path) for path in paths if path}  # before reading, so that a later change is noticed
    keys = read_key_store(config)
    trusted = read_trust_store(config)
    asks = config.ssl_client_auth != "none"
    if asks and trusted is None:
        raise ConfigError("ssl.client.auth", f"{config.ssl_client_auth} requires ssl.truststore.location")
    oldest, newest = config.versions
    ciphers, suites = _suites(config.ssl_cipher_suites)
    try:
        context = TlsContext(
            keys,
            trusted,
            asks=asks,
            demands=config.ssl_client_auth == "required",
            oldest=tls_context.PROTOCOLS[oldest],
            newest=tls_context.PROTOCOLS[newest],
            ciphers=ciphers,
            suites=suites,
        )
    except ValueError as error:
        raise ConfigError("ssl.keystore.location", str(error)) from None
    names = alternative_names(keys.alternative_names)
    return Loaded(context, keys.subject, names, keys.validity[1], trusted is not None, stamps, keys.key_description)


def _suites(wanted: Iterable[str]) -> tuple[str, str]:
    """Return (cipher suites up to TLS 1.2, cipher suites of TLS 1.3) in OpenSSL's spelling.

    Both are empty if no suites are configured.
    """
    older: list[str] = []
    newer: list[str] = []
    for name in wanted:
        found = tls_context.cipher_name(name)
        if found is None:
            raise ConfigError("ssl.cipher.suites", f"OpenSSL does not support {name[:80]!r}")
        (newer if name.startswith(_TLS13_PREFIXES) else older).append(found)
    return ":".join(older), ":".join(newer)


class ListenerTls:
    """The TLS of one listener: its current certificates and settings, and how they are reloaded."""

    def __init__(self, name: str, config: TlsSettings) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._config = config
        self._rules = PrincipalRules(config.ssl_principal_mapping_rules)
        self._loaded = load(config)
        self._told = 0.0
        kind, bits = self._loaded.key
        if kind == "RSA" and bits > RSA_BITS_FAST_MAX:
            logger.warning("TLS handshakes with an RSA key of %d bits are slow; an ECDSA P-256 key is as strong", bits)

    @property
    def context(self) -> TlsContext:
        """The context for the handshakes of new connections."""
        return self._loaded.context

    @property
    def expires(self) -> int:
        """The earliest time at which a certificate of the chain expires, in seconds since 1970."""
        return self._loaded.expires

    def principal_of(self, subject: bytes | None) -> str:
        """Return the principal for the subject of a client's certificate. ValueError if the client must be refused.

        `subject` is in DER form; None means that the client has no certificate.
        """
        if subject is None:
            return ANONYMOUS
        return f"User:{self._rules.name_of(java_text(subject))}"

    def check(self, config: TlsSettings) -> Loaded:
        """Read the files of `config`, and return the result.

        ConfigError if the result is invalid or must not replace the current certificates.
        """
        old, old_config = self._loaded, self._config
        loaded = load(config)
        if loaded.trusts and not old.trusts:
            raise ConfigError("ssl.truststore.location", "cannot be added while the broker is running; restart it")
        if loaded.subject != old.subject and not old_config.ssl_allow_dn_changes:
            raise ConfigError(
                "ssl.keystore.location",
                "the new certificate has another subject; set ssl.allow.dn.changes=true to accept it",
            )
        if not loaded.names >= old.names and not old_config.ssl_allow_san_changes:
            raise ConfigError(
                "ssl.keystore.location",
                "the new certificate lacks a name of the old one; set ssl.allow.san.changes=true to accept it",
            )
        return loaded

    def is_in_use(self, config: TlsSettings) -> bool:
        """Return whether new connections already use these settings and the present contents of their files."""
        same = all(getattr(config, name) == getattr(self._config, name) for name in _FIELDS)
        return same and {path: stamp_of(path) for path in self._loaded.stamps} == self._loaded.stamps

    def use(self, config: TlsSettings) -> None:
        """Apply checked settings, unless they are in use already with the same contents of their files. ConfigError."""
        with self._lock:
            if self.is_in_use(config):
                return
            self._loaded, self._config = self.check(config), config
        logger.info("certificate loaded", extra=fields(listener=self.name, expires=utc_date(self._loaded.expires)))

    def reload(self, *, only_changed: bool) -> bool:
        """Read the files again; return whether new contents are in use now.

        An error is logged, and the old contents stay in use. With `only_changed`, unchanged files are not read.
        """
        with self._lock:
            stamps = {path: stamp_of(path) for path in self._loaded.stamps}
            if only_changed and stamps == self._loaded.stamps:
                return False
            try:
                self._loaded = self.check(self._config)
            except StartupError as error:
                # Keep the stamps, so that a broken file is logged once and not every few seconds.
                self._loaded = self._loaded._replace(stamps=stamps)
                tell_kept(self.name, error)
                return False
        logger.info("certificate loaded", extra=fields(listener=self.name, expires=utc_date(self._loaded.expires)))
        return True

    def tell_expiry(self, now: float) -> None:
        """Log that a certificate expires soon, at most once a day; `now` is in seconds since 1970."""
        left = self._loaded.expires - now
        if left < EXPIRY_WARNING_S and now - self._told >= DAY_S:
            self._told = now
            logger.warning(
                "the certificate expires in %d days", max(0, int(left // DAY_S)), extra=fields(listener=self.name)
            )


class TlsListeners:
    """The listeners of a broker that use TLS, and the thread that checks their files."""

    def __init__(self, config: BrokerConfig) -> None:
        self._listeners: dict[str, Listener] = {
            listener.name: listener for listener in config.bound_listeners if listener.tls
        }
        self.by_name = {name: ListenerTls(name, self._settings(config, name)) for name in self._listeners}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def _settings(self, config: BrokerConfig, name: str) -> TlsSettings:
        """Return the TLS settings of a listener.

        On a listener with SASL, client certificates are requested only if a setting with the listener's prefix says so.
        """
        settings = config.tls_of(name)
        own = f"listener.name.{name.lower()}.ssl.client.auth"
        if self._listeners[name].sasl and own not in config.static_texts:
            return replace(settings, ssl_client_auth="none")
        return settings

    def start(self) -> None:
        """Start the thread that checks the files for changes, if any listener uses TLS."""
        if self.by_name:
            self._thread = threading.Thread(target=self._watch, name="kafkalite-tls", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Idempotent."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def reload(self) -> None:
        """Read every store again, even if unchanged. Errors are logged."""
        for listener in self.by_name.values():
            listener.reload(only_changed=False)

    def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError unless these settings may be applied while the broker runs."""
        for name, listener in self.by_name.items():
            wanted = self._settings(config, name)
            if not listener.is_in_use(wanted):
                listener.check(wanted)

    def use(self, config: BrokerConfig) -> None:
        """Apply checked settings."""
        for name, listener in self.by_name.items():
            try:
                listener.use(self._settings(config, name))
            except StartupError as error:  # a file has changed since the check
                tell_kept(name, error)

    def _watch(self) -> None:
        while True:
            if self._stopping.wait(FILES_INTERVAL_S):
                return
            for listener in self.by_name.values():
                listener.reload(only_changed=True)
                listener.tell_expiry(time.time())
