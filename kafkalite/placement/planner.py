"""Plan the placement of replicas: compute new replicas for partitions, from the current replicas and a goal.

A plan contains the partitions whose replicas change, with all new replicas, the preferred leader first.

    rules, in order of priority
    1. Each partition has the wanted number of replicas, and only on eligible brokers. A broker that is out of service
       but expected back keeps its replicas.
    2. No more replicas are copied than rule 1 requires.
    3. A partition is in as many racks as rule 2 permits.
    4. Replicas go to the brokers with the fewest replicas.

The goal `spread` suspends rule 2 and evens out the brokers. Equal input gives an equal plan. After a plan has been
carried out, the next plan is empty.

Pure: no I/O, no state.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING

from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.model import TopicPartition

Replicas = tuple[int, ...]


class PlanError(Exception):
    """A goal that cannot be reached. The message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The wanted placement of replicas."""

    brokers: frozenset[int]
    """The brokers that may have replicas."""
    away: frozenset[int] = frozenset()
    """Brokers out of service that are expected back: they keep their replicas and get no new ones."""
    replication_factor: int | None = None
    """The wanted replication factor; None keeps each partition's."""
    spread: bool = False
    """Whether to even out replicas and preferred leaders over the brokers."""


@dataclass(slots=True)
class _Board:
    """The placement planned so far, with the number of replicas and preferred leaders of each broker."""

    racks: Mapping[int, str | None]
    goal: Goal
    placed: dict[TopicPartition, list[int]]
    held: Counter[int] = field(default_factory=Counter)
    """Broker → number of replicas."""
    led: Counter[int] = field(default_factory=Counter)
    """Broker → number of partitions whose preferred leader it is."""

    def rack(self, broker: int) -> object:
        """Return the rack of a broker. A broker without a rack counts as a separate rack."""
        return self.racks.get(broker) or broker

    def racks_of(self, brokers: Iterable[int]) -> set[object]:
        return {self.rack(broker) for broker in brokers}

    def count(self) -> None:
        """Count the replicas and preferred leaders of each broker again."""
        self.held = Counter(broker for replicas in self.placed.values() for broker in replicas)
        self.led = Counter(replicas[0] for replicas in self.placed.values() if replicas)


def plan(
    present: Mapping[TopicPartition, Replicas],
    movable: Iterable[TopicPartition],
    racks: Mapping[int, str | None],
    goal: Goal,
    sizes: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, Replicas]:
    """Return the partitions whose replicas must change, with their new replicas.

    PlanError if the goal cannot be reached.

    `present`   the current replicas of all partitions in the cluster
    `movable`   the partitions that may change
    `racks`     the rack of each broker in service
    `sizes`     the size of a replica of each partition in bytes, where known
    """
    chosen = sorted(set(movable))
    unknown = goal.brokers - racks.keys()
    if unknown:
        raise PlanError(f"no running broker has id {', '.join(map(str, sorted(unknown)))}")
    board = _Board(racks, goal, {key: list(replicas) for key, replicas in present.items()})
    for key in chosen:
        _check_count(key, present[key], goal)
        board.placed[key] = [broker for broker in present[key] if broker in goal.brokers | goal.away]
    board.count()
    for key in chosen:
        wanted = len(present[key]) if goal.replication_factor is None else goal.replication_factor
        _drop(board, key, wanted)
        _fill(board, key, wanted, present[key])
    board.count()
    if goal.spread:
        _widen(board, chosen)
        _even_out(board, sorted(chosen, key=lambda key: ((sizes or {}).get(key, 0), key)))
        _share_leaders(board, chosen)
    placed = {key: tuple(board.placed[key]) for key in chosen}
    return {key: replicas for key, replicas in placed.items() if replicas != tuple(present[key])}


def copies(before: Replicas, after: Replicas) -> Replicas:
    """Return the brokers that get a new replica."""
    return tuple(broker for broker in after if broker not in before)


def _check_count(key: TopicPartition, replicas: Replicas, goal: Goal) -> None:
    wanted = len(replicas) if goal.replication_factor is None else goal.replication_factor
    if wanted > len(goal.brokers.union(goal.away.intersection(replicas))):
        brokers = "1 broker" if len(goal.brokers) == 1 else f"{len(goal.brokers)} brokers"
        raise PlanError(f"{key} needs {wanted} replicas, but only {brokers} can hold replicas")


def _drop(board: _Board, key: TopicPartition, wanted: int) -> None:
    """Remove surplus replicas until the partition has `wanted` replicas.

    Replicas on brokers out of service are removed first, then replicas in shared racks, then those on the brokers with
    the most replicas. The preferred leader is removed last, if it is in service.
    """
    replicas = board.placed[key]
    while len(replicas) > wanted:
        racks = Counter(map(board.rack, replicas))
        # One that stays alone while it is away would be waited for, and of two there would be one.
        gone = max(
            replicas,
            key=lambda broker: (
                broker in board.goal.away,
                broker != replicas[0],
                racks[board.rack(broker)] > 1,
                board.held[broker],
                broker,
            ),
        )
        replicas.remove(gone)
        board.held[gone] -= 1


