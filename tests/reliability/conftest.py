"""A seed for each run (KAFKALITE_SEED), shown with every failure, and brokers that end with their test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.processes.broker import BrokerProcess


@pytest.fixture
def seed() -> int:
    """The same each time unless KAFKALITE_SEED says otherwise; pytest prints it with a failure."""
    value = int(os.environ.get("KAFKALITE_SEED", "20260201"))
    print(f"KAFKALITE_SEED={value}")
    return value


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """`make_broker(settings=…, …)`: a broker not started yet, in a separate directory."""
    brokers: list[BrokerProcess] = []

    def make(**options: object) -> BrokerProcess:
        broker = BrokerProcess(tmp_path / f"broker-{len(brokers)}", **options)  # type: ignore[arg-type]
        brokers.append(broker)
        return broker

    yield make
    for broker in brokers:
        broker.close()
        if broker.log():
            print(f"--- {broker.log_path}\n{broker.log()[-6000:]}")


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.integration)
