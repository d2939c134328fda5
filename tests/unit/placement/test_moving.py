"""A plan's inputs while an earlier one is in progress, and the traffic its throttles limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.client.admin.reassignments import Reassignment
from kafkalite.client.errors import ClientError, RequestTimeout
from kafkalite.model import TopicPartition
from kafkalite.placement import overview
from kafkalite.placement.moving import CHANGED, Mover, cancel, throttle, unthrottle


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
    """A fake cluster that reports the current moves and no topics, and records its requests."""

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


class Moved(Settings):
    """A cluster of two brokers and two topics, that refuses to alter what moves; whether that `stays` under way."""

    def __init__(self, *, stays: bool) -> None:
        super().__init__()
        self.moving = True
        self.stays = stays
        self.refused: set[object] = set()

    def brokers_in_service(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(node_id=number) for number in (1, 2)]

    def client(self) -> Any:
        names = {"t": None, "u": None}
        return SimpleNamespace(brokers=self.brokers_in_service, admin=self, reassignments=self, topics=lambda: names)

    def list_all(self) -> dict[TopicPartition, Reassignment]:
        return {TopicPartition("t", 0): Reassignment((1, 2), (2,), (1,))} if self.moving else {}

    def alter(self, _targets: object) -> list[TopicPartition]:
        self.moving = self.stays
        raise ClientError("it is refused")

    def alter_topic_configs(self, topic: str, values: Mapping[str, str | None]) -> None:
        if topic in self.refused:
            raise ClientError(f"{topic} is refused")
        super().alter_topic_configs(topic, values)

    def describe_broker_configs(self, node_id: int, names: Iterable[str]) -> list[SimpleNamespace]:
        values = self.brokers.get(node_id, {})
        return [SimpleNamespace(source=CHANGED) for name in names if values.get(name) is not None]

    @property
    def free(self) -> bool:
        """Whether nothing is throttled any more that was."""
        given = [*self.brokers.values(), *self.topics.values()]
        return bool(given) and all(value is None for values in given for value in values.values())


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("what", ["move", "cancel"])
def test_throttles_outlive_an_error_only_where_something_moves(what: str, stays: bool) -> None:
    cluster = Moved(stays=stays)
    client, key = cluster.client(), TopicPartition("t", 0)
    throttle(client, 1000, {key: (1,)}, {key: (2,)}, {})
    assert not cluster.free
    mover = Mover(client, {key: (1,)}, {key: (2,)}, throttle=1000)
    with pytest.raises(ClientError, match="it is refused"):
        mover.run() if what == "move" else cancel(client, ["t"])
    assert cluster.free == (not stays)


@pytest.mark.parametrize("left", [False, True])
def test_after_an_error_of_a_move_without_a_throttle_only_what_another_one_left_is_taken_away(left: bool) -> None:
    cluster = Moved(stays=False)
    client, key = cluster.client(), TopicPartition("t", 0)
    if left:
        throttle(client, 1000, {key: (1,)}, {key: (2,)}, {})
    with pytest.raises(ClientError, match="it is refused"):
        Mover(client, {key: (1,)}, {key: (2,)}).run()
    assert cluster.free == left
    assert bool(cluster.brokers or cluster.topics) == left


def test_one_throttle_that_stays_keeps_no_other() -> None:
    cluster = Moved(stays=False)
    cluster.refused = {"t"}
    with pytest.raises(ClientError, match="t is refused"):
        unthrottle(cluster.client(), ["t", "u"])
    assert cluster.topics.keys() == {"u"}
    assert cluster.brokers.keys() == {1, 2}
    assert cluster.free
