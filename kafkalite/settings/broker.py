"""Load, check and describe the broker's settings, as one immutable object: BrokerConfig.

Except for `notes` and the fields `..._texts`, each field of BrokerConfig is a setting. The key of a setting is the name
of its field, with dots instead of underscores. The modules in `kafkalite.settings.areas` define the settings: their
classes are base classes of BrokerConfig.

Thread rule: any thread may read a BrokerConfig. A change creates a new object.
"""

from __future__ import annotations

import os
from dataclasses import MISSING, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self

from kafkalite.base.dataclass import dataclass
from kafkalite.errors import ConfigError
from kafkalite.settings.areas.classic import ClassicRows, named_as_given, parse_map, translate
from kafkalite.settings.areas.cleaner import CleanerRows
from kafkalite.settings.areas.cluster import KEYS, ClusterRows, check_alone, check_in_cluster, inner_listener
from kafkalite.settings.areas.connections import ConnectionRows, limits_of_listeners
from kafkalite.settings.areas.groups import GroupRows
from kafkalite.settings.areas.logs import LogRows
from kafkalite.settings.areas.metrics import MetricRows
from kafkalite.settings.areas.permissions import PermissionRows
from kafkalite.settings.areas.quotas import QuotaRows
from kafkalite.settings.areas.replication import REPLICATION_KEYS, ReplicationRows, check_replication
from kafkalite.settings.areas.sasl import ListenerSaslSettings, SaslRows
from kafkalite.settings.areas.security import SecurityRows
from kafkalite.settings.areas.server import ServerRows
from kafkalite.settings.areas.tls import TlsRows, TlsSettings
from kafkalite.settings.areas.transactions import TransactionRows
from kafkalite.settings.foreign import foreign_note, known_dynamic, refuse_foreign
from kafkalite.settings.listener_keys import RELOADABLE, listener_key, row_of
from kafkalite.settings.listeners import (
    Listener,
    parse_advertised,
    parse_limits,
    parse_listeners,
    parse_names,
    protocol_of,
)
from kafkalite.settings.properties import read_properties
from kafkalite.settings.providers import resolve
from kafkalite.settings.rows import (
    WRITTEN_DEFAULT,
    ConfigEntry,
    ConfigSynonym,
    Effect,
    Setting,
    attribute_of,
    collect,
    near_miss,
    ordered_synonyms,
    parse_all,
    to_text,
)
from kafkalite.settings.topic_settings_table import BROKER_SYNONYMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalite.model import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, init=False, repr=False)
class BrokerConfig(
    ServerRows,
    ClusterRows,
    ReplicationRows,
    ConnectionRows,
    QuotaRows,
    LogRows,
    CleanerRows,
    TransactionRows,
    GroupRows,
    TlsRows,
    SaslRows,
    SecurityRows,
    PermissionRows,
    MetricRows,
    ClassicRows,
):
    """The broker's settings. `load` reads and validates them; the constructor uses the defaults.

    Two objects are never equal, so that values derived from an object can be cached for it.
    """

    static_texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The texts of the settings given in the file or on the command line, by key."""
    dynamic_texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The texts of this broker's settings that AlterConfigs has changed, by key."""
    cluster_texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The texts that AlterConfigs has set for all brokers, by key. `dynamic_texts` take precedence."""
    notes: tuple[str, ...] = field(default=(), repr=False)
    """Sentences for the log about keys that are accepted without effect."""

    TABLE: ClassVar[Mapping[str, Setting]]

    def __init__(self, **values: object) -> None:
        """Create a configuration from values by field name.

        Other fields get their defaults. TypeError for an unknown name.

        A dataclass would generate an `__init__` with code for each field. Creating that takes longer than creating all
        other methods together.
        """
        for each in fields(self):
            if each.name in values:
                value = values.pop(each.name)
            elif each.default is not MISSING:
                value = each.default
            else:
                assert each.default_factory is not MISSING, "every setting has a default"
                value = each.default_factory()
            object.__setattr__(self, each.name, value)
        if values:
            raise TypeError(f"unknown setting {next(iter(values))!r}")

    @classmethod
    def load(cls, file: Path | None = None, overrides: Mapping[str, object] | None = None) -> Self:
        """Load settings from a file, then apply `overrides`.

        The keys of `overrides` contain dots; the values are text or Python values. ConfigError for an unknown key or an
        invalid value, StartupError if the file cannot be read.
        """
        texts = read_properties(file) if file is not None else {}
        texts.update((key, to_text(value)) for key, value in (overrides or {}).items())
        notes: list[str] = []
        known = _known_texts(translate(resolve(texts), notes), notes)
        with named_as_given(texts):
            values = parse_all(BROKER_SETTINGS, known)
        config = cls(**values, static_texts=known, notes=tuple(notes))
        config.check()
        if not config.in_cluster:
            idle = [key for key in (*KEYS, *REPLICATION_KEYS) if key in known]
            notes += [f"{key} is accepted but has no effect: this broker is standalone" for key in idle]
        return replace(config, notes=(*notes, *_later_notes(known)))

    def changes(self, *, cluster: bool) -> Mapping[str, str]:
        """Return the dynamic settings as text: those of the whole cluster, or those of this broker only."""
        return self.cluster_texts if cluster else self.dynamic_texts

    def with_dynamic(self, texts: Mapping[str, str], *, cluster: bool = False) -> Self:
        """Return a new configuration with other dynamic settings. ConfigError if one of them is invalid.

        `texts` replaces all dynamic settings: those of the whole cluster if `cluster` is set, else those of this
        broker.
        """
        own, all_brokers = (self.dynamic_texts, texts) if cluster else (texts, self.cluster_texts)
        for key in texts if cluster else ():
            if listener_key(key) is not None:
                raise ConfigError(key, "applies to a single broker; give its id")
        merged = {**self.static_texts, **known_dynamic({**all_brokers, **own}, BROKER_SETTINGS)}
        values = parse_all(BROKER_SETTINGS, merged)
        config = type(self)(
            **values,
            static_texts=self.static_texts,
            dynamic_texts=dict(own),
            cluster_texts=dict(all_brokers),
            notes=self.notes,
        )
        config.check()
        return config

    def check(self) -> None:
        """Raise ConfigError if settings contradict each other."""
        if len(self.log_dirs) > 1:
            raise ConfigError(
                "log.dirs", "must be one directory; to use several disks, combine them in one file system"
            )
        if "*" in self.cordoned_log_dirs and len(self.cordoned_log_dirs) > 1:
            raise ConfigError("cordoned.log.dirs", "`*` means all directories; it cannot be combined with others")
        others = sorted(set(self.cordoned_log_dirs) - {"*", *self.log_dirs, str(self.data_directory)})
        if others:
            raise ConfigError("cordoned.log.dirs", f"{others[0]} is not in log.dirs")
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError("group.min.session.timeout.ms", "is above group.max.session.timeout.ms")
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigError("group.consumer.heartbeat.interval.ms", "must be below group.consumer.session.timeout.ms")
        for what in ("session.timeout", "heartbeat.interval"):
            least, most = (getattr(self, f"group_consumer_{end}_{what.replace('.', '_')}_ms") for end in ("min", "max"))
            if least > most:
                raise ConfigError(f"group.consumer.min.{what}.ms", f"is above group.consumer.max.{what}.ms")
        if not self.group_consumer_assignors:
            raise ConfigError("group.consumer.assignors", "is empty, but members need an assignor")
        if self.log_cleaner_min_compaction_lag_ms > self.log_cleaner_max_compaction_lag_ms:
            raise ConfigError("log.cleaner.min.compaction.lag.ms", "is above log.cleaner.max.compaction.lag.ms")
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigError(
                "queued.max.request.bytes", "is below socket.request.max.bytes, so the largest request would never fit"
            )
        parse_advertised(self.advertised_listeners, self.bound_listeners)
        for listener in self.bound_listeners:
            self.tls_of(listener.name)
            if listener.sasl:
                self.sasl_of(listener.name)
        self._check_roles()
        self.connections_per_ip_overrides()
        self.connections_per_listener()
        self.connection_rates_of_listeners()
        _ = self.asks_rules, self.super_user_names

    def _check_roles(self) -> None:
        if not self.process_roles:
            return
        if not self.in_cluster:
            names = {name.upper() for name in self.controller_listener_names}
            ports = frozenset(item.port for item in parse_names(self.listeners) if item.name in names)
            check_alone(self, self.node_id, ports)
            return
        if any(listener.classic for listener in self.bound_listeners):
            raise ConfigError("listeners", "a broker in a cluster cannot have a listener for Kafka 0.7 (kafka07://)")
        if self.zookeeper_connect:
            raise ConfigError("zookeeper.connect", "a broker in a cluster has no classic topics to register; remove it")
        names = {name.upper() for name in self.controller_listener_names}
        if any(item.name in names for item in parse_names(self.listeners)):
            raise ConfigError(
                "listeners", "names a listener of the controllers, which a broker in a cluster does not bind"
            )
        protocol = self.controller_protocol if self.controller_listener_names else None
        check_replication(self)
        check_in_cluster(self, self.node_id, self.inner_listener.protocol, protocol)

    @property
    def inner_listener(self) -> Listener:
        """The listener for traffic between brokers. ConfigError if there is none."""
        listeners = {listener.name: listener for listener in self.bound_listeners}
        return listeners[inner_listener(self, self.static_texts, listeners)]

    @property
    def controller_protocol(self) -> str:
        """The security protocol of the controllers' listener. Only for a broker in a cluster."""
        return protocol_of(self.controller_listener_names[0], self.listener_security_protocol_map)

    @property
    def bound_listeners(self) -> tuple[Listener, ...]:
        """The listeners that this broker binds. Listeners of controllers are not included."""
        return parse_listeners(self.listeners, self.listener_security_protocol_map, self.controller_listener_names)

    def tls_of(self, listener: str) -> TlsSettings:
        """Return the effective TLS settings of a listener."""
        return TlsSettings.of_listener(listener, self.static_texts, self.dynamic_texts)

    def sasl_of(self, listener: str) -> ListenerSaslSettings:
        """Return the effective SASL settings of a listener. ConfigError for an unsupported mechanism."""
        return ListenerSaslSettings.of_listener(listener, self.static_texts)

    def advertised_endpoint(self, listener: Listener, bound_port: int) -> Endpoint:
        """Return the address of a listener that clients receive. `bound_port` is the port to which it is bound."""
        advertised = parse_advertised(self.advertised_listeners, self.bound_listeners).get(listener.name)
        return (advertised or listener).endpoint(bound_port)

    @property
    def data_directory(self) -> Path:
        """The data directory. There is only one."""
        if self.log_dirs:
            return Path(self.log_dirs[0])
        base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
        return Path(base).expanduser() / "kafkalite"

    @property
    def cordoned(self) -> bool:
        """Whether the data directory is cordoned, so that it gets no new partitions."""
        return bool(self.cordoned_log_dirs)

    @property
    def broker_id(self) -> int:
        """The value of node.id, which Kafka formerly called broker.id."""
        return self.node_id

    def classic_partition_count(self, topic: str) -> int:
        """Return the number of partitions of a classic topic that is created by its first message."""
        return max(1, parse_map(self.topic_partition_count_map).get(topic, self.num_partitions))

    def connections_per_ip_overrides(self) -> dict[str, int]:
        """Parse max.connections.per.ip.overrides. Return address → maximum number of connections. ConfigError."""
        return parse_limits(self.max_connections_per_ip_overrides)

    def connections_per_listener(self) -> dict[str, int]:
        """Return max.connections of each listener that sets it."""
        return self._by_listener("max.connections")

    def connection_rates_of_listeners(self) -> dict[str, int]:
        """Return max.connection.creation.rate of each listener that sets it."""
        return self._by_listener("max.connection.creation.rate")

    def _by_listener(self, key: str) -> dict[str, int]:
        limits = limits_of_listeners(key, self.static_texts, self.dynamic_texts)
        return {each.name: limits[each.name.lower()] for each in self.bound_listeners if each.name.lower() in limits}

    def describe(self) -> Iterator[ConfigEntry]:
        """Yield all settings with value, source and synonyms, for DescribeConfigs."""
        given = (*self.dynamic_texts, *self.cluster_texts, *self.static_texts)
        own = {key: row for key in given if (row := row_of(key)) is not None}
        for key, row in {**BROKER_SETTINGS, **own}.items():
            synonyms = self.synonyms(key)
            value = synonyms[0].value if key in own else row.render(getattr(self, row.attribute))
            read_only = row.key not in RELOADABLE if key in own else not row.dynamic
            yield row.entry(value, synonyms, key=key, read_only=read_only)

    @property
    def written_default(self) -> str:
        """The setting that DescribeConfigs reports as cluster-wide even if it was not changed; "" in a cluster.

        Kafka 4.1 does the same, because it stores this setting when it first starts.
        """
        return "" if self.in_cluster else WRITTEN_DEFAULT

    def synonyms(self, key: str) -> tuple[ConfigSynonym, ...]:
        """Return the values of a setting at all its sources, the effective value first."""
        names = BROKER_SYNONYMS.get(key, (key,))
        rows = {name: BROKER_SETTINGS[name] for name in names if name in BROKER_SETTINGS}
        defaults = {name: row.render(row.default) for name, row in rows.items() if row.default is not None}
        written = {key: self.static_texts.get(key, defaults[key])} if key == self.written_default else {}
        cluster = {**written, **self.cluster_texts}
        return ordered_synonyms(key, names, self.dynamic_texts, cluster, self.static_texts, defaults)


