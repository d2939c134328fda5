"""Load key stores and trust stores for TLS, from files or settings.

The content of a file, and not the setting for the type, determines its format: PKCS#12 or PEM. Java's JKS format is
recognized and refused. A ConfigError names the setting that is invalid.

Thread rule: any thread except network workers, because files are read.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kafkalite._native.base import native_time as time
from kafkalite._native.tls.tls_context import STORE_SIZE_MAX, KeyStore, TrustStore
from kafkalite.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.settings.areas.tls import TlsSettings

T = TypeVar("T")

_JKS: Final = b"\xfe\xed\xfe\xed"
_PEM_BLOCK: Final = re.compile(r"-----BEGIN (?P<what>[A-Z0-9 ]+)-----(?P<body>[^-]*)-----END (?P=what)-----\s*")


class FileStamp(NamedTuple):
    """The attributes of a file that change when the file changes."""

    mtime_ns: int
    size: int
    inode: int


def stamp_of(path: str) -> FileStamp | None:
    """Return the stamp of a file; None if the file does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileStamp(found.st_mtime_ns, found.st_size, found.st_ino)


def read_key_store(config: TlsSettings, now: float | None = None) -> KeyStore:
    """Load the private key and certificate chain of a listener. ConfigError if they are invalid or expired.

    `now` is the time to which the certificate's validity is compared, in seconds since 1970.
    """
    key = "ssl.keystore.location"
    inline = config.ssl_keystore_key or config.ssl_keystore_certificate_chain
    if inline:
        key = "ssl.keystore.key"
        if config.ssl_keystore_location:
            raise ConfigError(key, "excludes ssl.keystore.location")
        if config.ssl_keystore_type != "PEM" or not (config.ssl_keystore_key and config.ssl_keystore_certificate_chain):
            raise ConfigError(key, "requires ssl.keystore.type=PEM and ssl.keystore.certificate.chain")
        store = _parsed(
            key,
            "",
            lambda: KeyStore.from_pem(
                wrapped(config.ssl_keystore_key or ""),
                wrapped(config.ssl_keystore_certificate_chain or ""),
                _secret(config.ssl_key_password),
            ),
        )
    elif config.ssl_keystore_location:
        store = _key_file(key, config)
    else:
        raise ConfigError(key, "is missing; a listener with TLS needs a certificate")
    where = config.ssl_keystore_location or ""
    _parsed(key, where, store.check)
    _check_dates(key, where, store.validity, time.time() if now is None else now)
    return store


def read_trust_store(config: TlsSettings) -> TrustStore | None:
    """Load the trusted CAs of a listener, with ssl.crl.location. Return None if none are configured. ConfigError."""
    store = _trusted(config)
    if store is not None and config.ssl_crl_location:
        lists = read_file("ssl.crl.location", config.ssl_crl_location)
        _parsed("ssl.crl.location", config.ssl_crl_location, lambda: store.revoke(lists))
    return store


def _trusted(config: TlsSettings) -> TrustStore | None:
    key = "ssl.truststore.location"
    path = config.ssl_truststore_location
    if config.ssl_truststore_certificates:
        if path or config.ssl_truststore_type != "PEM":
            raise ConfigError(
                "ssl.truststore.certificates",
                "requires ssl.truststore.type=PEM and cannot be combined with ssl.truststore.location",
            )
        text = wrapped(config.ssl_truststore_certificates)
        return _parsed("ssl.truststore.certificates", "", lambda: TrustStore.from_pem(text))
    if not path:
        return None
    data = read_file(key, path)
    if _kind(key, path, data) == "PKCS12":
        if config.ssl_truststore_password is None:
            raise ConfigError("ssl.truststore.password", f"is missing, and {path} is encrypted")
        return _parsed(key, path, lambda: TrustStore.from_pkcs12(data, _secret(config.ssl_truststore_password)))
    _refuse_password("ssl.truststore.password", config.ssl_truststore_password)
    return _parsed(key, path, lambda: TrustStore.from_pem(data))


def _key_file(key: str, config: TlsSettings) -> KeyStore:
    path = config.ssl_keystore_location or ""
    data = read_file(key, path)
    if _kind(key, path, data) == "PKCS12":
        if config.ssl_keystore_password is None:
            raise ConfigError("ssl.keystore.password", f"is missing, and {path} is encrypted")
        return _parsed(key, path, lambda: KeyStore.from_pkcs12(data, _secret(config.ssl_keystore_password)))
    _refuse_password("ssl.keystore.password", config.ssl_keystore_password)
    return _parsed(key, path, lambda: KeyStore.from_pem(data, data, _secret(config.ssl_key_password)))


def read_file(key: str, path: str) -> bytes:
    """Read a regular file. ConfigError for anything else, such as a directory or a pipe."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(key, f"{path} cannot be read: {error.strerror}") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > STORE_SIZE_MAX:
            raise ConfigError(key, f"{path} is not a regular file of at most {STORE_SIZE_MAX} bytes")
        with os.fdopen(os.dup(fd), "rb") as file:
            return file.read(STORE_SIZE_MAX)
    except OSError as error:
        raise ConfigError(key, f"{path} cannot be read: {error.strerror}") from None
    finally:
        os.close(fd)


def wrapped(text: str) -> bytes:
    """Restore the line breaks of PEM text. In a .properties file, they may be spaces or missing."""

    def block(match: re.Match[str]) -> str:
        if ":" in match["body"]:
            return "\n" + match[0]  # headers of legacy encryption: their line breaks matter
        body = "".join(match["body"].split())
        lines = [body[i : i + 64] for i in range(0, len(body), 64)]
        return "\n".join(["", f"-----BEGIN {match['what']}-----", *lines, f"-----END {match['what']}-----\n"])

    return _PEM_BLOCK.sub(block, text).encode()


def _kind(key: str, path: str, data: bytes) -> str:
    if data[:1] == b"\x30":
        return "PKCS12"
    if data[:4] == _JKS:
        raise ConfigError(
            key,
            f"{path} is a JKS keystore, which is not supported; convert it: keytool -importkeystore -srckeystore "
            f"{path} -destkeystore {path}.p12 -deststoretype PKCS12",
        )
    if b"-----BEGIN " in data:
        return "PEM"
    raise ConfigError(key, f"{path} is neither PEM nor PKCS#12")


def _refuse_password(key: str, password: str | None) -> None:
    if password is not None:
        raise ConfigError(key, "applies only to PKCS#12; set ssl.key.password for an encrypted PEM key")


def _secret(password: str | None) -> bytes | None:
    return None if password is None else password.encode()


def _parsed(key: str, path: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except ValueError as error:
        if str(error) == "unsupported":
            raise ConfigError(
                key,
                f"{path} is encrypted with a legacy algorithm; convert it to PEM, which needs no password here: "
                f"openssl pkcs12 -legacy -noenc -in {path} -out {path}.pem",
            ) from None
        raise ConfigError(key, f"{path}: {error}" if path else str(error)) from None


def _check_dates(key: str, path: str, validity: tuple[int, int], now: float) -> None:
    begins, ends = validity
    if now < begins:
        raise ConfigError(key, f"{path or 'the certificate'} is not valid before {utc_date(begins)}")
    if now >= ends:
        raise ConfigError(key, f"{path or 'the certificate'} expired on {utc_date(ends)}")


def utc_date(seconds: int) -> str:
    """Format a time in seconds since 1970 as a date and time in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
