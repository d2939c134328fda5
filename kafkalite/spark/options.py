"""Parse and check the options of `format("kafkalite")`, which have the names of Spark's own Kafka connector.

    SourceOptions.parse    options of a batch query
    StreamOptions.parse    options of a streaming query

Both accept names in any case, and return frozen values. Options that have no effect, but that Spark's connector or its
Java clients accept, are collected for the log. An invalid or unknown option raises OptionError, whose message is one
sentence.

This module needs neither Spark nor a broker.

Thread rule: pure functions and frozen values.
"""

from __future__ import annotations

import difflib
import logging
import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.client import Security, parse_bootstrap
from kafkalite.errors import StartupError
from kafkalite.load.selection import (
    INT32_MAX,
    INT64_MAX,
    OffsetBound,
    OptionError,
    Subscription,
    assigned_partitions,
    offset_bound,
    partition_numbers,
    require_topic,
)
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST
from kafkalite.spark.java_clients import JAVA_FLAGS, JAVA_NAMES, JAVA_NUMBERS, SECURITY_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

logger = logging.getLogger(__name__)

TRIGGER_DELAY_S: Final = 15 * 60.0
UNITS_S: Final = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
TLS_PREFIX: Final = "kafka.ssl."
"""Prefix of names that `kafkalite.client.security` checks."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Arguments of a Client and its readers. Times in seconds; None: the client's default."""

    bootstrap_servers: str
    options: tuple[tuple[str, Any], ...] = ()
    """Further arguments of Client, by name. Hashable, because clients are kept by their settings."""
    isolation_level: str = "read_uncommitted"
    check_crcs: bool = True
    fetch_size: int | None = None
    stall_timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """How values are decoded to columns."""

    format: str
    """"json" or "avro"."""
    schema: str | None = None
    """JSON: columns as Spark writes them. Avro: the reader's schema; None for the subject's latest version."""
    registry: str | None = None
    """URLs of the schema registry."""
    subject: str | None = None
    fails: bool = False
    """Whether a bad value fails the query instead of becoming null."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options of a batch query that reads, and those that streaming queries share."""

    client: ClientSettings
    subscription: Subscription
    starting: OffsetBound
    ending: OffsetBound
    timestamp_strategy: str = "error"
    """What to do if no record has the starting timestamp or a later one: "error" or "latest"."""
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    size_target: int | None = None
    """Approximate bytes on the wire per task."""
    offsets_max: int | None = None
    """Maximum offsets per task."""
    pushdown: bool = False
    """Whether a query's filters narrow its offset ranges."""
    values: ValueOptions | None = None
    """How values are decoded; None: they stay bytes."""
    without_effect: tuple[str, ...] = field(default=(), compare=False)
    """Options that are set but have no effect, for the log."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Return the options of a batch query. Raises OptionError with one sentence."""
        given = GivenOptions(options, REFUSED)
        given.require_all_known()
        starting = starting_bound(given, OFFSET_EARLIEST)
        if OFFSET_LATEST in (starting.everywhere, *(starting.offsets or {}).values()):
            raise OptionError("option startingOffsets: a batch query cannot start at the latest offset")
        return cls.of(given, starting, ending_bound(given), OF_STREAMS)

    @classmethod
    def of(
        cls, given: GivenOptions, starting: OffsetBound, ending: OffsetBound, without_effect: Iterable[str]
    ) -> SourceOptions:
        """Return the options that batch and streaming queries share.

        `without_effect` are the names that this kind of query ignores.
        """
        return cls(
            client=client_settings(given),
            subscription=subscription(given),
            starting=starting,
            ending=ending,
            timestamp_strategy=given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error"),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            include_headers=given.flag("includeHeaders", False),
            min_partitions=given.number("minPartitions", 1, INT32_MAX),
            size_target=given.number("maxBytesPerPartition", 1, INT64_MAX),
            offsets_max=given.number("maxRecordsPerPartition", 1, INT64_MAX),
            pushdown=given.flag("pushdown", False),
            values=value_options(given),
            without_effect=given.without_effect((*WITHOUT_EFFECT, *without_effect)),
        )


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """All options of a streaming query that reads. A limit of None means no limit."""

    source: SourceOptions
    rows_max: int | None = None
    rows_min: int | None = None
    size_max: int | None = None
    """Approximate bytes on the wire."""
    delay_max_s: float = TRIGGER_DELAY_S
    """How long to wait for rows_min rows."""
    group_id: str | None = None
    """The group for which finished offsets are committed. It never decides what is read."""
    commits: bool = True

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamOptions:
        """Return the options of a streaming query. Raises OptionError with one sentence."""
        given = GivenOptions(options, {**REFUSED, **REFUSED_BY_STREAMS})
        given.require_all_known()
        starting = starting_bound(given, OFFSET_LATEST)
        parsed = cls(
            source=SourceOptions.of(given, starting, OffsetBound(everywhere=OFFSET_LATEST), OF_BATCHES),
            rows_max=given.number("maxOffsetsPerTrigger", 1, INT64_MAX),
            rows_min=given.number("minOffsetsPerTrigger", 1, INT64_MAX),
            size_max=given.number("maxBytesPerTrigger", 1, INT64_MAX),
            delay_max_s=given.duration_s("maxTriggerDelay", TRIGGER_DELAY_S),
            group_id=given.text("kafka.group.id"),
            commits=given.flag("commitOffsetsOnBatch", True),
        )
        if parsed.rows_max is not None and parsed.rows_min is not None and parsed.rows_min > parsed.rows_max:
            raise OptionError(
                f"option minOffsetsPerTrigger ({parsed.rows_min}) is above maxOffsetsPerTrigger ({parsed.rows_max})"
            )
        if parsed.group_id == "":
            raise OptionError("option kafka.group.id is empty")
        return parsed


