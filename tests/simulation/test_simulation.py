"""Logs, groups and transactions on one thread: a seed gives a run again, and finds what was planted."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kafkalite._native.base import file_ops
from kafkalite.broker.log import entries, files, journal
from kafkalite.broker.log.partition_log import PartitionLog
from tests.kit.harness.samples import sample
from tests.simulation.workload import Promises, broken, committer, producer, topic_changer, transactional
from tests.simulation.world import Node, World

pytestmark = pytest.mark.own_process

ROOT = Path(__file__).resolve().parents[2]
SEEDS_TO_FIND = 40
"""The first of them that finds it ends the search; a few are enough."""
SETTINGS = {"log_segment_bytes": 3000, "log_flush_offset_checkpoint_interval_ms": 1000}


def clients(world: World, node: Node, promises: Promises, size: int) -> None:
    world.client("p1", producer(node, promises, "p1", "t", 8 * size))
    world.client("p2", producer(node, promises, "p2", "t", 8 * size))
    world.client("topics", topic_changer(node, promises, size))
    world.client("commits", committer(node, promises, "g", "t", 10 * size))
    world.client("tx", transactional(node, promises, "tx", "x", 3 * size))


def run(seed: int, *, cuts: int = 3, left: str = "durable", size: int = 4) -> tuple[list[str], list[str], int]:
    """(trace, what was promised and does not hold, answers) of one run with some power cuts."""
    with World(seed) as world:
        node = world.node("one", **SETTINGS)
        node.left = left
        promises = Promises()
        clients(world, node, promises, size)
        for _ in range(cuts):
            node.cut_at = node.changes + world.scheduler.draw.randrange(1, 150)
            starts = node.starts
            world.scheduler.run_until(
                lambda starts=starts: node.starts > starts or all(client.done for client in world.clients)
            )
        node.cut_at = None
        world.finish()
        world.run(30)
        found = list(broken(node, promises))
        node.stop()
        assert node.fatal == []
        return world.scheduler.trace, found, promises.answers


def digest(trace: list[str]) -> str:
    return hashlib.sha256("\n".join(trace).encode()).hexdigest()


def test_a_seed_gives_the_same_run_again() -> None:
    first, found, answers = run(1)
    again, *_ = run(1)
    assert found == []
    assert answers > 50
    assert again == first
    assert any("loses power" in line for line in first)
    other, *_ = run(2)
    assert other != first


class Without:
    """A module of system calls, one of which does nothing."""

    def __init__(self, module: ModuleType, name: str) -> None:
        self._module = module
        self._name = name

    def __getattr__(self, name: str) -> object:
        return (lambda *_: None) if name == self._name else getattr(self._module, name)


def told_at_once(log: PartitionLog, _end_offset: int, callback: Callable[[int], None]) -> None:
    callback(0)


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        pytest.param(entries, "file_ops", Without(file_ops, "sync_directory"), id="a partition's directory not synced"),
        pytest.param(journal, "file_ops", Without(file_ops, "sync_file"), id="a line of the journal not synced"),
        pytest.param(files, "file_ops", Without(file_ops, "sync_directory"), id="a file replaced, its name not synced"),
        pytest.param(PartitionLog, "flush_async", told_at_once, id="acknowledged before the flush"),
    ],
)
def test_what_is_planted_is_found(monkeypatch: pytest.MonkeyPatch, module: object, name: str, instead: object) -> None:
    monkeypatch.setattr(module, name, instead)
    found = (run(seed)[1] for seed in range(SEEDS_TO_FIND))
    assert any("missing" in text or "not seen" in text for texts in found for text in texts)


def test_a_seed_gives_the_same_run_in_another_process() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from tests.simulation.test_simulation import digest, run; print(digest(run(7)[0]))",
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


@pytest.mark.parametrize("left", sample(["durable", "posix", "ext4"], 1))
@pytest.mark.parametrize("count", [8, pytest.param(300, marks=pytest.mark.slow)])
def test_what_was_promised_holds_after_power_cuts(left: str, count: int) -> None:
    for seed in range(100, 100 + count):
        _, found, _ = run(seed, left=left)
        assert found == [], f"seed {seed}, {left}"


def test_a_node_loses_power_and_another_does_not() -> None:
    with World(5) as world:
        nodes = [world.node(name, **SETTINGS) for name in ("one", "two")]
        promised = [Promises(), Promises()]
        for node, promises in zip(nodes, promised, strict=True):
            world.client(f"{node.name} p1", producer(node, promises, "p1", "t", 30), node)
            world.client(f"{node.name} tx", transactional(node, promises, "tx", "x", 10), node)
        nodes[0].cut_at = nodes[0].changes + 60
        world.finish()
        world.run(10)
        assert [node.starts for node in nodes] == [2, 1]
        for node, promises in zip(nodes, promised, strict=True):
            assert promises.answers > 30
            assert list(broken(node, promises)) == []
            node.stop()
