"""Charge the memory of each group member to the client that sent its metadata.

If there is not enough memory, a join or a larger subscription is refused with GROUP_MAX_SIZE_REACHED. Waiting would
not help, because members keep their memory until they leave. Members from the log are charged to no client.

Thread rule: guarded by the lock of the members' group.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafkalite._native.serve.memory import KIND_GROUPS
from kafkalite.base.logging import RepeatLogger
from kafkalite.errors import GroupMaxSizeReached

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite._native.serve.memory import Charge, MemoryCeiling
    from kafkalite.broker.coordinator.consumer_state import ConsumerMember, MemberChanges
    from kafkalite.broker.coordinator.members import Member, Protocols
    from kafkalite.broker.limits.holder import Holder

MEMBER_SIZE: Final = 2000
"""Bytes of a member besides the data from its client: ids, timers and their entries in tables."""
NAME_SIZE: Final = 100
"""Bytes of a name, besides its characters."""
PARTITION_SIZE: Final = 300
"""Bytes of an assigned partition: an entry in a set, its epoch, and an entry in the table of owners."""

_log: Final = RepeatLogger(logging.getLogger(__name__))


class MemberMemory:
    """The charges of one group's members, by member id."""

    __slots__ = ("_ceiling", "_charges", "_known")

    def __init__(self, ceiling: MemoryCeiling | None, before: MemberMemory | None = None) -> None:
        """Begin without charges. If `ceiling` is None, nothing is counted.

        If this group replaces another one and gets its members, `before` has the charges of the other group.
        """
        self._ceiling = ceiling
        self._charges: dict[str, tuple[Charge, Holder | None]] = {}
        self._known = {} if before is None else before.holders()

    def holders(self) -> dict[str, Holder | None]:
        """Return member id → the client that the member is charged to."""
        return {member_id: holder for member_id, (_, holder) in self._charges.items()}

    def admits(self, member_id: str, size: int, holder: Holder | None) -> bool:
        """Return whether there is room for a member of `size` bytes. A refusal is logged, at most once a minute."""
        if self._ceiling is None:
            return True
        found = self._charges.get(member_id)
        if found is not None:
            fits = found[0].may_become(size, lasting=True)
        else:
            fits = self._ceiling.of(holder).admits(size, lasting=True)
        if not fits:
            held = self._ceiling.of(holder).held
            _log.warning(
                "refused a group member: %s already holds %d bytes, and another %d would exceed broker.memory.max (%d)",
                holder,
                held,
                size,
                self._ceiling.size_max,
                kind="group member",
            )
        return fits

    def put(self, member_id: str, size: int, holder: Holder | None = None) -> None:
        """Charge a member for `size` bytes; a new member is charged to `holder`."""
        if self._ceiling is None:
            return
        found = self._charges.get(member_id)
        if found is not None:
            found[0].resize(size)
            return
        holder = holder or self._known.pop(member_id, None)
        self._charges[member_id] = self._ceiling.of(holder).charge(KIND_GROUPS, size), holder

    def rename(self, old_id: str, new_id: str) -> None:
        """Move the charge of a member to its new id."""
        found = self._charges.pop(old_id, None)
        if found is not None:
            self._charges[new_id] = found

    def drop(self, member_id: str) -> None:
        """Release a member's charge."""
        self._charges.pop(member_id, None)

    def keep(self, member_ids: Iterable[str]) -> None:
        """Keep the charges of these members, and release all others."""
        kept = frozenset(member_ids)
        for member_id in [known for known in self._charges if known not in kept]:
            self.drop(member_id)


class ConsumerMemory:
    """The charges of a consumer group's members.

    Charges are adjusted before a change of the group is staged, and again when the change is durable or discarded.
    """

    __slots__ = ("_memory",)

    def __init__(self, memory: MemberMemory) -> None:
        self._memory = memory

    def charge(self, member: ConsumerMember, holder: Holder | None) -> None:
        """Charge a member before it is staged; raise GroupMaxSizeReached if there is no memory for it."""
        size = consumer_size(member)
        if not self._memory.admits(member.member_id, size, holder):
            raise GroupMaxSizeReached(
                f"the client of member {member.member_id} holds too much broker memory (broker.memory.max)"
            )
        self._memory.put(member.member_id, size, holder)

    def update(self, changes: MemberChanges) -> None:
        """Adjust the charges to the changes of the durable state."""
        for member_id in changes.removed:
            self._memory.drop(member_id)
        for _, member in changes.updated:
            self._memory.put(member.member_id, consumer_size(member))

    def recount(self, members: Mapping[str, ConsumerMember]) -> None:
        """Charge only `members`, the members of the durable state, after staged changes were discarded."""
        self._memory.keep(members)
        for member in members.values():
            self._memory.put(member.member_id, consumer_size(member))

    def release(self) -> None:
        """Release the charges of all members."""
        self._memory.keep(())


def protocols_size(protocols: Protocols) -> int:
    """Return roughly how many bytes of memory the metadata of a classic member takes."""
    return sum(NAME_SIZE + len(name) + len(metadata) for name, metadata in protocols)


def classic_size(member: Member) -> int:
    """Return roughly how many bytes of memory a member of the classic protocol takes."""
    return MEMBER_SIZE + protocols_size(member.protocols) + len(member.assignment)


def consumer_size(member: ConsumerMember) -> int:
    """Return roughly how many bytes of memory a member of the consumer protocol takes."""
    names = sum(map(len, member.topics)) + NAME_SIZE * len(member.topics) + len(member.expression)
    partitions = sum(map(len, member.assigned.values())) + sum(map(len, member.revoking.values()))
    classic = 0 if member.classic is None else protocols_size(member.classic.protocols)
    return MEMBER_SIZE + names + PARTITION_SIZE * partitions + classic
