"""Quantiles out of what brokers tell Prometheus: histograms that count on, and summaries where there is no more."""

from __future__ import annotations

import math

import pytest

from kafkalite.console.charts import LATENCY
from kafkalite.console.latencies import SUMMARY, Latencies, address_of, parse, quantile
from kafkalite.errors import StartupError
from kafkalite.metrics import latency

INF = math.inf


@pytest.mark.parametrize("share", [0.01, 0.5, 0.75, 0.99, 1.0])
@pytest.mark.parametrize("counts", [(3, 0, 5, 1), (0, 0, 0, 7), (1, 1000, 0, 0), (0, 4, 0, 0)])
def test_a_quantile_is_what_the_brokers_own_page_would_say(counts: tuple[int, ...], share: float) -> None:
    wide = (*counts, *[0] * (len(latency.NOTHING[1]) - len(counts)))
    rows = {float(bound): float(count) for bound, count in latency.cumulative(wide)}
    assert quantile(rows, share) == pytest.approx(latency.quantile(wide, share) * 1e-6, abs=1e-9)


def test_nothing_that_was_counted_has_no_quantile() -> None:
    assert quantile({}, 0.5) is None
    assert quantile({0.1: 0, INF: 0}, 0.5) is None
    assert quantile({0.1: 0, INF: 4}, 0.5) == 0.1


def test_lines_are_read_by_their_names() -> None:
    told = parse(
        b"# HELP kafkalite_request_seconds Seconds\n"
        b'kafkalite_request_seconds_bucket{request="Produce",le="0.001"} 4\n'
        b'kafkalite_request_seconds_bucket{request="Produce",le="+Inf"} 5\n'
        b'kafkalite_request_seconds_bucket{request="Metadata",le="+Inf"} 9\n'
        b'kafkalite_flush_seconds_bucket{le="+Inf"} 2\n'
        b'kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.99"} 501.5\n'
        b'kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.75"} 7\n'
        b'kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.5"} NaN\n'
        b"kafka_network_requestmetrics_totaltimems_count 3\n"
    )
    assert told.histograms == {"produce": {0.001: 4.0, INF: 5.0}, "flush": {INF: 2.0}}
    assert told.quantiles == {("fetch", "p99"): 0.5015}
    for line in (b"kafkalite_flush_seconds_bucket{", b"kafkalite_flush_seconds_bucket{} 1"):
        with pytest.raises((ValueError, LookupError)):
            parse(line)


@pytest.mark.parametrize("value", ["inf", "-inf", "-1"])
def test_what_cannot_have_been_counted_is_refused(value: str) -> None:
    for name in ('kafkalite_flush_seconds_bucket{le="+Inf"}', SUMMARY + '{request="Fetch",quantile="0.5"}'):
        with pytest.raises(ValueError, match="not a count"):
            parse(f"{name} {value}\n".encode())


def test_a_line_that_would_take_long_to_read_is_refused() -> None:
    with pytest.raises(ValueError, match="not a line of metrics"):
        parse(b"kafkalite_flush_seconds_bucket{" + b"a" * 5000 + b"} 1")


def test_an_address_is_one_of_http() -> None:
    assert address_of("http://h:9644") == address_of("http://h:9644/metrics/") == "http://h:9644/metrics"
    for wrong in ("h:9644", "ftp://h", "http://", "http://h/?q=1", "http://h:x", "http://[h"):
        with pytest.raises(StartupError, match="--metrics-url"):
            Latencies([wrong])


def test_texts_and_steps_of_a_scale() -> None:
    assert [LATENCY.text(value) for value in (0.0, 0.0000042, 0.0025, 1.5)] == ["0", "4.2 µs", "2.5 ms", "1.5 s"]
    assert LATENCY.step(0.0013) == pytest.approx(0.002)
