"""List, describe and delete consumer groups; read, set and delete committed offsets.

A call for one group sends its request to the group's coordinator. It is retried while the coordinator loads or is not
available.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.client.cluster import raise_for
from kafkalite.client.committed import (
    OFFSET_COMMIT_VERSION_MAX,
    OFFSET_FETCH_VERSION_MAX,
    CommittedOffset,
    committed_offsets,
    topics_to_commit,
)
from kafkalite.client.coordinators import Coordinator
from kafkalite.errors import ErrorCode
from kafkalite.model import OFFSET_LATEST, TopicPartition
from kafkalite.wire.consumer_protocol import decode_assignment
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkalite.wire.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.wire.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkalite.wire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from kafkalite.client.cluster import Cluster
    from kafkalite.client.committed import Offsets
    from kafkalite.client.connection import Connection

DEAD: Final = "Dead"
CLASSIC: Final = "classic"  # Kafka's name for the older group protocol (KIP-848), unrelated to Kafka 0.7
CONSUMER: Final = "consumer"
OFFSET_FETCH_GROUPS_VERSION: Final = 8
"""The first OffsetFetch version for several groups."""
GROUPS_A_REQUEST: Final = 100


class GroupListing(NamedTuple):
    """A group as ListGroups reports it.

    `protocol_type` is "consumer" for consumers, and empty if the group has only offsets. `kind` is "consumer" for
    groups of the newer protocol (KIP-848), and "classic" for groups of the older one and from old brokers.
    """

    group_id: str
    protocol_type: str
    state: str
    kind: str


class GroupProgress(NamedTuple):
    """A group and its committed offsets. `committed` is None if the broker refused to return them."""

    group: GroupListing
    committed: dict[TopicPartition, int] | None


class GroupMember(NamedTuple):
    """A member of a group. `partitions` is its assignment; empty if the assignment is not in a consumer's format."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group and its members. `protocol` is the assignor in use; `kind` as in GroupListing."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    kind: str


class GroupPartition(NamedTuple):
    """A partition that a group has committed or is assigned.

    `committed` is None without a committed offset, `end` without a leader, `lag` without both offsets, and `member` if
    no member has the partition.
    """

    partition: TopicPartition
    committed: int | None
    end: int | None
    lag: int | None
    member: GroupMember | None


