"""Compute which partitions the members of a consumer group (KIP-848) get, by pure functions.

    members (subscribed topics, current target) + partition counts of the topics ─▶ member ─▶ partitions

    uniform    all partitions are divided equally; the default
    range      the partitions of each topic are divided equally

Both assign every partition of a subscribed topic to exactly one of its subscribers. The result depends only on the
arguments: the order of the ids decides between members that are otherwise equal.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Assignment = dict[bytes, frozenset[int]]
"""Topic id → partitions. Immutable, without empty sets."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """The data about a member that an assignor needs."""

    topics: frozenset[bytes]
    """Ids of the member's subscribed topics; all of these topics exist."""
    before: Assignment
    """The member's previous target assignment; it may contain topics and partitions that no longer exist."""


Partition = tuple[bytes, int]


def uniform(members: Mapping[str, Subscriber], counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    """Return a balanced assignment (the assignor `uniform`). `counts`: topic id → number of partitions.

    The members' numbers of partitions differ by at most one, as far as subscriptions allow. Among such assignments, the
    function chooses one that moves few partitions.
    """
    if not members:
        return {}
    subscriptions = {member.topics for member in members.values()}
    if len(subscriptions) == 1:
        return _uniform_alike(members, next(iter(subscriptions)), counts)
    return _uniform_mixed(members, counts)


def by_range(members: Mapping[str, Subscriber], counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    """Return an assignment that splits topic by topic (the assignor `range`). `counts`: topic id → number of
    partitions.

    The subscribers' numbers of partitions of a topic differ by at most one. Members keep their partitions where
    possible. New topics with equal partition counts and equal subscribers are split alike.
    """
    held: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
    for topic, subscribers in sorted(_subscribers(members).items()):
        for member_id, numbers in _cut(topic, subscribers, members, counts[topic]).items():
            if numbers:
                held[member_id][topic] = numbers
    return _frozen(held)


ASSIGNORS: Final[dict[str, Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], dict[str, Assignment]]]] = {
    "uniform": uniform,
    "range": by_range,
}
"""The assignors by the name that clients request; the first is the default."""


def _cut(topic: bytes, subscribers: list[str], members: Mapping[str, Subscriber], count: int) -> dict[str, set[int]]:
    """Split one topic's partitions into shares, one for each subscriber.

    Each subscriber keeps the lowest of its present partitions, as many as its share allows. Then the remaining
    partitions fill the shares in order.
    """
    least, left_over = divmod(count, len(subscribers))
    free = set(range(count))
    kept: dict[str, list[int]] = {}
    for member_id in subscribers:
        kept[member_id] = sorted(members[member_id].before.get(topic, frozenset()) & free)
        free.difference_update(kept[member_id])
    more = {member_id for member_id in subscribers if len(kept[member_id]) > least}
    more = set(sorted(more)[:left_over])
    for member_id in subscribers:
        if len(more) == left_over:
            break
        more.add(member_id)
    shares = {member_id: least + (member_id in more) for member_id in subscribers}
    result = {member_id: set(kept[member_id][: shares[member_id]]) for member_id in subscribers}
    left = iter(sorted(set(range(count)).difference(*result.values())))
    for member_id, numbers in result.items():
        while len(numbers) < shares[member_id]:
            numbers.add(next(left))
    return result


def _uniform_alike(
    members: Mapping[str, Subscriber], topics: frozenset[bytes], counts: Mapping[bytes, int]
) -> dict[str, Assignment]:
    """Assign equal shares, as far as possible, to members that all have the same subscription.

    The members with the most partitions now get the shares that are larger by one.
    """
    total = sum(counts[topic] for topic in topics)
    least, left_over = divmod(total, len(members))
    before = _still_theirs(members, counts)
    order = sorted(members, key=lambda member_id: (-len(before[member_id]), member_id))
    shares = {member_id: least + (place < left_over) for place, member_id in enumerate(order)}
    held = {member_id: before[member_id][: shares[member_id]] for member_id in sorted(members)}
    taken = {partition for partitions in held.values() for partition in partitions}
    free = deque(
        (topic, number) for topic in sorted(topics) for number in range(counts[topic]) if (topic, number) not in taken
    )
    wanting = deque(member_id for member_id in held if len(held[member_id]) < shares[member_id])
    while free:  # one each in turn, so that the partitions of a topic are spread
        member_id = wanting.popleft()
        held[member_id].append(free.popleft())
        if len(held[member_id]) < shares[member_id]:
            wanting.append(member_id)
    return _grouped(held)


