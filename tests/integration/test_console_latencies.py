"""Pictures of latency at the console, out of a broker's metrics: real ones, and those that cannot be read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.console import latencies
from kafkalite.console.latencies import Latencies
from kafkalite.console.rings import HOUR
from kafkalite.console.sampler import Sampler
from kafkalite.console.server import ConsoleServer
from kafkalite.web.server import Address, WebServer, parse_address
from tests.integration.test_console import LOOPBACK, ask, data

pytestmark = pytest.mark.integration

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"metrics.listeners": "http://127.0.0.1:0", "offsets.topic.num.partitions": "2"}
    with Broker(settings) as running:
        with Client(running.bootstrap_servers) as client:
            client.admin.create_topic("orders", 1)
        yield running


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latencies, "PAUSE_SHARE", 0)


def test_what_requests_took_between_two_reads_is_drawn(broker: Broker) -> None:
    (url,) = broker.metrics_urls
    now = int(time.time() * 1000)
    with (
        ConsoleServer(broker.bootstrap_servers, [LOOPBACK], metrics=[url, NOBODY]) as server,
        Client(broker.bootstrap_servers) as client,
        Client(broker.bootstrap_servers) as own,
    ):
        server.sampler.stop()
        seen = Sampler(own, latencies=Latencies([url, NOBODY]))
        for step in range(4):
            client.produce("orders", 0, [b"x"] * 100)
            list(client.read("orders", 0))
            seen.sample(now - (3 - step) * HOUR.step_ms)
            assert seen.failure == ""
        server.sampler.rings, server.sampler.latest, server.sampler.latencies = seen.rings, seen.latest, seen.latencies
        page = data(server, "/brokers")
        assert [chart["name"] for chart in page["charts"]] == ["produce", "fetch", "flush"]
        for chart in page["charts"]:
            middle, slow = ([value for value in line["values"] if value is not None] for line in chart["lines"])
            assert [line["name"] for line in chart["lines"]] == ["p50", "p99"]
            assert len(middle) == 3
            assert all(0 < low <= high < 60 for low, high in zip(middle, slow, strict=True))
        assert list(page["metrics_failures"]) == [f"{NOBODY}/metrics"]
        text = ask(server, "/brokers?window=day").text
        assert "Produce latency in the last day" in text
        assert f"Cannot read {NOBODY}/metrics: " in text
        assert "Request latency" in text
        assert ask(server, "/brokers?window=year").status == 400


class Page:
    """A fake of Prometheus's JMX exporter on an Apache Kafka broker; tests change its status."""

    def __init__(self) -> None:
        self.status, self.text, self.asked = "200 OK", "", []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.asked.append(environ.get("HTTP_AUTHORIZATION"))
        start_response(self.status, [("Content-Type", "text/plain")])
        return [self.text.encode()]


@pytest.fixture
def told() -> Iterator[tuple[Page, Address]]:
    page = Page()
    server = WebServer(page, [parse_address("http://127.0.0.1:0", 0)], extra="console")
    server.bind()
    server.start(on_failure=lambda: None)
    yield page, server.addresses[0]
    server.stop()


def test_quantiles_are_taken_where_there_is_no_histogram(told: tuple[Page, Address]) -> None:
    page, address = told
    name = "kafka_network_requestmetrics_totaltimems"
    page.text = f'{name}{{request="Produce",quantile="0.50"}} 2.0\n{name}{{request="Produce",quantile="0.99"}} 40.0\n'
    asked = Latencies([address.url], token="secret")
    assert {row.key: row.value for row in asked.values()} == {
        ("latency-p50", "produce"): 0.002,
        ("latency-p99", "produce"): 0.04,
    }
    assert page.asked == ["Bearer secret"]


def test_a_broker_that_counts_from_0_again_or_fails_leaves_a_gap(
    told: tuple[Page, Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    page, address = told
    asked = Latencies([address.url])

    def look(status: str, *counts: int) -> list[float]:
        page.status = status
        bounds = zip(("0.001", "0.1", "+Inf"), counts, strict=False)
        page.text = "".join(f'kafkalite_flush_seconds_bucket{{le="{le}"}} {count}\n' for le, count in bounds)
        return [row.value for row in asked.values() if row.key[0] == "latency-p50"]

    assert look("200 OK", 10, 10, 10) == []
    assert look("200 OK", 10, 20, 20) == [pytest.approx(0.0505)]
    assert look("200 OK", 1, 1, 1) == []
    assert look("200 OK", 3, 3, 3) == [pytest.approx(0.0005)]
    assert look("200 OK", 3, 3, 3) == []
    assert look("401 Unauthorized") == []
    assert asked.failures == {f"{address.url}/metrics": "HTTP 401"}
    count = len(page.asked)
    assert look("200 OK", 4, 4, 4) == []
    assert len(page.asked) == count
    monkeypatch.setattr(latencies, "AWAY_S", 0.0)
    fresh = Latencies([address.url])
    page.text = "kafkalite_flush_seconds_bucket{\n"
    assert list(fresh.values()) == []
    assert "not a line of metrics" in fresh.failures[f"{address.url}/metrics"]
    assert look("200 OK", 4, 4, 4) == []


def test_what_cannot_be_an_address_or_a_token_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "--metrics-url", "broker:9644"]) == 2
    assert "--metrics-url broker:9644: expected a URL of the form http://HOST:PORT" in capsys.readouterr().err
    assert main(["console", "--metrics-url", NOBODY, "--metrics-token-file", "/nowhere/token"]) == 2
    assert "--metrics-token-file /nowhere/token: No such file" in capsys.readouterr().err
