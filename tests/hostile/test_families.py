"""Joins, parked fetches, unfinished frames, unread answers, subscriptions and ids: others are served, and it ends."""

from __future__ import annotations

import pytest

from tests.hostile.bounds import ITEMS, SAMPLE_SIZE, SIZE
from tests.hostile.conftest import POPULACE, Scene
from tests.kit.harness.samples import sample
from tests.kit.hostile.families import FAMILIES, Family, all_metadata
from tests.kit.hostile.flood import Flood
from tests.kit.hostile.requests import EXISTING, attacks_named

ATTACK_S = 1.5
SLOW_ATTACK_S = 10
STOPPED_DURING = ("DescribeConfigs.resources/resource_name", "CreateTopics.topics/name", "OffsetCommit.topics/name")


def by_name(family: Family) -> str:
    return family.name


def run(scene: Scene, family: Family, size: float, seconds: float) -> None:
    """The attack, then SIGTERM while it begins once more."""
    attacked = scene.endure(family.flood(scene.broker.port, size, POPULACE), seconds, family.requests)
    assert attacked["sent"] + attacked["answered"] > 0 or family.withheld
    with family.flood(scene.broker.port, size, POPULACE) as again:
        again.begin_run(seconds + 60)
        scene.honest.run(0.2, grace_s=60)
        scene.broker.stop()


@pytest.mark.parametrize("family", sample(FAMILIES, 2), ids=by_name)
def test_a_small_attack(own_scene: Scene, family: Family) -> None:
    run(own_scene, family, SAMPLE_SIZE, ATTACK_S)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=by_name)
def test_a_large_attack(own_scene: Scene, family: Family) -> None:
    run(own_scene, family, SIZE, SLOW_ATTACK_S)


@pytest.mark.parametrize("attack", sample(attacks_named(STOPPED_DURING), 1), ids=lambda attack: attack.id)
def test_sigterm_during_long_requests(own_scene: Scene, attack) -> None:
    with Flood(own_scene.broker.port, [attack.frame(EXISTING, ITEMS, POPULACE)]) as flood:
        flood.begin_run(120)
        own_scene.honest.run(0.2, grace_s=60, rounds_min=2)
        own_scene.broker.stop()


@pytest.mark.slow
def test_the_attackers_are_not_the_honest_clients_address(own_scene: Scene) -> None:
    """Limits per address would otherwise hit both, and the attacks show nothing."""
    settings = {"max.connections.per.ip": "2"}
    own_scene.broker.stop()
    own_scene.broker.start(settings)
    with Flood(own_scene.broker.port, [all_metadata()], connections=4, addresses=4) as flood:
        assert flood.run(60, 1)["answered"] >= 4
    with Flood(own_scene.broker.port, [all_metadata()], connections=4, addresses=1) as flood:
        assert flood.run(1)["closed"] > 0