def _uniform_mixed(members: Mapping[str, Subscriber], counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    """Assign partitions to members whose subscriptions differ.

    Members keep their valid partitions. Free partitions go to the members with the fewest partitions. Then the members'
    numbers of partitions are balanced.
    """
    subscribers = _subscribers(members)
    held: dict[str, dict[bytes, set[int]]] = {}
    load: dict[str, int] = {}
    free = {topic: set(range(counts[topic])) for topic in subscribers}
    for member_id, partitions in _still_theirs(members, counts).items():
        held[member_id] = {}
        for topic, number in partitions:
            free[topic].remove(number)
            held[member_id].setdefault(topic, set()).add(number)
        load[member_id] = sum(map(len, held[member_id].values()))
    for topic in sorted(free, key=lambda topic: (len(subscribers[topic]), topic)):  # fewest subscribers first
        waiting = [(load[member_id], member_id) for member_id in subscribers[topic]]
        heapq.heapify(waiting)
        for number in sorted(free[topic]):
            count, member_id = waiting[0]
            held[member_id].setdefault(topic, set()).add(number)
            load[member_id] = count + 1
            heapq.heapreplace(waiting, (count + 1, member_id))
    _even_out(held, load, subscribers)
    return _frozen(held)


def _even_out(
    held: dict[str, dict[bytes, set[int]]], load: dict[str, int], subscribers: dict[bytes, list[str]]
) -> None:
    """Move partitions until the members' loads (numbers of partitions) cannot be balanced better.

    One move may need a chain of members, each of which gives a partition of a topic to another subscriber of this
    topic. A useful chain leads from a member to one with at least two partitions fewer. If there is none, the load of
    that member cannot be improved, and neither can the load of any member that was reached.
    """
    done: set[str] = set()
    while True:
        heaviest = max((member_id for member_id in load if member_id not in done), key=load.__getitem__, default=None)
        if heaviest is None:
            return
        chain, reached = _chain_down(heaviest, held, load, subscribers)
        if not chain:
            done.add(heaviest)
            done |= reached
            continue
        for giver, topic, taker in chain:
            number = max(held[giver][topic])
            held[giver][topic].remove(number)
            if not held[giver][topic]:
                del held[giver][topic]
            held[taker].setdefault(topic, set()).add(number)
        load[heaviest] -= 1
        load[chain[-1][2]] += 1


def _chain_down(
    start: str, held: dict[str, dict[bytes, set[int]]], load: dict[str, int], subscribers: dict[bytes, list[str]]
) -> tuple[list[tuple[str, bytes, str]], set[str]]:
    """Return (chain, the members that were reached) from the member `start`.

    The chain has steps (giver, topic, taker). It is the shortest one to a member with at least two partitions fewer;
    empty if there is none.
    """
    came: dict[str, tuple[str, bytes]] = {}
    topics_seen: set[bytes] = set()
    waiting = deque([start])
    while waiting:
        giver = waiting.popleft()
        for topic in sorted(held[giver]):
            if topic in topics_seen:
                continue
            topics_seen.add(topic)
            for taker in subscribers[topic]:
                if taker == start or taker in came:
                    continue
                came[taker] = (giver, topic)
                if load[taker] + 2 <= load[start]:
                    return _chain_to(taker, start, came), set(came)
                waiting.append(taker)
    return [], set(came)


def _chain_to(end: str, start: str, came: dict[str, tuple[str, bytes]]) -> list[tuple[str, bytes, str]]:
    chain = []
    taker = end
    while taker != start:
        giver, topic = came[taker]
        chain.append((giver, topic, taker))
        taker = giver
    chain.reverse()
    return chain


def _subscribers(members: Mapping[str, Subscriber]) -> dict[bytes, list[str]]:
    """Return topic → its subscribers, in the order of their ids."""
    found: dict[bytes, list[str]] = {}
    for member_id in sorted(members):
        for topic in members[member_id].topics:
            found.setdefault(topic, []).append(member_id)
    return found


def _still_theirs(members: Mapping[str, Subscriber], counts: Mapping[bytes, int]) -> dict[str, list[Partition]]:
    """Return the valid partitions in each member's target, sorted. A partition in two targets goes to the first
    member.
    """
    kept: dict[str, list[Partition]] = {}
    taken: set[Partition] = set()
    for member_id in sorted(members):
        member = members[member_id]
        kept[member_id] = sorted(
            (topic, number)
            for topic, numbers in member.before.items()
            if topic in member.topics
            for number in numbers
            if number < counts[topic] and (topic, number) not in taken
        )
        taken.update(kept[member_id])
    return kept


def _grouped(held: Mapping[str, Iterable[Partition]]) -> dict[str, Assignment]:
    result: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in held}
    for member_id, partitions in held.items():
        for topic, number in partitions:
            result[member_id].setdefault(topic, set()).add(number)
    return _frozen(result)


def _frozen(held: Mapping[str, Mapping[bytes, set[int]]]) -> dict[str, Assignment]:
    return {
        member_id: {topic: frozenset(numbers) for topic, numbers in topics.items()}
        for member_id, topics in held.items()
    }
