"""Fixtures of several test packages: Apache Kafka and ZooKeeper as processes, one for a module's tests."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from kazoo.exceptions import NoNodeError, NotEmptyError

from tests.kit.processes.apache_kafka import ApacheKafka, NotAvailable, jars
from tests.kit.processes.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder with Apache Kafka's jars; without them the test is skipped, by name."""
    try:
        return jars()
    except NotAvailable as missing:
        pytest.skip(f"NOT HELD AGAINST APACHE KAFKA: {missing}")


@pytest.fixture(scope="module")
def apache_kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """A broker of Apache Kafka's."""
    with ApacheKafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def zookeeper_server() -> Iterator[ZooKeeper]:
    """A separate ZooKeeper."""
    with ZooKeeper() as running:
        yield running


@pytest.fixture
def zookeeper_client(zookeeper_server: ZooKeeper) -> Iterator[KazooClient]:
    """A session with it, after nothing is left of what Kafka 0.7 keeps there."""
    client = zookeeper_server.client()
    for name in ("brokers", "consumers"):
        with contextlib.suppress(NoNodeError, NotEmptyError):
            client.delete(f"/{name}", recursive=True)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeper, zookeeper_client: KazooClient) -> ZooKeeper:
    """The server, emptied for this test."""
    assert zookeeper_client.connected
    return zookeeper_server
