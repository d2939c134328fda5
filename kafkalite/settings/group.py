"""Determine the effective settings of a consumer group (Kafka's config resource GROUP, KIP-848).

A setting's value is the group's own, or else the broker's. Settings `share.*` and `streams.*` are validated and stored
as in Kafka, but have no effect, because share and streams groups are not supported.

Sources: GroupConfig of Kafka 4.1, and responses of Kafka 4.4.

Thread rule: immutable; any thread. A change creates a new object.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Final, Self

from kafkalite.base.dataclass import dataclass
from kafkalite.errors import ConfigError
from kafkalite.settings.broker import BROKER_SETTINGS
from kafkalite.settings.rows import (
    INT,
    NONE,
    STRING,
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

    from kafkalite.settings.broker import BrokerConfig

_DURATION: Final = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d{1,9})?S)?)?", re.IGNORECASE)
"""ISO 8601, as Java reads it, without signs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings of one group. `resolve` creates them from texts; the constructor uses the defaults."""

    consumer_session_timeout_ms: int = setting(
        INT,
        45_000,
        "Session timeout of members of the consumer group protocol (KIP-848).",
        unit="ms",
        low=1,
        broker_keys=(("group.consumer.session.timeout.ms", 1),),
    )
    consumer_heartbeat_interval_ms: int = setting(
        INT,
        5000,
        "Heartbeat interval of members of the consumer group protocol (KIP-848).",
        unit="ms",
        low=1,
        broker_keys=(("group.consumer.heartbeat.interval.ms", 1),),
    )
    share_session_timeout_ms: int = setting(
        INT,
        45_000,
        "Session timeout of members of a share group.",
        unit="ms",
        low=45_000,
        high=60_000,
        effect=NONE,
        broker_keys=(("group.share.session.timeout.ms", 1),),
    )
    share_heartbeat_interval_ms: int = setting(
        INT,
        5000,
        "Heartbeat interval of members of a share group.",
        unit="ms",
        low=5000,
        high=15_000,
        effect=NONE,
        broker_keys=(("group.share.heartbeat.interval.ms", 1),),
    )
    share_record_lock_duration_ms: int = setting(
        INT,
        30_000,
        "Time for which a share group's record is locked for one member.",
        unit="ms",
        low=15_000,
        high=60_000,
        effect=NONE,
        broker_keys=(("group.share.record.lock.duration.ms", 1),),
    )
    share_auto_offset_reset: str = setting(
        STRING, "latest", "Where a share group starts to read: latest, earliest or by_duration:<ISO 8601>.", effect=NONE
    )
    share_isolation_level: str = setting(
        STRING,
        "read_uncommitted",
        "Isolation level of a share group.",
        choices=("read_committed", "read_uncommitted"),
        effect=NONE,
    )
    streams_session_timeout_ms: int = setting(
        INT,
        45_000,
        "Session timeout of members of a streams group.",
        unit="ms",
        low=45_000,
        high=60_000,
        effect=NONE,
        broker_keys=(("group.streams.session.timeout.ms", 1),),
    )
    streams_heartbeat_interval_ms: int = setting(
        INT,
        5000,
        "Heartbeat interval of members of a streams group.",
        unit="ms",
        low=5000,
        high=15_000,
        effect=NONE,
        broker_keys=(("group.streams.heartbeat.interval.ms", 1),),
    )
    streams_num_standby_replicas: int = setting(
        INT,
        0,
        "Number of standby replicas of a streams group's tasks.",
        low=0,
        high=2,
        effect=NONE,
        broker_keys=(("group.streams.num.standby.replicas", 1),),
    )
    overrides: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The texts of the group's own settings, by key."""

    @classmethod
    def resolve(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> Self:
        """Determine the settings of a group from the broker's settings and the group's own (`overrides`).

        ConfigError for an unknown key or an invalid value.
        """
        for key in overrides:
            if key not in GROUP_SETTINGS:
                raise ConfigError(key, f"unknown group setting{near_miss(key, GROUP_SETTINGS)}")
        values = {
            "consumer_session_timeout_ms": broker.group_consumer_session_timeout_ms,
            "consumer_heartbeat_interval_ms": broker.group_consumer_heartbeat_interval_ms,
            **parse_all(GROUP_SETTINGS, overrides),
        }
        config = cls(**values, overrides=dict(overrides))  # type: ignore[arg-type]  # parse gives each field's own type
        config._check(broker)
        return config

    def _check(self, broker: BrokerConfig) -> None:
        """Raise ConfigError if values contradict each other or exceed the broker's limits.

        The broker's limits apply only to values that the group sets itself.
        """
        for key, shortest, longest in (
            (
                "consumer.session.timeout.ms",
                broker.group_consumer_min_session_timeout_ms,
                broker.group_consumer_max_session_timeout_ms,
            ),
            (
                "consumer.heartbeat.interval.ms",
                broker.group_consumer_min_heartbeat_interval_ms,
                broker.group_consumer_max_heartbeat_interval_ms,
            ),
        ):
            value = getattr(self, GROUP_SETTINGS[key].attribute)
            if key in self.overrides and not shortest <= value <= longest:
                raise ConfigError(
                    key,
                    (
                        f"must be from {shortest} to {longest} (limits set by the broker's group.* settings), not "
                        f"{value}"
                    ),
                )
        for kind in ("consumer", "share", "streams"):
            if getattr(self, f"{kind}_session_timeout_ms") <= getattr(self, f"{kind}_heartbeat_interval_ms"):
                raise ConfigError(f"{kind}.session.timeout.ms", f"must be above {kind}.heartbeat.interval.ms")
        reset = self.share_auto_offset_reset
        if reset not in {"latest", "earliest"} and _DURATION.fullmatch(reset) is None:
            raise ConfigError("share.auto.offset.reset", "must be latest, earliest or by_duration:<ISO 8601>")

    def describe(self, broker: BrokerConfig) -> Iterator[ConfigEntry]:
        """Yield all settings with value, source and synonyms, for DescribeConfigs.

        As in Kafka 4.2 and later, a setting's synonyms name the broker setting of its default. Kafka 4.1 returns no
        synonyms.
        """
        for row in GROUP_SETTINGS.values():
            yield row.entry(row.render(getattr(self, row.attribute)), tuple(self._synonyms(row, broker)))

    def _synonyms(self, row: Setting, broker: BrokerConfig) -> Iterator[ConfigSynonym]:
        if row.key in self.overrides:
            yield ConfigSynonym(row.key, row.render(getattr(self, row.attribute)), ConfigSource.GROUP)
        name = row.broker_keys[0][0] if row.broker_keys else row.key
        if name in BROKER_SETTINGS:
            yield from broker.synonyms(name)
        else:  # share and streams groups
            yield ConfigSynonym(name, row.render(row.default), ConfigSource.DEFAULT)


GROUP_SETTINGS: Final[dict[str, Setting]] = collect(GroupConfig)
