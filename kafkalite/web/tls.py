"""Build the TLS context of an HTTPS listener from Kafka's TLS settings, and reload it when its files change.

    ssl.keystore.location=server.pem        the private key and certificates of the server
    ssl.truststore.location=ca.pem          the CAs that sign client certificates
    ssl.client.auth=required                each client must present a certificate

A changed file is noticed within about RELOAD_S seconds. Open connections keep the context of their handshake.

Thread rule: the server's I/O thread checks for changes; any thread may call `reload`. Only one thread at a time may use
an SSL object, so a `TlsSocket` holds its lock while it reads, sends or closes.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import ssl
import threading
from typing import TYPE_CHECKING, Any, Final

from kafkalite._native.base import native_time as time
from kafkalite.errors import ConfigError, StartupError
from kafkalite.security.distinguished_name import java_text, subject_of
from kafkalite.security.ssl_contexts import server_context
from kafkalite.security.ssl_principal_mapping import PrincipalRules
from kafkalite.security.stores import stamp_of
from kafkalite.settings.areas.tls import TLS_SETTINGS, TlsSettings
from kafkalite.settings.properties import read_properties
from kafkalite.settings.rows import near_miss, parse_all

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from pathlib import Path

logger = logging.getLogger(__name__)

RELOAD_S: Final = 10.0


def not_yet() -> BlockingIOError:
    return BlockingIOError(errno.EWOULDBLOCK, "not yet")


class TlsSocket:
    """A non-blocking TLS socket. Like a plain socket, it raises BlockingIOError if an operation would block."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext) -> None:
        """Wrap an accepted socket. OSError or ValueError if the client has disconnected."""
        self._lock = threading.Lock()
        self._shaken = False
        plain.setblocking(False)
        self._tls = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)

    def certificate(self) -> bytes | None:
        """Return the client's certificate as DER; None if the client has not presented one."""
        with self._lock:
            return self._tls.getpeercert(binary_form=True)

    def recv(self, size: int) -> bytes:
        """Read decrypted data; b"" at the end.

        BlockingIOError if there is none yet, OSError if the connection failed.
        """
        with self._lock:
            try:
                if not self._shaken:
                    self._tls.do_handshake()
                    self._shaken = True
                return self._tls.recv(size)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise not_yet() from None
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    def send(self, data: bytes) -> int:
        """Send data, and return the number of bytes that were accepted. BlockingIOError if there is no room."""
        with self._lock:
            try:
                return self._tls.send(data)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise not_yet() from None

    def pending(self) -> int:
        """Return the number of decrypted bytes that can be read at once. A selector does not report them."""
        with self._lock:
            return self._tls.pending()

    def close(self) -> None:
        """Close the socket, after sending close_notify if that does not block."""
        with self._lock:
            if self._shaken:
                with contextlib.suppress(OSError, ValueError):
                    self._tls.unwrap()
            self._tls.close()

    def fileno(self) -> int:
        return self._tls.fileno()

    def setblocking(self, flag: bool) -> None:
        self._tls.setblocking(flag)

    def getsockopt(self, level: int, option: int) -> int:
        return self._tls.getsockopt(level, option)

    def getpeername(self) -> Any:
        return self._tls.getpeername()


class Tls:
    """The TLS context of an HTTPS listener, which is reloaded when its files change."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Load the key and certificates that Kafka's TLS settings name. ConfigError or StartupError."""
        for key in settings:
            if key not in TLS_SETTINGS:
                raise ConfigError(key, f"unknown setting{near_miss(key, TLS_SETTINGS)}")
        self._config = TlsSettings(**parse_all(TLS_SETTINGS, settings))  # type: ignore[arg-type]  # each field's type
        self._rules = PrincipalRules(self._config.ssl_principal_mapping_rules)
        config = self._config
        stores = (config.ssl_keystore_location, config.ssl_truststore_location, config.ssl_crl_location)
        self._paths = [path for path in stores if path]
        self._lock = threading.Lock()
        self._stamps = [stamp_of(path) for path in self._paths]  # before reading: a later change is noticed
        self._context = server_context(config)
        self._looked = time.monotonic()

    @classmethod
    def from_file(cls, path: Path) -> Tls:
        """Load the TLS settings from a .properties file. StartupError if it cannot be read; ConfigError."""
        return cls(read_properties(path))

    def secure(self, plain: socket.socket) -> TlsSocket:
        """Wrap an accepted socket in TLS."""
        return TlsSocket(plain, self._context)

    def name_of(self, certificate: bytes) -> str:
        """Map a client certificate (DER) to a name by ssl.principal.mapping.rules. ValueError if no rule matches."""
        return self._rules.name_of(java_text(subject_of(certificate)))

    def look(self) -> None:
        """Reload the files if one has changed. The server calls this method periodically."""
        now = time.monotonic()
        if now - self._looked >= RELOAD_S:
            self._looked = now
            self.reload(only_changed=True)

    def reload(self, *, only_changed: bool = False) -> None:
        """Load the files again. If that fails, the error is logged and the old context remains in use."""
        with self._lock:
            stamps = [stamp_of(path) for path in self._paths]
            if only_changed and stamps == self._stamps:
                return
            self._stamps = stamps
            try:
                self._context = server_context(self._config)
            except StartupError as error:
                logger.error("the previous certificate stays in use: %s", error)  # noqa: TRY400  # no traceback
                return
        logger.info("certificate loaded")
