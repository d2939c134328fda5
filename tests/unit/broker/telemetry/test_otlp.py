"""What clients push, read: numbers by name and attributes, and bytes that are nothing of the kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.broker.telemetry import otlp
from kafkalite.broker.telemetry.otlp import OtlpError, Point, read
from tests.kit.fakes.metrics_data import counter, fixed, gauge, histogram, metrics_data, sized, varint, whole

HONEST = metrics_data(
    gauge("a.b", 1.5, topic="orders", partition=-3, good=True, share=0.25),
    counter("c", 7),
    counter("d", 8.0, delta=False),
    histogram("e"),
)


def test_gauges_and_sums_are_read_and_the_rest_is_counted():
    attributes = (("good", "true"), ("partition", "-3"), ("share", "0.25"), ("topic", "orders"))
    points = [
        Point("a.b", attributes, 1.5, counts=False, delta=False),
        Point("c", (), 7.0, counts=True, delta=True),
        Point("d", (), 8.0, counts=True, delta=False),
    ]
    assert read(HONEST) == (points, 1)


def test_unknown_fields_are_skipped():
    unknown = whole(99, 5) + fixed(98, 1.0) + sized(97, b"\xff") + varint(96 << 3 | 5) + bytes(4)
    assert read(unknown + HONEST + unknown) == read(HONEST)
    assert read(b"") == ([], 0)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff" * 11, id="endless-number"),
        pytest.param(b"\x0a", id="no-size"),
        pytest.param(b"\x0a\x05abcd", id="cut-off"),
        pytest.param(b"\x09abcd", id="fixed-cut-off"),
        pytest.param(b"\x0b", id="group"),
        pytest.param(sized(1, sized(2, sized(2, sized(1, b"\xff")))), id="not-utf-8"),
        pytest.param(HONEST[:-1], id="last-byte-missing"),
    ],
)
def test_bytes_that_are_no_metrics(data):
    with pytest.raises(OtlpError):
        read(data)


def test_more_fields_than_a_client_has(monkeypatch):
    monkeypatch.setattr(otlp, "FIELDS_MAX", 100)
    with pytest.raises(OtlpError, match="100 fields"):
        read(whole(9, 1) * 101)


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data):
    for attempt in (data, HONEST[: len(data) % len(HONEST)] + data, sized(1, sized(2, sized(2, data)))):
        try:
            points, left_out = read(attempt)
        except OtlpError:
            continue
        assert left_out >= 0
        assert all(isinstance(point.value, float) for point in points)