REFUSED: Final = {
    "kafka.auto.offset.reset": "set startingOffsets instead; the query tracks its offsets itself",
    "kafka.key.deserializer": "keys are bytes; decode the column",
    "kafka.value.deserializer": "values are bytes; decode the column",
    "kafka.enable.auto.commit": "the source has no automatic commit",
    "kafka.interceptor.classes": "interceptors are not supported",
    "kafka.config.providers": "values are used literally",
}
"""Name → why it is refused in every query."""
REFUSED_BY_STREAMS: Final = {
    **dict.fromkeys(("endingOffsetsByTimestamp", "endingOffsets"), "a streaming query has no end"),
    "pushdown": "Spark pushes filters down in batch queries only",
}

HONOURED: Final = (
    "assign", "subscribe", "subscribePattern", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets",
    "startingOffsetsByTimestampStrategy", "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets",
    "failOnDataLoss", "includeHeaders", "minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition",
    "kafkaConsumer.pollTimeoutMs", "pushdown",
    "value.format", "value.schema", "value.mode", "value.registry", "value.subject",
    "kafka.bootstrap.servers", "kafka.client.id", "kafka.isolation.level", "kafka.check.crcs", "kafka.fetch.max.bytes",
    "kafka.request.timeout.ms", "kafka.default.api.timeout.ms", "kafka.retry.backoff.ms",
    "kafka.socket.connection.setup.timeout.ms",
    "kafka.group.id", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay",
    "commitOffsetsOnBatch", *sorted(SECURITY_NAMES),
)  # fmt: skip
"""Names as documented. They are case-insensitive."""
OF_STREAMS: Final = (
    "kafka.group.id",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxTriggerDelay",
    "commitOffsetsOnBatch",
)
"""Options that a batch query accepts, as Spark's own connector does, without effect."""
OF_BATCHES: Final = ("endingTimestamp",)
"""Options that a streaming query accepts without effect."""
OF_SINKS: Final = ("topic", "delivery", "failOnMarkerLoss")
LOOK_UP_NUMBERS: Final = ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
WITHOUT_EFFECT: Final = (
    "groupIdPrefix",
    *LOOK_UP_NUMBERS,
    *OF_SINKS,
    *sorted(JAVA_NAMES - {*HONOURED, *REFUSED}),
)
"""Options of Spark's connector, its Java clients or of writing queries. No group is joined, ranges are read whole, and
the client retries lookups itself."""
KNOWN: Final = (*HONOURED, *WITHOUT_EFFECT)


