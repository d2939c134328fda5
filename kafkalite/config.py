"""THE settings table: every key the broker and its topics know, with type, default, bounds and what it does.

Each field of BrokerConfig and TopicConfig is one setting; the key is the field's name with dots for underscores. A
topic's value is its own override, else the broker's (a key of another name, see `broker_keys`), else the default.
docs/configuration.md is generated from here (tools/generate_config_docs.py).

Both classes are frozen, so any thread may read them; a change makes a new object. Names, defaults and precedence are
Apache Kafka 4's where Kafka has the setting. How texts are read is in `kafkalite.settings`, listeners are in
`kafkalite.listeners`, keys of Kafka that mean nothing here are in `kafkalite.foreign_settings`.
"""

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

from kafkalite.classic_settings import ClassicSettings, named_as_given, parse_map, translate
from kafkalite.config_providers import resolve
from kafkalite.errors import ConfigError
from kafkalite.foreign_settings import foreign_note, known_dynamic, refuse_foreign
from kafkalite.listeners import Listener, parse_advertised, parse_limits, parse_listeners
from kafkalite.model import Endpoint
from kafkalite.settings import (
    INT32_MAX,
    INT64_MAX,
    WRITTEN_DEFAULT,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Effect,
    Setting,
    Value,
    collect,
    near_miss,
    ordered_synonyms,
    parse_all,
    read_properties,
    setting,
    to_text,
)
from kafkalite.tls_settings import RELOADABLE, TlsSettings, listener_key, row_of

__all__ = ["BROKER_SETTINGS", "TOPIC_SETTINGS", "BrokerConfig", "ConfigError", "TopicConfig"]

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
NONE = Effect.NONE

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
VALIDATIONS = ("full", "header")


