"""Define a member of a classic group (`Member`), and the client of a JoinGroup request (`Caller`).

Thread rule: belongs to its group and is guarded by the group's lock.
"""

from __future__ import annotations

import struct
from dataclasses import field
from typing import TYPE_CHECKING

from kafkalite.base.dataclass import dataclass
from kafkalite.broker.coordinator.records import MemberMetadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.coordinator.timer_queue import Timer
    from kafkalite.broker.limits.holder import Holder
    from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from kafkalite.wire.protocol.messages.sync_group import SyncGroupResponse

Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols in order of preference: (name, metadata that only the clients understand)."""


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One member. Timeouts in ms."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    session_timer: Timer
    assignment: bytes = b""
    is_new: bool = False
    """Whether the member's first join is waiting: the client does not know its member id yet, so it cannot send
    heartbeats."""
    awaiting_join: Deferred[JoinGroupResponse] | None = field(default=None)
    awaiting_sync: Deferred[SyncGroupResponse] | None = field(default=None)

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not support the protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the protocol in `candidates` that the member prefers."""
        return next(name for name, _ in self.protocols if name in candidates)

    def stored(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """Return the member's part of the group's record."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """The client that sends a JoinGroup, and what its version of the request supports."""

    client_id: str
    client_host: str
    takes_member_id: bool
    """v4+: a first join without a member id is answered with a member id (KIP-394)."""
    skips_assignment: bool
    """v9+: the response can tell a returning static leader to skip the assignment (KIP-814)."""
    promised: Callable[[str], object] | None = None
    """Called with a member id that was issued and is pending now."""
    holder: Holder | None = None
    """The client that a new group or pending id is charged to."""


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Return the rebalance timeout in a JoinGroup, in ms. Version 0 of the request has none, so its session timeout is
    used.
    """
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """Return the topics in a consumer's subscription (protocol type `consumer`).

    The format is: int16 version, then a string array. Bytes after the topics are ignored. None if the metadata cannot
    be decoded.
    """
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        position = 6
        if not 0 <= count <= (len(metadata) - position) // 2:
            return None
        topics = set()
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, position)
            position += 2
            if not 0 <= size <= len(metadata) - position:
                return None
            topics.add(metadata[position : position + size].decode())
            position += size
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
