"""What a plan goes by while an earlier one is under way, and what its throttles hold back."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.client.admin.reassignments import Reassignment
from kafkalite.client.errors import ClientError, RequestTimeout
from kafkalite.model import TopicPartition
from kafkalite.placement import overview
from kafkalite.placement.moving import throttle


class Settings:
    """Keeps what is set."""

    def __init__(self) -> None:
        self.brokers: dict[int, Mapping[str, str | None]] = {}
        self.topics: dict[str, Mapping[str, str | None]] = {}

    def alter_broker_configs(self, node_id: int, values: Mapping[str, str | None]) -> None:
        self.brokers[node_id] = values

    def alter_topic_configs(self, topic: str, values: Mapping[str, str | None]) -> None:
        self.topics[topic] = values


def test_what_an_earlier_command_has_begun_stays_throttled() -> None:
    settings = Settings()
    client: Any = SimpleNamespace(
        brokers=lambda: [SimpleNamespace(node_id=number) for number in (1, 2, 3, 4)], admin=settings
    )
    begun, planned, both = (TopicPartition("t", number) for number in range(3))
    present = {begun: (1, 3), planned: (2,), both: (4,)}
    under_way = {
        begun: Reassignment(replicas=(1, 2, 3), adding=(3,), removing=(2,)),
        both: Reassignment(replicas=(1, 4), adding=(4,), removing=(1,)),
    }
    throttle(client, 1000, present, {planned: (2, 4), both: (2,)}, under_way)
    assert settings.topics == {
        "t": {
            "leader.replication.throttled.replicas": "0:1,0:2,1:2,2:1",
            "follower.replication.throttled.replicas": "0:3,1:4,2:2",
        }
    }
    assert settings.brokers.keys() == {1, 2, 3, 4}


class Cluster:
    """Tells what moves, if it does, and no topics; keeps what it was asked."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.asked: list[str] = []
        self.reassignments = self
        self._failure = failure

    def list_all(self) -> dict[TopicPartition, Reassignment]:
        self.asked.append("what moves")
        if self._failure is not None:
            raise self._failure
        return {}

    def topics(self) -> dict[str, object]:
        self.asked.append("topics")
        raise ClientError("enough")


def test_nothing_is_planned_without_what_moves_which_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "_nodes", lambda _client: overview.Overview("c", 1, [], {}))
    cluster: Any = Cluster()
    with pytest.raises(ClientError, match="enough"):
        overview.look(cluster, to_move=True)
    assert cluster.asked == ["what moves", "topics"]
    silent: Any = Cluster(RequestTimeout("no answer"))
    with pytest.raises(RequestTimeout):
        overview.look(silent, to_move=True)
    assert silent.asked == ["what moves"]
