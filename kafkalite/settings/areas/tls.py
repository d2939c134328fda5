"""Define the settings of TLS, for all listeners or for one listener.

    ssl.keystore.location=…                      every listener with TLS
    listener.name.outside.ssl.keystore.location  the listener OUTSIDE

The names are Kafka's. A value for one listener takes precedence. While the broker runs, only key stores and trust
stores can be changed, and only by keys for one listener (RELOADABLE).

Thread rule: pure functions on text; any thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Self

from kafkalite.base.dataclass import dataclass
from kafkalite.errors import ConfigError
from kafkalite.settings.rows import BOOLEAN, LIST, PASSWORD, STRING, Setting, collect, parse_all, setting

if TYPE_CHECKING:
    from collections.abc import Mapping

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
"""The supported versions, the oldest first."""
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
NAME_CHECK_KEY: Final = "ssl.endpoint.identification.algorithm"
"""Only for clients: `https`, or empty for a server whose name is not checked."""

RELOADABLE: Final = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    }
)
"""The settings of one listener that can be changed while the broker runs."""

_LISTENER_KEY: Final = re.compile(r"listener\.name\.(?P<name>[^.]+)\.(?P<key>ssl\..+)")


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class TlsRows:
    """Settings of TLS."""

    __slots__ = ()

    ssl_keystore_type: str = setting(
        STRING,
        "JKS",
        "`PEM` or `PKCS12`. The first bytes of the file decide, so a PKCS#12 file declared as JKS, as keytool "
        "does, is accepted. Java's JKS format is rejected; the error contains the command that converts it.",
        choices=STORE_TYPES,
    )
    ssl_keystore_location: str | None = setting(
        STRING, None, "File with the private key and its certificates: PEM with the leaf certificate first, or PKCS#12."
    )
    ssl_keystore_password: str | None = setting(PASSWORD, None, "Password of the PKCS#12 key store.")
    ssl_keystore_key: str | None = setting(
        PASSWORD, None, "Private key as PEM text with ssl.keystore.type=PEM, instead of a file."
    )
    ssl_keystore_certificate_chain: str | None = setting(
        PASSWORD, None, "Certificate chain of ssl.keystore.key as PEM text, leaf certificate first."
    )
    ssl_key_password: str | None = setting(PASSWORD, None, "Password of the encrypted PEM private key.")
    ssl_truststore_type: str = setting(
        STRING, "JKS", "Type of the trust store; see ssl.keystore.type.", choices=STORE_TYPES
    )
    ssl_truststore_location: str | None = setting(
        STRING, None, "File with the trusted certificates that verify client certificates."
    )
    ssl_truststore_password: str | None = setting(PASSWORD, None, "Password of the PKCS#12 trust store.")
    ssl_truststore_certificates: str | None = setting(
        PASSWORD, None, "Trusted certificates as PEM text with ssl.truststore.type=PEM, instead of a file."
    )
    ssl_crl_location: str | None = setting(
        STRING, None, "Certificate revocation lists as PEM. If set, each certificate in the peer's chain needs one."
    )
    ssl_client_auth: str = setting(
        STRING,
        "none",
        "Client certificates: `none`, `requested` (optional) or `required`.",
        choices=("none", "requested", "required"),
    )
    ssl_principal_mapping_rules: str = setting(
        STRING,
        "DEFAULT",
        "Map a client certificate to a principal (after `User:`): comma-separated rules; the first that matches the"
        " whole distinguished name applies. `DEFAULT` is the name itself, `RULE:pattern/replacement/L` (or `U`, or"
        " nothing) takes parts of it. A client that matches no rule is refused.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        LIST, PROTOCOLS, "Enabled TLS versions; older ones are not supported."
    )
    ssl_protocol: str = setting(STRING, "TLSv1.3", "Highest TLS version.", choices=("TLSv1.3", "TLSv1.2", "TLS"))
    ssl_cipher_suites: tuple[str, ...] = setting(
        LIST,
        (),
        "Cipher suites by IANA name. Empty: the suites of the TLS library and the system-wide policy that have "
        "AEAD and ephemeral keys, hence none with CBC.",
    )
    ssl_allow_dn_changes: bool = setting(
        BOOLEAN, False, "Allow a certificate reloaded on a running broker to have another subject."
    )
    ssl_allow_san_changes: bool = setting(
        BOOLEAN,
        False,
        "Allow a certificate reloaded on a running broker to lack subject alternative names of the old one.",
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TlsSettings(TlsRows):
    """The effective TLS settings of one listener."""

    @classmethod
    def of_listener(cls, name: str, static: Mapping[str, str], dynamic: Mapping[str, str]) -> Self:
        """Determine the effective TLS settings of a listener.

        `static` and `dynamic` have the texts of all settings by key; dynamic ones take precedence. ConfigError.
        """
        texts = {key: text for key, text in static.items() if key in TLS_SETTINGS}
        for changes in (static, dynamic):
            for full, text in changes.items():
                found = listener_key(full)
                if found is not None and found[0] == name.lower():
                    texts[found[1]] = text
        return cls(**parse_all(TLS_SETTINGS, texts))  # type: ignore[arg-type]  # parse gives each field's own type

    @property
    def versions(self) -> tuple[str, str]:
        """The lowest and the highest enabled TLS version. ConfigError for an unsupported version."""
        wanted = self.ssl_enabled_protocols
        for version in wanted:
            if version not in PROTOCOLS:
                raise ConfigError(
                    "ssl.enabled.protocols", f"{version} is not supported; expected {' or '.join(PROTOCOLS)}"
                )
        served = [version for version in PROTOCOLS if version in wanted]
        if self.ssl_protocol in served:
            served = served[: served.index(self.ssl_protocol) + 1]
        if not served:
            raise ConfigError("ssl.enabled.protocols", "contains no version")
        return served[0], served[-1]


TLS_SETTINGS: Final[dict[str, Setting]] = collect(TlsRows)


def listener_key(full: str) -> tuple[str, str] | None:
    """Split a key `listener.name.<listener>.ssl.…` into (listener in lower case, key). None for other keys."""
    match = _LISTENER_KEY.fullmatch(full)
    if match is None or match["key"] not in TLS_SETTINGS:
        return None
    return match["name"].lower(), match["key"]


def row_of(full: str) -> Setting | None:
    """Return the definition of a listener's TLS setting; None for other keys."""
    found = listener_key(full)
    return None if found is None else TLS_SETTINGS[found[1]]
