"""A run of a cluster's broker: its writes to disk, the promises to its clients, and the logs of the other broker.

While it is dead the others continue, so that it returns to logs that lack records it has, or begin above its end.
"""

from __future__ import annotations

import json
import random
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.harness import wire
from tests.kit.processes.broker import free_port
from tests.power import trace
from tests.power.history import resolve
from tests.power.recorder import RecordedBroker, scratch
from tests.power.recording import STALL_S, Recording, _progress, check_replay
from tests.power.replicas.others import Others
from tests.power.replicas.state import OWN
from tests.power.world import Actor, World, single_error, value

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS = 2
STEP_S = 0.006
AWAY_STEPS = 60
"""What happens while the broker is dead."""


@dataclass
class ReplicaRecording(Recording):
    """A recorded run in a cluster."""

    others: dict[str, Any]

    def save(self, directory: Path) -> None:
        super().save(directory)
        (directory / "others.json").write_text(json.dumps(self.others))

    @classmethod
    def load(cls, directory: Path) -> ReplicaRecording:
        found = Recording.load(directory)
        others = json.loads((directory / "others.json").read_text())
        return cls(found.name, found.root, found.records, found.history, found.broker_settings, others)


def settings_for(seed: int) -> dict[str, str]:
    """The broker's settings of a seed."""
    draw = random.Random(f"replica settings {seed}")
    return {
        "process.roles": "broker",
        "node.id": str(OWN),
        "controller.listener.names": "CONTROLLER",
        "broker.heartbeat.interval.ms": "50",
        "broker.session.timeout.ms": "2000",
        "replica.fetch.backoff.ms": "20",
        "replica.fetch.wait.max.ms": "30",
        "replica.lag.time.max.ms": "100",
        "replica.high.watermark.checkpoint.interval.ms": str(draw.choice((30, 100, 1000))),
        "num.replica.fetchers": str(draw.choice((1, 2))),
        "log.segment.bytes": str(draw.choice((3_000, 8_000, 40_000))),
        "log.flush.offset.checkpoint.interval.ms": str(draw.choice((60, 250, 600))),
        "log.flush.interval.messages": str(draw.choice((1, 5, 1 << 40))),
        "log.retention.ms": "-1",
        "log.segment.delete.delay.ms": str(draw.choice((0, 100, 60_000))),
        "log.preallocate": draw.choice(("false", "false", "true")),
        "num.network.threads": str(draw.choice((1, 2))),
    }


def record_replicas(
    seed: int,
    *,
    steps: int = 700,
    kills: int = 2,
    overrides: dict[str, str] | None = None,
    left_out: str = "",
    delay_permille: int = 500,
    stops: bool = False,
) -> ReplicaRecording:
    """Run the workload of a seed; with `stops` the broker is stopped in the end, whether or not that is clean."""
    settings = settings_for(seed) | (overrides or {})
    port = free_port()
    settings["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
    broker = RecordedBroker(scratch(), settings, port=port, seed=seed, delay_permille=delay_permille, left_out=left_out)
    broker.prepare()
    try:
        with Others(seed, broker.moment) as others:
            broker.settings = settings | {"controller.quorum.bootstrap.servers": others.address}
            others.begin()
            others.create("followed", PARTITIONS, 8)
            others.create("moving", PARTITIONS, OWN, (OWN, 8))
            others.create("alone", PARTITIONS, OWN, (OWN,))
            others.create("renewed", 1, 8)
            world = World(broker, seed, {"crowd": 0, "topics": {}})
            try:
                _run(world, others, steps, kills, stops=stops)
            finally:
                others.finish()
            kept = others.kept()
        records = broker.records()
        check_replay(records, broker.root)
        resolve(world.history, records)
        name = f"replicas seed {seed}"
        return ReplicaRecording(name, str(broker.root), records, world.history, settings, kept)
    finally:
        broker.remove()


def _run(world: World, others: Others, steps: int, kills: int, *, stops: bool) -> None:
    """Run everything: the other brokers, the broker's clients, and its deaths and starts in between."""
    draw = random.Random(f"run {world.seed}")
    world.serve()
    others.come_back()
    others.follow(lambda: world.broker.port)
    actors = [Actor(world, f"writer {number}") for number in range(3)]
    threads = [threading.Thread(target=_write, args=(actor,), name=actor.name, daemon=True) for actor in actors]
    threads.append(threading.Thread(target=_go_on, args=(world, others), name="others", daemon=True))
    for thread in threads:
        thread.start()
    try:
        for number in range(kills + 1):
            _progress(world, actors, steps // (kills + 1))
            if world.failures or number == kills:
                break
            world.pause()
            _end(world, others, stop=draw.random() < 0.35)
            for _ in range(draw.randint(0, AWAY_STEPS)):
                others.step()
            world.serve()
            others.come_back()
    finally:
        world.finish()
        _end(world, others, stop=not world.failures and (stops or draw.random() < 0.5))
        for thread in threads:
            thread.join(STALL_S)
    if world.failures:
        raise AssertionError(
            f"the workload failed: {world.failures!r}\n{world.broker.log()[-3000:]}"
        ) from world.failures[0]


def _end(world: World, others: Others, *, stop: bool) -> None:
    if stop:
        others.leave()
        world.broker.stop()
    else:
        world.broker.kill()
        others.leave()


def _go_on(world: World, others: Others) -> None:
    """Something of the others' again and again."""
    try:
        while not world.over:
            others.step()
            others.pause(STEP_S)
    except BaseException as error:  # noqa: BLE001 - the run reports it, and ends
        world.failures.append(error)
        world.finish()


def _write(actor: Actor) -> None:
    """Writes to what the broker leads, or may lead."""

    def step() -> None:
        topic = actor.draw.choice(("alone", "moving", "moving"))
        partition, acks = actor.draw.randrange(PARTITIONS), actor.draw.choice((-1, -1, 1))
        first = actor.world.tokens(1)
        batch = wire.batch_of([wire.Record(None, value(first, actor.draw))])
        what = {
            "topic": topic,
            "partition": partition,
            "acks": acks,
            "crc": int.from_bytes(batch[17:21], "big"),
        }
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])]
        request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data)

        def succeeded(answer: Any) -> dict[str, Any] | None:
            base = answer.responses[0].partition_responses[0].base_offset
            return None if single_error(answer) else {"base": base}

        found = actor.attempt(
            "records",
            what,
            api.PRODUCE,
            9,
            request,
            succeeded=succeeded,
            token=first if acks == -1 and topic == "alone" else -1,
            place=f"{topic}-{partition}/",
        )
        if found is None:
            actor.come_again()

    actor.rounds(step)


def first_served(recording: ReplicaRecording) -> int:
    """The moment at which the broker was ready for the first time."""
    return next(each.place for each in recording.records if each.kind == trace.MARK and each.a == trace.MARK_READY)
