"""Define the settings of Kafka 0.7, and translate its keys, so that a server.properties of Kafka 0.7 works unchanged.

A key of 0.7 is an alias of a current key if both can share one value (RENAMED). Otherwise it is a setting in
ClassicRows. Classic topics are topics in the format of 0.7.

Thread rule: pure functions on text, except for log messages; any thread.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.errors import ConfigError
from kafkalite.settings.rows import HOUR_MS, MINUTE_MS, ConfigType, Effect, Value, attribute_of, setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

logger = logging.getLogger(__name__)

PORT_DEFAULT: Final = "6667"
"""The port of a broker of 0.7 whose file has none."""
TODAYS_PORT: Final = "9092"
"""The port for current clients, in addition to 0.7's port."""

RENAMED: Final[dict[str, tuple[str, int]]] = {
    "brokerid": ("node.id", 1),
    "num.threads": ("num.network.threads", 1),
    "socket.send.buffer": ("socket.send.buffer.bytes", 1),
    "socket.receive.buffer": ("socket.receive.buffer.bytes", 1),
    "max.socket.request.bytes": ("socket.request.max.bytes", 1),
    "log.file.size": ("log.segment.bytes", 1),
    "log.retention.size": ("log.retention.bytes", 1),
    "log.cleanup.interval.mins": ("log.retention.check.interval.ms", MINUTE_MS),
    "zk.connect": ("zookeeper.connect", 1),
}
"""0.7's key → (current key, factor for its number)."""

_SOURCES: Final[dict[str, tuple[str | None, int, tuple[str, ...]]]] = {
    "flush.messages": (None, 1, ("log.flush.interval",)),
    "flush.ms": (
        "topic.flush.intervals.ms",
        1,
        ("log.default.flush.interval.ms", "log.default.flush.scheduler.interval.ms"),
    ),
    "max.message.bytes": (None, 1, ("max.message.size",)),
    "segment.bytes": ("topic.log.file.size", 1, ()),
    "segment.ms": ("topic.log.roll.hours", HOUR_MS, ()),
    "retention.ms": ("topic.log.retention.hours", HOUR_MS, ()),
    "retention.bytes": ("topic.log.retention.size", 1, ()),
}
"""A classic topic's setting → (0.7's setting with values by topic, the factor for these values, the broker settings
that provide the default; none: those of other topics)."""


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class ClassicRows:
    """Settings that affect only classic topics and the listener for Kafka 0.7."""

    __slots__ = ()

    log_flush_interval: int = setting(
        ConfigType.LONG,
        500,
        "Classic topics: flush a partition, which makes its messages visible, after this number of messages.",
        low=1,
        since="0.2",
    )
    log_default_flush_scheduler_interval_ms: int = setting(
        ConfigType.LONG,
        3000,
        "Classic topics: default of log.default.flush.interval.ms. Partitions are checked twice a second.",
        unit="ms",
        low=1,
        since="0.2",
    )
    log_default_flush_interval_ms: int | None = setting(
        ConfigType.LONG,
        None,
        "Classic topics: flush a partition when its oldest unflushed message reaches this age. Unset: "
        "log.default.flush.scheduler.interval.ms.",
        unit="ms",
        low=0,
        since="0.2",
    )
    topic_flush_intervals_ms: str = setting(
        ConfigType.STRING,
        "",
        "Overrides of log.default.flush.interval.ms for classic topics: comma-separated `topic:ms`.",
        since="0.2",
    )
    topic_partition_count_map: str = setting(
        ConfigType.STRING,
        "",
        "Number of partitions of classic topics that differ from num.partitions: comma-separated `topic:number`.",
        since="0.2",
    )
    topic_log_file_size: str = setting(
        ConfigType.STRING,
        "",
        "Overrides of segment.bytes for classic topics: comma-separated `topic:bytes`.",
        since="0.2",
    )
    topic_log_roll_hours: str = setting(
        ConfigType.STRING, "", "Overrides of segment.ms for classic topics: comma-separated `topic:hours`.", since="0.2"
    )
    topic_log_retention_hours: str = setting(
        ConfigType.STRING,
        "",
        "Overrides of retention.ms for classic topics: comma-separated `topic:hours`.",
        since="0.2",
    )
    topic_log_retention_size: str = setting(
        ConfigType.STRING,
        "",
        "Overrides of retention.bytes for classic topics: comma-separated `topic:bytes`.",
        since="0.2",
    )
    max_message_size: int = setting(
        ConfigType.INT,
        1_000_000,
        "Classic topics: maximum size of a message's payload; a compressed message counts as one. A message set "
        "with a larger one is dropped.",
        unit="bytes",
        low=0,
        since="0.2",
    )
    max_topic_name_length: int = setting(
        ConfigType.INT,
        255,
        "Kafka 0.7's limit for topic names. It has no effect: topic.name.max.length applies.",
        unit="characters",
        low=1,
        effect=Effect.NONE,
        since="0.2",
    )
    classic_listener_allow_remote: bool = setting(
        ConfigType.BOOLEAN,
        False,
        "Allow a kafka07:// listener on other than loopback addresses although an authorizer is set. Kafka 0.7's "
        "protocol has no authentication, so all its clients are User:ANONYMOUS.",
    )
    classic_nesting_max: int = setting(
        ConfigType.INT,
        4,
        "Maximum nesting depth of compressed Kafka 0.7 messages; deeper message sets are rejected.",
        low=1,
        high=64,
        since="0.2",
    )
    monitoring_period_secs: int = setting(
        ConfigType.INT,
        600,
        "Setting of Kafka 0.7's Java metrics; has no effect.",
        unit="s",
        low=1,
        effect=Effect.NONE,
        since="0.2",
    )
    hostname: str | None = setting(
        ConfigType.STRING,
        None,
        "Host to register in ZooKeeper. Unset: the address of the 0.7 listener, or the machine's if the listener "
        "binds every interface.",
        since="0.2",
    )
    enable_zookeeper: bool = setting(
        ConfigType.BOOLEAN,
        True,
        "Register the 0.7 listener in ZooKeeper if zookeeper.connect is set.",
        since="0.2",
    )
    zk_sessiontimeout_ms: int = setting(
        ConfigType.INT, 6000, "ZooKeeper session timeout.", unit="ms", low=1, since="0.2"
    )
    zk_connectiontimeout_ms: int | None = setting(
        ConfigType.INT,
        None,
        "Maximum time that a start waits for ZooKeeper. Unset: zk.sessiontimeout.ms.",
        unit="ms",
        low=1,
        since="0.2",
    )
    zk_synctime_ms: int = setting(
        ConfigType.INT,
        2000,
        "Setting of Kafka 0.7's consumers; has no effect.",
        unit="ms",
        low=0,
        effect=Effect.NONE,
        since="0.2",
    )

    def classic_defaults(self, topic: str) -> dict[str, Value]:
        """Return the defaults of a classic topic that differ from other topics: attribute → value.

        They come from 0.7's settings: from the value for this topic in a map, or else from a setting for all classic
        topics.
        """
        values: dict[str, Value] = {}
        for key, (map_key, factor, broker_keys) in _SOURCES.items():
            mapped = parse_map(getattr(self, attribute_of(map_key))).get(topic) if map_key else None
            if mapped is not None:
                values[attribute_of(key)] = mapped * factor
            elif broker_keys:
                texts = (getattr(self, attribute_of(broker_key)) for broker_key in broker_keys)
                values[attribute_of(key)] = next(value for value in texts if value is not None)
        return values

    def classic_broker_keys(self, key: str, topic: str, today: list[str]) -> list[str]:
        """Return the broker settings that provide a classic topic's default, in order of precedence.

        `today` are the broker settings that provide the default of other topics.
        """
        map_key, _, broker_keys = _SOURCES.get(key, (None, 1, ()))
        own = [map_key] if map_key and topic in parse_map(getattr(self, attribute_of(map_key))) else []
        return [*own, *(broker_keys or today)]


