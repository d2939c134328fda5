"""A populated broker for the tests of a module, its honest client, and what every attack has to leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.hostile.bounds import HONEST_ROUNDS, MEMORY_MAX, TURN_CPU_S_MAX, WAIT_S
from tests.kit.hostile.honest import HonestClient
from tests.kit.hostile.requests import Populace
from tests.kit.hostile.world import AUTHORISER, Watch, World, longest_turn_s, turns, work_ends_after
from tests.kit.processes.broker import BrokerProcess, free_port

if TYPE_CHECKING:
    from tests.kit.hostile.flood import Flood

POPULACE = Populace(topics=200, partitions=200, groups=200, transactions=50, users=50, acls=200)


@dataclass
class Scene:
    """A broker under attack, and the honest client next to it."""

    world: World
    broker: BrokerProcess
    honest: HonestClient
    metrics_port: int

    def endure(self, flood: Flood, seconds: float, requests: int = 0) -> dict[str, int]:
        """Runs an attack; what it got. Meanwhile every request of the honest client is answered and nothing grows."""
        before = turns(self.metrics_port)
        with flood, Watch(self.broker.pid, guard=2 * MEMORY_MAX) as watch:
            flood.begin_run(seconds, requests)
            served = self.honest.run(0.2, grace_s=WAIT_S, rounds_min=HONEST_ROUNDS)
            attacked = flood.end(seconds + WAIT_S)
        assert not served["unanswered"], served
        assert not served["refused"], served
        assert served["rounds"] >= HONEST_ROUNDS
        assert watch.peak <= MEMORY_MAX, f"RssAnon {watch.peak >> 20} MiB"
        assert work_ends_after(self.broker.pid, WAIT_S) is not None, "the work has not ended"
        longest = longest_turn_s(before, turns(self.metrics_port))
        assert longest is None or longest <= TURN_CPU_S_MAX, f"a turn of a network thread took {longest} s of CPU"
        assert self.broker.alive, self.broker.log()[-4000:]
        return attacked


@contextmanager
def scene_of(world: World) -> Iterator[Scene]:
    """A scene on a separate broker."""
    port = free_port()
    broker = world.broker({**AUTHORISER, "metrics.listeners": f"http://127.0.0.1:{port}"})
    try:
        with HonestClient(broker.port) as honest:
            yield Scene(world, broker, honest, port)
    finally:
        world.forget(broker)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("hostile"), POPULACE)


@pytest.fixture(scope="module")
def scene(world: World) -> Iterator[Scene]:
    """One for all tests of a module that leave the broker as it was."""
    with scene_of(world) as found:
        yield found


@pytest.fixture
def own_scene(world: World) -> Iterator[Scene]:
    """One for a single test."""
    with scene_of(world) as found:
        yield found


def pytest_itemcollected(item: pytest.Item) -> None:
    if "scene" in "".join(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.integration)
