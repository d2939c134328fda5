"""Produce requests stay on a network thread, however many partitions they name: none of its turns is long."""

from __future__ import annotations

import pytest

from tests.hostile.bounds import ITEMS, WAIT_S
from tests.hostile.conftest import POPULACE, Scene
from tests.kit.harness import wire
from tests.kit.hostile.flood import Flood
from tests.kit.hostile.requests import BATCH, WIDE
from tests.kit.hostile.world import longest_turn_s, turns

TURN_CPU_S_MAX = 0.04
"""A bucket of the histogram ends at 0.033. Without turns a request takes 0.3, and more on a slow machine."""


def endure(scene: Scene, frame: bytes) -> None:
    before = turns(scene.metrics_port)
    attacked = scene.endure(Flood(scene.broker.port, [frame], connections=1), WAIT_S, 1)
    assert attacked["answered"] == 1
    longest = longest_turn_s(before, turns(scene.metrics_port))
    assert longest is not None
    assert longest <= TURN_CPU_S_MAX


@pytest.mark.parametrize("acks", [1, pytest.param(-1, marks=pytest.mark.slow)])
def test_produce_to_many_partitions(scene: Scene, acks: int) -> None:
    parts = [(number % POPULACE.partitions, BATCH) for number in range(ITEMS)]
    body = wire.produce_body(WIDE, parts, acks=acks)
    endure(scene, wire.frame(wire.header(wire.PRODUCE, 7, 1) + body))
