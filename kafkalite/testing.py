"""Pytest fixtures with a real broker in the test process: install kafkalite, ask for `kafka_broker` or `kafka_topic`.

    def test_greeting_arrives(kafka_broker, kafka_topic):
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
        ...

One broker per pytest process (so one per pytest-xdist worker), on a free port of 127.0.0.1, in a temporary directory
that pytest removes; one fresh topic per test. acks=all is answered from the page cache (`flush.on.acks.all=false`):
records survive a killed process, not a power cut, which no test needs. Override `kafka_broker_settings` for more.

Only pytest is imported here until a fixture is used, since every pytest run with kafkalite installed loads this file.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkalite.broker import Broker

TEST_NAME_SIZE_MAX = 150
"""Characters of the test's name that go into its topic's; a topic name has 249 at most."""


@pytest.fixture(scope="session")
def kafka_broker_settings() -> Mapping[str, object]:
    """Settings for `kafka_broker`, by key; override it in a conftest.py with the same scope."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker(
    kafka_broker_settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator["Broker"]:
    """A running broker; `kafka_broker.bootstrap_servers` is its address."""
    from kafkalite.broker import Broker
    from kafkalite.config import BrokerConfig

    settings: dict[str, object] = {
        "listeners": "kafka://127.0.0.1:0",
        "log.dirs": str(tmp_path_factory.mktemp("kafkalite")),
        "flush.on.acks.all": False,
        **kafka_broker_settings,
    }
    with Broker(BrokerConfig.load(None, settings)) as broker:
        yield broker


@pytest.fixture
def kafka_topic(kafka_broker: "Broker", request: pytest.FixtureRequest) -> str:
    """The name of a fresh topic with one partition, named after the test.

    It stays until the broker goes, so that a client still closing down meets no surprise.
    """
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", request.node.name).strip("-.") or "topic"
    name = f"{stem[:TEST_NAME_SIZE_MAX]}-{secrets.token_hex(4)}"
    kafka_broker.create_topic(name, 1)
    return name


def pytest_report_header() -> str:
    """One line, so that a report shows which broker the tests ran on."""
    from kafkalite import __version__

    return f"kafkalite {__version__}: kafka_broker answers acks=all from the page cache"
