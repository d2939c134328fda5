"""From images to logs: what could not be carried out is not forgotten."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.broker.cluster.image import EMPTY, RECOVERED, BrokerState, PartitionState, TopicState
from kafkalite.broker.cluster.partitions import Partitions
from kafkalite.broker.log.assignment import LOST
from kafkalite.settings.broker import BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalite.broker.cluster.image import Image
    from kafkalite.broker.log.assigned import AssignedTopic

OWN, INCARNATION = 7, bytes(range(16))
FIRST, SECOND = b"first".ljust(16), b"second".ljust(16)


def image(*topics: bytes) -> Image:
    own = BrokerState(OWN, INCARNATION, 1, {}, {}, rack=None, fenced=False, stopping=False, directories=())
    part = PartitionState((OWN,), (bytes(16),), (OWN,), (), (), OWN, RECOVERED, 0, 0, (), ())
    states = {each: TopicState(each.decode().strip(), each, {0: part}) for each in topics}
    return replace(EMPTY, brokers={OWN: own}, topics=states)


def test_what_could_not_be_carried_out_is_carried_out_with_the_next_image() -> None:
    carried: list[tuple[list[str], list[bytes]]] = []
    failures = [OSError("the disk is full")]

    def use_topics(changed: Sequence[AssignedTopic], removed: Iterable[bytes]) -> None:
        if carried and failures:
            raise failures.pop()
        carried.append(([each.name for each in changed], list(removed)))

    logs = SimpleNamespace(config=BrokerConfig.load(overrides={}))
    topics: Any = SimpleNamespace(logs=logs, use_topics=use_topics)
    partitions = Partitions(topics, OWN, INCARNATION)
    partitions.use(EMPTY, EMPTY)
    partitions.use(EMPTY, image(FIRST))
    with pytest.raises(OSError, match="full"):
        partitions.use(EMPTY, image(SECOND))
    partitions.use(EMPTY, image(SECOND))
    assert carried == [(["first"], []), (["second"], [FIRST])]


def test_which_replicas_are_in_no_directory_is_said() -> None:
    told: list[AssignedTopic] = []
    logs = SimpleNamespace(config=BrokerConfig.load(overrides={}))
    topics: Any = SimpleNamespace(logs=logs, use_topics=lambda changed, _removed: told.extend(changed))
    now = image(FIRST)
    part = PartitionState((OWN, 8, 9), (bytes(16), LOST, LOST), (OWN,), (), (), OWN, RECOVERED, 0, 0, (), ())
    now = replace(now, topics={FIRST: TopicState("first", FIRST, {0: part})})
    Partitions(topics, OWN, INCARNATION).use(EMPTY, now)
    assert told[0].partitions[0].lost == (8, 9)
