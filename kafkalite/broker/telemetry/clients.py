"""Collect the metrics that clients push (KIP-714): client instances, their subscriptions, and the reported series.

    GetTelemetrySubscriptions ─▶ subscription ─▶ the union of the subscriptions that match the client
    PushTelemetry ─▶ admit (may it push now?) ─▶ read (decompress, decode) ─▶ keep
    /metrics ─▶ families

An *instance* is a client, identified by its client instance id. The number of instances and of their series is limited.

Source: ClientMetricsManager, ClientMetricsInstance of Kafka 4.1.

Thread rule: any thread; `_lock` is not held during I/O. Pushes are decoded under `_reading`, and never on a network
worker.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite._native.base.crc32c import crc32c
from kafkalite.base.dataclass import dataclass
from kafkalite.base.metric_families import VALUE_SIZE_MAX, Family, labels
from kafkalite.broker.limits.holder import Holder, holder_of
from kafkalite.broker.limits.shares import Shares, note_refusal
from kafkalite.broker.telemetry import otlp
from kafkalite.errors import ErrorCode, error_for
from kafkalite.model import new_uuid, uuid_text
from kafkalite.settings.client_metrics import ClientMetricsConfig
from kafkalite.wire.record.compression import Codec, CompressionError, DecompressedTooLarge, decompress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kafkalite.base.clock import Clock

INSTANCES_MAX: Final = 16_384
SERIES_PER_INSTANCE_MAX: Final = 1000
SERIES_MAX: Final = 20_000
"""The most series of all instances together, which a scrape may contain."""
UNPACKED_SIZE_MAX: Final = 8 << 20
"""The most bytes of a decompressed push."""
SILENCE_MIN_S: Final = 60.0
SILENCE_INTERVALS: Final = 3
ALL: Final = "*"
CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""The codecs offered to clients, the best first."""
NO_ID: Final = bytes(16)
_RESERVED: Final = frozenset({NO_ID, bytes(15) + b"\x01"})
_ASK_AGAIN: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})


class Client(NamedTuple):
    """What a client's connection and requests say about it."""

    client_id: str | None
    software_name: str
    software_version: str
    address: str
    port: int
    principal: str = ""


class Subscription(NamedTuple):
    """The metrics that a client should push, and the interval."""

    instance_id: bytes
    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


@dataclass(slots=True)
class _Instance:
    subscription: Subscription
    configs: Mapping[str, ClientMetricsConfig]
    """The settings that the subscription was derived from; replaced as a whole when they change."""
    place: tuple[str, int]
    labels: tuple[str, str]
    """Client id and software."""
    holder: Holder
    asked_s: float = -math.inf
    pushed_s: float = -math.inf
    silent_until_s: float = 0.0
    ended: bool = False
    error: ErrorCode = ErrorCode.NONE
    series: dict[tuple[str, str, bool], float] = field(default_factory=dict)
    """By name, attributes, and whether it is a counter."""