class GivenOptions:
    """The options as given, looked up by known names."""

    def __init__(self, options: Mapping[str, str], refused: Mapping[str, str], known: tuple[str, ...] = KNOWN) -> None:
        self._known = {name.lower(): name for name in known}
        self._values = {name.lower(): value for name, value in options.items()}
        for name, why in refused.items():
            if name.lower() in self._values:
                raise OptionError(f"option {name} cannot be set: {why}")

    def text(self, name: str) -> str | None:
        """Return the value, or None if it is not set."""
        assert name.lower() in self._known, f"{name} has to be among the known names"
        return self._values.get(name.lower())

    def beginning(self, *prefixes: str) -> dict[str, str]:
        """Return the options with these prefixes, in lower case as Spark passes them."""
        return {name: value for name, value in self._values.items() if name.startswith(prefixes)}

    def without_effect(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the options among `names` that are set, sorted. OptionError for an invalid number or boolean."""
        found = sorted(name for name in names if self.text(name) is not None)
        for name in found:
            if name in JAVA_NUMBERS or name in LOOK_UP_NUMBERS:
                self.number(name, -INT64_MAX - 1, INT64_MAX)
            elif name in JAVA_FLAGS:
                self.flag(name, False)
        return tuple(found)

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean option. Raises OptionError."""
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def choice(self, name: str, values: tuple[str, ...], default: str) -> str:
        """Return an option that is one of a few words, in any case. Raises OptionError."""
        value = self.text(name)
        if value is None:
            return default
        if value.strip().lower() not in values:
            raise OptionError(f"option {name} must be {' or '.join(values)}, not {value!r}")
        return value.strip().lower()

    def number(self, name: str, low: int, high: int) -> int | None:
        """Return an integer from `low` to `high`, or None if it is not set. Raises OptionError."""
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", value.strip()) or not low <= int(value) <= high:
            raise OptionError(f"option {name} must be a number from {low} to {high}, not {value!r}")
        return int(value)

    def duration_s(self, name: str, default: float) -> float:
        """Return a duration such as 15m or 500ms in seconds. A bare number is in seconds. Raises OptionError."""
        value = self.text(name)
        if value is None:
            return default
        match = re.fullmatch(r"([0-9]{1,15}) *([a-z]*)", value.strip().lower())
        if match is None or match[2] not in UNITS_S:
            raise OptionError(f"option {name} must be a duration like 500ms, 30s, 15m, 2h or 1d, not {value!r}")
        return int(match[1]) * UNITS_S[match[2]]

    def require_all_known(self) -> None:
        """Raise OptionError for an unknown name. The message suggests the closest known name."""
        for name in sorted(self._values):
            if name not in self._known and not name.startswith(TLS_PREFIX):
                near = difflib.get_close_matches(name, self._known, 1, 0.75)
                hint = f"; did you mean {self._known[near[0]]}?" if near else "; see docs/spark.md"
                raise OptionError(f"unknown option {name}{hint}")


def log_without_effect(names: Iterable[str]) -> None:
    """Log in the driver, in one line, the options of a query that have no effect."""
    listed = ", ".join(names)
    if listed:
        logger.warning('format("kafkalite"): these options have no effect: %s', listed)


def client_settings(given: GivenOptions) -> ClientSettings:
    """Return the settings for connecting to brokers and reading from them."""
    servers, options = servers_and_client(given)
    poll_ms = given.number("kafkaConsumer.pollTimeoutMs", 1, INT64_MAX)
    return ClientSettings(
        servers,
        options,
        given.choice("kafka.isolation.level", ("read_uncommitted", "read_committed"), "read_uncommitted"),
        given.flag("kafka.check.crcs", True),
        given.number("kafka.fetch.max.bytes", 1, INT32_MAX),
        None if poll_ms is None else poll_ms / 1000,
    )


def servers_and_client(given: GivenOptions) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Return the bootstrap servers and the other arguments of a Client, sorted. Raises OptionError."""
    servers = given.text("kafka.bootstrap.servers")
    if servers is None:
        raise OptionError("option kafka.bootstrap.servers is missing; set it to host:port,host:port")
    try:
        parse_bootstrap(servers)
    except ValueError as error:
        raise OptionError(f"option kafka.bootstrap.servers: {error}") from None
    options: dict[str, Any] = {}
    secured = given.beginning("kafka.security.", "kafka.ssl.", "kafka.sasl.")
    if secured:
        try:
            options["security"] = Security({name.removeprefix("kafka."): text for name, text in secured.items()})
        except StartupError as error:
            raise OptionError(f"option kafka.{error}") from None
    for name, argument in CLIENT_TIMES.items():
        value = given.number(name, 1, INT32_MAX)
        if value is not None:
            options[argument] = value / 1000
    client_id = given.text("kafka.client.id")
    if client_id is not None:
        options["client_id"] = client_id
    return servers, tuple(sorted(options.items(), key=lambda item: item[0]))


CLIENT_TIMES: Final = {
    "kafka.request.timeout.ms": "request_timeout_s",
    "kafka.default.api.timeout.ms": "retry_timeout_s",
    "kafka.retry.backoff.ms": "retry_backoff_s",
    "kafka.socket.connection.setup.timeout.ms": "connect_timeout_s",
}


def subscription(given: GivenOptions) -> Subscription:
    """Return the subscription. Raises OptionError unless exactly one of its three options is set."""
    ways = {name: given.text(name) for name in ("assign", "subscribe", "subscribePattern")}
    said = {name: value for name, value in ways.items() if value is not None}
    if len(said) != 1:
        raise OptionError(f"set exactly one of assign, subscribe and subscribePattern, not {len(said)}")
    ((name, value),) = said.items()
    if name == "assign":
        return Subscription(assigned=assigned_partitions(value))
    if name == "subscribe":
        topics = tuple(sorted({topic.strip() for topic in value.split(",") if topic.strip()}))
        if not topics:
            raise OptionError("option subscribe contains no topic")
        for topic in topics:
            require_topic(name, topic)
        return Subscription(topics=topics)
    try:
        re.compile(value.strip())
    except re.error as error:
        raise OptionError(f"option subscribePattern is not a regular expression: {error}") from None
    if not value.strip():
        raise OptionError("option subscribePattern is empty")
    return Subscription(pattern=value.strip())


def value_options(given: GivenOptions) -> ValueOptions | None:
    """Return how to decode values, or None without value.format. Raises OptionError."""
    if given.text("value.format") is None:
        for name in ("value.schema", "value.mode", "value.registry", "value.subject"):
            if given.text(name) is not None:
                raise OptionError(f"option {name} needs value.format; set it to json or avro")
        return None
    kind = given.choice("value.format", ("json", "avro"), "json")
    found = ValueOptions(
        kind,
        given.text("value.schema"),
        given.text("value.registry"),
        given.text("value.subject"),
        given.choice("value.mode", ("permissive", "failfast"), "permissive") == "failfast",
    )
    if kind == "json":
        if found.registry is not None or found.subject is not None:
            name = "value.subject" if found.registry is None else "value.registry"
            raise OptionError(f"option {name} is for value.format avro, not json")
        return found
    if not found.registry:
        raise OptionError("value.format avro needs option value.registry, the URL of the schema registry")
    if found.schema is not None and found.subject is not None:
        raise OptionError("set either value.schema or value.subject")
    if found.schema is None and found.subject is None:
        return replace(found, subject=f"{only_topic(subscription(given))}-value")
    return found


def only_topic(subscribed: Subscription) -> str:
    """Return the topic of a subscription to one topic. Raises OptionError for any other subscription."""
    topics = {*subscribed.topics, *(key.topic for key in subscribed.assigned or ())}
    if len(topics) != 1:
        raise OptionError("value.format avro needs option value.subject or value.schema unless you read one topic")
    return topics.pop()


def starting_bound(given: GivenOptions, default: int) -> OffsetBound:
    """Return where reading starts.

    The first of these options that is set counts: startingTimestamp, startingOffsetsByTimestamp, startingOffsets.
    """
    by_time = timestamp_bound(given, "startingTimestamp", "startingOffsetsByTimestamp")
    return offset_bound("startingOffsets", given.text("startingOffsets"), default) if by_time is None else by_time


def ending_bound(given: GivenOptions) -> OffsetBound:
    """Return where reading ends in a batch query. The first option that is set counts, as in `starting_bound`."""
    by_time = timestamp_bound(given, "endingTimestamp", "endingOffsetsByTimestamp")
    if by_time is not None:
        return by_time
    found = offset_bound("endingOffsets", given.text("endingOffsets"), OFFSET_LATEST)
    if OFFSET_EARLIEST in (found.everywhere, *(found.offsets or {}).values()):
        raise OptionError("option endingOffsets: a batch query cannot end at the earliest offset")
    return found


def timestamp_bound(given: GivenOptions, everywhere: str, by_partition: str) -> OffsetBound | None:
    """Return a bound by time, or None if neither option is set."""
    stamp = given.number(everywhere, 0, INT64_MAX)
    if stamp is not None:
        return OffsetBound(timestamps=stamp, option=everywhere)
    text = given.text(by_partition)
    return (
        None if text is None else OffsetBound(timestamps=partition_numbers(by_partition, text, 0), option=by_partition)
    )


# --- single options ---------------------------------------------------------------------------------------------------


def includes_headers(options: Mapping[str, str]) -> bool:
    """Return whether the rows of a batch or streaming query have headers."""
    return GivenOptions(options, REFUSED).flag("includeHeaders", False)


def values_of(options: Mapping[str, str]) -> ValueOptions | None:
    """Return how the values of a batch or streaming query are decoded, or None. Raises OptionError."""
    return value_options(GivenOptions(options, REFUSED))
