"""Define the strategies with which a group leader assigns partitions to the members of a consumer group.

    range                 each topic is divided into ranges of adjacent partitions, one for each member
    cooperative-sticky    the partitions are spread evenly and keep their owners if possible (KIP-429)

Java consumers can be members of the same group: names, sort order and user data are those of Java's assignors. Any
member may become leader, so an assignment depends only on its input.

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
    """An assignment strategy. `cooperative`: members keep their partitions while they rejoin."""

    name: str
    cooperative: bool

    def assign(self, partition_counts: Mapping[str, int], members: Members) -> Assignment:
        """Return each member's partitions, sorted. A topic that is missing in `partition_counts` does not exist."""


class RangeAssignor:
    """Java's RangeAssignor, without racks. Topics with equal subscribers and partition counts are divided alike."""

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
    """Java's CooperativeStickyAssignor. A partition that moves is revoked in one rebalance and assigned in the next."""

    name = "cooperative-sticky"
    cooperative = True

    def assign(self, partition_counts: Mapping[str, int], members: Members) -> Assignment:
        assignment = sticky(partition_counts, members)
        owners: dict[TopicPartition, set[str]] = {}
        for member, subscription in members.items():
            for key in subscription.owned:
                owners.setdefault(key, set()).add(member)
        # A partition that another member still owns is assigned in the next rebalance, after it was revoked.
        return {
            member: sorted(key for key in keys if key not in owners or member in owners[key])
            for member, keys in assignment.items()
        }


ASSIGNORS: Final[dict[str, Assignor]] = {
    assignor.name: assignor for assignor in (RangeAssignor(), CooperativeStickyAssignor())
}


def user_data(assignor: Assignor, generation: int) -> bytes | None:
    """Return the user data of a subscription: the generation, which old leaders read only there."""
    return generation.to_bytes(GENERATION_SIZE, "big", signed=True) if assignor.cooperative else None


def rank(member: str, subscription: Subscription) -> tuple[bool, str]:
    """Return the sort key of a member, as in Java: first static members by instance id, then other members by member
    id.
    """
    return (subscription.instance_id is None, subscription.instance_id or member)


def claimed_generation(subscription: Subscription) -> int:
    """Return the generation in which a member owned its partitions. Older clients append it to their user data."""
    data = subscription.user_data
    if subscription.generation != NO_GENERATION or data is None or len(data) < GENERATION_SIZE:
        return subscription.generation
    return int.from_bytes(data[-GENERATION_SIZE:], "big", signed=True)


class Claim(NamedTuple):
    """A member's claim to own a partition."""

    generation: int
    member: str | None
    """None if two members of the same generation claim it; then neither keeps it."""


def previous_owners(partition_counts: Mapping[str, int], members: Members) -> dict[TopicPartition, str]:
    """Return each partition's previous owner. Deleted partitions, and partitions no longer subscribed to, are
    left out.

    If two members claim a partition, the claim of the later generation wins. If the generations are equal, the
    partition has no previous owner.
    """
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
    """An assignment in progress: the owner of each partition, by topic."""

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
        """Move one partition of a topic from `giver` to `taker`.

        Prefer a partition that returns to its previous owner, then a partition that is new to the giver.
        """
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
        """Move a partition from `start` along the shortest path to a member that has at least two fewer partitions.

        The path goes through other members if `start` has no partition of a topic to which that member subscribes.
        Repeated calls end, because each move lowers the sum of the squared counts.
        """
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
    """Return an assignment that is as even as possible, and moves few partitions from their previous owners.

    1. Members keep the partitions that they own.
    2. Each free partition goes to the subscribed member that has the fewest partitions.
    3. While a member has at least two partitions more than another, one partition is moved (`Balance.improve`).
    """
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
