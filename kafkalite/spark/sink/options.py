"""Parse and check the write options of `format("kafkalite")`, which have the names of Spark's own Kafka connector.

`SinkOptions.parse` accepts option names and column names in any case, and returns frozen values. An invalid option
raises OptionError, whose message is one sentence. Options without effect are logged.

This module needs neither Spark nor a broker.

Thread rule: pure functions and frozen values.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.load.selection import INT32_MAX, OptionError, require_topic
from kafkalite.spark import options as source
from kafkalite.spark.java_clients import JAVA_NAMES, SECURITY_NAMES
from kafkalite.spark.options import (
    CLIENT_TIMES,
    GivenOptions,
    servers_and_client,
)
from kafkalite.wire.record.compression import LEVELS, Codec

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADERS: Final = "array<struct<key:string,value:binary>>"
TYPES: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
}
"""Column → permitted types, as Spark writes them."""
ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
TRANSACTION_TIMEOUT_S: Final = 300.0
"""A transaction is open from a task's first row until all tasks of the batch are done."""

OF_SPARK: Final = ("checkpointLocation", "queryName")
"""Options of a query that Spark passes to its sink, too."""
REFUSED: Final = {
    "kafka.key.serializer": "keys are written unchanged, as string or binary",
    "kafka.value.serializer": "values are written unchanged, as string or binary",
    "kafka.interceptor.classes": "interceptors are not supported",
    "kafka.partitioner.class": "Java classes cannot be loaded; set the column partition of each row instead",
    "kafka.transactional.id": "set delivery=exactly-once instead: each task of a query has its own id",
    "kafka.config.providers": "values are used literally",
    "path": "rows go to topics; set option topic or add a column topic",
}
"""Name → why it is refused."""
LEVEL_OPTIONS: Final = {codec: f"kafka.compression.{codec.name.lower()}.level" for codec in map(Codec, LEVELS)}
HONOURED: Final = (
    "topic", "delivery", "failOnMarkerLoss", *OF_SPARK, "kafka.bootstrap.servers", "kafka.client.id",
    *CLIENT_TIMES, "kafka.acks", "kafka.enable.idempotence", "kafka.compression.type", *LEVEL_OPTIONS.values(),
    "kafka.batch.size", "kafka.delivery.timeout.ms", "kafka.max.in.flight.requests.per.connection",
    "kafka.partitioner.ignore.keys", "kafka.transaction.timeout.ms", *sorted(SECURITY_NAMES),
)  # fmt: skip
"""Names as documented. They are case-insensitive."""
WITHOUT_EFFECT: Final = tuple(sorted(JAVA_NAMES.union(source.HONOURED, source.WITHOUT_EFFECT) - {*HONOURED, *REFUSED}))
"""Options of the Java clients, or of reading queries. Headers are written if there is a column for them."""
KNOWN: Final = (*HONOURED, *WITHOUT_EFFECT)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options of a query that writes."""

    bootstrap_servers: str
    topic: str | None
    """The topic of all rows, in place of their column topic."""
    client: tuple[tuple[str, Any], ...] = ()
    """Arguments of Client."""
    producer: tuple[tuple[str, Any], ...] = ()
    """Arguments of ColumnWriter."""
    exactly_once: bool = False
    transaction_timeout_s: float = TRANSACTION_TIMEOUT_S
    fail_on_marker_loss: bool = True
    """Whether a query that has written before must find its markers."""
    columns: tuple[str, ...] | None = None
    """The columns that are written; None: all."""
    without_effect: tuple[str, ...] = field(default=(), compare=False)
    """Options without effect, and columns that are not written, for the log."""

    @classmethod
    def parse(
        cls, options: Mapping[str, str], columns: Mapping[str, str], *, streaming: bool, overwrite: bool = False
    ) -> SinkOptions:
        """Return the options of a query. `columns` maps names to types as Spark writes them. Raises OptionError."""
        given = GivenOptions(options, REFUSED, KNOWN)
        given.require_all_known()
        for name in OF_SPARK:
            given.text(name)
        if overwrite and not streaming:
            raise OptionError("a topic cannot be overwritten; use mode append")
        topic = given.text("topic")
        if topic is not None:
            require_topic("topic", topic)
        require_columns(columns, topic)
        exactly_once = given.choice("delivery", (AT_LEAST_ONCE, EXACTLY_ONCE), AT_LEAST_ONCE) == EXACTLY_ONCE
        if exactly_once and not streaming:
            raise OptionError("option delivery: exactly-once works in streaming queries only")
        servers, client = servers_and_client(given)
        timeout_ms = given.number("kafka.transaction.timeout.ms", 1, INT32_MAX)
        left_out = tuple(f"column {name}" for name in columns if name not in TYPES)
        return cls(
            servers,
            topic,
            client,
            producer_settings(given, exactly_once=exactly_once),
            exactly_once,
            TRANSACTION_TIMEOUT_S if timeout_ms is None else timeout_ms / 1000,
            given.flag("failOnMarkerLoss", True),
            tuple(name for name in columns if name in TYPES) if left_out else None,
            (*given.without_effect(WITHOUT_EFFECT), *left_out),
        )


def producer_settings(given: GivenOptions, *, exactly_once: bool) -> tuple[tuple[str, Any], ...]:
    """Return the arguments of ColumnWriter, sorted. Raises OptionError for contradicting options."""
    acks = ACKS[given.choice("kafka.acks", tuple(ACKS), "all")]
    idempotent = given.flag("kafka.enable.idempotence", acks == ACKS["all"])
    if idempotent and acks != ACKS["all"]:
        raise OptionError("option kafka.enable.idempotence: an idempotent producer needs kafka.acks=all")
    if exactly_once and not idempotent:
        raise OptionError("option delivery: exactly-once needs kafka.acks=all and kafka.enable.idempotence=true")
    names = tuple(codec.name.lower() for codec in Codec)
    codec = Codec.named(given.choice("kafka.compression.type", names, "none"))
    settings: dict[str, Any] = {"acks": acks, "idempotent": idempotent, "codec": int(codec)}
    levels = {of: given.number(name, *LEVELS[of]) for of, name in LEVEL_OPTIONS.items()}
    if levels.get(codec) is not None:
        settings["level"] = levels[codec]
    if given.flag("kafka.partitioner.ignore.keys", False):
        settings["ignore_keys"] = True
    batch_size = given.number("kafka.batch.size", 0, INT32_MAX)
    if batch_size is not None:
        settings["batch_size"] = max(1, batch_size)
    in_flight = given.number("kafka.max.in.flight.requests.per.connection", 1, INT32_MAX)
    if in_flight is not None:
        settings["in_flight_max"] = in_flight
    delivery_ms = given.number("kafka.delivery.timeout.ms", 1, INT32_MAX)
    if delivery_ms is not None:
        settings["delivery_timeout_s"] = delivery_ms / 1000
    return tuple(sorted(settings.items()))


def require_columns(columns: Mapping[str, str], topic: str | None) -> None:
    """Raise OptionError for a column of a wrong type, or if value or the topic is missing."""
    for name, kind in columns.items():
        if kind not in TYPES.get(name, (kind,)):
            raise OptionError(f"column {name} has type {kind}; expected {' or '.join(TYPES[name])}")
    if "value" not in columns:
        raise OptionError("column value is missing")
    if topic is None and "topic" not in columns:
        raise OptionError("no topic to write to; set option topic or add a column topic")