BROKER_SETTINGS: Final[dict[str, Setting]] = collect(BrokerConfig)
BrokerConfig.TABLE = BROKER_SETTINGS

_ALIASES: Final = {alias: key for key, row in BROKER_SETTINGS.items() for alias in row.aliases}


def is_broker_setting(name: str) -> bool:
    """Return whether a key is a setting of the broker or of one of its listeners."""
    return name in BROKER_SETTINGS or listener_key(name) is not None


def _known_texts(texts: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    """Return the settings that have an effect, with aliases replaced by their keys.

    ConfigError for an unknown key. For a key that is ignored, a sentence is added to `notes`.
    """
    known: dict[str, str] = {}
    for key, text in texts.items():
        if is_broker_setting(key):
            known[key] = text
        elif key in _ALIASES:
            if _ALIASES[key] in texts:
                notes.append(f"{key} is ignored because {_ALIASES[key]} is also set")
            else:
                known[_ALIASES[key]] = text
        else:
            refuse_foreign(key, text)
            note = foreign_note(key)
            if note is None:
                raise ConfigError(key, f"unknown setting{near_miss(key, [*BROKER_SETTINGS, *_ALIASES])}")
            notes.append(note)
    return known


def _later_notes(known: Mapping[str, str]) -> Iterator[str]:
    for key in filter(BROKER_SETTINGS.__contains__, known):
        match BROKER_SETTINGS[key].effect:
            case Effect.LATER:
                yield f"{key} is accepted but takes effect only with a later release"
            case Effect.NONE:
                yield f"{key} is accepted but has no effect"


def check_thread_counts(present: BrokerConfig, wanted: BrokerConfig) -> None:
    """Raise ConfigError if a change would more than double a number of threads, or more than halve it.

    Source: Kafka.
    """
    for key in (
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "background.threads",
        "log.cleaner.threads",
    ):
        old, new = getattr(present, attribute_of(key)), getattr(wanted, attribute_of(key))
        if not old // 2 <= new <= old * 2:
            raise ConfigError(
                key, f"must be between {old // 2} and {old * 2} (half and double the current value), not {new}"
            )
