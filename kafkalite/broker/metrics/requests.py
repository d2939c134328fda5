"""Report metrics of requests by API: counts by version, errors, sizes and times."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafkalite.base.metric_families import Family, labels
from kafkalite.broker.metrics.slow import name_of
from kafkalite.errors import ErrorCode
from kafkalite.metrics.latency import QUANTILES, Numbers, Window, added, cumulative, quantile
from kafkalite.wire.protocol import api

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from kafkalite._native.serve.counters import ApiNumbers
    from kafkalite.broker.metrics.parts import Parts

FETCH_CONSUMER: Final = "FetchConsumer"
"""Kafka's second name for consumers' fetches; this broker counts all fetches under both names."""
QUEUES: Final = (
    (
        "requestqueuetimems",
        "Time that requests waited in a queue, in milliseconds; always 0, because the broker has no request queue.",
    ),
    (
        "responsequeuetimems",
        "Time that responses waited in a queue, in milliseconds; always 0, because the broker has no response queue.",
    ),
)
TIMES: Final = (
    ("localtimems", 3, "Time that a network worker spent on a request, in milliseconds."),
    (
        "remotetimems",
        4,
        "Time that a deferred response waited for the disk, for data or for other clients, in milliseconds.",
    ),
    ("responsesendtimems", 5, "Time to write a response to the socket, in milliseconds."),
    ("totaltimems", 6, "Time from the arrival of a request to the end of its response, in milliseconds."),
)
_SIZE: Final = 2
_TOTAL: Final = 6
_THROTTLED: Final = 7


def error_name(code: int) -> str:
    """Return Kafka's name of an error code; the number as text if it has none."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


class Requests:
    """The source of request metrics."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._window = Window(parts.clock.monotonic())

    def numbers(self) -> dict[int, ApiNumbers]:
        """Return the sums over all workers, by API key."""
        by_key: dict[int, list[ApiNumbers]] = {}
        for counters in self._parts.counters:
            for key, one in counters.numbers().items():
                by_key.setdefault(key, []).append(one)
        return {key: _together(found) for key, found in sorted(by_key.items())}

    def __call__(self) -> Iterator[Family]:
        numbers = self.numbers()
        served = {key: one for key, one in numbers.items() if one[0]}
        yield Family(
            "kafka_network_requestmetrics_requests",
            "counter",
            "Requests by API and version.",
            [
                (labels(request=name_of(key), version=version), count)
                for key, one in served.items()
                for version, count in sorted(one[0].items())
            ],
        )
        yield Family(
            "kafka_network_requestmetrics_errors",
            "counter",
            "Responses by error code, NONE for success; Produce and Fetch count each partition.",
            [
                (labels(request=name_of(key), error=error_name(code)), count)
                for (key, code), count in sorted(self._errors(numbers).items())
            ],
        )
        yield from self._summaries(served)
        yield Family(
            "kafkalite_request_seconds",
            "histogram",
            "Time from the arrival of a request to the end of its response, in seconds, by API.",
            [row for key, one in served.items() for row in histogram_rows(one[_TOTAL], request=name_of(key))],
        )
        if self._parts.slow is not None:
            slow = self._parts.slow.count
            yield Family(
                "kafkalite_slow_requests",
                "counter",
                "Requests that took longer than request.slow.log.ms.",
                [("", slow)],
            )

    def _errors(self, numbers: Mapping[int, ApiNumbers]) -> Mapping[tuple[int, int], int]:
        native = {(key, code): count for key, one in numbers.items() for code, count in one[1].items()}
        return {**self._parts.errors.numbers(), **native}

    def _summaries(self, served: Mapping[int, ApiNumbers]) -> Iterator[Family]:
        """Yield Kafka's summaries: quantiles over the last minutes, and count and sum since the start."""
        numbers: dict[Hashable, Numbers] = {}
        for key, one in served.items():
            numbers.update(((key, at), histogram) for at, histogram in enumerate(one[_SIZE:], _SIZE))
        recent = self._window.recent(self._parts.clock.monotonic(), numbers)
        prefix = "kafka_network_requestmetrics"
        for name, at, text in TIMES:
            rows = [
                row
                for key in served
                for request in names_of(key)
                for row in _summary_rows(request, numbers[key, at], recent[key, at], 1e-3)
            ]
            yield Family(f"{prefix}_{name}", "summary", text, rows)
        for name, text in QUEUES:
            rows = [
                row
                for key in served
                for request in names_of(key)
                for row in _zero_rows(request, sum(numbers[key, _TOTAL][1]))
            ]
            yield Family(f"{prefix}_{name}", "summary", text, rows)
        rows = [
            row
            for key in served
            for request in names_of(key)
            for row in _summary_rows(
                request,
                _with_unthrottled(numbers[key, _THROTTLED], sum(numbers[key, _TOTAL][1])),
                _with_unthrottled((0, recent[key, _THROTTLED]), sum(recent[key, _TOTAL]))[1],
                1,
            )
        ]
        text = "Throttle time of clients over a quota, in milliseconds."
        yield Family(f"{prefix}_throttletimems", "summary", text, rows)
        rows = [
            row for key in served for row in _summary_rows(name_of(key), numbers[key, _SIZE], recent[key, _SIZE], 1)
        ]
        yield Family(f"{prefix}_requestbytes", "summary", "Size of requests, in bytes.", rows)


def names_of(key: int) -> tuple[str, ...]:
    """Return the names of an API in Kafka's request metrics: two for Fetch, one for any other API."""
    return (name_of(key), FETCH_CONSUMER) if key == api.FETCH else (name_of(key),)


def histogram_rows(numbers: Numbers, **given: object) -> Iterator[tuple[str, float]]:
    """Yield the rows of a histogram of durations, in seconds, for Prometheus."""
    total, counts = numbers
    for bound, count in cumulative(counts):
        yield f"_bucket{labels(**given, le=bound)}", count
    rest = labels(**given)
    yield f"_count{rest}", sum(counts)
    yield f"_sum{rest}", total * 1e-6


def _summary_rows(request: str, numbers: Numbers, recent: tuple[int, ...], scale: float) -> Iterable[tuple[str, float]]:
    total, counts = numbers
    rest = labels(request=request)
    for share in QUANTILES:
        yield labels(request=request, quantile=share), round(quantile(recent, share) * scale, 6)
    yield f"_count{rest}", sum(counts)
    yield f"_sum{rest}", round(total * scale, 6)


def _with_unthrottled(throttled: Numbers, count: int) -> Numbers:
    """Return the histogram of throttle times for all `count` requests.

    `throttled` counts only requests with a throttle time. All other requests are added with time 0.
    """
    total, (nothing, *counts) = throttled
    return total, (nothing + max(0, count - nothing - sum(counts)), *counts)


def _zero_rows(request: str, count: int) -> Iterator[tuple[str, float]]:
    """Yield the rows of a summary of `count` observations, all of them 0."""
    rest = labels(request=request)
    for share in QUANTILES:
        yield labels(request=request, quantile=share), 0
    yield f"_count{rest}", count
    yield f"_sum{rest}", 0


def _together(found: list[ApiNumbers]) -> ApiNumbers:
    versions: Counter[int] = Counter()
    errors: Counter[int] = Counter()
    for one in found:
        versions.update(one[0])
        errors.update(one[1])
    size, local, remote, sending, total, throttled = (
        added(column) for column in zip(*(one[_SIZE:] for one in found), strict=True)
    )
    return dict(versions), dict(errors), size, local, remote, sending, total, throttled
