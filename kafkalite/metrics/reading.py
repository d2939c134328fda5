"""Parse the text of `/metrics`, and compute rates between two readings, for `kafkalite top`.

Pure: no I/O, no state.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.metrics.latency import quantile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: \S+)?")
LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
UNESCAPED: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
BROKER_TOPIC: Final = "kafka_server_brokertopicmetrics"


class Read(NamedTuple):
    """The samples of one reading of `/metrics`, and its time."""

    at: float
    """Monotonic seconds."""
    samples: Mapping[str, list[tuple[Mapping[str, str], float]]]
    """Name → (labels, value)."""

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that have these labels.

        The value "" matches samples without the label.
        """
        return sum(
            value
            for given, value in self.samples.get(name, ())
            if all(given.get(key, "") == text for key, text in labels.items())
        )

    def values(self, name: str, label: str) -> list[str]:
        """Return the distinct values of a label in a metric's samples, in the order of the page."""
        return list(dict.fromkeys(given[label] for given, _ in self.samples.get(name, ()) if label in given))


class RequestRate(NamedTuple):
    """The rate and latency of an API's requests between two readings."""

    api: str
    per_s: float
    errors_per_s: float
    median_ms: float | None
    """None if there was no request."""
    p99_ms: float | None


class TopicRate(NamedTuple):
    """The traffic of a topic between two readings, in bytes and records per second."""

    topic: str
    records_in: float
    bytes_in: float
    bytes_out: float


class GroupLag(NamedTuple):
    """The lag of a consumer group in a topic, at the second reading."""

    group: str
    topic: str
    lag: int
    members: int


def parse(text: str, at: float) -> Read:
    """Parse Prometheus's text format. ValueError for an invalid line.

    `at` is the time of the reading in monotonic seconds.
    """
    samples: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        found = SAMPLE.fullmatch(line)
        if found is None:
            raise ValueError(f"not a line in the Prometheus text format: {line[:80]!r}")
        labels = {key: _unescaped(value) for key, value in LABEL.findall(found[2] or "")}
        samples.setdefault(found[1], []).append((labels, float(found[3])))
    return Read(at, samples)


def requests(before: Read, now: Read) -> list[RequestRate]:
    """Return the request rates of all APIs that had requests, the busiest API first."""
    rows = []
    name, seconds = "kafka_network_requestmetrics_requests_total", now.at - before.at
    for api in now.values(name, "request"):
        counts = _bucket_counts(before, now, api)
        good = {"request": api, "error": "NONE"}
        errors = [
            read.total("kafka_network_requestmetrics_errors_total", request=api)
            - read.total("kafka_network_requestmetrics_errors_total", **good)
            for read in (before, now)
        ]
        some = any(counts)
        rows.append(
            RequestRate(
                api,
                _rate(now.total(name, request=api) - before.total(name, request=api), seconds),
                _rate(errors[1] - errors[0], seconds),
                quantile(counts, 0.5) / 1000 if some else None,
                quantile(counts, 0.99) / 1000 if some else None,
            )
        )
    return sorted(rows, key=lambda row: (-row.per_s, row.api))


def topics(before: Read, now: Read) -> list[TopicRate]:
    """Return the traffic of all topics, the topic with the most bytes first."""
    seconds = now.at - before.at

    def rate(what: str, topic: str) -> float:
        name = f"{BROKER_TOPIC}_{what}_total"
        return _rate(now.total(name, topic=topic) - before.total(name, topic=topic), seconds)

    rows = [
        TopicRate(topic, rate("messagesin", topic), rate("bytesin", topic), rate("bytesout", topic))
        for topic in now.values(f"{BROKER_TOPIC}_bytesin_total", "topic")
    ]
    return sorted(rows, key=lambda row: (-row.bytes_in - row.bytes_out, row.topic))


def groups(now: Read) -> list[GroupLag]:
    """Return the lags of consumer groups, the largest lag first."""
    members = {given["consumergroup"]: count for given, count in now.samples.get("kafka_consumergroup_members", ())}
    rows = [
        GroupLag(given["consumergroup"], given["topic"], int(lag), int(members.get(given["consumergroup"], 0)))
        for given, lag in now.samples.get("kafka_consumergroup_lag_sum", ())
    ]
    return sorted(rows, key=lambda row: (-row.lag, row.group, row.topic))


def _rate(change: float, seconds: float) -> float:
    """Return a change per second. A negative change becomes 0: the broker has restarted."""
    return max(0.0, change) / seconds


def _bucket_counts(before: Read, now: Read, api: str) -> list[int]:
    """Return the number of an API's requests between the readings in each latency bucket.

    The bounds of buckets are powers of two, in microseconds.
    """
    return [
        max(0, round(value - old))
        for value, old in zip(_steps(now, api), _steps(before, api) or [0.0] * len(_steps(now, api)), strict=True)
    ]


def _steps(read: Read, api: str) -> list[float]:
    cumulative = [
        value
        for given, value in read.samples.get("kafkalite_request_seconds_bucket", ())
        if given.get("request") == api
    ]
    return list(_differences(cumulative))


def _differences(values: list[float]) -> Iterator[float]:
    last = 0.0
    for value in values:
        yield value - last
        last = value


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda found: UNESCAPED.get(found[0], found[0]), text)
