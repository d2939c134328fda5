"""What a group knows of one member, and of a client that asks to join.

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
"""What a member can do, best first: (name, metadata that only the clients understand)."""


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
    """It joined for the first time and does not know its id yet, so it cannot send heartbeats."""
    awaiting_join: Deferred[JoinGroupResponse] | None = field(default=None)
    awaiting_sync: Deferred[SyncGroupResponse] | None = field(default=None)

    def metadata(self, protocol: str | None) -> bytes:
        """What it said under a protocol's name."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Its favourite among protocols that everybody has."""
        return next(name for name, _ in self.protocols if name in candidates)

    def stored(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """As `__consumer_offsets` keeps it."""
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
    """Who asks to join, and what its version of JoinGroup understands."""

    client_id: str
    client_host: str
    takes_member_id: bool
    """v4+: a first join without an id is answered with one (KIP-394)."""
    skips_assignment: bool
    """v9+: a returning static leader is told to assign nothing (KIP-814)."""
    promised: Callable[[str], object] | None = None
    """Told of an id that was promised and is pending now."""
    holder: Holder | None = None
    """Whom a group or a pending id that this begins is charged to."""


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """v0 has none: the session's is meant."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The topics in a consumer's subscription (protocol type `consumer`): int16 version, then an array of strings.

    None when it is no such thing; whatever follows the topics is the clients' business.
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
