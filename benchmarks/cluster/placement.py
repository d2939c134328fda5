"""Simulate what is lost when several of a thousand brokers die, for four ways to place replicas.

There are 100,000 partitions with three replicas. Formulas check the simulation, whose random numbers have a fixed seed.
Another formula gives the time until a dead broker's data is fully replicated again.

    striped      Kafka's controller without racks: each topic's partitions along a shuffled list of brokers
    racks        Kafka's controller with racks: neighbors in the list are in different racks
    random       three brokers drawn for each partition
    groups       fixed groups of three brokers that have the same partitions (copysets of the smallest size)

In the model, a broker loses its disk when it dies. Either k brokers drawn from all die together, or one rack. Other
common causes (a release, a switch, a batch of disks) are not modeled.

Source: StripedReplicaPlacer of Kafka 4.1; Cidon et al., Copysets, USENIX ATC 2013.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.path.harness import Row, write_result

if TYPE_CHECKING:
    from collections.abc import Iterable

BROKERS: Final = 1000
RACKS: Final = 20
PARTITIONS: Final = 100_000
PER_TOPIC: Final = 100
REPLICAS: Final = 3
TRIALS: Final = 1000
SEED: Final = 22
DYING: Final = (3, 10, 30, 50)
"""How many die at once; and one rack, which is as many as the last."""
BROKER_BYTES: Final = 4e12
LINK_BYTES_PER_S: Final = 1.25e9
"""10 Gbit/s each way."""
SHARE: Final = 0.2
"""Of a broker's link that copying may take where the broker serves, too."""
FAILURES_PER_YEAR: Final = 0.04
"""Of a broker, with its disk."""
YEAR_S: Final = 365.25 * 86400

Placement = np.ndarray[Any, np.dtype[np.int32]]
"""(partitions, replicas) of broker numbers."""
Generator = np.random.Generator


