"""Parse and match subscriptions to clients' metrics (Kafka's config resource CLIENT_METRICS, KIP-714).

A subscription selects clients, the metrics that they push, and the interval between pushes. Patterns are RE2
expressions that must match the whole text. Source: ClientMetricsConfigs of Kafka 4.1.

Thread rule: immutable; any thread. A change creates a new object.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalite.base.dataclass import dataclass
from kafkalite.base.regex import compiled
from kafkalite.errors import ConfigError, InvalidRequest
from kafkalite.settings.rows import (
    INT,
    LIST,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    Setting,
    collect,
    near_miss,
    parse_all,
    setting,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INTERVAL_MIN_MS: Final = 100
INTERVAL_MAX_MS: Final = 3_600_000
PATTERN_BYTES_MAX: Final = 1 << 20
"""Maximum memory of one compiled pattern, in bytes."""
ATTRIBUTES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The attributes of a client for which there can be a pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsConfig:
    """One subscription. `resolve` creates it from texts; the constructor uses the defaults."""

    metrics: tuple[str, ...] = setting(
        LIST, (), "Name prefixes of the metrics that clients push; `*` selects all, an empty list none."
    )
    interval_ms: int = setting(
        INT,
        300_000,
        (
            "Interval between two pushes of a client, from 100 to 3600000. If several subscriptions match, the "
            "shortest applies."
        ),
        unit="ms",
    )
    match: tuple[str, ...] = setting(
        LIST,
        (),
        "Clients that the subscription selects, as ATTRIBUTE=PATTERN; all pairs must match. Attributes are "
        f"{', '.join(ATTRIBUTES)}.",
    )
    overrides: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The texts of the subscription's own settings, by key."""
    patterns: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """`match` as compiled expressions by attribute."""

    @classmethod
    def resolve(cls, overrides: Mapping[str, str]) -> Self:
        """Create a subscription from the texts of its settings.

        As in Kafka, errors have two kinds: InvalidRequest for an unknown key or an interval out of range, and
        ConfigError for a value that cannot be parsed.
        """
        for key in overrides:
            if key not in CLIENT_METRICS_SETTINGS:
                known = near_miss(key, CLIENT_METRICS_SETTINGS)
                raise InvalidRequest(f"unknown setting of client metrics: {key:.256}{known}")
        values: dict[str, Any] = parse_all(CLIENT_METRICS_SETTINGS, overrides)
        interval_ms = values.get("interval_ms")
        if interval_ms is not None and not INTERVAL_MIN_MS <= interval_ms <= INTERVAL_MAX_MS:
            raise InvalidRequest(f"interval.ms: must be from {INTERVAL_MIN_MS} to {INTERVAL_MAX_MS}, not {interval_ms}")
        patterns = dict(map(_pattern, _items(overrides.get("match", ""))))
        return cls(**values, overrides=dict(overrides), patterns=patterns)

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Return whether the subscription selects a client with these attributes.

        A client without an attribute does not match a pattern for the attribute.
        """
        return all(
            name in attributes and pattern.fullmatch(attributes[name]) is not None
            for name, pattern in self.patterns.items()
        )

    def describe(self) -> Iterator[ConfigEntry]:
        """Yield all settings with value, source and synonyms, for DescribeConfigs. A default has no synonyms."""
        for key, row in CLIENT_METRICS_SETTINGS.items():
            value, own = row.render(getattr(self, row.attribute)), key in self.overrides
            yield row.entry(value, (ConfigSynonym(key, value, ConfigSource.CLIENT_METRICS),) if own else ())


def _items(text: str) -> list[str]:
    """Split a comma-separated list of patterns. Empty patterns are kept, so that they are rejected later, as in
    Kafka."""
    return [item.strip() for item in text.split(",")] if text.strip() else []


def _pattern(text: str) -> tuple[str, Any]:
    """Split a pattern into its attribute and its compiled expression. ConfigError.

    As in Kafka, `=` at the end is ignored.
    """
    name, _, expression = text.rstrip("=").partition("=")
    if name.strip() not in ATTRIBUTES or not expression or "=" in expression:
        raise ConfigError(
            "match", f"must be ATTRIBUTE=PATTERN, where ATTRIBUTE is one of {', '.join(ATTRIBUTES)}, not {text[:256]!r}"
        )
    try:
        return name.strip(), compiled(expression.strip(), PATTERN_BYTES_MAX)
    except ValueError as error:
        raise ConfigError("match", f"{text[:256]!r} is not a valid regular expression (RE2): {error}") from None


CLIENT_METRICS_SETTINGS: Final[dict[str, Setting]] = collect(ClientMetricsConfig)