@functools.lru_cache(maxsize=16)
def parse_map(text: str) -> Mapping[str, int]:
    """Parse a setting of the form `topic:number,topic:number`.

    As in Kafka 0.7, a malformed pair is logged and skipped.
    """
    found: dict[str, int] = {}
    for pair in filter(None, (item.strip() for item in text.split(","))):
        topic, separator, number = pair.rpartition(":")
        if not separator or not topic or not number.strip().isdecimal():
            logger.warning("ignored %r, which is not a topic:number pair", pair)
        else:
            found[topic.strip()] = int(number)
    return found


def translate(texts: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    """Replace Kafka 0.7's keys by current keys. Return the resulting settings.

    If both the old and the current key are set, the old one is dropped, and a note is added to `notes`. In a file with
    `brokerid`, `port` becomes a listener for Kafka 0.7's protocol.
    """
    result: dict[str, str] = {}
    for key, text in texts.items():
        ours, factor = RENAMED.get(key, (key, 1))
        if ours != key and ours in texts:
            notes.append(f"{key} is ignored because {ours} is also set")
        elif factor != 1 and text.strip().isdecimal():
            result[ours] = str(int(text) * factor)
        else:
            result[ours] = text
    if "brokerid" in texts:  # a server.properties of 0.7: its port speaks 0.7's protocol
        port = result.pop("port", PORT_DEFAULT).strip()
        if "listeners" in texts:
            if "port" in texts:
                notes.append("port is ignored because listeners is also set")
        elif port == TODAYS_PORT:
            result["listeners"] = f"kafka07://:{port}"
            notes.append(f"port {port} speaks Kafka 0.7 only; set listeners to serve current clients")
        else:
            result["listeners"] = f"kafka07://:{port},kafka://127.0.0.1:{TODAYS_PORT}"
    return result


@contextlib.contextmanager
def named_as_given(texts: Mapping[str, str]) -> Iterator[None]:
    """Return a context in which a ConfigError names Kafka 0.7's key, if the setting was set by that key."""
    try:
        yield
    except ConfigError as error:
        given = (theirs for theirs, (ours, _) in RENAMED.items() if ours == error.key and theirs in texts)
        raise ConfigError(error.key if error.key in texts else next(given, error.key), error.reason) from None
