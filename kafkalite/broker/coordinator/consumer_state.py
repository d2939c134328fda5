"""Keep the state of a consumer group (KIP-848), and reconcile its members with their target assignments.

    group epoch          rises when members, subscriptions or their topics change
    assignment epoch     the group epoch for which the target assignment was computed
    member epoch         the assignment epoch that a member has reached

The first line that applies is the next step of a member that has not reached its target:

    it owns partitions outside its target       it is Unrevoked until it has revoked them
    its target has partitions of other owners   it gets the free ones, and is Unreleased until it has the others
    its target is free                          it gets its target, and is Stable

A partition has one owner at a time: the member to which it was assigned, until this member revokes it or leaves.

Thread rule: members are immutable. A state belongs to its group and is guarded by the group's lock. `reconciled` is a
pure function.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.dataclass import dataclass
from kafkalite.broker.coordinator import consumer_records as stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.coordinator.assignors import Assignment, Partition

AWAY_EPOCH: Final = -2
"""The member epoch of a static member that left temporarily."""


class MemberState(IntEnum):
    """A member's reconciliation state, numbered as in Kafka's records."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127


class ClassicMember(NamedTuple):
    """The data about a classic member that only the classic protocol has."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    def metadata(self) -> stored.ClassicMemberMetadata:
        """Return the classic metadata for the member's record of kind 5 (identity and subscription)."""
        return stored.ClassicMemberMetadata(
            session_timeout_ms=self.session_timeout_ms,
            supported_protocols=[stored.ClassicProtocol(name=name, metadata=data) for name, data in self.protocols],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member. Timeout in ms."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    expression: str = ""
    assignor: str | None = None
    classic: ClassicMember | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)
    assignment_epochs: stored.AssignmentEpochs = field(default_factory=dict)
    """Assignment epochs of the partitions in `assigned` and `revoking`."""

    def arrived_at(self, epoch: int) -> bool:
        """Return whether the member has exactly its target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def identity(self) -> stored.MemberValue:
        """Return the value of the member's record of kind 5 (identity and subscription)."""
        return stored.MemberValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topics),
            subscribed_topic_regex=self.expression,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=None if self.classic is None else self.classic.metadata(),
        )

    def position(self) -> stored.CurrentValue:
        """Return the value of the member's record of kind 8 (current assignment): epoch, state and partitions."""
        return stored.CurrentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=stored.current_partitions(self.assigned, self.assignment_epochs),
            partitions_pending_revocation=stored.current_partitions(self.revoking, self.assignment_epochs),
        )

    def holding(self, assigned: Assignment, revoking: Assignment, epoch: int) -> ConsumerMember:
        """Return the member with these partitions instead of its present ones.

        Newly assigned partitions get the assignment epoch `epoch`.
        """
        before, epochs = self.assignment_epochs, {}
        for topic, numbers in assigned.items():
            had = self.assigned.get(topic, frozenset())
            epochs[topic] = {n: before[topic][n] if n in had else epoch for n in numbers}
        for topic, numbers in revoking.items():
            epochs.setdefault(topic, {}).update((n, before[topic][n]) for n in numbers)
        return replace(self, assigned=assigned, revoking=revoking, assignment_epochs=epochs)

    def away(self) -> ConsumerMember:
        """Return this static member in the state after it left temporarily.

        It keeps its partitions, with assignment epoch 0.
        """
        return replace(self, epoch=AWAY_EPOCH, assigned={}).holding(self.assigned, {}, 0)


def partitions_in(*assignments: Assignment) -> Iterator[Partition]:
    """Yield every partition of some assignments."""
    for assignment in assignments:
        for topic, numbers in assignment.items():
            for number in numbers:
                yield topic, number


def contains(assignment: Assignment, part: Assignment) -> bool:
    """Return whether `assignment` includes all partitions of the assignment `part`."""
    return all(numbers <= assignment.get(topic, frozenset()) for topic, numbers in part.items())


class MemberChanges(NamedTuple):
    """The members that differ between two states of a group."""

    removed: AbstractSet[str]
    """Member ids."""
    updated: list[tuple[ConsumerMember | None, ConsumerMember]]
    """A member before and after; before is None for a new member."""


