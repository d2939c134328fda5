"""The broker to which KAFKALITE_COMPAT_DOOR leads is closed: its ACLs apply, and clients must authenticate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafkalite.client import Client, ClientError, Security
from kafkalite.errors import KafkaError
from tests.compat.doors import MECHANISMS, STRANGER, Door, House, open_house
from tests.kit.processes.broker import wait_until


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with open_house(tmp_path_factory.mktemp("closed"), closed=True) as house:
        yield house


def topics_seen(door: Door) -> set[str]:
    with Client(door.bootstrap, security=door.security()) as client:
        return set(client.topics())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_user_may_everything_and_a_stranger_nothing(closed: House, mechanism: str) -> None:
    door = closed[mechanism]
    topic = f"of-{mechanism}"
    with Client(door.bootstrap, security=door.security()) as client:
        client.admin.create_topic(topic, 1)
    wait_until(lambda: topic in topics_seen(door), 60, "the topic")
    stranger = replace(door, user=STRANGER)
    assert topics_seen(stranger) == set()
    with Client(stranger.bootstrap, security=stranger.security()) as client, pytest.raises(KafkaError):
        client.admin.create_topic(f"{topic}-of-a-stranger", 1)


def test_a_door_needs_a_name(closed: House) -> None:
    door = closed["PLAIN"]
    without = Security({"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": door.ca})
    with pytest.raises(ClientError), Client(door.bootstrap, security=without) as client:
        client.topics()