class ClientMetrics:
    """The metrics that the clients of one broker push.

    `configs` returns the current subscriptions; it returns the same object until one of them changes.
    """

    def __init__(
        self, configs: Callable[[], Mapping[str, ClientMetricsConfig]], size_max: Callable[[], int], clock: Clock
    ) -> None:
        self._configs = configs
        self._size_max = size_max
        self._clock = clock
        self._lock = threading.Lock()
        self._reading = threading.Lock()  # taken before _lock; one push at a time takes memory
        self._instances: OrderedDict[bytes, _Instance] = OrderedDict()  # silent for longest first
        self._ids_of: dict[Holder, OrderedDict[bytes, None]] = {}  # in the same order
        self._shares = Shares()  # of the instances
        self._series_count = 0
        self._series_shares = Shares()
        self._counts = dict.fromkeys(("unknown_subscription_request", "throttle", "plugin_export", "plugin_error"), 0)
        self._dropped = 0
        self._looked_s = -math.inf

    @property
    def size_max(self) -> int:
        """The maximum size in bytes of a push as the client sends it, that is, compressed."""
        return self._size_max()

    def subscription(self, instance_id: bytes, client: Client) -> Subscription:
        """Return this client's subscription. Raises THROTTLING_QUOTA_EXCEEDED if the client asks too often.

        An instance may get its subscription once per interval, and also after an error that requires this.
        """
        with self._lock:
            if instance_id == NO_ID:
                instance_id = new_uuid()
            instance = self._instance(instance_id, client)
            now, interval_s = self._clock.monotonic(), instance.subscription.interval_ms / 1000
            if now - max(instance.asked_s, instance.pushed_s) >= interval_s:
                instance.asked_s = now
            elif instance.error not in _ASK_AGAIN:
                self._counts["throttle"] += 1
                raise error_for(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    "the client requested its subscription again before its interval had passed",
                )
            instance.error = ErrorCode.NONE
            return instance.subscription

    def push(
        self, instance_id: bytes, client: Client, subscription_id: int, codec: int, data: bytes, *, terminating: bool
    ) -> None:
        """Store a client's push. Raises KafkaError. Must not run on a network worker, since it decompresses."""
        if instance_id in _RESERVED:
            raise error_for(ErrorCode.INVALID_REQUEST, "this client instance id is reserved")
        with self._lock:
            instance = self._instance(instance_id, client)
            code, reason = self._admit(instance, subscription_id, codec, len(data), terminating=terminating)
            instance.error = code
            instance.ended = terminating
        if code != ErrorCode.NONE:
            raise error_for(code, reason)
        if not data:
            return
        with self._reading:
            code, points, left_out = _read(codec, data, max(UNPACKED_SIZE_MAX, self.size_max))
            with self._lock:
                self._counts["plugin_error" if code else "plugin_export"] += 1
                instance.error = code
                self._dropped += left_out
                present = self._instances.get(instance_id)
                if present is not None:  # not forgotten meanwhile
                    self._keep(present, points)
            del points
        if code != ErrorCode.NONE:
            raise error_for(code, "the pushed metrics cannot be parsed")

    def families(self) -> Iterator[Family]:
        """Yield the metrics for `/metrics`."""
        with self._lock:
            self._forget(self._clock.monotonic())
            told = [
                (instance.labels, uuid_text(instance_id), dict(instance.series))
                for instance_id, instance in self._instances.items()
            ]
            counts, dropped = dict(self._counts), self._dropped
        prefix = "kafka_server_client_metrics"
        yield Family(
            f"{prefix}_instance_count", "gauge", "Client instances with a metrics subscription.", [("", len(told))]
        )
        for name, text in (
            ("unknown_subscription_request", "Pushes for an outdated subscription."),
            ("throttle", "Requests that clients sent before their interval had passed."),
            ("plugin_export", "Pushes that were accepted."),
            ("plugin_error", "Pushes that could not be parsed."),
        ):
            yield Family(f"{prefix}_{name}", "counter", text, [("", counts[name])])
        yield Family(
            "kafkalite_client_dropped_metrics", "counter", "Metrics in pushes that were dropped.", [("", dropped)]
        )
        text = "Counters that clients pushed, as totals."
        yield Family("kafkalite_client_counter", "counter", text, _rows(told, counter=True))
        text = "Gauges that clients pushed, latest values."
        yield Family("kafkalite_client_metric", "gauge", text, _rows(told, counter=False))

    def _instance(self, instance_id: bytes, client: Client) -> _Instance:
        """Return the client's instance; create it if necessary. KafkaError if there is no room for it.

        If the client has another connection now, or a subscription has changed, a new instance replaces the old one. It
        keeps the series of the old instance, but not its times and its last error.
        """
        now = self._clock.monotonic()
        configs = self._configs()
        place = (client.address, client.port)
        self._forget(now)
        instance = self._instances.get(instance_id)
        if instance is None:
            holder = holder_of(client.principal, client.address)
            self._make_room(holder)
        else:
            holder = instance.holder
        if instance is None or instance.configs is not configs or instance.place != place:
            is_new = instance is None
            kept = {} if instance is None else instance.series
            software = " ".join(filter(None, (client.software_name, client.software_version)))
            named = ((client.client_id or "")[:VALUE_SIZE_MAX], software[:VALUE_SIZE_MAX])
            asked = _subscription(instance_id, client, configs)
            instance = self._instances[instance_id] = _Instance(asked, configs, place, named, holder, series=kept)
            if is_new:
                self._shares.add(holder)
        silence_s = max(SILENCE_MIN_S, SILENCE_INTERVALS * instance.subscription.interval_ms / 1000)
        instance.silent_until_s = now + silence_s
        self._instances.move_to_end(instance_id)
        self._ids_of.setdefault(holder, OrderedDict())[instance_id] = None
        self._ids_of[holder].move_to_end(instance_id)
        return instance

    def _make_room(self, holder: Holder) -> None:
        """Forget the holder's oldest instance if there is no room for a new instance.

        A holder is a principal at an address. The last tenth of the limit is reserved for holders with few instances.
        Raises KafkaError if the holder has no instance.
        """
        if self._shares.admits(holder, len(self._instances), INSTANCES_MAX):
            return
        oldest = next(iter(self._ids_of.get(holder, ())), None)
        if oldest is None:
            note_refusal(holder, "client metrics instances", INSTANCES_MAX, 0)
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many clients push metrics; retry later")
        self._remove(oldest)

    def _forget(self, now: float) -> None:
        """Forget instances that sent nothing for three intervals and at least a minute. This is checked once a
        second."""
        if now - self._looked_s >= 1:
            self._looked_s = now
            for key in [key for key, one in self._instances.items() if one.silent_until_s <= now]:
                self._remove(key)

    def _remove(self, instance_id: bytes) -> None:
        instance = self._instances.pop(instance_id)
        holder = instance.holder
        self._shares.remove(holder)
        self._series_count -= len(instance.series)
        self._series_shares.remove(holder, len(instance.series))
        ids = self._ids_of[holder]
        del ids[instance_id]
        if not ids:
            del self._ids_of[holder]

    def _admit(
        self, instance: _Instance, subscription_id: int, codec: int, size: int, *, terminating: bool
    ) -> tuple[ErrorCode, str]:
        """Check whether an instance may push now; return (error code, reason), or (NONE, "") if it may.

        It may push once per interval, and at once after it got its subscription. After its last push it must send
        nothing. The checks are in Kafka's order.
        """
        if instance.ended:
            return ErrorCode.INVALID_REQUEST, "the client has already sent its final push"
        now, interval_s = self._clock.monotonic(), instance.subscription.interval_ms / 1000
        if instance.asked_s > instance.pushed_s or now - instance.pushed_s >= interval_s:
            instance.pushed_s = now
        elif not terminating:
            self._counts["throttle"] += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the client pushed before its interval had passed"
        if subscription_id != instance.subscription.subscription_id:
            self._counts["unknown_subscription_request"] += 1
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the client's subscription has changed; request it again"
        if codec not in (Codec.NONE, *CODECS):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec id {codec}"
        if size > self.size_max:
            return ErrorCode.TELEMETRY_TOO_LARGE, f"the push is larger than {self.size_max} bytes"
        return ErrorCode.NONE, ""

    def _keep(self, instance: _Instance, points: Iterable[otlp.Point]) -> None:
        """Store the points of a push; sum up counters that the client sends as deltas. Drop and count new series beyond
        a limit, or whose name or attributes are too long or not printable."""
        for point in points:
            attributes = ",".join(f"{key}={value}" for key, value in point.attributes)
            key = (point.name, attributes, point.counts)
            present = instance.series.get(key)
            if present is None:
                fits = len(instance.series) < SERIES_PER_INSTANCE_MAX and self._series_shares.admits(
                    instance.holder, self._series_count, SERIES_MAX
                )
                if not (fits and point.name and _printable(point.name) and _printable(attributes)):
                    self._dropped += 1
                    continue
                self._series_count += 1
                self._series_shares.add(instance.holder)
            instance.series[key] = point.value + (present or 0.0) if point.delta and point.counts else point.value


