"""Determine the effective settings of a topic: its own value, or else the broker's, or else the default.

Thread rule: immutable; any thread. A change creates a new object.
"""

from __future__ import annotations

import functools
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Self

from kafkalite.base.dataclass import dataclass
from kafkalite.errors import ConfigError
from kafkalite.settings.broker import BROKER_SETTINGS, BrokerConfig
from kafkalite.settings.rows import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    Setting,
    Value,
    near_miss,
    parse_all,
)
from kafkalite.settings.topic_settings_table import REMOVED, TOPIC_SETTINGS, TopicRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig(TopicRows):
    """The settings of one topic. `resolve` creates them from texts; the constructor uses the defaults."""

    overrides: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The texts of the topic's own settings, by key."""

    TABLE: ClassVar[Mapping[str, Setting]]

    @classmethod
    def resolve(cls, broker: BrokerConfig, overrides: Mapping[str, str] | None = None, topic: str = "") -> Self:
        """Determine the settings of a topic from the broker's settings and the topic's own (`overrides`).

        `topic` is the name, which some defaults of classic topics depend on. ConfigError for an unknown key or an
        invalid value.
        """
        overrides = dict(overrides or {})
        for key in overrides:
            if key not in TOPIC_SETTINGS:
                raise ConfigError(key, f"unknown topic setting{near_miss(key, TOPIC_SETTINGS)}")
        defaults = _broker_defaults(broker)
        if overrides.get("message.format") == "classic":
            defaults = {**defaults, **broker.classic_defaults(topic)}
        values = {**defaults, **parse_all(TOPIC_SETTINGS, overrides)}
        config = cls(**values, overrides=overrides)  # type: ignore[arg-type]  # parse gives each field's own type
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise ConfigError("min.compaction.lag.ms", "is above max.compaction.lag.ms")
        if config.message_format == "classic" and config.compacted:
            raise ConfigError("cleanup.policy", "classic messages have no keys, so classic topics cannot be compacted")
        return config

    @classmethod
    def requested(
        cls,
        broker: BrokerConfig,
        overrides: Mapping[str, str],
        before: Mapping[str, str] = MappingProxyType({}),
        topic: str = "",
    ) -> Self:
        """Determine the settings that a client requests for a topic.

        ConfigError also for new settings that Kafka 4 rejects.

        `before` are the topic's current settings, which it may keep. Source: LogConfig.validate of Kafka 4.1.
        """
        config = cls.resolve(broker, overrides, topic)
        for key in REMOVED & overrides.keys() - before.keys():
            raise ConfigError(key, "was removed in Kafka 4")
        if config.remote_storage_enable and not cls.resolve(broker, before, topic).remote_storage_enable:
            raise ConfigError("remote.storage.enable", "must be false: tiered storage is not supported")
        return config

    @property
    def compacted(self) -> bool:
        """Whether the topic is compacted, so that each record needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        """Whether the broker sets the timestamps of records."""
        return self.message_timestamp_type == "LogAppendTime"

    def describe(self, broker: BrokerConfig, topic: str = "") -> Iterator[ConfigEntry]:
        """Yield all settings with value, source and synonyms, for DescribeConfigs.

        Settings that Kafka has removed are omitted unless the topic sets them.
        """
        for key, row in TOPIC_SETTINGS.items():
            if key in REMOVED and key not in self.overrides:
                continue
            yield row.entry(row.render(getattr(self, row.attribute)), tuple(self._synonyms(row, broker, topic)))

    def _synonyms(self, row: Setting, broker: BrokerConfig, topic: str) -> Iterator[ConfigSynonym]:
        if row.key in self.overrides:
            yield ConfigSynonym(row.key, self.overrides[row.key], ConfigSource.DYNAMIC_TOPIC)
        keys = [broker_key for broker_key, _factor in row.broker_keys]
        keys = broker.classic_broker_keys(row.key, topic, keys) if self.message_format == "classic" else keys[:1]
        found = (synonym for key in keys for synonym in broker.synonyms(key))
        yield from dict.fromkeys(one for one in found if one.value != "")  # an empty map of 0.7's has no value


TopicConfig.TABLE = TOPIC_SETTINGS


@functools.lru_cache(maxsize=4)
def _broker_defaults(broker: BrokerConfig) -> Mapping[str, Value]:
    """Return the defaults that the broker's settings provide for topics: field name → value.

    The result is cached, because thousands of topics use the same one.
    """
    return {row.attribute: _broker_default(row, broker) for row in TOPIC_SETTINGS.values() if row.broker_keys}


def _broker_default(row: Setting, broker: BrokerConfig) -> Value:
    """Return the default that the broker's settings provide for one topic setting, in the topic setting's unit.

    The first broker setting that has a value counts.
    """
    for key, factor in row.broker_keys:
        value: Value = getattr(broker, BROKER_SETTINGS[key].attribute)
        if value is None:
            continue
        if factor == 1:
            return value
        assert isinstance(value, int), f"{key} has a unit to convert, so it is a number"
        return value * factor if value >= 0 else -1
    return row.default
