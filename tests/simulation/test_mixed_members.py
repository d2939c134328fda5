"""A group whose members switch protocols while it runs, with power cuts: no partition has two owners."""

import pytest

from tests.kit.harness.samples import sample
from tests.simulation.members import COUNT, SETTINGS, TOPIC, Table, member
from tests.simulation.workload import Promises
from tests.simulation.world import World

pytestmark = pytest.mark.own_process

CLIENTS = 4
PATIENCE_S = 120
"""Of the broker's time: some sessions and rebalances after one another."""


def run(seed: int, *, cuts: int, left: str = "durable") -> tuple[Table, list[str]]:
    with World(seed) as world:
        node = world.node("one", **SETTINGS)
        node.left = left
        node.logs.create_topic(TOPIC, COUNT, {})
        table, promises = Table(), Promises()
        for number in range(CLIENTS):
            lives = world.scheduler.draw.randint(2, 5)
            world.client(f"c{number}", member(node, promises, table, lives))
        for _ in range(cuts):
            node.cut_at = node.changes + world.scheduler.draw.randrange(1, 60)
            world.run(20)
        node.cut_at = None
        world.run(150)  # the last life of all has begun
        before = world.scheduler.clock.monotonic()
        world.scheduler.run_until(lambda: table.settled() or world.scheduler.clock.monotonic() > before + PATIENCE_S)
        assert table.settled(), f"seed {seed}: {table.members}, {node.groups.find('mixed')}"
        table.may_end = True
        world.finish()
        node.stop()
        assert node.fatal == []
        return table, world.scheduler.trace


@pytest.mark.parametrize("left", sample(["durable", "posix"], 1))
@pytest.mark.parametrize("count", [6, pytest.param(300, marks=pytest.mark.slow)])
def test_every_partition_has_one_owner_and_in_the_end_each_has_one(left: str, count: int) -> None:
    kinds = set()
    for seed in range(count):
        table, _ = run(seed, cuts=seed % 4, left=left)
        assert table.broken == [], f"seed {seed}, {left}"
        kinds |= table.kinds_seen
    assert kinds >= {"classic", "consumer"}