class Groups:
    """Group administration, created by `Client.groups`."""

    def __init__(self, client: Cluster) -> None:
        self._client = client

    def list(self, states: Iterable[str] = ()) -> list[GroupListing]:
        """Return the groups of all brokers, sorted by name; with `states`, only groups in one of these states."""

        def ask() -> list[GroupListing]:
            found = []
            for broker in self._client.brokers():
                answer = self._client.connection_to(broker.node_id).request(
                    api.LIST_GROUPS, ListGroupsRequest(states_filter=list(states))
                )
                raise_for(answer.error_code, "the groups")
                found += [
                    GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type or CLASSIC)
                    for row in answer.groups
                ]
            return sorted(found)

        return self._client.with_retries(ask)

    def describe(self, group_id: str) -> GroupDescription:
        """Describe one group. Raises GroupIdNotFound."""

        def ask() -> GroupDescription:
            connection = self._coordinator(group_id)
            request = DescribeGroupsRequest(groups=[group_id])
            row = connection.request(api.DESCRIBE_GROUPS, request).groups[0]
            code = row.error_code
            if not code and row.group_state == DEAD:
                code = ErrorCode.GROUP_ID_NOT_FOUND
            if code == ErrorCode.GROUP_ID_NOT_FOUND and connection.supports(api.CONSUMER_GROUP_DESCRIBE):
                return self._describe_consumers(connection, group_id)
            raise_for(code, f"group {group_id}", row.error_message)
            members = tuple(
                GroupMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host.lstrip("/"),
                    assigned_partitions(member.member_assignment) if row.protocol_type == "consumer" else (),
                )
                for member in row.members
            )
            return GroupDescription(group_id, row.group_state, row.protocol_type, row.protocol_data, members, CLASSIC)

        return self._client.with_retries(ask)

    @staticmethod
    def _describe_consumers(connection: Connection, group_id: str) -> GroupDescription:
        """Describe a group of the newer protocol (KIP-848)."""
        request = ConsumerGroupDescribeRequest(group_ids=[group_id])
        row = connection.request(api.CONSUMER_GROUP_DESCRIBE, request).groups[0]
        raise_for(row.error_code, f"group {group_id}", row.error_message)
        members = tuple(
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host.lstrip("/"),
                tuple(
                    TopicPartition(topic.topic_name, number)
                    for topic in member.assignment.topic_partitions
                    for number in topic.partitions
                ),
            )
            for member in row.members
        )
        return GroupDescription(group_id, row.group_state, CONSUMER, row.assignor_name, members, CONSUMER)

    def delete(self, group_id: str) -> None:
        """Delete a group without members, with its offsets. Raises NonEmptyGroup, GroupIdNotFound."""

        def ask() -> None:
            answer = self._coordinator(group_id).request(
                api.DELETE_GROUPS, DeleteGroupsRequest(groups_names=[group_id])
            )
            raise_for(answer.results[0].error_code, f"group {group_id}")

        self._client.with_retries(ask)

    def committed(self, group_id: str, *, require_stable: bool = False) -> dict[TopicPartition, CommittedOffset]:
        """Return all committed offsets of a group; none if the group does not exist.

        With `require_stable`, wait while an open transaction may change an offset, as group members do (KIP-447).
        Raises UnstableOffsetCommit after `retry_timeout_s`.
        """

        def ask() -> dict[TopicPartition, CommittedOffset]:
            answer = self._coordinator(group_id).request(
                api.OFFSET_FETCH,
                OffsetFetchRequest(group_id=group_id, topics=None, require_stable=require_stable),
                version_max=OFFSET_FETCH_VERSION_MAX,
            )
            raise_for(answer.error_code, f"committed offsets of group {group_id}")
            found = {}
            for topic in answer.topics:
                for row in topic.partitions:
                    key = TopicPartition(topic.name, row.partition_index)
                    raise_for(row.error_code, str(key))
                    if row.committed_offset >= 0:
                        found[key] = CommittedOffset(
                            row.committed_offset, row.committed_leader_epoch, row.metadata or ""
                        )
            return found

        return self._client.with_retries(ask)

    def progress(self, names: Container[str] | None = None) -> tuple[GroupProgress, ...]:
        """Return every group with its committed offsets, sorted by name, or only the groups in `names`.

        One request covers many groups if the brokers support that.
        """

        def ask() -> tuple[GroupProgress, ...]:
            found: dict[str, GroupProgress] = {}
            for broker in self._client.brokers():
                connection = self._client.connection_to(broker.node_id)
                answer = connection.request(api.LIST_GROUPS, ListGroupsRequest())
                raise_for(answer.error_code, "the groups")
                rows = [row for row in answer.groups if names is None or row.group_id in names]
                offsets = committed_by_group(connection, [row.group_id for row in rows])
                for row in rows:
                    group = GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type or CLASSIC)
                    found[row.group_id] = GroupProgress(group, offsets.get(row.group_id))
            return tuple(found[name] for name in sorted(found))

        return self._client.with_retries(ask)

    def partitions(self, group: GroupDescription) -> tuple[GroupPartition, ...]:
        """Return the position of a group in each partition that it has committed or is assigned."""
        committed = self.committed(group.group_id)
        owners = {key: member for member in group.members for key in member.partitions}
        keys = sorted(committed.keys() | owners.keys())
        topics = self._client.described({key.topic for key in keys})
        led = {
            TopicPartition(name, row.partition)
            for name, topic in topics.items()
            for row in topic.partitions
            if row.leader >= 0
        }
        ends = self._client.list_offsets(dict.fromkeys([key for key in keys if key in led], OFFSET_LATEST))
        found = []
        for key in keys:
            offset = committed[key].offset if key in committed else None
            end = ends[key].offset if key in ends else None
            lag = None if offset is None or end is None else max(end - offset, 0)
            found.append(GroupPartition(key, offset, end, lag, owners.get(key)))
        return tuple(found)

    def commit(self, group_id: str, offsets: Offsets) -> None:
        """Set the offsets of a group without members. Raises UnknownMemberId if it has members."""

        def ask() -> None:
            answer = self._coordinator(group_id).request(
                api.OFFSET_COMMIT,
                OffsetCommitRequest(group_id=group_id, topics=topics_to_commit(committed_offsets(offsets))),
                version_max=OFFSET_COMMIT_VERSION_MAX,
            )
            for topic in answer.topics:
                for row in topic.partitions:
                    raise_for(row.error_code, f"group {group_id}, {topic.name}-{row.partition_index}")

        self._client.with_retries(ask)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the committed offsets of these partitions (KIP-496).

        Raises GroupIdNotFound, GroupSubscribedToTopic if a member of the group subscribes to one of the topics, and
        NonEmptyGroup if the members are not consumers. If the broker rejects one partition, the offsets of the other
        partitions are still deleted.
        """
        numbers: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for key in partitions:
            numbers.setdefault(key.topic, []).append(OffsetDeleteRequestPartition(partition_index=key.partition))
        topics = [OffsetDeleteRequestTopic(name=name, partitions=rows) for name, rows in numbers.items()]

        def ask() -> None:
            answer = self._coordinator(group_id).request(
                api.OFFSET_DELETE, OffsetDeleteRequest(group_id=group_id, topics=topics)
            )
            raise_for(answer.error_code, f"group {group_id}")
            for topic in answer.topics:
                for row in topic.partitions:
                    raise_for(row.error_code, f"group {group_id}, {topic.name}-{row.partition_index}")

        self._client.with_retries(ask)

    def _coordinator(self, group_id: str) -> Connection:
        """Return a connection to the coordinator of a group."""
        return Coordinator(self._client, group_id).connection()


def committed_by_group(connection: Connection, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Fetch the committed offsets of these groups from their coordinator.

    Groups that have moved, or that this client is not allowed to read, are left out.
    """
    found: dict[str, dict[TopicPartition, int]] = {}
    if not connection.knows(api.OFFSET_FETCH, OFFSET_FETCH_GROUPS_VERSION):
        for group in groups:
            answer = connection.request(
                api.OFFSET_FETCH,
                OffsetFetchRequest(group_id=group, topics=None),
                version_max=OFFSET_FETCH_VERSION_MAX,
            )
            if not answer.error_code:
                found[group] = offsets_in(answer.topics)
        return found
    for start in range(0, len(groups), GROUPS_A_REQUEST):
        named = groups[start : start + GROUPS_A_REQUEST]
        asked = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in named]
        answer = connection.request(
            api.OFFSET_FETCH, OffsetFetchRequest(groups=asked), version_max=OFFSET_FETCH_GROUPS_VERSION
        )
        found |= {row.group_id: offsets_in(row.topics) for row in answer.groups if not row.error_code}
    return found


def offsets_in(topics: Iterable[Any]) -> dict[TopicPartition, int]:
    """Return the committed offsets in an OffsetFetch response."""
    return {
        TopicPartition(topic.name, row.partition_index): row.committed_offset
        for topic in topics
        for row in topic.partitions
        if not row.error_code and row.committed_offset >= 0
    }


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Decode the partitions of a consumer's assignment; () if the bytes are not such an assignment."""
    try:
        return decode_assignment(assignment)
    except ValueError:
        return ()
