"""Define the settings of the 0.7 clients, with the keys and defaults of Kafka 0.7, and the key fetch.size.max.

    ConsumerConfig.from_properties({"groupid": "g", "zk.connect": "127.0.0.1:2181"})
    ConsumerConfig(groupid="g", zk_connect="127.0.0.1:2181")         attributes are in snake case
    ConsumerConfig.load("consumer.properties")

A value that is not a number, or out of range, raises InvalidConfig at once. An invalid pair in a `topic:number` list is
logged and skipped. Unknown keys are ignored, as in 0.7. Settings are immutable.

Source: Kafka 0.7.2 (`kafkalite.classic`, fact 7).
"""

from __future__ import annotations

import logging
import re
from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalite.base.dataclass import dataclass
from kafkalite.classic.channel import RESPONSE_SIZE_MAX
from kafkalite.classic.errors import InvalidConfig
from kafkalite.classic.wire import CODE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)

INT32_MAX: Final = 2**31 - 1
PORT_MAX: Final = 65_535
FETCH_SIZE_MAX: Final = 64 * 1024 * 1024
"""Default of fetch.size.max, a key that 0.7 lacks: messages larger than fetch.size are refetched up to this size."""
NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
CODECS: Final = (0, 1, 2)
"""none, gzip, snappy."""
SMALLEST: Final = "smallest"
LARGEST: Final = "largest"


def _setting(key: str, default: Any, *, low: int | None = None, high: int = INT32_MAX) -> Any:
    """Define a setting: 0.7's key, its default, and the range of a number."""
    return field(default=default, metadata={"key": key, "low": low, "high": high})


def read_properties(path: str | Path) -> dict[str, str]:
    """Read a Java properties file. Raises InvalidConfig if it cannot be read."""
    from kafkalite.errors import StartupError
    from kafkalite.settings.properties import read_properties as read

    try:
        return read(Path(path))
    except StartupError as error:
        raise InvalidConfig(str(error)) from error