class ConsumerState:
    """The state of a group without its offsets."""

    def __init__(self) -> None:
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.owners: dict[Partition, str] = {}
        self.static_ids: dict[str, str] = {}
        self.expressions: dict[str, frozenset[str]] = {}
        """Regular expression → the topics it matches."""
        self._subscribed: frozenset[str] | None = None

    def copy(self) -> ConsumerState:
        """Return an independent copy."""
        copy = ConsumerState()
        copy.epoch, copy.metadata_hash, copy.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        copy.members, copy.targets = dict(self.members), dict(self.targets)
        copy.owners, copy.static_ids = dict(self.owners), dict(self.static_ids)
        copy.expressions = dict(self.expressions)
        copy._subscribed = self._subscribed
        return copy

    def changes_since(self, before: ConsumerState) -> MemberChanges:
        """Return the members that were removed, added or changed since an earlier state."""
        updated: list[tuple[ConsumerMember | None, ConsumerMember]] = []
        for member_id, member in self.members.items():
            old = before.members.get(member_id)
            if old is not member:
                updated.append((old, member))
        return MemberChanges(before.members.keys() - self.members.keys(), updated)

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or replace it."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._disown(before)
        self.members[member.member_id] = member
        for partition in partitions_in(member.assigned, member.revoking):
            self.owners[partition] = member.member_id
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        self._subscribed = None

    def remove(self, member_id: str) -> None:
        """Remove a member and its target assignment."""
        member = self.members.pop(member_id)
        self.targets.pop(member_id, None)
        self._disown(member)
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member_id:
            del self.static_ids[member.instance_id]
        self._subscribed = None

    def _disown(self, member: ConsumerMember) -> None:
        for partition in partitions_in(member.assigned, member.revoking):
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]

    def set_expression(self, expression: str, topics: frozenset[str] | None) -> None:
        """Set the topics that an expression matches; None if no member uses the expression any more."""
        if topics is None:
            self.expressions.pop(expression, None)
        else:
            self.expressions[expression] = topics
        self._subscribed = None

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics to which a member subscribes, by name or expression. Some of them might not
        exist.
        """
        return member.topics | self.expressions.get(member.expression, frozenset())

    def subscribed(self) -> frozenset[str]:
        """Return the topic names that any member subscribes to."""
        if self._subscribed is None:
            self._subscribed = frozenset().union(*(self.topics_of(member) for member in self.members.values()))
        return self._subscribed

    def uses(self, expression: str) -> bool:
        """Return whether any member subscribes by this expression."""
        return any(member.expression == expression for member in self.members.values())

    def must_join_again(self, member: ConsumerMember) -> bool:
        """Return whether a classic member has to rejoin.

        It has to if the group epoch is above its own, if it has partitions to revoke, or if all partitions for
        which it waits are free.
        """
        if member.epoch < self.epoch or member.state is MemberState.UNREVOKED:
            return True
        return member.state is MemberState.UNRELEASED and not self._waits_for_others(member)

    def _waits_for_others(self, member: ConsumerMember) -> bool:
        """Return whether another member still has a partition of this member's target."""
        missing = set(partitions_in(self.targets.get(member.member_id, {}))) - set(partitions_in(member.assigned))
        return not missing.isdisjoint(self.owners)

    def assignor(self, default: str) -> str:
        """Return the name of the assignor that most members request; `default` if they request none."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return min(votes, key=lambda name: (-votes[name], name)) if votes else default

    @property
    def name(self) -> str:
        """Return Kafka's name for the group's state."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        arrived = all(member.arrived_at(self.target_epoch) for member in self.members.values())
        return "Stable" if arrived else "Reconciling"


def spoken_by(members: Iterable[ConsumerMember]) -> set[str]:
    """Return the classic protocols that every classic member in `members` supports."""
    spoken = [{name for name, _ in member.classic.protocols} for member in members if member.classic is not None]
    return set.intersection(*spoken) if spoken else set()


def topic_ids(names: Iterable[str], topics: Mapping[str, Topic]) -> frozenset[bytes]:
    """Return the ids of the topics in `names` that exist."""
    return frozenset(topics[name].id for name in names if name in topics)


def reconciled(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Assignment,
    owners: Mapping[Partition, str],
    readable: frozenset[bytes],
    owned: Assignment | None,
    subscription_changed: bool,
) -> ConsumerMember:
    """Return the member after its next step towards its target; the same object if no step is possible now.

    `owned` has the partitions that the client reports as owned; None if its request lacks this list. `readable` has the
    ids of the member's subscribed topics. Partitions of other topics are revoked at once, even if they are in the
    target.
    """
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return _without_unread(member, readable, owned) if subscription_changed else member
    if member.state is MemberState.UNREVOKED and _still_has(owned, member.revoking):
        return _without_unread(member, readable, owned) if subscription_changed else member
    wanted = {topic: numbers for topic, numbers in target.items() if topic in readable}
    kept, revoking, taken, missing = {}, {}, {}, False
    for topic in wanted.keys() | member.assigned.keys():
        has = member.assigned.get(topic, frozenset())
        wants = wanted.get(topic, frozenset())
        keeps = has & wants
        free = frozenset(n for n in wants - has if owners.get((topic, n), member.member_id) == member.member_id)
        missing = missing or free != wants - has
        kept[topic], revoking[topic], taken[topic] = keeps, has - keeps, keeps | free
    revoking = _filled(revoking)
    if revoking and _still_has(owned, revoking):
        # A member that has revoked its partitions and has to revoke more advances by one epoch.
        epoch = member.epoch + (member.state is MemberState.UNREVOKED)
        return _moved(member, MemberState.UNREVOKED, epoch, member.holding(_filled(kept), revoking, target_epoch))
    state = MemberState.UNRELEASED if missing else MemberState.STABLE
    return _moved(member, state, target_epoch, member.holding(_filled(taken), {}, target_epoch))


def _moved(member: ConsumerMember, state: MemberState, epoch: int, holder: ConsumerMember) -> ConsumerMember:
    moved = replace(holder, state=state, epoch=epoch)
    return member if moved == member else replace(moved, previous_epoch=member.epoch)


def _without_unread(member: ConsumerMember, readable: frozenset[bytes], owned: Assignment | None) -> ConsumerMember:
    """Revoke the partitions of topics to which a member no longer subscribes, before there is a new target."""
    unread = {topic: numbers for topic, numbers in member.assigned.items() if topic not in readable}
    if not unread:
        return member
    kept = {topic: numbers for topic, numbers in member.assigned.items() if topic in readable}
    revoking = dict(member.revoking)
    for topic, numbers in unread.items():
        revoking[topic] = revoking.get(topic, frozenset()) | numbers
    if _still_has(owned, revoking):
        return _moved(member, MemberState.UNREVOKED, member.epoch, member.holding(kept, revoking, member.epoch))
    return _moved(member, member.state, member.epoch, member.holding(kept, {}, member.epoch))


def _still_has(owned: Assignment | None, given_up: Assignment) -> bool:
    """Return whether the client still owns, or may own, a partition that it has to revoke."""
    return owned is None or any(numbers & given_up.get(topic, frozenset()) for topic, numbers in owned.items())


def _filled(assignment: Mapping[bytes, frozenset[int]]) -> Assignment:
    return {topic: numbers for topic, numbers in assignment.items() if numbers}
