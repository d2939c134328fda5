"""Exported metrics are parsed again, and two samples give rates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.base.metric_families import Family, labels
from kafkalite.broker.metrics.requests import histogram_rows
from kafkalite.metrics.latency import Numbers
from kafkalite.metrics.reading import GroupLag, Read, TopicRate, groups, parse, requests, topics
from kafkalite.metrics.text import render

BROKER_TOPIC = "kafka_server_brokertopicmetrics"
NONE: Numbers = (0, (0,) * 24)


def told(at: float, *families: Family) -> Read:
    return parse(b"".join(render(families, openmetrics=False)).decode(), at)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200), st.floats(allow_nan=False))
def test_any_exported_label_and_number_is_parsed(text: str, value: float) -> None:
    read = told(0.0, Family("x", "gauge", "X.", [(labels(a=text, b="}"), value)]))
    ((given, found),) = read.samples["x"]
    assert given["b"] == "}"
    assert found == value
    if text.isprintable():
        assert given["a"] == text


@pytest.mark.parametrize("line", ["<html>", "x{a=} y", "x", "x 1 2 3"])
def test_what_is_no_line_of_metrics_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"not a line in the Prometheus text format|could not convert"):
        parse(line, 0.0)


def test_rates_of_requests_are_of_the_time_between() -> None:
    def families(good: int, bad: int, counts: Numbers) -> list[Family]:
        name = "kafka_network_requestmetrics"
        return [
            Family(f"{name}_requests", "counter", "R.", [(labels(request="Fetch", version=17), good + bad)]),
            Family(
                f"{name}_errors",
                "counter",
                "E.",
                [(labels(request="Fetch", error="NONE"), good), (labels(request="Fetch", error="OFFSET"), bad)],
            ),
            Family("kafkalite_request_seconds", "histogram", "S.", histogram_rows(counts, request="Fetch")),
        ]

    later = [0] * 24
    later[11] = 20
    before = told(10.0, *families(5, 0, NONE))
    (row,) = requests(before, told(12.0, *families(21, 4, (0, tuple(later)))))
    assert (row.api, row.per_s, row.errors_per_s) == ("Fetch", 10.0, 2.0)
    assert row.median_ms is not None
    assert 1.024 <= row.median_ms <= 2.048
    (idle,) = requests(before, before._replace(at=12.0))
    assert (idle.per_s, idle.median_ms, idle.p99_ms) == (0.0, None, None)
    (anew,) = requests(told(0.0, *families(100, 0, NONE)), told(1.0, *families(1, 0, NONE)))
    assert anew.per_s == 0.0, "the broker was started in between"


def test_topics_and_groups_stand_in_the_order_that_matters() -> None:
    def families(scale: int) -> list[Family]:
        return [
            Family(
                f"{BROKER_TOPIC}_{name}", "counter", "T.", [("", 9), *((labels(topic=t), n * scale) for t, n in rows)]
            )
            for name, rows in {
                "messagesin": [("a", 1), ("b", 2)],
                "bytesin": [("a", 10), ("b", 20)],
                "bytesout": [("a", 15), ("b", 0)],
            }.items()
        ]

    assert topics(told(0.0, *families(0)), told(2.0, *families(2))) == [
        TopicRate("a", 1.0, 10.0, 15.0),
        TopicRate("b", 2.0, 20.0, 0.0),
    ]
    lags = Family(
        "kafka_consumergroup_lag_sum",
        "gauge",
        "L.",
        [(labels(consumergroup=group, topic="a"), lag) for group, lag in (("x", 3), ("y", 7))],
    )
    members = Family("kafka_consumergroup_members", "gauge", "M.", [(labels(consumergroup="y"), 2)])
    assert groups(told(0.0, lags, members)) == [GroupLag("y", "a", 7, 2), GroupLag("x", "a", 3, 0)]
