"""Certificates of HTTPS listeners: Kafka's settings in, a context for new connections out, and its reload.

    ssl.keystore.location=server.pem        the key and the certificates that are shown
    ssl.truststore.location=ca.pem          whose certificates are believed
    ssl.client.auth=required                a client has to show one

A file that changed is noticed within RELOAD_S. What does not load is told once, and the old context stays; connections
keep what they shook hands with.

Threads: the server's I/O thread looks; `reload` may be called from any. An SSL object may be used by one thread at a
time, so each step of a `TlsSocket` takes its lock. No step waits: the socket does not block.
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
    """A socket that does not block, through TLS: "not yet" is BlockingIOError, as of a plain one."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext) -> None:
        """OSError, ValueError: the peer is gone already."""
        self._lock = threading.Lock()
        self._shaken = False
        plain.setblocking(False)
        self._tls = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)

    def certificate(self) -> bytes | None:
        """The DER of the client's certificate, if it showed one."""
        with self._lock:
            return self._tls.getpeercert(binary_form=True)

    def recv(self, size: int) -> bytes:
        """Bytes, b"" at the end; BlockingIOError when there are none yet, OSError when there will be none."""
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
        """How many bytes were taken; BlockingIOError when none can be now."""
        with self._lock:
            try:
                return self._tls.send(data)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise not_yet() from None

    def pending(self) -> int:
        """Bytes that are readable without the socket being so."""
        with self._lock:
            return self._tls.pending()

    def close(self) -> None:
        """Says goodbye if that needs no wait, and closes."""
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
    """See the module."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """By Kafka's keys; ConfigError, StartupError."""
        for key in settings:
            if key not in TLS_SETTINGS:
                raise ConfigError(key, f"unknown setting{near_miss(key, TLS_SETTINGS)}")
        self._config = TlsSettings(**parse_all(TLS_SETTINGS, settings))  # type: ignore[arg-type]  # each field's type
        self._rules = PrincipalRules(self._config.ssl_principal_mapping_rules)
        config = self._config
        stores = (config.ssl_keystore_location, config.ssl_truststore_location, config.ssl_crl_location)
        self._paths = [path for path in stores if path]
        self._lock = threading.Lock()
        self._stamps = [stamp_of(path) for path in self._paths]  # before reading: a later change is seen
        self._context = server_context(config)
        self._looked = time.monotonic()

    @classmethod
    def from_file(cls, path: Path) -> Tls:
        """From a .properties file; StartupError when it cannot be read."""
        return cls(read_properties(path))

    def secure(self, plain: socket.socket) -> TlsSocket:
        """A socket that was accepted, through TLS."""
        return TlsSocket(plain, self._context)

    def name_of(self, certificate: bytes) -> str:
        """What the owner of a certificate (DER) is called, by ssl.principal.mapping.rules; ValueError: nothing."""
        return self._rules.name_of(java_text(subject_of(certificate)))

    def look(self) -> None:
        """Reloads if a file changed; to be called now and then."""
        now = time.monotonic()
        if now - self._looked >= RELOAD_S:
            self._looked = now
            self.reload(only_changed=True)

    def reload(self, *, only_changed: bool = False) -> None:
        """Reads the files again. What cannot be taken is told, and what was there stays."""
        with self._lock:
            stamps = [stamp_of(path) for path in self._paths]
            if only_changed and stamps == self._stamps:
                return
            self._stamps = stamps
            try:
                self._context = server_context(self._config)
            except StartupError as error:
                logger.error("the previous certificate stays in use: %s", error)  # noqa: TRY400  # a sentence, no traceback
                return
        logger.info("certificate loaded")
