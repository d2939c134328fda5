"""Compaction: of each key the newest acknowledged value stays, and one that was deleted stays away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kit.harness import wire
from tests.power.promises.base import Past, Promise, TopicPlan
from tests.power.promises.records import append, send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.history import Op
    from tests.power.look import Look
    from tests.power.world import Actor, World

TOPIC, PARTITIONS = "compacted", 2
KEYS = 8


class Compaction(Promise):
    """A compacted topic whose keys are written again and again."""

    name = "compaction"

    def topics(self, world: World) -> dict[str, TopicPlan]:
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": "4000",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "0",
        }
        return {TOPIC: (PARTITIONS, configs)}

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        yield from ((f"keys {i}", _write) for i in range(2))

    def check(self, past: Past, look: Look) -> Iterator[str]:
        newest: dict[tuple[int, str], Op] = {}
        perhaps_deleted = set()  # a tombstone that was not answered may be there, or have been and gone
        for op in past.ops("records"):
            if op.what["topic"] == TOPIC and not past.promised(op) and op.what.get("tombstone"):
                perhaps_deleted.add((op.what["partition"], op.what["key"]))
            if op.what["topic"] == TOPIC and past.promised(op) and op.result is not None:
                key = op.what["partition"], op.what["key"]
                if key not in newest or (newest[key].result or {})["base"] < op.result["base"]:
                    newest[key] = op
        for (partition, key), op in newest.items():
            log = look.logs.get((TOPIC, partition))
            if log is None or log.faults:
                continue
            base = (op.result or {})["base"]
            offsets = [offset for offset, found in log.keys.items() if found == key.encode()]
            last = max(offsets, default=-1)
            name = f"{TOPIC}-{partition}, key {key}"
            gone = op.what.get("tombstone") or (partition, key) in perhaps_deleted
            if last < base and not (gone and last < 0):
                yield f"{name}: the newest acknowledged record is at {base}, the newest there is at {last}"
            elif last == base and not op.what.get("tombstone") and log.tokens.get(last) != op.what["first"]:
                yield f"{name}: record {op.what['first']} at {base} is {log.tokens.get(last)}"


def _write(actor: Actor) -> None:
    def step() -> None:
        partition = actor.draw.randrange(PARTITIONS)
        key = f"{actor.name} {actor.draw.randrange(KEYS)}"
        if actor.draw.random() < 0.1:
            what = {"first": actor.world.tokens(1), "count": 1, "key": key, "tombstone": True}
            batch = wire.batch_of([wire.Record(key.encode(), None)])
            send(actor, TOPIC, partition, batch, acks=-1, what=what)
        else:
            append(actor, TOPIC, partition, keys=[key.encode()], key=key)

    actor.rounds(step)