def csv_map(key: str, text: str) -> dict[str, int]:
    """Parse `topic:number,topic:number`. Log and skip a malformed pair."""
    found: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        topic, separator, number = pair.rpartition(":")
        if separator and NUMBER.fullmatch(number.strip()):
            found[topic.strip()] = int(number)
        else:
            logger.error("%s: ignoring %r, which is not topic:number", key, pair)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The base class of all settings of 0.7 clients."""

    def __post_init__(self) -> None:
        for row in fields(self):
            self._check(row.metadata["key"], getattr(self, row.name), row.metadata["low"], row.metadata["high"])

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **more: Any) -> Self:
        """Build settings from a mapping with 0.7's keys. The keyword arguments `more`, named like attributes, take
        precedence."""
        values: dict[str, Any] = {}
        for row in fields(cls):
            key = row.metadata["key"]
            if key in properties:
                values[row.name] = _PARSERS[str(row.type)](key, properties[key].strip())
        return cls(**{**values, **more})

    @classmethod
    def load(cls, path: str | Path, **more: Any) -> Self:
        """Build settings from a properties file."""
        return cls.from_properties(read_properties(path), **more)

    @staticmethod
    def _check(key: str, value: object, low: int | None, high: int) -> None:
        if isinstance(value, int) and low is not None and not low <= value <= high:
            raise InvalidConfig(f"{key} must be from {low} to {high}, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings(Settings):
    """ZooKeeper settings, which brokers, producers and consumers share."""

    zk_connect: str | None = _setting("zk.connect", None)
    zk_session_timeout_ms: int = _setting("zk.sessiontimeout.ms", 6000, low=1)
    zk_connection_timeout_ms: int | None = _setting("zk.connectiontimeout.ms", None, low=1)
    zk_sync_time_ms: int = _setting("zk.synctime.ms", 2000, low=0)

    @property
    def session_timeout_s(self) -> float:
        return self.zk_session_timeout_ms / 1000

    @property
    def connection_timeout_s(self) -> float:
        """The connection timeout in seconds; by default the session timeout."""
        return (self.zk_connection_timeout_ms or self.zk_session_timeout_ms) / 1000


# The next two have no slots: ProducerConfig could not inherit from two bases with slots.
@dataclass(frozen=True, kw_only=True)
class SendSettings(Settings):
    """Settings for the connections of all producers."""

    buffer_size: int = _setting("buffer.size", 102_400, low=1)
    connect_timeout_ms: int = _setting("connect.timeout.ms", 5000, low=1)
    socket_timeout_ms: int = _setting("socket.timeout.ms", 30_000, low=1)
    reconnect_interval: int = _setting("reconnect.interval", 30_000, low=1)
    reconnect_time_interval_ms: int = _setting("reconnect.time.interval.ms", 10_000_000)
    max_message_size: int = _setting("max.message.size", 1_000_000, low=0)


@dataclass(frozen=True, kw_only=True)
class QueueSettings(SendSettings):
    """Settings of asynchronous producers, with the names of their extension classes (`kafkalite.classic.handlers`)."""

    compression_codec: int = _setting("compression.codec", 0, low=0, high=max(CODECS))
    compressed_topics: tuple[str, ...] = _setting("compressed.topics", ())
    num_retries: int = _setting("num.retries", 0, low=0)
    queue_time: int = _setting("queue.time", 5000, low=0)
    queue_size: int = _setting("queue.size", 10_000, low=1)
    queue_enqueue_timeout_ms: int = _setting("queue.enqueueTimeout.ms", 0)
    batch_size: int = _setting("batch.size", 200, low=1)
    serializer_class: str | None = _setting("serializer.class", None)
    event_handler: str | None = _setting("event.handler", None)
    event_handler_props: str | None = _setting("event.handler.props", None)
    callback_handler: str | None = _setting("callback.handler", None)
    callback_handler_props: str | None = _setting("callback.handler.props", None)


@dataclass(frozen=True, kw_only=True)
class SyncProducerConfig(SendSettings):
    """Settings of a synchronous producer for one broker (kafka.producer.SyncProducerConfig)."""

    host: str = _setting("host", "")
    port: int = _setting("port", 0, low=0, high=PORT_MAX)

    def __post_init__(self) -> None:
        super().__post_init__()
        _need_address(self.host, self.port)


@dataclass(frozen=True, kw_only=True)
class AsyncProducerConfig(QueueSettings):
    """Settings of an asynchronous producer for one broker (kafka.producer.async.AsyncProducerConfig)."""

    host: str = _setting("host", "")
    port: int = _setting("port", 0, low=0, high=PORT_MAX)

    def __post_init__(self) -> None:
        super().__post_init__()
        _need_address(self.host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ZooKeeperSettings, QueueSettings):
    """Settings of a Producer (kafka.producer.ProducerConfig)."""

    broker_list: str | None = _setting("broker.list", None)
    producer_type: str = _setting("producer.type", "sync")
    partitioner_class: str | None = _setting("partitioner.class", None)
    zk_read_num_retries: int = _setting("zk.read.num.retries", 3, low=0)

    def __post_init__(self) -> None:
        super(ProducerConfig, self).__post_init__()  # noqa: UP008  # a dataclass with slots is a new class
        if self.producer_type not in {"sync", "async"}:
            raise InvalidConfig(f"producer.type must be sync or async, not {self.producer_type!r}")
        if bool(self.zk_connect) == bool(self.broker_list):
            raise InvalidConfig("a producer needs either zk.connect or broker.list")
        if self.partitioner_class and self.broker_list:
            raise InvalidConfig("partitioner.class cannot be used with broker.list: the broker picks the partition")
        given = [row for row in ("event_handler", "callback_handler") if getattr(self, row)]
        if given and self.producer_type == "sync":
            raise InvalidConfig(f"{given[0].replace('_', '.')} needs producer.type=async")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ZooKeeperSettings):
    """Settings of a Consumer (kafka.consumer.ConsumerConfig)."""

    groupid: str = _setting("groupid", "")
    consumerid: str | None = _setting("consumerid", None)
    socket_timeout_ms: int = _setting("socket.timeout.ms", 30_000, low=1)
    socket_buffer_size: int = _setting("socket.buffersize", 65_536, low=1)
    fetch_size: int = _setting("fetch.size", 1_048_576, low=1)
    fetch_size_max: int = _setting("fetch.size.max", FETCH_SIZE_MAX, low=1, high=RESPONSE_SIZE_MAX - CODE_SIZE)
    fetcher_backoff_ms: int = _setting("fetcher.backoff.ms", 1000, low=0)
    auto_commit: bool = _setting("autocommit.enable", default=True)
    auto_commit_interval_ms: int = _setting("autocommit.interval.ms", 10_000, low=1)
    queued_chunks_max: int = _setting("queuedchunks.max", 10, low=1)
    rebalance_retries_max: int = _setting("rebalance.retries.max", 4, low=1)
    rebalance_backoff_ms: int | None = _setting("rebalance.backoff.ms", None, low=0)
    auto_offset_reset: str = _setting("autooffset.reset", SMALLEST)
    consumer_timeout_ms: int = _setting("consumer.timeout.ms", -1)
    shallow_iterator: bool = _setting("shallowiterator.enable", default=False)

    def __post_init__(self) -> None:
        super(ConsumerConfig, self).__post_init__()  # noqa: UP008  # a dataclass with slots is a new class
        if not self.groupid:
            raise InvalidConfig("a consumer needs groupid")
        if "/" in self.groupid:
            raise InvalidConfig(f"groupid must not contain a slash, as it names a ZooKeeper node: {self.groupid!r}")

    @property
    def fetch_size_limit(self) -> int:
        """The maximum number of bytes to fetch for one message: the larger of fetch.size.max and fetch.size."""
        return max(self.fetch_size, self.fetch_size_max)

    @property
    def rebalance_backoff_s(self) -> float:
        """The pause between attempts of a rebalance, in seconds; by default zk.synctime.ms."""
        own = self.rebalance_backoff_ms
        return (self.zk_sync_time_ms if own is None else own) / 1000


def _need_address(host: str, port: int) -> None:
    if not host or not port:
        raise InvalidConfig("a producer for one broker needs host and port")


def _parse_int(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidConfig(f"{key} must be a number, not {text!r}") from None


def _parse_bool(key: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise InvalidConfig(f"{key} must be true or false, not {text!r}")
    return text == "true"


def _parse_list(_key: str, text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


_PARSERS: Final[dict[str, Callable[[str, str], Any]]] = {
    "int": _parse_int,
    "int | None": _parse_int,
    "bool": _parse_bool,
    "str": lambda _key, text: text,
    "str | None": lambda _key, text: text or None,
    "tuple[str, ...]": _parse_list,
}
