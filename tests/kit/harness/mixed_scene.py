"""A scripted group with members of both protocols, run against any broker, with each response as one line.

Ids appear as the names of members, and assignments as their number of partitions, since two brokers assign a topic
differently; so the lines of two brokers can be compared.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.wire.consumer_protocol import Subscription, decode_assignment, encode_assignment, encode_subscription
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import offset_commit as commits
from kafkalite.wire.protocol.messages import offset_fetch as fetches
from kafkalite.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from kafkalite.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkalite.wire.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafkalite.wire.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.kit.checkers.side_by_side import Side, comparable
from tests.kit.processes.broker import wait_until

TOPIC, COUNT = "orders", 6


@dataclass
class Member:
    """A member's own state."""

    name: str
    id: str = ""
    instance: str | None = None
    epoch: int = -1
    owned: list[int] = field(default_factory=list)
    eager: bool = False


class Scene:
    """One side, one group, and what was answered."""

    def __init__(self, side: Side, group: str) -> None:
        self.side, self.group = side, group
        self.members: dict[str, Member] = {}
        self.lines: list[str] = []

    def member(self, name: str, instance: str | None = None, *, eager: bool = False) -> Member:
        return self.members.setdefault(name, Member(name, instance=instance, eager=eager))

    def note(self, label: str, answer: Any) -> Any:
        told = repr(comparable(answer, self.side.ids))
        for member in self.members.values():
            if member.id:
                told = told.replace(f"'{member.id}'", f"<{member.name}>")
        self.lines.append(f"{label}: {told}")
        return answer

    def ask(self, label: str, key: int, version: int, request: object) -> Any:
        return self.note(label, self.side.ask(key, version, request))

    # --- classic members ----------------------------------------------------------------------------------------------

    def subscription(self, member: Member) -> bytes:
        owned = () if member.eager else tuple(TopicPartition(TOPIC, number) for number in member.owned)
        return encode_subscription(Subscription((TOPIC,), owned=owned, generation=member.epoch))

    def join_request(self, member: Member, **changed: Any) -> JoinGroupRequest:
        names = ("range",) if member.eager else ("cooperative-sticky", "range")
        protocols = [JoinGroupRequestProtocol(name=name, metadata=self.subscription(member)) for name in names]
        fields = {
            "group_id": self.group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member.id,
            "group_instance_id": member.instance,
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        return JoinGroupRequest(**{**fields, **changed})

    def join(self, name: str, version: int = 9, **changed: Any) -> Any:
        member = self.member(name)
        answer = self.side.ask(api.JOIN_GROUP, version, self.join_request(member, **changed))
        if answer.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED) and not changed:
            member.id = answer.member_id
        answer.members = sorted(row.member_id for row in answer.members)
        self.note(f"{name} joins", answer)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED and not changed:
            return self.join(name, version)
        if not answer.error_code and not changed:
            member.epoch = answer.generation_id
            if member.eager:
                member.owned = []
        return answer

    def sync(self, name: str, given: dict[str, list[int]] | None = None, **changed: Any) -> Any:
        member = self.member(name)
        fields = {
            "group_id": self.group,
            "generation_id": member.epoch,
            "member_id": member.id,
            "group_instance_id": member.instance,
            "protocol_type": "consumer",
            "protocol_name": "range" if member.eager else "cooperative-sticky",
            "assignments": [
                SyncGroupRequestAssignment(
                    member_id=self.members[to].id,
                    assignment=encode_assignment([TopicPartition(TOPIC, number) for number in numbers]),
                )
                for to, numbers in (given or {}).items()
            ],
        }
        answer = self.side.ask(api.SYNC_GROUP, 5, SyncGroupRequest(**{**fields, **changed}))
        if not answer.error_code:
            partitions = decode_assignment(answer.assignment)
            version = int.from_bytes(answer.assignment[:2], "big")
            assert {topic for topic, _ in partitions} <= {TOPIC}
            member.owned = sorted(number for _, number in partitions)
            answer.assignment = f"version {version}, {len(partitions)} partitions"
        return self.note(f"{name} syncs", answer)

    def heartbeat(self, name: str, **changed: Any) -> int:
        member = self.member(name)
        fields = {
            "group_id": self.group,
            "generation_id": member.epoch,
            "member_id": member.id,
            "group_instance_id": member.instance,
        }
        answer = self.side.ask(api.HEARTBEAT, 4, HeartbeatRequest(**{**fields, **changed}))
        return int(self.note(f"{name} heartbeats", answer).error_code)

    def leave(self, *names: str) -> None:
        rows = [MemberIdentity(member_id=self.member(name).id) for name in names]
        answer = self.side.ask(api.LEAVE_GROUP, 5, LeaveGroupRequest(group_id=self.group, members=rows))
        answer.members = [(name, row.error_code) for name, row in zip(names, answer.members, strict=True)]
        self.note(f"{names} leave", answer)

    def classic_group(self, leader: str, given: dict[str, list[int]]) -> None:
        """A stable classic group of one member or two."""
        self._join_first(leader)
        self.sync(leader, {leader: given[leader]})
        for name in given.keys() - {leader}:
            joins = threading.Thread(target=self._join_first, args=(name,))
            joins.start()
            wait_until(lambda: self._rebalances(leader), 30, "a rebalance")
            self.join(leader)
            joins.join()
            self.sync(leader, given)
            self.sync(name)
        self.lines.clear()

    def _join_first(self, name: str) -> None:
        """In a version that asks for no member id first: kafkalite keeps those for one connection."""
        member = self.member(name)
        answer = self.side.ask(api.JOIN_GROUP, 3 if member.instance is None else 9, self.join_request(member))
        assert answer.error_code == 0, answer
        member.id, member.epoch = answer.member_id, answer.generation_id

    def join_both(self, leader: str, other: str) -> None:
        """Two members of a classic group that rebalances; the first to come leads, and cuts the topic in halves."""
        joined: dict[str, Any] = {}
        for name in (leader, other):  # a member with an old generation gets that error first
            if self.heartbeat(name) == ErrorCode.ILLEGAL_GENERATION:
                self.member(name).epoch = -1
        threads = [threading.Thread(target=lambda n=n: joined.update({n: self.join(n)})) for n in (leader, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        half = COUNT // 2
        given = {leader: list(range(half)), other: list(range(half, COUNT))}
        for name in sorted((leader, other), key=lambda name: joined[name].leader != self.member(name).id):
            self.sync(name, given if joined[name].leader == self.member(name).id else None)

    def _rebalances(self, name: str) -> bool:
        member = self.member(name)
        request = HeartbeatRequest(group_id=self.group, generation_id=member.epoch, member_id=member.id)
        return bool(self.side.ask(api.HEARTBEAT, 4, request).error_code == ErrorCode.REBALANCE_IN_PROGRESS)

    # --- members of the newer protocol --------------------------------------------------------------------------------

    def beat(self, name: str, epoch: int | None = None, **changed: Any) -> Any:
        member = self.member(name)
        member.id = member.id or f"{self.group}-{name}"
        epoch = member.epoch if epoch is None else epoch
        rows = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=self.side.ids[TOPIC], partitions=member.owned)]
        fields: dict[str, Any] = {"topic_partitions": rows if member.owned else []}
        if epoch == 0:
            fields |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
        if epoch < 0:
            fields = {}
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=member.id,
            member_epoch=epoch,
            instance_id=member.instance,
            **{**fields, **changed},
        )
        answer = self.side.ask(api.CONSUMER_GROUP_HEARTBEAT, 1, request)
        if not answer.error_code:
            member.epoch = answer.member_epoch
        if not answer.error_code and answer.assignment is not None:
            member.owned = sorted(number for row in answer.assignment.topic_partitions for number in row.partitions)
            answer.assignment = f"{len(member.owned)} partitions"
        return self.note(f"{name} beats at {epoch}", answer)

    # --- others -------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        listed = self.side.ask(api.LIST_GROUPS, 5, ListGroupsRequest())
        listed.groups = [row for row in listed.groups if row.group_id == self.group]
        self.note("listed", listed)
        described = self.side.ask(api.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=[self.group]))
        for member in described.groups[0].members:
            member.member_id = next((m.name for m in self.members.values() if m.id == member.member_id), "?")
            for place in ("assignment", "target_assignment"):
                rows = getattr(member, place).topic_partitions
                setattr(member, place, sum(len(row.partitions) for row in rows))
        self.note("described", described)
        classic = self.side.ask(api.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=[self.group]))
        for row in classic.groups[0].members:
            row.member_id = next((m.name for m in self.members.values() if m.id == row.member_id), "?")
            row.member_metadata = b"some" if row.member_metadata else b""
            row.member_assignment = f"{len(decode_assignment(row.member_assignment))} partitions"
        self.note("described as classic", classic)

    def commit(self, name: str, version: int, epoch: int | None = None) -> None:
        member = self.member(name)
        rows = [commits.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
        topic = commits.OffsetCommitRequestTopic(
            name=TOPIC if version < 10 else "", topic_id=self.side.ids[TOPIC], partitions=rows
        )
        request = commits.OffsetCommitRequest(
            group_id=self.group,
            member_id=member.id,
            generation_id_or_member_epoch=member.epoch if epoch is None else epoch,
            topics=[topic],
        )
        self.ask(f"{name} commits v{version} {epoch}", api.OFFSET_COMMIT, version, request)

    def fetch(self, name: str, epoch: int | None = None) -> None:
        member = self.member(name)
        topic = fetches.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        group = fetches.OffsetFetchRequestGroup(
            group_id=self.group,
            member_id=member.id,
            member_epoch=member.epoch if epoch is None else epoch,
            topics=[topic],
        )
        self.ask(f"{name} fetches {epoch}", api.OFFSET_FETCH, 9, fetches.OffsetFetchRequest(groups=[group]))

    def settle(self, *names: str) -> None:
        """Members report in turn until each was answered twice that nothing is new."""
        quiet = 0
        for _ in range(30):
            for name in names:
                member = self.member(name)
                before = (member.epoch, list(member.owned))
                if name.startswith("new"):
                    self.beat(name)
                elif self.heartbeat(name) == ErrorCode.REBALANCE_IN_PROGRESS:
                    self.join(name)
                    self.sync(name)
                quiet = quiet + 1 if (member.epoch, member.owned) == before else 0
            if quiet >= 2 * len(names):
                return
        raise AssertionError(f"{names} do not settle")
