"""Convert a group with members between the classic protocol and the consumer protocol (KIP-848).

    upgrade     classic group  ─▶ consumer group    when a first member joins with the consumer protocol
    downgrade   consumer group ─▶ classic group     when the last member with the consumer protocol is gone

The new group has the committed offsets of the old group, and the commits that are still being written (`base`).

Thread rule: the functions have no state. They are called under the group's lock.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator import consumer_records as stored
from kafkalite.broker.coordinator.consumer_state import ClassicMember, ConsumerMember, ConsumerState
from kafkalite.broker.coordinator.group import Group, Inherited
from kafkalite.errors import GroupIdNotFound
from kafkalite.model import TopicPartition
from kafkalite.wire.consumer_protocol import (
    assigned_user_data,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.coordinator.assignors import Assignment, Partition
    from kafkalite.broker.coordinator.base import Environment, GroupBase
    from kafkalite.broker.coordinator.members import Member
    from kafkalite.broker.coordinator.metadata_hash import MetadataHashes
    from kafkalite.broker.coordinator.records import Record

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)


def upgraded(group: Group, topics: Mapping[str, Topic], hashes: MetadataHashes) -> ConsumerState:
    """Return the state of the consumer group that a classic group becomes. GroupIdNotFound if it cannot be
    converted.

    The last assignment of each member becomes its current assignment and its target assignment; without one, a member
    keeps the partitions that it reported. The generation becomes the group epoch and the epoch of every member.
    """
    state = ConsumerState()
    state.epoch = state.target_epoch = group.generation
    holding: list[tuple[ConsumerMember, Assignment]] = []
    for member in group.members.values():
        try:
            mixed, owned = _upgraded(member, group, topics)
        except ValueError as error:
            raise not_converted(
                group, f"the metadata or assignment of member {member.member_id} is malformed"
            ) from error
        state.put(mixed)
        if not member.assignment and owned:
            holding.append((mixed, owned))
    for mixed, owned in holding:  # the rebalance ended before it assigned anything: members keep their partitions
        state.put(mixed.holding(_without(owned, state.owners), {}, state.epoch))
    state.targets = {member_id: member.assigned for member_id, member in state.members.items()}
    state.metadata_hash = hashes.of_topics(state.subscribed(), topics)
    return state


def not_converted(group: Group, why: str) -> GroupIdNotFound:
    """Return the error for a classic group that cannot be converted to a consumer group."""
    return GroupIdNotFound(f"classic group {group.group_id} cannot be converted: {why}")


def _upgraded(member: Member, group: Group, topics: Mapping[str, Topic]) -> tuple[ConsumerMember, Assignment]:
    """Return (a classic group's member as a member of a consumer group, the partitions that it reported as owned).

    The member reported them when it joined. If it joined after the group's protocol was chosen, it may not support that
    protocol; its first protocol is used then. ValueError if its metadata is malformed; GroupIdNotFound if its
    assignment has user data.
    """
    spoken = {name for name, _ in member.protocols}
    metadata = member.metadata(group.protocol) if group.protocol in spoken else member.protocols[0][1]
    subscription = decode_subscription(metadata)
    if assigned_user_data(member.assignment):
        raise not_converted(group, "its client-side assignor uses user data, which would be lost")
    mixed = ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack or None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
    )
    assigned = by_topic_id(decode_assignment(member.assignment), topics)
    mixed = mixed.holding(assigned, {}, group.generation)
    return mixed, by_topic_id(subscription.owned, topics)


def _without(assignment: Assignment, taken: Collection[Partition]) -> Assignment:
    left = {topic: frozenset(n for n in numbers if (topic, n) not in taken) for topic, numbers in assignment.items()}
    return {topic: numbers for topic, numbers in left.items() if numbers}


def by_topic_id(partitions: Iterable[TopicPartition], topics: Mapping[str, Topic]) -> Assignment:
    """Return topic id → partitions. Topics and partitions that do not exist are left out."""
    found: dict[bytes, set[int]] = {}
    for name, number in partitions:
        topic = topics.get(name)
        if topic is not None and 0 <= number < len(topic.partitions):
            found.setdefault(topic.id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}


def encoded(assignment: Assignment, topics: Mapping[str, Topic], metadata: bytes) -> bytes:
    """Encode an assignment for a classic member, in the version that its subscription `metadata` has."""
    names = sorted((topic.name, topic.id) for topic in topics.values() if topic.id in assignment)
    partitions = [TopicPartition(name, number) for name, topic_id in names for number in sorted(assignment[topic_id])]
    try:
        version = version_of(metadata)
    except ValueError:  # of a protocol that was never looked at before: any version's assignment has these fields
        version = 0
    return encode_assignment(partitions, version)


def creation_records(group_id: str, state: ConsumerState) -> list[Record]:
    """Return the records that describe a whole group, in Kafka's order."""
    members = state.members.values()
    records = [stored.record(group_id, member.member_id, member.identity()) for member in members]
    value = stored.GroupValue(epoch=state.epoch, metadata_hash=state.metadata_hash)
    records.append(stored.record(group_id, "", value))
    for member_id, target in state.targets.items():
        given = stored.TargetMemberValue(topic_partitions=stored.topic_partitions(target))
        records.append(stored.record(group_id, member_id, given))
    records.append(stored.record(group_id, "", stored.TargetValue(assignment_epoch=state.target_epoch)))
    return records + [stored.record(group_id, member.member_id, member.position()) for member in members]


def erasing_records(group_id: str, state: ConsumerState) -> list[Record]:
    """Return the tombstones that delete a whole group, in Kafka's order."""
    records = [
        stored.tombstone(kind, group_id, member_id)
        for kind in (stored.CURRENT, stored.TARGET_MEMBER)
        for member_id in state.members
    ]
    records.append(stored.tombstone(stored.TARGET, group_id))
    records += [stored.tombstone(stored.MEMBER, group_id, member_id) for member_id in state.members]
    records += [stored.tombstone(stored.EXPRESSION, group_id, text) for text in state.expressions]
    records.append(stored.tombstone(stored.GROUP, group_id))
    return records


def downgraded(
    state: ConsumerState,
    gone: Collection[str],
    generation: int,
    predecessor: GroupBase,
    environment: Environment,
    topics: Mapping[str, Topic],
) -> Group:
    """Return the classic group that a consumer group becomes, without the members in `gone`.

    All remaining members use the classic protocol. Each member's target assignment becomes its assignment. The group is
    Stable and has no timers until `Group.begin_locked`.
    """
    group = Group(predecessor.group_id, environment, predecessor)
    inherited = []
    for member in state.members.values():
        if member.member_id in gone:
            continue
        assert member.classic is not None, "one who heartbeats cannot be in a classic group"
        inherited.append(
            Inherited(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                member.classic.protocols,
            )
        )
    group.inherit_locked(generation, inherited)
    for heir in group.members.values():
        target = state.targets.get(heir.member_id, {})
        heir.assignment = encoded(target, topics, heir.metadata(group.protocol))
    logger.info(
        "consumer group downgraded to a classic group", extra=fields(group=group.group_id, members=len(inherited))
    )
    return group
