"""A run of a broker under a seeded workload, with what it did to its disk and what its clients were promised.

    record(seed) ─▶ Recording: trace, history, settings; played back and compared with the real directory, byte for byte

The workload is every promise's actors at once. Between them the broker is killed and started, now and then stopped.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalite.model import ANONYMOUS
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from tests.kit.processes.broker import free_port
from tests.power import trace
from tests.power.disk import Disk
from tests.power.history import History, resolve
from tests.power.promises import PROMISES
from tests.power.promises.topics import create_topic
from tests.power.recorder import RecordedBroker, scratch
from tests.power.trace import Record, TraceError
from tests.power.world import Actor, World

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STALL_S = 180.0


@dataclass
class Recording:
    """A recorded run."""

    name: str
    root: str
    records: list[Record]
    history: History
    broker_settings: dict[str, str]

    def save(self, directory: Path) -> None:
        """Keeps it for a state to be made again alone."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "trace").write_bytes(trace.encode(self.records))
        self.history.save(directory / "history.json")
        about = {"name": self.name, "root": self.root, "broker_settings": self.broker_settings}
        (directory / "about.json").write_text(json.dumps(about))

    @classmethod
    def load(cls, directory: Path) -> Recording:
        about = json.loads((directory / "about.json").read_text())
        records = trace.read(directory / "trace")
        return cls(
            about["name"], about["root"], records, History.load(directory / "history.json"), about["broker_settings"]
        )


def settings_for(seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a seed's (parameters of the promises, broker settings): different sizes and times."""
    draw = random.Random(f"settings {seed}")
    about: dict[str, Any] = {
        "segment.bytes": draw.choice((6_000, 20_000, 40_000)),
        "topics": {},
    }
    broker = {
        "offsets.topic.num.partitions": str(draw.choice((2, 4))),
        "transaction.state.log.num.partitions": str(draw.choice((2, 4))),
        "offsets.topic.segment.bytes": str(draw.choice((20_000, 100_000))),
        "transaction.state.log.segment.bytes": str(draw.choice((20_000, 100_000))),
        "log.flush.offset.checkpoint.interval.ms": str(draw.choice((100, 250, 600))),
        "log.retention.check.interval.ms": "120",
        "log.cleaner.backoff.ms": "60",
        "log.segment.delete.delay.ms": str(draw.choice((0, 100, 60_000))),
        "log.flush.interval.messages": str(draw.choice((1, 3))),
        "num.network.threads": str(draw.choice((1, 2))),
        "log.preallocate": draw.choice(("false", "false", "true")),
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "60000",
        "auto.create.topics.enable": "false",
        "group.min.session.timeout.ms": "100",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": ANONYMOUS,
    }
    return about, broker


def record(
    seed: int,
    *,
    steps: int = 1000,
    kills: int = 2,
    overrides: dict[str, str] | None = None,
    left_out: str = "",
    delay_permille: int = 500,
    crowd: int = 0,
) -> Recording:
    """Runs the workload of a seed, with `crowd` more plain producers."""
    about, settings = settings_for(seed)
    about["crowd"] = crowd
    settings |= overrides or {}
    port, classic_port = free_port(), free_port()
    settings["listeners"] = f"kafka://127.0.0.1:{port},kafka07://127.0.0.1:{classic_port}"
    broker = RecordedBroker(
        scratch(),
        settings,
        port=port,
        classic_port=classic_port,
        seed=seed,
        delay_permille=delay_permille,
        left_out=left_out,
    )
    broker.prepare()
    try:
        world = World(broker, seed, about)
        _run(world, steps, kills)
        about["ended_ms"] = time.time_ns() // 1_000_000
        records = broker.records()
        check_replay(records, broker.root)
        resolve(world.history, records)
        return Recording(f"seed {seed}", str(broker.root), records, world.history, settings)
    finally:
        broker.remove()


def _run(world: World, steps: int, kills: int) -> None:
    """The whole run: topics, actors, and the ends and starts of the broker between them."""
    draw = random.Random(f"run {world.seed}")
    world.serve()
    _make_topics(world)
    actors, threads = [], []
    for promise in PROMISES:
        for name, body in promise.actors(world):
            actor = Actor(world, name)
            actors.append(actor)
            threads.append(threading.Thread(target=body, args=(actor,), name=name, daemon=True))
    for thread in threads:
        thread.start()
    try:
        for i in range(kills + 1):
            _progress(world, actors, steps // (kills + 1))
            if world.failures or i == kills:
                break
            world.pause()
            if draw.random() < 0.25:
                world.broker.stop()
            else:
                world.broker.kill()
            world.serve()
    finally:
        world.finish()
        if not world.failures and draw.random() < 0.5:
            world.broker.stop()
        else:
            world.broker.kill()
        for thread in threads:
            thread.join(STALL_S)
    if world.failures:
        raise AssertionError(
            f"the workload failed: {world.failures!r}\n{world.broker.log()[-3000:]}"
        ) from world.failures[0]


def _progress(world: World, actors: Sequence[Actor], steps: int) -> None:
    """Wait until the actors have done `steps` more steps, at least one each, however busy the machine."""
    goal = world.step_count + steps
    before = {actor: actor.step_count for actor in actors}
    deadline = time.monotonic() + STALL_S
    while not world.failures and (
        world.step_count < goal or any(actor.step_count == count for actor, count in before.items())
    ):
        if time.monotonic() > deadline:
            raise AssertionError(f"no progress: {world.step_count} of {goal} steps\n{world.broker.log()[-3000:]}")
        time.sleep(0.005)


def _make_topics(world: World) -> None:
    plans = {name: plan for promise in PROMISES for name, plan in promise.topics(world).items()}
    actor = Actor(world, "topics")
    actor._connect(world.wait())
    for name, (count, configs) in plans.items():
        world.history.settings["topics"][name] = configs
        kept = {key: text for key, text in configs.items() if "." in key}
        create_topic(actor, name, count, kept)
    actor._disconnect()


def check_replay(records: list[Record], root: Path) -> None:
    """The trace, played, is the directory: names, kinds, sizes and contents. TraceError."""
    disk = Disk(str(root))
    for entry in records:
        disk.play(entry)
    played = dict(disk.read_tree())
    real: dict[str, bytes | str | None] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        real[name] = str(path.readlink()) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    wrong = sorted(name for name in played.keys() | real.keys() if played.get(name, 0) != real.get(name, 0))
    if wrong:
        raise TraceError(f"the replayed directory differs from the real one in {wrong[:10]}")


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