def _subscription(instance_id: bytes, client: Client, configs: Mapping[str, ClientMetricsConfig]) -> Subscription:
    """Return the union of the subscriptions that match a client, with the shortest of their intervals."""
    told = {
        "client_instance_id": uuid_text(instance_id),
        "client_id": client.client_id,
        "client_software_name": client.software_name or None,
        "client_software_version": client.software_version or None,
        "client_source_address": client.address,
        "client_source_port": str(client.port),
    }
    attributes = {key: value for key, value in told.items() if value is not None}
    meant = [config for config in configs.values() if config.matches(attributes)]
    names = {name for config in meant for name in config.metrics}
    metrics = (ALL,) if ALL in names else tuple(sorted(names))
    interval_ms = min((config.interval_ms for config in meant), default=ClientMetricsConfig().interval_ms)
    mark = crc32c(f"{metrics}{interval_ms}".encode()) ^ crc32c(instance_id)
    return Subscription(instance_id, mark - (1 << 32) if mark >> 31 else mark, interval_ms, metrics)


def _read(codec: int, data: bytes, size_max: int) -> tuple[ErrorCode, list[otlp.Point], int]:
    try:
        points, left_out = otlp.read(decompress(codec, data, size_max))
    except DecompressedTooLarge:
        return ErrorCode.TELEMETRY_TOO_LARGE, [], 0
    except (CompressionError, otlp.OtlpError):
        return ErrorCode.INVALID_RECORD, [], 0
    return ErrorCode.NONE, points, left_out


def _printable(text: str) -> bool:
    """Return whether a label of a metric can contain the text unchanged, so that different texts stay different."""
    return len(text) <= VALUE_SIZE_MAX and text.isprintable()


def _rows(
    told: list[tuple[tuple[str, str], str, dict[tuple[str, str, bool], float]]], *, counter: bool
) -> Iterator[tuple[str, float]]:
    for (client_id, software), instance, series in told:
        for (name, attributes, counts), value in series.items():
            if counts is counter:
                told_as = {"metric": name, "client_id": client_id, "software": software, "instance": instance}
                yield labels(**told_as, attributes=attributes), value
