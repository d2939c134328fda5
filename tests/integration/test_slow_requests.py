"""Slow requests are logged, in one line each, with any client id."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterator

import pytest

from kafkalite import Broker
from kafkalite.base.logging import MESSAGE_SIZE_MAX, JsonFormatter, TextFormatter
from tests.kit.harness import wire
from tests.kit.harness.load import create_topic
from tests.kit.processes.broker import wait_until

HOSTILE = 'x\n2026-01-01T00:00:00.000Z ERROR   kafkalite.broker all is lost\x1b[2J\x00\r\u2028"}' + "y" * 20_000


@pytest.fixture
def lines() -> Iterator[list[logging.LogRecord]]:
    """The records of the slow request log."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = found.append  # type: ignore[method-assign]
    logger = logging.getLogger("kafkalite.slow")
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


MANY = 500
"""Partitions: no machine creates that many in a millisecond."""


def test_a_client_of_any_name_makes_one_line(lines: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "header", functools.partial(wire.header, client_id=HOSTILE))
    with Broker(request_slow_log_ms=1) as broker, wire.Connection(broker.port) as client:
        assert client.create_topic("a", MANY) == 0
        wait_until(lambda: bool(lines), 60, "a slow request to be told")
    text = TextFormatter().format(lines[0])
    assert text.isprintable(), "one line, and nothing for a terminal"
    assert "slow request api=CreateTopics version=" in text
    assert "principal=User:ANONYMOUS address=127.0.0.1:" in text
    assert len(text) < 2 * MESSAGE_SIZE_MAX
    told = json.loads(JsonFormatter().format(lines[0]))
    assert told["client_id"].startswith("x\\n2026")
    assert told["ms"] >= 1
    assert told["waited_ms"] > 0
    assert told["bytes"] > 20_000


def test_waiting_for_data_is_not_slow(lines: list[logging.LogRecord]) -> None:
    with Broker(request_slow_log_ms=20) as broker:
        create_topic(broker.port, "a", 1)
        del lines[:]
        with wire.Connection(broker.port) as client:
            client.fetch("a", 0, 0, max_wait_ms=100)
            client.fetch("a", 0, 0)
    assert [line.fields["api"] for line in lines if line.fields["ms"] >= 100] == []  # type: ignore[attr-defined]


def test_slow_requests_are_counted_where_metrics_are_served(lines: list[logging.LogRecord]) -> None:
    from tests.kit.harness.scrape import Scrape

    with Broker(request_slow_log_ms=1, metrics_listeners="http://127.0.0.1:0") as broker:
        with wire.Connection(broker.port) as client:
            assert client.create_topic("a", MANY) == 0
        wait_until(lambda: bool(lines), 60, "a slow request to be told")
        assert Scrape.of(broker.metrics_urls[0])("kafkalite_slow_requests_total") == len(lines)


def test_without_the_setting_nothing_is_logged(lines: list[logging.LogRecord]) -> None:
    with Broker() as broker, wire.Connection(broker.port) as client:
        assert client.create_topic("a", MANY) == 0
    assert lines == []
