"""Who reads what in a group: the leader's decision, by the strategy that all members know.

    range                 per topic, neighbours together; the same numbers of several topics go to the same member
    cooperative-sticky    even, each partition where it was if it can be; what moves is given up first, then given
                          (KIP-429)

The decision must not depend on anything but its input, since any member may become leader; names, sort order and user
data are Java's, so that its members and ours share a group.

The sticky one in three steps: keep what members claim (the younger generation wins, a tie loses both), give what is
free to whoever may have it and has least, then even out: while somebody can hand a partition on, through others where
topics differ, to a member with at least two fewer, do it. That ends, because the sum of squares falls, in the most even
division there is.

Thread rule: functions are pure.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafkalite.model import TopicPartition
from kafkalite.wire.consumer_protocol import NO_GENERATION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.wire.consumer_protocol import Subscription

    Members = Mapping[str, Subscription]
    Assignment = dict[str, list[TopicPartition]]

GENERATION_SIZE: Final = 4


class Assignor(Protocol):
    """A strategy. `cooperative`: members keep what they have while they rejoin."""

    name: str
    cooperative: bool

    def assign(self, partition_counts: Mapping[str, int], members: Members) -> Assignment:
        """The partitions of each member, sorted; topics without an entry do not exist."""


class RangeAssignor:
    """See the module."""

    name = "range"
    cooperative = False

    def assign(self, partition_counts: Mapping[str, int], members: Members) -> Assignment:
        assignment: Assignment = {member: [] for member in members}
        for topic in sorted(partition_counts):
            takers = sorted((m for m in members if topic in members[m].topics), key=lambda m: rank(m, members[m]))
            if not takers:
                continue
            share, extra = divmod(partition_counts[topic], len(takers))
            first = 0
            for index, member in enumerate(takers):
                end = first + share + (index < extra)
                assignment[member] += [TopicPartition(topic, number) for number in range(first, end)]
                first = end
        return assignment


class CooperativeStickyAssignor:
    """See the module."""

    name = "cooperative-sticky"
    cooperative = True

    def assign(self, partition_counts: Mapping[str, int], members: Members) -> Assignment:
        assignment = sticky(partition_counts, members)
        owners: dict[TopicPartition, set[str]] = {}
        for member, subscription in members.items():
            for key in subscription.owned:
                owners.setdefault(key, set()).add(member)
        # What somebody else still has is given in the next round, when it was given up.
        return {
            member: sorted(key for key in keys if key not in owners or member in owners[key])
            for member, keys in assignment.items()
        }


ASSIGNORS: Final[dict[str, Assignor]] = {
    assignor.name: assignor for assignor in (RangeAssignor(), CooperativeStickyAssignor())
}


def user_data(assignor: Assignor, generation: int) -> bytes | None:
    """What a member tells the leader besides topics and owned partitions, in case the leader is too old for more."""
    return generation.to_bytes(GENERATION_SIZE, "big", signed=True) if assignor.cooperative else None


def rank(member: str, subscription: Subscription) -> tuple[bool, str]:
    """Java's order: static members by instance id, then the others by member id."""
    return (subscription.instance_id is None, subscription.instance_id or member)


def claimed_generation(subscription: Subscription) -> int:
    """In which generation a member got what it owns; older members say so in user data, after whatever is there."""
    data = subscription.user_data
    if subscription.generation != NO_GENERATION or data is None or len(data) < GENERATION_SIZE:
        return subscription.generation
    return int.from_bytes(data[-GENERATION_SIZE:], "big", signed=True)


class Claim(NamedTuple):
    """Somebody says that a partition is his."""

    generation: int
    member: str | None
    """None: two of the same generation say so, and neither is believed."""


def previous_owners(partition_counts: Mapping[str, int], members: Members) -> dict[TopicPartition, str]:
    """Who had each partition, as far as it still exists and he still wants it."""
    claims: dict[TopicPartition, Claim] = {}
    for member, subscription in members.items():
        generation = claimed_generation(subscription)
        wanted = set(subscription.topics)
        for key in subscription.owned:
            if key.topic not in wanted or not 0 <= key.partition < partition_counts.get(key.topic, 0):
                continue
            known = claims.get(key)
            if known is None or generation > known.generation:
                claims[key] = Claim(generation, member)
            elif generation == known.generation and known.member != member:
                claims[key] = Claim(generation, None)
    return {key: claim.member for key, claim in claims.items() if claim.member is not None}


class Balance:
    """A division under way: who has which partitions of which topic."""

    def __init__(self, partition_counts: Mapping[str, int], members: Members) -> None:
        self.previous = previous_owners(partition_counts, members)
        self.order = sorted(members, key=lambda member: rank(member, members[member]))
        self.takers: dict[str, list[str]] = {topic: [] for topic in partition_counts}
        for member in self.order:
            for topic in set(members[member].topics) & self.takers.keys():
                self.takers[topic].append(member)
        self.held: dict[str, dict[str, list[TopicPartition]]] = {member: {} for member in members}
        self.load = dict.fromkeys(members, 0)

    def give(self, key: TopicPartition, member: str) -> None:
        self.held[member].setdefault(key.topic, []).append(key)
        self.load[member] += 1

    def hand_on(self, topic: str, giver: str, taker: str) -> None:
        """One partition: rather one that comes home, or that was not the giver's before."""
        held = self.held[giver][topic]

        def reluctance(key: TopicPartition) -> tuple[int, int]:
            owner = self.previous.get(key)
            return (0 if owner == taker else 2 if owner == giver else 1, -key.partition)

        key = min(held, key=reluctance)
        held.remove(key)
        if not held:
            del self.held[giver][topic]
        self.load[giver] -= 1
        self.give(key, taker)

    def improve(self, start: str) -> bool:
        """Moves a partition from `start` along the shortest way to somebody with at least two fewer."""
        came_from: dict[str, tuple[str, str]] = {}
        seen = {start}
        queue = deque([start])
        while queue:
            giver = queue.popleft()
            reached = []
            for topic in sorted(self.held[giver]):
                for taker in self.takers[topic]:
                    if taker not in seen:
                        seen.add(taker)
                        came_from[taker] = (giver, topic)
                        reached.append(taker)
            best = min(reached, key=lambda member: self.load[member], default=None)
            if best is not None and self.load[best] <= self.load[start] - 2:
                while best != start:
                    giver, topic = came_from[best]
                    self.hand_on(topic, giver, best)
                    best = giver
                return True
            queue.extend(reached)
        return False


def sticky(partition_counts: Mapping[str, int], members: Members) -> Assignment:
    """The most even division, with as much as possible where it was."""
    balance = Balance(partition_counts, members)
    for topic in sorted(partition_counts):
        for number in range(partition_counts[topic]):
            key = TopicPartition(topic, number)
            if key in balance.previous:
                balance.give(key, balance.previous[key])
    for topic in sorted(partition_counts, key=lambda topic: (len(balance.takers[topic]), topic)):
        for number in range(partition_counts[topic]):
            key = TopicPartition(topic, number)
            if key not in balance.previous and balance.takers[topic]:
                balance.give(key, min(balance.takers[topic], key=lambda member: balance.load[member]))
    moving = True
    while moving:
        fullest_first = sorted(balance.order, key=lambda member: -balance.load[member])
        moving = any(balance.improve(member) for member in fullest_first)
    return {
        member: [key for topic in sorted(held) for key in sorted(held[topic])] for member, held in balance.held.items()
    }
