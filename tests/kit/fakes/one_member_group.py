"""A consumer group of one member, for tests of the client: who joins last is the member, and its leader.

Methods answer one request each; `code` other than 0 is what a Fault asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages import heartbeat, join_group, leave_group, offset_commit, offset_fetch, sync_group


@dataclass
class FakeGroup:
    node: int = 0
    """Where its coordinator is."""
    generation: int = 0
    member_id: str = ""
    assignment: bytes = b""
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    joins: list[Any] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    pending: set[str] = field(default_factory=set)

    def _refusal(self, node: int, request: Any) -> int:
        if node != self.node:
            return ErrorCode.NOT_COORDINATOR
        if request.member_id != self.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        generation = getattr(request, "generation_id", None)
        if generation is None:
            generation = request.generation_id_or_member_epoch
        return 0 if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def join(self, node: int, request: Any, code: int) -> Any:
        self.joins.append(request)
        code = code or (ErrorCode.NOT_COORDINATOR if node != self.node else 0)
        if not code and not request.member_id:
            name = f"member-{len(self.joins)}"
            self.pending.add(name)
            return join_group.JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=name)
        if not code and request.member_id != self.member_id and request.member_id not in self.pending:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code:
            return join_group.JoinGroupResponse(error_code=code, member_id=request.member_id)
        self.pending.discard(request.member_id)
        self.member_id = request.member_id
        self.generation += 1
        first = request.protocols[0]
        return join_group.JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=first.name,
            leader=self.member_id,
            member_id=self.member_id,
            members=[
                join_group.JoinGroupResponseMember(
                    member_id=self.member_id, group_instance_id=request.group_instance_id, metadata=first.metadata
                )
            ],
        )

    def sync(self, node: int, request: Any, code: int) -> Any:
        code = code or self._refusal(node, request)
        if not code:
            self.assignment = request.assignments[0].assignment
        return sync_group.SyncGroupResponse(error_code=code, assignment=b"" if code else self.assignment)

    def heartbeat(self, node: int, request: Any, code: int) -> Any:
        return heartbeat.HeartbeatResponse(error_code=code or self._refusal(node, request))

    def leave(self, node: int, request: Any, code: int) -> Any:
        self.left += [member.member_id for member in request.members]
        return leave_group.LeaveGroupResponse(error_code=code)

    def commit(self, node: int, request: Any, code: int) -> Any:
        code = code or self._refusal(node, request)
        for topic in request.topics if not code else ():
            for row in topic.partitions:
                self.offsets[topic.name, row.partition_index] = row.committed_offset
        return offset_commit.OffsetCommitResponse(
            topics=[
                offset_commit.OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        offset_commit.OffsetCommitResponsePartition(
                            partition_index=row.partition_index, error_code=code
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def fetch(self, node: int, request: Any, code: int) -> Any:
        moved = ErrorCode.NOT_COORDINATOR if node != self.node else 0
        return offset_fetch.OffsetFetchResponse(
            error_code=moved,
            topics=[
                offset_fetch.OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        offset_fetch.OffsetFetchResponsePartition(
                            partition_index=number,
                            committed_offset=-1 if code or moved else self.offsets.get((topic.name, number), -1),
                            error_code=code,
                        )
                        for number in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ],
        )