def _fill(board: _Board, key: TopicPartition, wanted: int, before: Replicas) -> None:
    """Add missing replicas. A new replica gets the position of the replica that it replaces."""
    replicas = board.placed[key]
    places = [place for place, broker in enumerate(before) if broker not in board.goal.brokers | board.goal.away]
    while len(replicas) < wanted:
        taken = board.racks_of(replicas)
        new = min(
            board.goal.brokers.difference(replicas),
            key=lambda broker: (board.rack(broker) in taken, board.held[broker], broker),
        )
        replicas.insert(places.pop(0) if places else len(replicas), new)
        board.held[new] += 1


def _widen(board: _Board, chosen: list[TopicPartition]) -> None:
    """Move replicas that share a rack into racks where the partition has no replica."""
    for key in chosen:
        replicas = board.placed[key]
        while True:
            racks = Counter(map(board.rack, replicas))
            shared = [each for each in replicas if racks[board.rack(each)] > 1 and each in board.goal.brokers]
            free = [broker for broker in board.goal.brokers if board.rack(broker) not in racks]
            if not shared or not free:
                break
            old = max(shared, key=lambda broker: (board.held[broker], broker))
            _replace(board, key, old, min(free, key=lambda broker: (board.held[broker], broker)))


def _replace(board: _Board, key: TopicPartition, old: int, new: int) -> None:
    replicas = board.placed[key]
    replicas[replicas.index(old)] = new
    board.held[old] -= 1
    board.held[new] += 1


def _even_out(board: _Board, chosen: list[TopicPartition]) -> None:
    """Move replicas from brokers with many replicas to brokers with fewer, trying the partitions in the given order.

    At the end, the numbers of replicas of any two brokers differ by at most one, as far as racks and the given
    partitions permit. This terminates, because each move reduces the sum of the squared replica counts.
    """
    by_broker: dict[int, list[TopicPartition]] = {broker: [] for broker in board.goal.brokers}
    for key in chosen:
        for broker in board.goal.brokers.intersection(board.placed[key]):
            by_broker[broker].append(key)
    while (found := _next_move(board, by_broker)) is not None:
        key, old, new = found
        _replace(board, key, old, new)
        by_broker[old].remove(key)
        by_broker[new].append(key)


def _next_move(board: _Board, by_broker: Mapping[int, list[TopicPartition]]) -> tuple[TopicPartition, int, int] | None:
    fewest_first = sorted(board.goal.brokers, key=lambda broker: (board.held[broker], broker))
    for old in reversed(fewest_first):
        for new in fewest_first:
            if board.held[old] - board.held[new] < 2:
                break
            for key in by_broker[old]:
                if _may_replace(board, board.placed[key], old, new):
                    return key, old, new
    return None


def _may_replace(board: _Board, replicas: list[int], old: int, new: int) -> bool:
    """Return whether the partition would be in at least as many racks if broker `new` replaced broker `old`."""
    if new in replicas:
        return False
    others = board.racks_of(broker for broker in replicas if broker != old)
    return board.rack(new) not in others or board.rack(old) in others


def _share_leaders(board: _Board, chosen: list[TopicPartition]) -> None:
    """Spread preferred leaders until the brokers' counts differ by at most one, as far as the replicas permit.

    This copies no data. If no partition has replicas on both a broker with many and a broker with few, several
    partitions change their leaders, through other brokers.
    """
    board.count()
    led: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in board.goal.brokers | board.goal.away}
    for key in chosen:
        led[board.placed[key][0]][key] = None
    while True:
        for first in sorted(board.goal.brokers, key=lambda broker: (-board.led[broker], broker)):
            chain = _chain(board, led, first)
            if chain:
                break
        else:
            return
        for key, new in chain:
            replicas = board.placed[key]
            old = replicas[0]
            board.led[old] -= 1
            board.led[new] += 1
            del led[old][key]
            led[new][key] = None
            place = replicas.index(new)
            replicas[0], replicas[place] = new, old


def _chain(board: _Board, led: Mapping[int, Iterable[TopicPartition]], first: int) -> list[tuple[TopicPartition, int]]:
    """Return changes of preferred leaders that give broker `first` one fewer, and another broker one more.

    The other broker has at least two fewer than `first`. Return [] if there is no such broker.
    """
    came: dict[int, tuple[TopicPartition, int]] = {}
    waiting = [first]
    for broker in waiting:
        for key in led[broker]:
            for other in board.placed[key][1:]:
                if other in came or other == first or other not in board.goal.brokers:
                    continue
                came[other] = (key, broker)
                waiting.append(other)
                if board.led[other] <= board.led[first] - 2:
                    return _way(came, other, first)
    return []


def _way(came: Mapping[int, tuple[TopicPartition, int]], end: int, first: int) -> list[tuple[TopicPartition, int]]:
    way = []
    while end != first:
        key, before = came[end]
        way.append((key, end))
        end = before
    return way
