"""Serve classic members of a consumer group (KIP-848), which use the classic protocol: JoinGroup, SyncGroup, Heartbeat.

    JoinGroup   changes a member as a ConsumerGroupHeartbeat does, and waits for no other member. The generation in
                the response is the member epoch
    SyncGroup   returns the assignment; there is no leader
    Heartbeat   returns REBALANCE_IN_PROGRESS when the member has to rejoin (`ConsumerState.must_join_again`)

A JoinGroup runs as an operation in a batch (`operation_queue`). A SyncGroup and a Heartbeat only set timers, so they
are answered at once from the durable state.

Thread rule: as in `base`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.base import randomness
from kafkalite.base.deferred import Deferred
from kafkalite.broker.coordinator.base import CONSUMER_PROTOCOL
from kafkalite.broker.coordinator.consumer_state import ClassicMember, ConsumerMember, MemberState, spoken_by
from kafkalite.broker.coordinator.conversion import by_topic_id, encoded
from kafkalite.broker.coordinator.members import Caller, Protocols, rebalance_timeout_ms
from kafkalite.broker.coordinator.membership import Recognised
from kafkalite.broker.coordinator.operation_queue import Operation
from kafkalite.errors import ErrorCode, InconsistentGroupProtocol, KafkaError
from kafkalite.wire.consumer_protocol import Subscription, decode_subscription
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.broker.coordinator.consumer_parts import ConsumerParts


class ClassicMembers:
    """Handles the requests of one group's classic members."""

    __slots__ = ("_changes", "_parts")

    def __init__(self, parts: ConsumerParts) -> None:
        self._parts = parts
        self._changes = parts.changes

    # --- join ---------------------------------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, caller: Caller, again: Callable[[], Deferred[JoinGroupResponse]] | None
    ) -> Deferred[JoinGroupResponse]:
        """Handle JoinGroup. The response waits until the changes are durable, and for no other member.

        `again` sends the request to the group that has replaced this group (see `Operation`).
        """
        answer: Deferred[JoinGroupResponse] = Deferred()
        operation = Operation(
            lambda: None,
            answer,
            lambda code, _text: JoinGroupResponse(error_code=code),
            lambda response: response.member_id if response.error_code == 0 else "",
            again,
            self._joined_locked,
        )
        operation.run = partial(self._run_join, request, caller, operation)
        self._parts.operations.ask(operation)
        return answer

    def _run_join(self, request: JoinGroupRequest, caller: Caller, operation: Operation) -> JoinGroupResponse | None:
        state, parts = self._changes.staged, self._parts
        if not state.members:  # the last member left while this was queued: the request is for a classic group
            operation.redirected = True
            return None
        member_id = request.member_id or randomness.uuid4()
        protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
        parts.membership.check_size(member_id)
        self._check_protocols(member_id, request.protocol_type, protocols)
        if not request.member_id and request.group_instance_id is None and caller.takes_member_id:
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        before = self._joining(member_id, request)
        try:
            subscription = decode_subscription(protocols[0][1])
        except ValueError as error:
            raise KafkaError(f"the subscription of member {member_id} is invalid: {error}") from error
        after = self._as_said(before.member, request, caller, subscription, protocols)
        parts.memory.charge(after, caller.holder)
        # No errors are raised from here on.
        ends_mixture = before.replaces is not None and self._speaks_alone(before.replaces)
        generation, settled = state.epoch, self._are_settled(before.replaces)
        owned = by_topic_id(subscription.owned, parts.consumers.topics())
        member, changed = parts.membership.update(before, after, owned)
        if ends_mixture and parts.downgrade.is_possible(()):
            # If all members have reached the target, none has to rejoin. A returning member is an exception.
            reason = (
                None
                if settled and not changed
                else "the last member that used ConsumerGroupHeartbeat was replaced by a classic member"
            )
            parts.downgrade.stage((), generation, reason)
        return JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=protocols[0][0],
            member_id=member_id,
        )

    def _check_protocols(self, member_id: str, protocol_type: str, protocols: Protocols) -> None:
        classic = [member for member in self._changes.staged.members.values() if member.classic is not None]
        shared = spoken_by(classic)
        speaks = bool(protocols) and (not classic or any(name in shared for name, _ in protocols))
        if protocol_type != CONSUMER_PROTOCOL or not speaks:
            raise InconsistentGroupProtocol(
                f"member {member_id} supports no protocol that all classic members of the group support"
            )

    def _joining(self, member_id: str, request: JoinGroupRequest) -> Recognised:
        """Return the joining member in its state before the request.

        A static member without a member id replaces the member that has its group.instance.id.
        """
        state, instance_id = self._changes.staged, request.group_instance_id
        known = state.members.get(member_id) or ConsumerMember(member_id=member_id)
        if instance_id is None:
            return Recognised(known)
        if request.member_id:
            return Recognised(self._parts.membership.find_static(state, instance_id, member_id))
        holder = state.members.get(state.static_ids.get(instance_id, ""))
        if holder is None:
            return Recognised(known)
        return Recognised(replace(holder, member_id=member_id, epoch=0, previous_epoch=0), holder)

    def _speaks_alone(self, member: ConsumerMember) -> bool:
        """Return whether a member is the only one that uses the consumer protocol."""
        return [other for other in self._changes.staged.members.values() if other.classic is None] == [member]

    def _are_settled(self, but: ConsumerMember | None) -> bool:
        """Return whether all members have reached the target assignment; `but` is not considered."""
        state = self._changes.staged
        others = [member for member in state.members.values() if member is not but]
        return state.epoch == state.target_epoch and all(member.arrived_at(state.epoch) for member in others)

    @staticmethod
    def _as_said(
        member: ConsumerMember, request: JoinGroupRequest, caller: Caller, said: Subscription, protocols: Protocols
    ) -> ConsumerMember:
        """Return a member with the data of a JoinGroup.

        It has no regular expression, since classic members list their topics.
        """
        return replace(
            member,
            instance_id=request.group_instance_id or member.instance_id,
            rack_id=said.rack or member.rack_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            topics=frozenset(said.topics),
            expression="",
            classic=ClassicMember(request.session_timeout_ms, protocols),
        )

    def _joined_locked(self, response: JoinGroupResponse) -> None:
        """Start the timeout for the member's SyncGroup, because its join is durable now."""
        member = self._changes.durable.members.get(response.member_id)
        if response.error_code == 0 and member is not None and member.classic is not None:
            self._parts.timers.await_sync(member)

    # --- sync and heartbeat -------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Handle SyncGroup; the response has the member's assignment."""
        with self._parts.group.changing():
            code = self._error_locked(request.member_id, request.group_instance_id, request.generation_id)
            if code:
                return SyncGroupResponse(error_code=code)
            durable, timers = self._changes.durable, self._parts.timers
            member = durable.members[request.member_id]
            assert member.classic is not None, "checked"
            name, metadata = member.classic.protocols[0]
            if request.protocol_type not in {None, CONSUMER_PROTOCOL} or request.protocol_name not in {None, name}:
                return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            # A member with partitions to revoke has joined already, and gets its assignment in any case.
            if durable.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
                timers.await_join(member)
                return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            timers.end_sync(member.member_id)
            timers.touch(member.member_id)
            return SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=encoded(member.assigned, self._parts.consumers.topics(), metadata),
            )

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Handle Heartbeat: extend the session; return REBALANCE_IN_PROGRESS if the member has to rejoin."""
        with self._parts.group.changing():
            code = self._error_locked(member_id, instance_id, generation)
            if code:
                return code
            durable, timers = self._changes.durable, self._parts.timers
            timers.touch(member_id)
            member = durable.members[member_id]
            if not durable.must_join_again(member):
                return 0
            timers.await_join(member)
            return ErrorCode.REBALANCE_IN_PROGRESS

    def _error_locked(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Return 0 if the member is a classic member and `generation` is its generation, else the error code."""
        if self._parts.operations.closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        state = self._changes.durable
        if instance_id is not None:
            try:
                self._parts.membership.find_static(state, instance_id, member_id)
            except KafkaError as error:
                return error.code
        member = state.members.get(member_id)
        if member is None or member.classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION
