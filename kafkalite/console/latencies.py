"""Read brokers' latencies from their Prometheus metrics: quantiles of the requests between two scrapes.

    /metrics of each broker ─▶ bucket counts ─▶ minus those of its last scrape ─▶ summed ─▶ p50 and p99, for the rings

If brokers report only quantiles, as Apache Kafka does, the greatest is used. A broker that cannot be read is skipped
for a while.

Thread rule: a Latencies object belongs to one thread. Any thread may read `failures`.
"""

from __future__ import annotations

import math
import re
import time
import urllib.error
from collections import defaultdict
from http.client import HTTPException
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base import http_ask
from kafkalite.console.rings import Value
from kafkalite.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

REQUESTS: Final = {"Produce": "produce", "Fetch": "fetch"}
BUCKETS: Final = "kafkalite_request_seconds_bucket"
FLUSHES: Final = "kafkalite_flush_seconds_bucket"
SUMMARY: Final = "kafka_network_requestmetrics_totaltimems"
"""Apache Kafka's quantiles, by Prometheus's JMX exporter with names in lower case. It has no buckets."""
SHARES: Final = {"p50": 0.5, "p99": 0.99}
TIMEOUT_S: Final = 3.0
READ_S_MAX: Final = 10.0
"""Time limit of one scrape, headers included, however slowly it arrives."""
AWAY_S: Final = 30.0
"""Pause after a failed scrape."""
PAUSE_SHARE: Final = 20
"""A scrape is followed by a pause of this many times its duration."""
SIZE_MAX: Final = 32 * 1024 * 1024
LINE_SIZE_MAX: Final = 4096
WEIGHT: Final = 1e18
_LINE: Final = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)(?: \S+)?")
_LABEL: Final = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')

Histogram = dict[float, float]
"""Bucket counts with upper bounds in seconds, the last of which is infinite."""


class Told(NamedTuple):
    """The result of scraping one broker: request → histogram, and for brokers without histograms quantiles in
    seconds."""

    histograms: Mapping[str, Histogram]
    quantiles: Mapping[tuple[str, str], float]


class _Source:
    """A scraped address, with its last result."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.last: Told | None = None
        self.not_before = 0.0


class Latencies:
    """Scrapes the latencies of brokers.

    `urls` are http://HOST:PORT, with or without /metrics. Raises StartupError for an invalid URL.
    """

    def __init__(self, urls: Iterable[str], token: str | None = None) -> None:
        self._sources = [_Source(address_of(url)) for url in urls]
        self._token = token
        self.failures: dict[str, str] = {}
        """Error of each address that could not be read."""

    def values(self) -> Iterator[Value]:
        """Yield the quantiles since the last call. The first call yields none from histograms.

        A kind of request that was not used has none. A restarted broker counts from 0, and is left out until its next
        scrape. If no histogram gives a quantile, yield the greatest that a broker reports.
        """
        added: dict[str, Histogram] = defaultdict(lambda: defaultdict(float))
        greatest: dict[tuple[str, str], float] = {}
        for source in self._sources:
            told, last = self._read(source), source.last
            if told is None:
                continue
            source.last = told
            for key, value in told.quantiles.items():
                if key[0] in told.histograms:
                    continue
                greatest[key] = max(value, greatest.get(key, 0.0))
            for name, histogram in told.histograms.items():
                before = None if last is None else last.histograms.get(name)
                if before is None or any(count < before.get(bound, 0) for bound, count in histogram.items()):
                    continue
                for bound, count in histogram.items():
                    added[name][bound] += count - before.get(bound, 0)
        for name, histogram in added.items():
            for what, share in SHARES.items():
                found = quantile(histogram, share)
                if found is not None:
                    yield Value((f"latency-{what}", name), found, WEIGHT)
        for (name, what), value in greatest.items():
            if name not in added:
                yield Value((f"latency-{what}", name), value, WEIGHT)

    def _read(self, source: _Source) -> Told | None:
        """Scrape an address. None if its next scrape is not due, or if the scrape fails."""
        began = time.monotonic()
        if began < source.not_before:
            return None
        headers = {"Accept": "text/plain"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            raw = http_ask.read(source.url, headers=headers, connect_s=TIMEOUT_S, whole_s=READ_S_MAX, size_max=SIZE_MAX)
            told = parse(raw)
        except urllib.error.HTTPError as error:
            self._leave_out(source, f"HTTP {error.code}", began)
            return None
        except (OSError, HTTPException, LookupError, ValueError) as error:
            self._leave_out(source, str(getattr(error, "reason", error)), began)
            return None
        self.failures.pop(source.url, None)
        source.not_before = time.monotonic() + PAUSE_SHARE * (time.monotonic() - began)
        return told

    def _leave_out(self, source: _Source, why: str, now: float) -> None:
        """Skip an address for a while, and discard its last counts, which will be too old by then."""
        self.failures[source.url] = why
        source.last, source.not_before = None, now + AWAY_S


def address_of(url: str) -> str:
    """Return the URL with /metrics at its end. Raises StartupError if the URL is invalid."""
    parts = http_ask.split_url(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise StartupError(f"--metrics-url {url[:80]}: expected a URL of the form http://HOST:PORT")
    plain = url.rstrip("/")
    return plain if plain.endswith("/metrics") else f"{plain}/metrics"


def parse(raw: bytes) -> Told:
    """Parse latencies from Prometheus's text format. Raises ValueError or LookupError for a malformed line."""
    histograms: dict[str, Histogram] = defaultdict(dict)
    quantiles: dict[tuple[str, str], float] = {}
    for line in raw.decode().splitlines():
        if not line.startswith((BUCKETS, FLUSHES, SUMMARY)):
            continue
        found = _LINE.fullmatch(line) if len(line) <= LINE_SIZE_MAX else None
        if found is None:
            raise ValueError(f"not a line of metrics: {line[:80]!r}")
        labels, value = dict(_LABEL.findall(found[2] or "")), float(found[3])
        if found[1] in {BUCKETS, FLUSHES, SUMMARY} and (value < 0 or math.isinf(value)):
            raise ValueError(f"not a count: {line[:80]!r}")
        name = "flush" if found[1] == FLUSHES else REQUESTS.get(labels.get("request", ""), "")
        if name and found[1] in {BUCKETS, FLUSHES}:
            histograms[name][float(labels["le"])] = value
        elif name and found[1] == SUMMARY and value == value and "quantile" in labels:
            share = float(labels["quantile"])
            quantiles |= {(name, what): value / 1000 for what, wanted in SHARES.items() if share == wanted}
    return Told(histograms, quantiles)


def quantile(histogram: Mapping[float, float], share: float) -> float | None:
    """Return the value below which the share `share` of the counts lies; None without counts.

    As in Prometheus's histogram_quantile, the values in a bucket count as evenly spread. Values above the last bound
    count as equal to it.
    """
    bounds: Sequence[float] = sorted(histogram)
    total = histogram[bounds[-1]] if bounds else 0
    if not total:
        return None
    low, below = 0.0, 0.0
    for bound in bounds:
        count = histogram[bound]
        if count >= share * total:
            inside = (share * total - below) / max(count - below, 1e-9)
            return low if bound == float("inf") else low + (bound - low) * inside
        low, below = bound, count
    return low