def striped(draw: Generator, brokers: int, partitions: int) -> Placement:
    rows = []
    for _ in range(partitions // PER_TOPIC):
        order = draw.permutation(brokers)
        first = np.arange(PER_TOPIC)[:, None] + int(draw.integers(brokers))
        rows.append(order[(first + np.arange(REPLICAS)) % brokers])
    return np.concatenate(rows).astype(np.int32)


def racks(draw: Generator, brokers: int, partitions: int) -> Placement:
    """Place by racks: broker b is in rack b % RACKS, and a partition takes the next broker of each of the next
    racks."""
    placed = np.empty((partitions, REPLICAS), dtype=np.int32)
    for partition in range(partitions):
        if partition % PER_TOPIC == 0:
            members = [draw.permutation(np.arange(rack, brokers, RACKS)) for rack in draw.permutation(RACKS)]
            used = [0] * RACKS
        for replica in range(REPLICAS):
            rack = (partition + replica) % RACKS
            placed[partition, replica] = members[rack][used[rack] % len(members[rack])]
            used[rack] += 1
    return placed


def random(draw: Generator, brokers: int, partitions: int) -> Placement:
    placed = draw.integers(brokers, size=(partitions, REPLICAS), dtype=np.int32)
    while True:
        same = (placed[:, 0] == placed[:, 1]) | (placed[:, 0] == placed[:, 2]) | (placed[:, 1] == placed[:, 2])
        if not same.any():
            return placed
        placed[same] = draw.integers(brokers, size=(int(same.sum()), REPLICAS), dtype=np.int32)


def groups(draw: Generator, brokers: int, partitions: int) -> Placement:
    together = draw.permutation(brokers)[: brokers // REPLICAS * REPLICAS].reshape(-1, REPLICAS)
    return together[draw.integers(len(together), size=partitions)].astype(np.int32)


POLICIES: Final = {"striped": striped, "racks": racks, "random": random, "groups": groups}


def by_broker(placed: Placement, brokers: int) -> list[np.ndarray[Any, Any]]:
    """Return the partitions of each broker."""
    flat = placed.ravel()
    order = np.argsort(flat, kind="stable")
    ends = np.searchsorted(flat[order], np.arange(1, brokers))
    return np.split((order // REPLICAS).astype(np.int32), ends)


def losses(held: list[np.ndarray[Any, Any]], dead: Iterable[int]) -> tuple[int, int]:
    """Return (partitions without a live replica, partitions with one: below min.insync.replicas of 2)."""
    _, count = np.unique(np.concatenate([held[broker] for broker in dead]), return_counts=True)
    return int((count == REPLICAS).sum()), int((count == REPLICAS - 1).sum())


def formula(brokers: int, partitions: int, dying: int) -> float:
    """Return the probability that at least one partition is lost, for random placement."""
    one = math.comb(brokers - REPLICAS, dying - REPLICAS) / math.comb(brokers, dying)
    return 1 - (1 - one) ** partitions


def measured(draw: Generator, brokers: int, partitions: int, trials: int) -> Row:
    """Simulate each placement with each number of dead brokers."""
    result: Row = {}
    for name, place in POLICIES.items():
        placed = place(draw, brokers, partitions)
        row: Row = {
            "partners": float(np.mean([partners(placed, broker) for broker in range(0, brokers, brokers // 20)]))
        }
        held = by_broker(placed, brokers)
        for dying in (each for each in DYING if each < brokers):
            drawn = (draw.choice(brokers, dying, replace=False) for _ in range(trials))
            row[f"dead_{dying}"] = summed(losses(held, dead) for dead in drawn)
        row["dead_rack"] = summed(losses(held, range(each, brokers, RACKS)) for each in range(RACKS))
        result[name] = row
    return result


def summed(found: Iterable[tuple[int, int]]) -> Row:
    """Return means over the trials."""
    lost, below = map(np.array, zip(*found, strict=True))
    return {"any_lost": float((lost > 0).mean()), "lost": float(lost.mean()), "below_min_isr": float(below.mean())}


def partners(placed: Placement, broker: int) -> int:
    """Return how many other brokers share at least one partition with a broker."""
    rows = placed[(placed == broker).any(axis=1)]
    return len(np.unique(rows)) - 1 if len(rows) else 0


def repair() -> Row:
    """Compute, by formulas, how long a dead broker's data lacks a replica, and the partitions lost per year.

    A new broker with the old id copies all data over its own link; Kafka does nothing else by itself. Moving the
    partitions to all other brokers takes a fraction of each broker's link. A partition is lost if its three replicas
    fail independently, the third while the other two are missing: 3 λ³ T² per partition and year.
    """
    result: Row = {}
    for name, seconds in {
        "replaced_at_once": BROKER_BYTES / LINK_BYTES_PER_S,
        "replaced_after_a_day": 86400 + BROKER_BYTES / LINK_BYTES_PER_S,
        "moved_to_all_others": BROKER_BYTES / (LINK_BYTES_PER_S * SHARE * (BROKERS - 1)),
    }.items():
        years = seconds / YEAR_S
        result[name] = {
            "hours": seconds / 3600,
            "partitions_lost_a_year": 3 * FAILURES_PER_YEAR**3 * years**2 * PARTITIONS,
        }
    return result


def main(*, small: bool, repeats: int) -> list[Path]:
    """Run the simulation. `repeats` is ignored, because the seed is fixed."""
    del repeats
    brokers, partitions, trials = (60, 2000, 20) if small else (BROKERS, PARTITIONS, TRIALS)
    result: Row = {
        "brokers": brokers,
        "partitions": partitions,
        "trials": trials,
        "policies": measured(np.random.default_rng(SEED), brokers, partitions, trials),
        "formula_random": {f"dead_{k}": formula(brokers, partitions, k) for k in DYING if k < brokers},
        "repair": repair(),
    }
    for name, row in result["policies"].items():
        print(name, row, flush=True)
    print(result["formula_random"], result["repair"], flush=True)
    return [write_result("cluster-placement", result)]
