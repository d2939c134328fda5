"""Rebuild consumer groups (KIP-848) from their records in `__consumer_offsets`, in the order of the log.

Compaction keeps the newest record of each key at its offset. So a member's current assignment may come before the
member's own record.

Thread rule: belongs to the loading thread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kafkalite.broker.coordinator import consumer_records as stored
from kafkalite.broker.coordinator.consumer_state import ClassicMember, ConsumerMember, ConsumerState, MemberState

_STATES: Final = {int(state): state for state in MemberState}


class ConsumerReplay:
    """Collects records; `finish` returns the resulting groups."""

    def __init__(self) -> None:
        self._states: dict[str, ConsumerState] = {}
        self._described: set[tuple[str, str]] = set()

    def drop(self, group_id: str) -> None:
        """Drop the consumer group with this id, because a later record deletes it or makes it a classic group."""
        self._states.pop(group_id, None)
        self._described = {(group, member) for group, member in self._described if group != group_id}

    def take(self, kind: int, key: bytes, value: bytes | None) -> str | None:
        """Apply a record of a kind in KINDS. Return the group's id if the record proves that the group exists.
        CodecError.
        """
        group_id, member_id = stored.read_key(key)
        if kind == stored.TOPICS:
            return None
        if value is None:
            self._erase(kind, group_id, member_id)
            return None
        state = self._states.setdefault(group_id, ConsumerState())
        read = stored.read_value(kind, value)
        match read:
            case stored.GroupValue():
                state.epoch, state.metadata_hash = read.epoch, read.metadata_hash
            case stored.TargetValue():
                state.target_epoch = read.assignment_epoch
            case stored.TargetMemberValue():
                state.targets[member_id] = stored.assignment_of(read.topic_partitions)
            case stored.ExpressionValue():
                state.set_expression(member_id, frozenset(read.topics))
            case stored.MemberValue():
                self._described.add((group_id, member_id))
                state.put(_identified(self._member(state, member_id), read))
            case stored.CurrentValue():
                state.put(_positioned(self._member(state, member_id), read))
        return group_id

    def _erase(self, kind: int, group_id: str, member_id: str) -> None:
        state = self._states.get(group_id)
        if state is None:
            return
        if kind == stored.GROUP:
            self.drop(group_id)
        elif kind == stored.TARGET_MEMBER:
            state.targets.pop(member_id, None)
        elif kind == stored.EXPRESSION:
            state.set_expression(member_id, None)
        elif kind == stored.MEMBER:
            self._described.discard((group_id, member_id))
            if member_id in state.members:
                state.remove(member_id)
        elif kind == stored.CURRENT and member_id in state.members:
            state.put(_positioned(state.members[member_id], stored.CurrentValue()))

    @staticmethod
    def _member(state: ConsumerState, member_id: str) -> ConsumerMember:
        return state.members.get(member_id) or ConsumerMember(member_id=member_id)

    def finish(self) -> dict[str, ConsumerState]:
        """Return group id → state.

        An assignment that has no member is dropped: the broker died while it was deleting the member.
        """
        for group_id, state in self._states.items():
            for member_id in [name for name in state.members if (group_id, name) not in self._described]:
                state.remove(member_id)
            for member_id in state.targets.keys() - state.members.keys():
                del state.targets[member_id]
        return {group_id: state for group_id, state in self._states.items() if state.epoch > 0 or state.members}


def _identified(member: ConsumerMember, value: stored.MemberValue) -> ConsumerMember:
    classic = value.classic_member_metadata
    if classic is not None and not classic.supported_protocols:
        classic = None
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topics=frozenset(value.subscribed_topic_names),
        expression=value.subscribed_topic_regex or "",
        assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMember(
            classic.session_timeout_ms, tuple((item.name, item.metadata) for item in classic.supported_protocols)
        ),
    )


def _positioned(member: ConsumerMember, value: stored.CurrentValue) -> ConsumerMember:
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=_STATES.get(value.state, MemberState.UNKNOWN),
        assigned=stored.assignment_of(value.assigned_partitions),
        revoking=stored.assignment_of(value.partitions_pending_revocation),
        assignment_epochs=stored.epochs_of(value),
    )