def _network_threads() -> int:
    """As many as the cores this process may use, which in a container are fewer than the machine has."""
    return min(4, len(os.sched_getaffinity(0)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokerConfig(ClassicSettings):
    """The broker's settings. Make one with `load`, which checks them; the bare constructor gives the defaults.

    Compared by identity, so that what is derived from one can be remembered with it.
    """

    # Who and where
    node_id: int = setting(
        INT, 1, "This broker's id, told to clients and kept in meta.properties.", low=0, aliases=("broker.id",)
    )
    broker_rack: str | None = setting(STRING, None, "The rack told to clients.")
    listeners: str = setting(
        STRING,
        "kafka://127.0.0.1:9092",
        "What to bind, a comma between two: `kafka://host:port`, or Kafka's form `PLAINTEXT://host:port`, and"
        " `SSL://host:port` for TLS. No host is every interface, port 0 is any free port. `kafka07://host:port` serves"
        " Kafka 0.7's clients. Names of their own (listener.security.protocol.map) allow several of a kind.",
    )
    advertised_listeners: str | None = setting(
        STRING,
        None,
        "Where clients are told to connect, per listener name, when that differs from `listeners` (containers, NAT)."
        " Unset: the bound address, or the machine's host name where every interface is bound. Port 0: the bound port.",
    )
    listener_security_protocol_map: str = setting(
        STRING,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,KAFKA:PLAINTEXT",
        "Listener name to protocol: PLAINTEXT or SSL.",
    )
    controller_listener_names: tuple[str, ...] = setting(
        LIST, (), "Listeners of these names are Kafka's controllers' own: not bound here, so that its file can be used."
    )
    zookeeper_connect: str | None = setting(
        STRING,
        None,
        "Where ZooKeeper is, `host:port,host:port/path`: a broker with a kafka07:// listener registers itself and its"
        " classic topics there, as Kafka 0.7 does. Unset: it stands alone.",
    )

    # Where data lives
    log_dirs: tuple[str, ...] = setting(
        LIST,
        (),
        "The data directory; exactly one, owned by one process at a time.",
        aliases=("log.dir",),
        default_text="$XDG_DATA_HOME/kafkalite, else ~/.local/share/kafkalite",
    )
    max_partitions: int = setting(
        INT, 100_000, "The most partitions this broker holds; creating more is refused with POLICY_VIOLATION.", low=1
    )
    log_open_files_max: int = setting(
        INT,
        4096,
        "Segments kept open (descriptor and map) at once, never more than half of the process's descriptors; those"
        " used longest ago are closed first.",
        low=8,
    )

    # Threads and queues
    num_network_threads: int = setting(
        INT, _network_threads, "Threads that read, serve and answer requests.", low=1, default_text="min(4, cores)"
    )
    num_io_threads: int = setting(
        INT, 4, "Threads for work that waits for the disk or walks logs: create, delete, roll, decompress.", low=1
    )
    queued_max_requests: int = setting(
        INT,
        500,
        "Kafka's bound on requests that wait for a thread. Here connection.max.in.flight.requests, max.connections and"
        " queued.append.max.bytes bound them.",
        low=1,
        effect=NONE,
    )
    queued_append_max_bytes: int = setting(
        LONG,
        256 * MIB,
        "Produced batches that wait for num.io.threads (a roll, a new file, unpacking), in all; above it producers are"
        " asked to try again.",
        unit="bytes",
        low=MIB,
    )
    num_recovery_threads_per_data_dir: int = setting(INT, 2, "Threads that check logs after an unclean stop.", low=1)

    # Connections
    max_connections: int = setting(
        INT, 20_000, "Open connections; further ones are closed at once.", low=0, high=INT32_MAX, dynamic=True
    )
    max_connections_per_ip: int = setting(
        INT, INT32_MAX, "Open connections from one address; further ones are closed at once.", low=0, dynamic=True
    )
    max_connections_per_ip_overrides: str = setting(
        STRING, "", "Exceptions to max.connections.per.ip: `address:count`, comma between two.", dynamic=True
    )
    connections_max_idle_ms: int = setting(
        LONG, 10 * MINUTE_MS, "A connection that says nothing for so long is closed; -1 never.", unit="ms", low=-1
    )
    socket_request_max_bytes: int = setting(
        INT, 100 * MIB, "The longest request; a longer one closes its connection.", unit="bytes", low=1
    )
    socket_send_buffer_bytes: int = setting(
        INT, -1, "SO_SNDBUF of a connection; -1 leaves it to the system.", unit="bytes", low=-1
    )
    socket_receive_buffer_bytes: int = setting(
        INT, -1, "SO_RCVBUF of a connection; -1 leaves it to the system.", unit="bytes", low=-1
    )
    socket_listen_backlog_size: int = setting(INT, 512, "Connections that may wait to be accepted.", low=1)
    connection_max_in_flight_requests: int = setting(
        INT,
        1024,
        "Requests of one connection whose answers wait; above it the connection is not read from.",
        low=1,
    )
    connection_output_buffer_max_bytes: int = setting(
        INT,
        16 * MIB,
        "Answers of one connection kept in memory; above it the connection is not read from. Log bytes sent straight"
        " from the file do not count.",
        unit="bytes",
        low=64 * KIB,
    )

    # Requests
    request_max_partitions: int = setting(
        INT,
        100_000,
        "Partitions named in one request, over all its topics; more closes the connection.",
        low=1,
    )
    decompressed_batch_max_bytes: int = setting(
        INT,
        128 * MIB,
        "What a compressed batch may unpack to; more is refused with INVALID_RECORD.",
        unit="bytes",
        low=MIB,
    )
    message_max_bytes: int = setting(
        INT, MIB + 12, "The largest batch; larger is refused with MESSAGE_TOO_LARGE.", unit="bytes", low=0, dynamic=True
    )
    fetch_max_bytes: int = setting(
        INT, 55 * MIB, "The largest fetch answer, one oversized first batch apart.", unit="bytes", low=1024
    )
    fetch_copy_max_bytes: int = setting(
        INT,
        32 * KIB,
        "Record bytes that a fetch answer copies to leave in one send; larger ones go straight from the file.",
        unit="bytes",
        low=0,
    )
    record_validation: str = setting(
        STRING,
        "full",
        "`full` checks each record of a batch, unpacking it, as Kafka does; `header` trusts what is inside a batch"
        " whose checksum and header are right, unless the topic needs the records looked at.",
        choices=VALIDATIONS,
        dynamic=True,
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        INT, 1000, "Fetch sessions kept (KIP-227); clients that find no room fetch everything each time.", low=0
    )
    min_incremental_fetch_session_eviction_ms: int = setting(
        INT,
        2 * MINUTE_MS,
        "A fetch session idle for so long gives way to a new one, and one so old to a larger one.",
        unit="ms",
        low=0,
    )
    fetch_session_cache_max_partitions: int = setting(
        INT, 100_000, "Partitions kept in all fetch sessions together, about 200 bytes each.", low=0
    )

    # Topics
    auto_create_topics_enable: bool = setting(
        BOOLEAN, True, "Asking for a missing topic's metadata creates it, where the client allows that."
    )
    delete_topic_enable: bool = setting(BOOLEAN, True, "Whether DeleteTopics is served.")
    num_partitions: int = setting(INT, 1, "Partitions of a topic created without a number.", low=1)
    default_replication_factor: int = setting(INT, 1, "Replicas of a topic created without a number.", low=1)
    replication_factor_accept_any: bool = setting(
        BOOLEAN,
        False,
        "Take a replication factor above 1 with a warning, and keep one copy; otherwise it is Kafka's error.",
    )
    topic_name_max_length: int = setting(
        INT, 249, "The longest topic name; the default is Kafka's own bound.", unit="characters", low=1, high=249
    )

    # Durability
    flush_on_acks_all: bool = setting(
        BOOLEAN,
        True,
        "acks=all is answered once the batch is on the disk. false: once it is in the page cache, as Kafka does, which"
        " survives the death of the process but not of the machine.",
    )
    log_flush_interval_messages: int = setting(
        LONG, INT64_MAX, "Flush a partition after so many messages.", low=1, dynamic=True
    )
    log_flush_interval_ms: int | None = setting(
        LONG,
        None,
        "Flush a partition that has waited so long; unset: log.flush.scheduler.interval.ms.",
        unit="ms",
        dynamic=True,
    )
    log_flush_scheduler_interval_ms: int = setting(
        LONG, INT64_MAX, "How often to look for partitions that are due for a flush.", unit="ms", low=1
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        INT, MINUTE_MS, "How often the flushed offsets are written down; recovery starts there.", unit="ms", low=0
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        INT,
        MINUTE_MS,
        "How often Kafka writes log start offsets down; here they are written when one moves.",
        unit="ms",
        low=0,
        effect=NONE,
    )

    # Defaults of topic settings
    log_segment_bytes: int = setting(INT, GIB, "Default of segment.bytes.", unit="bytes", low=14, dynamic=True)
    log_roll_ms: int | None = setting(LONG, None, "Default of segment.ms.", unit="ms", low=1, dynamic=True)
    log_roll_hours: int = setting(INT, 168, "Default of segment.ms where log.roll.ms is unset.", unit="hours", low=1)
    log_roll_jitter_ms: int | None = setting(
        LONG, None, "Default of segment.jitter.ms.", unit="ms", low=0, dynamic=True
    )
    log_roll_jitter_hours: int = setting(
        INT, 0, "Default of segment.jitter.ms where log.roll.jitter.ms is unset.", unit="hours", low=0
    )
    log_retention_ms: int | None = setting(
        LONG, None, "Default of retention.ms; -1 keeps for ever.", unit="ms", low=-1, dynamic=True
    )
    log_retention_minutes: int | None = setting(
        INT, None, "Default of retention.ms where log.retention.ms is unset.", unit="minutes", low=-1
    )
    log_retention_hours: int = setting(
        INT, 168, "Default of retention.ms where the two finer ones are unset.", unit="hours", low=-1
    )
    log_retention_bytes: int = setting(LONG, -1, "Default of retention.bytes.", unit="bytes", low=-1, dynamic=True)
    log_retention_policies: tuple[str, ...] = setting(
        LIST, (), "Policies of one's own, `module:Class`, asked beside age and size: see `RetentionPolicy`."
    )
    log_retention_check_interval_ms: int = setting(
        LONG, 5 * MINUTE_MS, "How often retention looks for segments to delete.", unit="ms", low=1
    )
    clock_jump_hold_ms: int = setting(
        LONG,
        60 * MINUTE_MS,
        "After the wall clock has jumped ahead by more than a minute, how long nothing expires by it (records, offsets,"
        " producers, tombstones), so that it can be set right; 0 follows it at once.",
        unit="ms",
        low=0,
    )
    log_segment_delete_delay_ms: int = setting(
        LONG, MINUTE_MS, "Default of file.delete.delay.ms.", unit="ms", low=0, dynamic=True
    )
    log_index_interval_bytes: int = setting(
        INT, 4096, "Default of index.interval.bytes.", unit="bytes", low=0, dynamic=True
    )
    log_index_size_max_bytes: int = setting(
        INT, 10 * MIB, "Default of segment.index.bytes.", unit="bytes", low=4, dynamic=True
    )
    log_preallocate: bool = setting(BOOLEAN, False, "Default of preallocate.", dynamic=True)
    log_cleanup_policy: tuple[str, ...] = setting(
        LIST, ("delete",), "Default of cleanup.policy.", choices=("compact", "delete"), dynamic=True
    )
    log_message_timestamp_type: str = setting(
        STRING, "CreateTime", "Default of message.timestamp.type.", choices=TIMESTAMP_TYPES, dynamic=True
    )
    log_message_timestamp_before_max_ms: int = setting(
        LONG, INT64_MAX, "Default of message.timestamp.before.max.ms.", unit="ms", low=0, dynamic=True
    )
    log_message_timestamp_after_max_ms: int = setting(
        LONG, HOUR_MS, "Default of message.timestamp.after.max.ms.", unit="ms", low=0, dynamic=True
    )
    min_insync_replicas: int = setting(INT, 1, "Default of min.insync.replicas.", low=1, effect=NONE, dynamic=True)
    unclean_leader_election_enable: bool = setting(
        BOOLEAN, False, "Default of unclean.leader.election.enable.", effect=NONE, dynamic=True
    )
    compression_type: str = setting(
        STRING, "producer", "Default of the topic setting of the same name.", choices=CODECS, dynamic=True
    )
    compression_gzip_level: int = setting(
        INT, -1, "Default of the topic setting of the same name.", low=-1, high=9, dynamic=True
    )
    compression_lz4_level: int = setting(
        INT, 9, "Default of the topic setting of the same name.", low=1, high=17, dynamic=True
    )
    compression_zstd_level: int = setting(
        INT, 3, "Default of the topic setting of the same name.", low=-131072, high=22, dynamic=True
    )
    log_cleaner_enable: bool = setting(BOOLEAN, True, "Whether compacted topics are cleaned.")
    log_cleaner_delete_retention_ms: int = setting(
        LONG, DAY_MS, "Default of delete.retention.ms.", unit="ms", low=0, dynamic=True
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        LONG, 0, "Default of min.compaction.lag.ms.", unit="ms", low=0, dynamic=True
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        LONG, INT64_MAX, "Default of max.compaction.lag.ms.", unit="ms", low=1, dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        DOUBLE, 0.5, "Default of min.cleanable.dirty.ratio.", low=0, high=1, dynamic=True
    )
    log_cleaner_threads: int = setting(INT, 1, "Threads that compact logs, one log each.", low=1)
    log_cleaner_dedupe_buffer_size: int = setting(
        LONG,
        128 * MIB,
        "Memory for the keys of logs being compacted, shared by all cleaner threads: 24 bytes a key, less in number by"
        " log.cleaner.io.buffer.load.factor. A log with more dirty keys is compacted in several passes.",
        unit="bytes",
        low=MIB,
        dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        DOUBLE, 0.9, "How full that memory may get; more than 0.95 counts as 0.95.", low=0, high=1, dynamic=True
    )
    log_cleaner_io_buffer_size: int = setting(
        INT,
        512 * KIB,
        "Bytes that all cleaner threads together collect before they write them.",
        unit="bytes",
        low=0,
        dynamic=True,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        DOUBLE,
        1.7976931348623157e308,
        "Bytes a second that all cleaner threads together read and write.",
        unit="bytes/s",
        low=1,
        dynamic=True,
    )
    log_cleaner_backoff_ms: int = setting(
        LONG, 15_000, "How often a cleaner with nothing to do looks again.", unit="ms", low=0, dynamic=True
    )
    log_local_retention_ms: int = setting(
        LONG, -2, "Default of local.retention.ms.", unit="ms", low=-2, effect=NONE, dynamic=True
    )
    log_local_retention_bytes: int = setting(
        LONG, -2, "Default of local.retention.bytes.", unit="bytes", low=-2, effect=NONE, dynamic=True
    )

    # Producers
    producer_id_expiration_ms: int = setting(
        INT, DAY_MS, "A partition forgets an idempotent producer silent for so long.", unit="ms", low=1
    )
    producer_id_expiration_check_interval_ms: int = setting(
        INT, 10 * MINUTE_MS, "How often partitions look for producers to forget.", unit="ms", low=1
    )
    partition_max_producer_ids: int = setting(
        INT,
        50_000,
        "Idempotent producers one partition remembers; above it the one silent longest is forgotten.",
        low=1,
    )

    # Groups, transactions
    group_initial_rebalance_delay_ms: int = setting(
        INT, 0, "How long an empty group waits for more members.", unit="ms", low=0
    )
    group_min_session_timeout_ms: int = setting(
        INT, 6000, "The shortest session timeout a member may ask for.", unit="ms", low=0
    )
    group_max_session_timeout_ms: int = setting(
        INT, 30 * MINUTE_MS, "The longest session timeout a member may ask for.", unit="ms", low=0
    )
    group_max_size: int = setting(INT, INT32_MAX, "Members of one group.", low=1)
    group_consumer_heartbeat_interval_ms: int = setting(
        INT, 5000, "How often members of the newer group protocol (KIP-848) report.", unit="ms", low=1
    )
    group_consumer_session_timeout_ms: int = setting(
        INT, 45_000, "After which silence a member of the newer group protocol is out.", unit="ms", low=1
    )
    group_consumer_max_size: int = setting(INT, INT32_MAX, "Members of one group of the newer protocol.", low=1)
    group_consumer_assignors: tuple[str, ...] = setting(
        LIST,
        ("uniform", "range"),
        "Assignors of the newer group protocol that members may ask for; the first is the default.",
        choices=("uniform", "range"),
    )
    offset_metadata_max_bytes: int = setting(INT, 4096, "The longest text with an offset commit.", unit="bytes", low=0)
    offsets_retention_minutes: int = setting(
        INT, 7 * 24 * 60, "How long an empty group's offsets are kept.", unit="minutes", low=1
    )
    offsets_retention_check_interval_ms: int = setting(
        LONG, 10 * MINUTE_MS, "How often expired offsets are looked for.", unit="ms", low=1
    )
    max_groups: int = setting(
        INT, 100_000, "Consumer groups kept, empty ones included; beyond it a new one is refused.", low=1
    )
    group_max_pending_members: int = setting(
        INT, 10_000, "Member ids of one group that may be promised and not used yet.", low=1
    )
    offsets_topic_num_partitions: int = setting(INT, 50, "Partitions of __consumer_offsets.", low=1)
    offsets_topic_segment_bytes: int = setting(
        INT, 100 * MIB, "segment.bytes of __consumer_offsets when it is made.", unit="bytes", low=14
    )
    offsets_topic_replication_factor: int = setting(
        SHORT, 3, "Replicas of __consumer_offsets; one broker keeps one copy.", low=1, effect=NONE
    )
    transaction_max_timeout_ms: int = setting(
        INT, 15 * MINUTE_MS, "The longest transaction a producer may ask for.", unit="ms", low=1
    )
    transaction_max_ids: int = setting(
        INT, 100_000, "Transactional ids kept, idle ones included; beyond it a new one is refused.", low=1
    )
    transaction_max_partitions: int = setting(
        INT, 10_000, "Partitions of one transaction; more of them are refused.", low=1
    )
    transaction_completion_wait_max_ms: int = setting(
        INT,
        1000,
        "How long a producer's first write waits for the transaction before to be complete, before it is told to come "
        "again.",
        unit="ms",
        low=0,
    )
    transactional_id_expiration_ms: int = setting(
        INT, 7 * DAY_MS, "How long a transactional id without a transaction is remembered.", unit="ms", low=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        INT, HOUR_MS, "How often expired transactional ids are looked for.", unit="ms", low=1
    )
    transaction_state_log_num_partitions: int = setting(INT, 50, "Partitions of __transaction_state.", low=1)
    transaction_state_log_segment_bytes: int = setting(
        INT, 100 * MIB, "segment.bytes of __transaction_state when it is made.", unit="bytes", low=14
    )
    transaction_state_log_replication_factor: int = setting(
        SHORT, 3, "Replicas of __transaction_state; one broker keeps one copy.", low=1, effect=NONE
    )
    transaction_state_log_min_isr: int = setting(
        INT, 2, "Replicas of __transaction_state in sync; one broker keeps one copy.", low=1, effect=NONE
    )

    static_texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The texts of the settings given in the file or on the command line, by key."""
    dynamic_texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The texts of the settings changed while running (AlterConfigs), by key."""
    notes: tuple[str, ...] = field(default=(), repr=False)
    """Sentences for the log: keys accepted that do nothing."""

    TABLE: ClassVar[Mapping[str, Setting]]

    @classmethod
    def load(cls, file: Path | None = None, overrides: Mapping[str, object] | None = None) -> Self:
        """The file's settings, then `overrides` over them (keys with dots, values as text or as Python values).

        ConfigError names the key that is unknown or has an illegal value, StartupError a file that cannot be read.
        """
        texts = read_properties(file) if file is not None else {}
        texts.update((key, to_text(value)) for key, value in (overrides or {}).items())
        notes: list[str] = []
        known = _known_texts(translate(resolve(texts), notes), notes)
        with named_as_given(texts):
            values = parse_all(BROKER_SETTINGS, known)
        config = cls(**values, static_texts=known, notes=tuple(notes))  # type: ignore[arg-type]  # parse gives each field's own type
        config._check()
        return replace(config, notes=(*notes, *_later_notes(known)))

    def with_dynamic(self, texts: Mapping[str, str]) -> Self:
        """The same configuration with this complete set of changes made while running; ConfigError for a bad one."""
        merged = {**self.static_texts, **known_dynamic(texts, BROKER_SETTINGS)}
        values = parse_all(BROKER_SETTINGS, merged)
        config = type(self)(**values, static_texts=self.static_texts, dynamic_texts=dict(texts), notes=self.notes)  # type: ignore[arg-type]  # as in load
        config._check()
        return config

    def _check(self) -> None:
        """What no single value shows."""
        if len(self.log_dirs) > 1:
            raise ConfigError("log.dirs", "one data directory only; put several disks under one file system")
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError("group.min.session.timeout.ms", "is above group.max.session.timeout.ms")
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigError("group.consumer.heartbeat.interval.ms", "is not below group.consumer.session.timeout.ms")
        if not self.group_consumer_assignors:
            raise ConfigError("group.consumer.assignors", "names none, but members need one")
        if self.log_cleaner_min_compaction_lag_ms > self.log_cleaner_max_compaction_lag_ms:
            raise ConfigError("log.cleaner.min.compaction.lag.ms", "is above log.cleaner.max.compaction.lag.ms")
        given = "message.max.bytes" in self.static_texts or "message.max.bytes" in self.dynamic_texts
        if given and self.message_max_bytes > self.socket_request_max_bytes:
            raise ConfigError("message.max.bytes", "is above socket.request.max.bytes, so no such batch could arrive")
        parse_advertised(self.advertised_listeners, self.bound_listeners)
        for listener in self.bound_listeners:
            self.tls_of(listener.name)
        self.connections_per_ip_overrides()

    @property
    def bound_listeners(self) -> tuple[Listener, ...]:
        """What `listeners` asks to bind, controller listeners left out."""
        return parse_listeners(self.listeners, self.listener_security_protocol_map, self.controller_listener_names)

    def tls_of(self, listener: str) -> TlsSettings:
        """The TLS settings that hold for this listener."""
        return TlsSettings.of_listener(listener, self.static_texts, self.dynamic_texts)

    def advertised_endpoint(self, listener: Listener, bound_port: int) -> Endpoint:
        """Where clients of this listener are told to connect, once its port is known."""
        advertised = parse_advertised(self.advertised_listeners, self.bound_listeners).get(listener.name)
        return (advertised or listener).endpoint(bound_port)

    @property
    def data_directory(self) -> Path:
        """The one data directory."""
        if self.log_dirs:
            return Path(self.log_dirs[0])
        base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
        return Path(base).expanduser() / "kafkalite"

    @property
    def broker_id(self) -> int:
        """Kafka's older name for node.id."""
        return self.node_id

    def classic_partition_count(self, topic: str) -> int:
        """How many partitions a classic topic gets when it is made by its first message."""
        return max(1, parse_map(self.topic_partition_count_map).get(topic, self.num_partitions))

    def connections_per_ip_overrides(self) -> dict[str, int]:
        """max.connections.per.ip.overrides as address → count."""
        return parse_limits(self.max_connections_per_ip_overrides)

    def describe(self) -> Iterator[ConfigEntry]:
        """Every setting with value, source and synonyms, as DescribeConfigs tells them."""
        own = {key: row for key in (*self.dynamic_texts, *self.static_texts) if (row := row_of(key)) is not None}
        for key, row in {**BROKER_SETTINGS, **own}.items():
            synonyms = self.synonyms(key)
            yield ConfigEntry(
                name=key,
                value=synonyms[0].value if key in own else row.render(getattr(self, row.attribute)),
                source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                type=row.type,
                read_only=row.key not in RELOADABLE if key in own else not row.dynamic,
                sensitive=row.type == ConfigType.PASSWORD,
                synonyms=synonyms,
                documentation=row.doc,
            )

    def synonyms(self, key: str) -> tuple[ConfigSynonym, ...]:
        """Where this broker setting's value could come from, the one that counts first."""
        names = _SYNONYMS.get(key, (key,))
        rows = {name: BROKER_SETTINGS[name] for name in names if name in BROKER_SETTINGS}
        defaults = {name: row.render(row.default) for name, row in rows.items() if row.default is not None}
        written = {WRITTEN_DEFAULT: self.static_texts.get(key, defaults[key])} if key == WRITTEN_DEFAULT else {}
        return ordered_synonyms(key, names, self.dynamic_texts, written, self.static_texts, defaults)


BROKER_SETTINGS: dict[str, Setting] = collect(BrokerConfig)
BrokerConfig.TABLE = BROKER_SETTINGS

_ALIASES = {alias: key for key, row in BROKER_SETTINGS.items() for alias in row.aliases}


def _known_texts(texts: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    """Only keys of the table, aliases replaced; ConfigError for an unknown key, a note for one that means nothing."""
    known: dict[str, str] = {}
    for key, text in texts.items():
        if key in BROKER_SETTINGS or listener_key(key) is not None:
            known[key] = text
        elif key in _ALIASES:
            if _ALIASES[key] in texts:
                notes.append(f"{key} is ignored, since {_ALIASES[key]} is given too")
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
                yield f"{key} is accepted, and takes effect with a later release"
            case Effect.NONE:
                yield f"{key} is accepted, and has no effect here"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One topic's settings. Make one with `resolve`; the bare constructor gives the built-in defaults."""

    cleanup_policy: tuple[str, ...] = setting(
        LIST,
        ("delete",),
        "What becomes of old segments: `delete` by retention.ms and retention.bytes, `compact` down to the newest"
        " record of each key (records need one), or both.",
        choices=("compact", "delete"),
        broker_keys=(("log.cleanup.policy", 1),),
    )
    compression_gzip_level: int = setting(
        INT, -1, "Level where compression.type is gzip.", low=-1, high=9, broker_keys=(("compression.gzip.level", 1),)
    )
    compression_lz4_level: int = setting(
        INT, 9, "Level where compression.type is lz4.", low=1, high=17, broker_keys=(("compression.lz4.level", 1),)
    )
    compression_type: str = setting(
        STRING,
        "producer",
        "The codec batches are stored in; `producer` keeps what the client sent.",
        choices=CODECS,
        broker_keys=(("compression.type", 1),),
    )
    compression_zstd_level: int = setting(
        INT,
        3,
        "Level where compression.type is zstd.",
        low=-131072,
        high=22,
        broker_keys=(("compression.zstd.level", 1),),
    )
    delete_retention_ms: int = setting(
        LONG,
        DAY_MS,
        "How long a compacted topic keeps the marks of deleted keys.",
        unit="ms",
        low=0,
        broker_keys=(("log.cleaner.delete.retention.ms", 1),),
    )
    file_delete_delay_ms: int = setting(
        LONG,
        MINUTE_MS,
        "Time between renaming a segment to `.deleted` and removing it.",
        unit="ms",
        low=0,
        broker_keys=(("log.segment.delete.delay.ms", 1),),
    )
    flush_messages: int = setting(
        LONG,
        INT64_MAX,
        "Flush the partition after so many messages.",
        low=1,
        broker_keys=(("log.flush.interval.messages", 1),),
    )
    flush_ms: int = setting(
        LONG,
        INT64_MAX,
        "Flush the partition when its oldest unflushed message is so old.",
        unit="ms",
        low=0,
        broker_keys=(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        LIST, (), "Of replication, which a single broker has none of.", effect=NONE
    )
    index_interval_bytes: int = setting(
        INT,
        4096,
        "Log bytes per entry of a segment's index.",
        unit="bytes",
        low=0,
        broker_keys=(("log.index.interval.bytes", 1),),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        LIST, (), "Of replication, which a single broker has none of.", effect=NONE
    )
    local_retention_bytes: int = setting(
        LONG,
        -2,
        "Of tiered storage.",
        unit="bytes",
        low=-2,
        effect=NONE,
        broker_keys=(("log.local.retention.bytes", 1),),
    )
    local_retention_ms: int = setting(
        LONG, -2, "Of tiered storage.", unit="ms", low=-2, effect=NONE, broker_keys=(("log.local.retention.ms", 1),)
    )
    max_compaction_lag_ms: int = setting(
        LONG,
        INT64_MAX,
        "The longest a message stays uncompacted.",
        unit="ms",
        low=1,
        broker_keys=(("log.cleaner.max.compaction.lag.ms", 1),),
    )
    max_message_bytes: int = setting(
        INT,
        MIB + 12,
        "The largest batch, as it was sent; larger is refused with MESSAGE_TOO_LARGE.",
        unit="bytes",
        low=0,
        broker_keys=(("message.max.bytes", 1),),
    )
    message_downconversion_enable: bool = setting(
        BOOLEAN, True, "Of message formats older than v2, which Kafka 4 removed.", effect=NONE
    )
    message_format: str = setting(
        STRING,
        "v2",
        "The stored format, fixed at creation: `v2` is Kafka's record batch, `classic` Kafka 0.7's messages, which"
        " 0.7's port serves and whose offsets are byte positions.",
        choices=("v2", "classic"),
    )
    message_format_version: str = setting(
        STRING, "3.0-IV1", "Of message formats older than v2, which Kafka 4 removed.", effect=NONE
    )
    message_timestamp_after_max_ms: int = setting(
        LONG,
        HOUR_MS,
        "How far ahead of the broker's clock a record's timestamp may be; CreateTime topics only.",
        unit="ms",
        low=0,
        broker_keys=(("log.message.timestamp.after.max.ms", 1),),
    )
    message_timestamp_before_max_ms: int = setting(
        LONG,
        INT64_MAX,
        "How far behind the broker's clock a record's timestamp may be; CreateTime topics only.",
        unit="ms",
        low=0,
        broker_keys=(("log.message.timestamp.before.max.ms", 1),),
    )
    message_timestamp_difference_max_ms: int = setting(
        LONG,
        INT64_MAX,
        "Replaced by message.timestamp.before.max.ms and after.max.ms in Kafka 4.",
        unit="ms",
        low=0,
        effect=NONE,
    )
    message_timestamp_type: str = setting(
        STRING,
        "CreateTime",
        "Whose clock a record's timestamp shows: the client's, or the broker's at append.",
        choices=TIMESTAMP_TYPES,
        broker_keys=(("log.message.timestamp.type", 1),),
    )
    min_cleanable_dirty_ratio: float = setting(
        DOUBLE,
        0.5,
        "The share of uncleaned bytes from which a compacted log is cleaned.",
        low=0,
        high=1,
        broker_keys=(("log.cleaner.min.cleanable.ratio", 1),),
    )
    min_compaction_lag_ms: int = setting(
        LONG,
        0,
        "The shortest a message stays uncompacted.",
        unit="ms",
        low=0,
        broker_keys=(("log.cleaner.min.compaction.lag.ms", 1),),
    )
    min_insync_replicas: int = setting(
        INT,
        1,
        "Of replication; one broker has one replica, which is always in sync.",
        low=1,
        effect=NONE,
        broker_keys=(("min.insync.replicas", 1),),
    )
    preallocate: bool = setting(
        BOOLEAN,
        False,
        "Claim the whole segment's disk space at its first append, instead of in doubling steps.",
        broker_keys=(("log.preallocate", 1),),
    )
    record_validation: str = setting(
        STRING,
        "full",
        "See the broker setting of the same name.",
        choices=VALIDATIONS,
        broker_keys=(("record.validation", 1),),
    )
    remote_copy_lag_bytes: int = setting(LONG, 0, "Of tiered storage.", unit="bytes", low=-1, effect=NONE)
    remote_copy_lag_ms: int = setting(LONG, 0, "Of tiered storage.", unit="ms", low=-1, effect=NONE)
    remote_log_copy_disable: bool = setting(BOOLEAN, False, "Of tiered storage.", effect=NONE)
    remote_log_delete_on_disable: bool = setting(BOOLEAN, False, "Of tiered storage.", effect=NONE)
    remote_storage_enable: bool = setting(
        BOOLEAN, False, "Tiered storage; not in this release, so `true` does nothing.", effect=NONE
    )
    retention_bytes: int = setting(
        LONG,
        -1,
        "The size of a partition above which its oldest segments are deleted; -1 no limit.",
        unit="bytes",
        low=-1,
        broker_keys=(("log.retention.bytes", 1),),
    )
    retention_ms: int = setting(
        LONG,
        7 * DAY_MS,
        "The age at which a segment is deleted, by its newest record; -1 never.",
        unit="ms",
        low=-1,
        broker_keys=(
            ("log.retention.ms", 1),
            ("log.retention.minutes", MINUTE_MS),
            ("log.retention.hours", HOUR_MS),
        ),
    )
    segment_bytes: int = setting(
        INT,
        GIB,
        "The size at which a segment is closed and the next one begun.",
        unit="bytes",
        low=14,
        broker_keys=(("log.segment.bytes", 1),),
    )
    segment_index_bytes: int = setting(
        INT,
        10 * MIB,
        "The size of a segment's index at which the segment is closed.",
        unit="bytes",
        low=4,
        broker_keys=(("log.index.size.max.bytes", 1),),
    )
    segment_jitter_ms: int = setting(
        LONG,
        0,
        "The most that is randomly taken off segment.ms, so that segments do not all close together.",
        unit="ms",
        low=0,
        broker_keys=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    )
    segment_ms: int = setting(
        LONG,
        7 * DAY_MS,
        "The age at which a segment is closed.",
        unit="ms",
        low=1,
        broker_keys=(("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    )
    unclean_leader_election_enable: bool = setting(
        BOOLEAN,
        False,
        "Of replication, which a single broker has none of.",
        effect=NONE,
        broker_keys=(("unclean.leader.election.enable", 1),),
    )

    overrides: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The texts of the settings that this topic has of its own, by key."""

    TABLE: ClassVar[Mapping[str, Setting]]

    @classmethod
    def resolve(cls, broker: BrokerConfig, overrides: Mapping[str, str] | None = None, topic: str = "") -> Self:
        """The settings of a topic with these overrides on this broker; ConfigError for an unknown key or bad value.

        `topic` is its name, which 0.7's maps of classic topics ask for.
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
            raise ConfigError("cleanup.policy", "classic messages have no keys, so they cannot be compacted")
        return config

    @property
    def compacted(self) -> bool:
        """Whether each record needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        """Whether the broker stamps records."""
        return self.message_timestamp_type == "LogAppendTime"

    def describe(self, broker: BrokerConfig, topic: str = "") -> Iterator[ConfigEntry]:
        """Every setting with value, source and synonyms, as DescribeConfigs tells them; `topic` as for `resolve`."""
        for key, row in TOPIC_SETTINGS.items():
            synonyms = tuple(self._synonyms(row, broker, topic))
            yield ConfigEntry(
                name=key,
                value=row.render(getattr(self, row.attribute)),
                source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                type=row.type,
                read_only=False,
                sensitive=row.type == ConfigType.PASSWORD,
                synonyms=synonyms,
                documentation=row.doc,
            )

    def _synonyms(self, row: Setting, broker: BrokerConfig, topic: str) -> Iterator[ConfigSynonym]:
        if row.key in self.overrides:
            yield ConfigSynonym(row.key, self.overrides[row.key], ConfigSource.DYNAMIC_TOPIC)
        if not row.broker_keys:
            yield ConfigSynonym(row.key, row.render(row.default), ConfigSource.DEFAULT)
        keys = [broker_key for broker_key, _factor in row.broker_keys]
        keys = broker.classic_broker_keys(row.key, topic, keys) if self.message_format == "classic" else keys[:1]
        found = (synonym for key in keys for synonym in broker.synonyms(key))
        yield from dict.fromkeys(one for one in found if one.value != "")  # an empty map of 0.7's has no value


TOPIC_SETTINGS: dict[str, Setting] = collect(TopicConfig)
TopicConfig.TABLE = TOPIC_SETTINGS
_SYNONYMS = {
    key: [name for name, _ in row.broker_keys] for row in TOPIC_SETTINGS.values() for key, _ in row.broker_keys
}


@functools.lru_cache(maxsize=4)
def _broker_defaults(broker: BrokerConfig) -> Mapping[str, Value]:
    """Attribute → value of a topic without overrides; thousands of topics ask for the same broker's."""
    return {row.attribute: _broker_default(row, broker) for row in TOPIC_SETTINGS.values() if row.broker_keys}


def _broker_default(row: Setting, broker: BrokerConfig) -> Value:
    """The broker's value for a topic setting: the first of its broker keys that is set, in the topic's unit."""
    for key, factor in row.broker_keys:
        value: Value = getattr(broker, BROKER_SETTINGS[key].attribute)
        if value is None:
            continue
        if factor == 1:
            return value
        assert isinstance(value, int), f"{key} has a unit to convert, so it is a number"
        return value * factor if value >= 0 else -1
    return row.default
