"""Members that speak the classic protocol in a group of the newer one (KIP-848): joins, syncs, heartbeats.

    JoinGroup   says what a member reads and has; takes it one step towards its target. Its generation is its epoch
    SyncGroup   what it has now, as a leader would have said it; there is no leader
    Heartbeat   REBALANCE_IN_PROGRESS when another join would tell it something (`ConsumerState.must_join_again`)

A member that was told to join again, or has joined, and does not join or sync within its rebalance timeout is out; so
is one that is not heard of for its session timeout, which is its own.

A sync and a heartbeat change nothing and are answered at once, out of what is durable; a join is part of a turn.

Thread rule: as `base` says.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.base import randomness
from kafkalite.base.deferred import Deferred
from kafkalite.broker.coordinator.base import CONSUMER_PROTOCOL
from kafkalite.broker.coordinator.consumer_environment import Move
from kafkalite.broker.coordinator.consumer_state import ClassicMember, ConsumerMember, MemberState, spoken_by
from kafkalite.broker.coordinator.conversion import by_topic_id, encoded
from kafkalite.broker.coordinator.member_timers import NO_SYNC, MemberTimers
from kafkalite.broker.coordinator.members import Caller, Protocols, rebalance_timeout_ms
from kafkalite.broker.coordinator.membership import Recognised
from kafkalite.errors import ErrorCode, GroupMaxSizeReached, InconsistentGroupProtocol, KafkaError
from kafkalite.wire.consumer_protocol import Subscription, decode_subscription
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable


class ClassicMembers(MemberTimers):
    """What a group of the newer protocol does for its classic members."""

    def join(
        self, request: JoinGroupRequest, caller: Caller, again: Callable[[], Deferred[JoinGroupResponse]] | None = None
    ) -> Deferred[JoinGroupResponse]:
        """JoinGroup: answered when what it changed is durable; waits for nobody. `again`: see `Move`."""
        answer: Deferred[JoinGroupResponse] = Deferred()
        move = Move(
            lambda: None,
            answer,
            lambda code, _text: JoinGroupResponse(error_code=code),
            lambda response: response.member_id if response.error_code == 0 else "",
            again,
            ends=self._joined_locked,
        )
        move.play = partial(self._play_join, request, caller, move)
        self._ask(move)
        return answer

    def _play_join(self, request: JoinGroupRequest, caller: Caller, move: Move) -> JoinGroupResponse | None:
        state = self._staged
        if not state.members:  # the last one went while this waited: it is a classic group that is joined
            move.elsewhere = True
            return None
        member_id = request.member_id or randomness.uuid4()
        protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
        self._check_join(member_id, request.protocol_type, protocols)
        if not request.member_id and request.group_instance_id is None and caller.takes_member_id:
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        before = self._joining(member_id, request)
        try:
            subscription = decode_subscription(protocols[0][1])
        except ValueError as error:
            raise KafkaError(f"the subscription of member {member_id} is invalid: {error}") from error
        after = self._as_said(before.member, request, caller, subscription, protocols)
        self._check_memory(after, caller.holder)
        # From here on nothing is refused.
        replaced = state.members.get(before.replaces) if before.replaces else None
        ends_mixture = replaced is not None and self._speaks_alone(replaced)
        generation, settled = state.epoch, self._are_settled(replaced)
        changed = self._change(before.member, after, replaced)
        if self._staged.epoch > self._staged.target_epoch:
            self._assign()
        owned = by_topic_id(subscription.owned, self._consumers.topics())
        member = self._step(member_id, owned, subscription_changed=changed)
        if ends_mixture and self._may_become_classic(()):
            # Where all have what they are to have, nobody has to join again: not for one that came back.
            reason = None if settled and not changed else "the last one who heartbeats is a classic member now"
            self._become_classic((), generation, reason)
        return JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=protocols[0][0],
            member_id=member_id,
        )

    def _check_join(self, member_id: str, protocol_type: str, protocols: Protocols) -> None:
        members = self._staged.members
        if member_id not in members and len(members) >= self._consumers.size_max:
            raise GroupMaxSizeReached(f"group {self.group_id} has {len(members)} members and takes no more")
        classic = [member for member in members.values() if member.classic is not None]
        shared = spoken_by(classic)
        speaks = bool(protocols) and (not classic or any(name in shared for name, _ in protocols))
        if protocol_type != CONSUMER_PROTOCOL or not speaks:
            raise InconsistentGroupProtocol(f"{member_id} speaks no protocol that all classic members speak")

    def _joining(self, member_id: str, request: JoinGroupRequest) -> Recognised:
        """The member that joins, as it was; a static one without a member id takes its old place, whatever it spoke."""
        members, instance_id = self._staged.members, request.group_instance_id
        known = members.get(member_id) or ConsumerMember(member_id=member_id)
        if instance_id is None:
            return Recognised(known)
        holder = members.get(self._staged.static_ids.get(instance_id, ""))
        if request.member_id:
            self._check_holder(holder, instance_id, member_id)
            return Recognised(known)
        if holder is None:
            return Recognised(known)
        return Recognised(replace(holder, member_id=member_id, epoch=0, previous_epoch=0), holder.member_id)

    def _speaks_alone(self, member: ConsumerMember) -> bool:
        """Whether a member is the only one who heartbeats in the newer protocol."""
        return [other for other in self._staged.members.values() if other.classic is None] == [member]

    def _are_settled(self, but: ConsumerMember | None) -> bool:
        """Whether all but one have what they are to have."""
        state = self._staged
        others = [member for member in state.members.values() if member is not but]
        return state.epoch == state.target_epoch and all(member.arrived_at(state.epoch) for member in others)

    @staticmethod
    def _as_said(
        member: ConsumerMember, request: JoinGroupRequest, caller: Caller, said: Subscription, protocols: Protocols
    ) -> ConsumerMember:
        """A member with what a join says of it. An expression goes: classic members name all topics they read."""
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
        """A join is durable: its member has a rebalance timeout to sync."""
        member = self._durable.members.get(response.member_id)
        if response.error_code or member is None or member.classic is None:
            return
        self._end_wait(self._joins, member.member_id)
        timer = self._syncs.get(member.member_id)
        if timer is None:
            timer = self._wait_timer(member.member_id, self._syncs, NO_SYNC)
        timer.set(max(member.rebalance_timeout_ms, 0) / 1000)

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """SyncGroup: what the member has."""
        with self.changing():
            code = self._classic_error_locked(request.member_id, request.group_instance_id, request.generation_id)
            if code:
                return SyncGroupResponse(error_code=code)
            member = self._durable.members[request.member_id]
            assert member.classic is not None, "checked"
            name, metadata = member.classic.protocols[0]
            if request.protocol_type not in {None, CONSUMER_PROTOCOL} or request.protocol_name not in {None, name}:
                return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            # One that has partitions to give up has joined already: it is told so, whatever happened since.
            if self._durable.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
                self._await_join_locked(member)
                return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            self._end_wait(self._syncs, member.member_id)
            self._touch_locked(member.member_id)
            return SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=encoded(member.assigned, self._consumers.topics(), metadata),
            )

    def classic_heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Heartbeat: keeps the member; the code tells it whether to join again."""
        with self.changing():
            code = self._classic_error_locked(member_id, instance_id, generation)
            if code:
                return code
            self._touch_locked(member_id)
            member = self._durable.members[member_id]
            if not self._durable.must_join_again(member):
                return 0
            self._await_join_locked(member)
            return ErrorCode.REBALANCE_IN_PROGRESS

    def _classic_error_locked(self, member_id: str, instance_id: str | None, generation: int) -> int:
        if self._dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        state = self._durable
        if instance_id is not None:
            try:
                self._check_holder(state.members.get(state.static_ids.get(instance_id, "")), instance_id, member_id)
            except KafkaError as error:
                return error.code
        member = state.members.get(member_id)
        if member is None or member.classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION
