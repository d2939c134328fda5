"""Define the settings of SASL, for all listeners, for one listener, or for one of its mechanisms.

    connections.max.reauth.ms=…                                             every listener with SASL
    listener.name.outside.connections.max.reauth.ms=…                       the listener OUTSIDE
    listener.name.outside.scram-sha-256.connections.max.reauth.ms=…         one mechanism of OUTSIDE
    listener.name.outside.plain.sasl.jaas.config=…                          the only form of sasl.jaas.config

The names are Kafka's. The most specific value takes precedence.

Thread rule: pure functions on text; any thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kafkalite.base.dataclass import dataclass
from kafkalite.errors import ConfigError
from kafkalite.settings.rows import BOOLEAN, INT, LIST, LONG, PASSWORD, STRING, Setting, collect, parse_all, setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MECHANISMS_KEY: Final = "sasl.enabled.mechanisms"
JAAS_KEY: Final = "sasl.jaas.config"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The supported mechanisms."""

_LISTENER_KEY: Final = re.compile(
    rf"listener\.name\.(?P<name>[^.]+)\.(?:(?P<mechanism>{'|'.join(map(str.lower, MECHANISMS))})\.)?(?P<key>.+)"
)


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class SaslRows:
    """Settings of SASL."""

    __slots__ = ()

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        LIST,
        ("GSSAPI",),
        f"SASL mechanisms that clients can use on listeners with SASL: {', '.join(MECHANISMS)}. Kafka's default, "
        "GSSAPI, is not supported, so such a listener requires this setting.",
    )
    sasl_server_max_receive_size: int = setting(
        INT, 524_288, "Maximum size of a request before authentication.", unit="bytes", low=1
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        STRING,
        None,
        "URL, https:// or file://, of the JSON Web Key Set that verifies bearer tokens.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        LONG, 3_600_000, "Interval between refreshes of the key set.", unit="ms", low=1000
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        LONG,
        100,
        "First delay before a failed request for the key set is retried; it doubles with each attempt.",
        unit="ms",
        low=1,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        LONG, 10_000, "Maximum delay before a failed request for the key set is retried.", unit="ms", low=1
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        LIST, (), "Accepted audiences of bearer tokens; a token must contain one of them. Empty: any audience."
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        STRING, None, "Required issuer of bearer tokens; unset: any issuer with a known key."
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        STRING, "scope", "Claim of a bearer token that contains the scopes."
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        STRING, "sub", "Claim of a bearer token that contains the principal's name."
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        INT, 30, "Allowed clock difference from the issuer of bearer tokens.", unit="seconds", low=0
    )
    sasl_oauthbearer_allow_unsecured_tokens: bool = setting(
        BOOLEAN,
        False,
        "Accept unsigned bearer tokens, as Kafka's default does. For development only: clients can then"
        " claim any identity.",
    )
    connections_max_reauth_ms: int = setting(
        LONG,
        0,
        "Maximum lifetime of a SASL session before the client has to authenticate again (KIP-368); 0: no limit.",
        unit="ms",
        low=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SaslSettings(SaslRows):
    """The effective SASL settings of one listener, or of one of its mechanisms."""


SASL_SETTINGS: Final[dict[str, Setting]] = collect(SaslRows)
JAAS_ROW: Final = Setting(
    key=JAAS_KEY,
    type=PASSWORD,
    default=None,
    doc=(
        "Login configuration of a mechanism in Java's JAAS syntax; for PLAIN, it lists the users as "
        '`user_NAME="password"`.'
    ),
)


class MechanismSettings(NamedTuple):
    """The effective settings of one mechanism of a listener."""

    name: str
    settings: SaslSettings
    jaas: str | None


class ListenerSaslSettings(NamedTuple):
    """The effective SASL settings of one listener and its mechanisms."""

    receive_size_max: int
    mechanisms: tuple[MechanismSettings, ...]

    @classmethod
    def of_listener(cls, name: str, static: Mapping[str, str]) -> Self:
        """Determine the effective SASL settings of a listener. ConfigError for an unsupported mechanism.

        `static` has the texts of all settings by key.
        """
        own = _settings(static, name)
        found = tuple(
            MechanismSettings(
                mechanism,
                _settings(static, name, mechanism.lower()),
                static.get(f"listener.name.{name.lower()}.{mechanism.lower()}.{JAAS_KEY}"),
            )
            for mechanism in _served(own.sasl_enabled_mechanisms, name)
        )
        return cls(own.sasl_server_max_receive_size, found)


def _settings(static: Mapping[str, str], name: str, mechanism: str = "") -> SaslSettings:
    places = ["", f"listener.name.{name.lower()}."]
    if mechanism:
        places.append(f"{places[1]}{mechanism}.")
    texts = {key: static[place + key] for place in places for key in SASL_SETTINGS if place + key in static}
    return SaslSettings(**parse_all(SASL_SETTINGS, texts))  # type: ignore[arg-type]  # parse gives each field's own type


def _served(wanted: Iterable[str], name: str) -> tuple[str, ...]:
    known = tuple(dict.fromkeys(mechanism.upper() for mechanism in wanted))
    for mechanism in known:
        if mechanism not in MECHANISMS:
            raise ConfigError(
                MECHANISMS_KEY,
                f"{mechanism[:64]} is not supported; listener {name} needs one of {', '.join(MECHANISMS)}",
            )
    if not known:
        raise ConfigError(MECHANISMS_KEY, f"is empty, but listener {name} needs a mechanism")
    return known


def listener_key(full: str) -> tuple[str, str] | None:
    """Split a key `listener.name.<listener>.[<mechanism>.]<key>` into (listener in lower case, key).

    None for other keys.
    """
    match = _LISTENER_KEY.fullmatch(full)
    known = match is not None and (match["key"] in SASL_SETTINGS or (match["key"] == JAAS_KEY and match["mechanism"]))
    return (match["name"].lower(), match["key"]) if match is not None and known else None


def row_of(full: str) -> Setting | None:
    """Return the definition of a listener's SASL setting; None for other keys."""
    found = listener_key(full)
    return None if found is None else SASL_SETTINGS.get(found[1], JAAS_ROW)
