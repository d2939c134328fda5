"""Settings of Kafka 0.7: those it has alone, and which of ours its other keys mean.

0.7's keys are taken as they are, so that its server.properties can be used. Where the same thing has a newer key, 0.7's
is another name for it (RENAMED); what has no newer key, or another default, is a row of ClassicSettings, which is part
of the broker's table. Pure functions on text; any thread.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from kafkalite.settings import ConfigType, Effect, Value, setting

_LOG = logging.getLogger(__name__)

HOUR_MS = 3_600_000
MINUTE_MS = 60_000

RENAMED: dict[str, tuple[str, int]] = {
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
"""0.7's key → ours, and by what its number is multiplied."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassicSettings:
    """Rows of the broker's settings table that only concern classic topics and the 0.7 listener."""

    log_flush_interval: int = setting(
        ConfigType.LONG,
        500,
        "Classic topics: flush a partition, and so make its messages visible, after so many messages.",
        low=1,
        since="0.2",
    )
    log_default_flush_scheduler_interval_ms: int = setting(
        ConfigType.LONG,
        3000,
        "Classic topics: default of log.default.flush.interval.ms. Partitions are looked at twice a second.",
        unit="ms",
        low=1,
        since="0.2",
    )
    log_default_flush_interval_ms: int | None = setting(
        ConfigType.LONG,
        None,
        "Classic topics: flush a partition that has waited so long; unset: log.default.flush.scheduler.interval.ms.",
        unit="ms",
        low=0,
        since="0.2",
    )
    topic_flush_intervals_ms: str = setting(
        ConfigType.STRING,
        "",
        "Classic topics with a log.default.flush.interval.ms of their own: `topic:ms`, comma between two.",
        since="0.2",
    )
    topic_partition_count_map: str = setting(
        ConfigType.STRING,
        "",
        "Classic topics made with another number of partitions than num.partitions: `topic:number`, ...",
        since="0.2",
    )
    topic_log_file_size: str = setting(
        ConfigType.STRING, "", "Classic topics with a segment.bytes of their own: `topic:bytes`, ...", since="0.2"
    )
    topic_log_roll_hours: str = setting(
        ConfigType.STRING, "", "Classic topics with a segment.ms of their own: `topic:hours`, ...", since="0.2"
    )
    topic_log_retention_hours: str = setting(
        ConfigType.STRING, "", "Classic topics with a retention.ms of their own: `topic:hours`, ...", since="0.2"
    )
    topic_log_retention_size: str = setting(
        ConfigType.STRING, "", "Classic topics with a retention.bytes of their own: `topic:bytes`, ...", since="0.2"
    )
    max_message_size: int = setting(
        ConfigType.INT,
        1_000_000,
        "Classic topics: the largest payload of a message, a compressed one counting as one; a set with a larger one is"
        " dropped.",
        unit="bytes",
        low=0,
        since="0.2",
    )
    max_topic_name_length: int = setting(
        ConfigType.INT,
        255,
        "0.7's bound on topic names; topic.name.max.length is the one that holds.",
        unit="characters",
        low=1,
        effect=Effect.NONE,
        since="0.2",
    )
    classic_nesting_max: int = setting(
        ConfigType.INT,
        4,
        "Compressed messages of 0.7 that may lie in each other; a deeper set is refused.",
        low=1,
        high=64,
        since="0.2",
    )
    monitoring_period_secs: int = setting(
        ConfigType.INT, 600, "Of 0.7's Java metrics.", unit="s", low=1, effect=Effect.NONE, since="0.2"
    )
    hostname: str | None = setting(
        ConfigType.STRING,
        None,
        "The host that ZooKeeper is told; unset: the address of the 0.7 listener's host, or the machine's where that is"
        " bound everywhere.",
        since="0.2",
    )
    enable_zookeeper: bool = setting(
        ConfigType.BOOLEAN,
        True,
        "Whether the 0.7 listener is registered in ZooKeeper, where zookeeper.connect is set.",
        since="0.2",
    )
    zk_sessiontimeout_ms: int = setting(
        ConfigType.INT, 6000, "ZooKeeper's session timeout.", unit="ms", low=1, since="0.2"
    )
    zk_connectiontimeout_ms: int | None = setting(
        ConfigType.INT,
        None,
        "How long a start waits for ZooKeeper; unset: zk.sessiontimeout.ms.",
        unit="ms",
        low=1,
        since="0.2",
    )
    zk_synctime_ms: int = setting(
        ConfigType.INT, 2000, "Of 0.7's consumers.", unit="ms", low=0, effect=Effect.NONE, since="0.2"
    )

    def classic_defaults(self, topic: str) -> dict[str, Value]:
        """Attribute → value of a classic topic's settings that 0.7 has another default, or a map, for."""
        flush_ms = self.log_default_flush_interval_ms
        if flush_ms is None:
            flush_ms = self.log_default_flush_scheduler_interval_ms
        values: dict[str, Value] = {
            "flush_messages": self.log_flush_interval,
            "flush_ms": parse_map(self.topic_flush_intervals_ms).get(topic, flush_ms),
            "max_message_bytes": self.max_message_size,
        }
        for attribute, text, factor in (
            ("segment_bytes", self.topic_log_file_size, 1),
            ("segment_ms", self.topic_log_roll_hours, HOUR_MS),
            ("retention_ms", self.topic_log_retention_hours, HOUR_MS),
            ("retention_bytes", self.topic_log_retention_size, 1),
        ):
            value = parse_map(text).get(topic) if text else None
            if value is not None:
                values[attribute] = value * factor
        return values


def parse_map(text: str) -> dict[str, int]:
    """`topic:number,topic:number` as 0.7 reads it: a pair that is none is logged and left out."""
    found: dict[str, int] = {}
    for pair in filter(None, (item.strip() for item in text.split(","))):
        topic, separator, number = pair.rpartition(":")
        if not separator or not topic or not number.strip().isdecimal():
            _LOG.warning("%r is no topic:number pair, ignored", pair)
        else:
            found[topic.strip()] = int(number)
    return found


def translate(texts: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    """The texts with 0.7's keys replaced by ours; a key whose newer form is given too is left out, with a note."""
    result: dict[str, str] = {}
    for key, text in texts.items():
        ours, factor = RENAMED.get(key, (key, 1))
        if ours != key and ours in texts:
            notes.append(f"{key} is ignored, since {ours} is given too")
        elif factor != 1 and text.strip().isdecimal():
            result[ours] = str(int(text) * factor)
        else:
            result[ours] = text
    if "brokerid" in texts and "port" in texts:  # a server.properties of 0.7: its port speaks 0.7's protocol
        port = result.pop("port")
        if "listeners" in texts:
            notes.append("port is ignored, since listeners is given too")
        else:
            result["listeners"] = f"kafka07://:{port.strip()}"
            if port.strip() != "9092":
                result["listeners"] += ",kafka://127.0.0.1:9092"
    return result
