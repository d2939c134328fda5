"""One group of the newer protocol (KIP-848): members say what they read, the broker says who reads what.

    Empty ──join──▶ Assigning ──target made──▶ Reconciling ──all arrived──▶ Stable      (Dead: deleted or taken over)

A heartbeat makes the target assignment when the group epoch is ahead of it, and takes its member one step towards its
target (`consumer_state.reconciled`). A member that does not give up in time what it has to, or is not heard of, is out.
What a heartbeat changes is part of a turn (`consumer_turns`), and answered when that is durable.

Thread rule: as `base` says. Turns run under the lock, on the thread of whoever came, or on the I/O pool.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafkalite.base import randomness
from kafkalite.base.dataclass import dataclass
from kafkalite.base.deferred import Deferred
from kafkalite.broker.coordinator import topic_regex
from kafkalite.broker.coordinator.base import CONSUMER_PROTOCOL
from kafkalite.broker.coordinator.classic_members import ClassicMembers
from kafkalite.broker.coordinator.consumer_state import AWAY_EPOCH, ConsumerMember, ConsumerState, MemberState, contains
from kafkalite.broker.coordinator.consumer_turns import Move, Recognised
from kafkalite.broker.coordinator.conversion import creation_records, erasing_records
from kafkalite.broker.coordinator.member_memory import consumer_size
from kafkalite.errors import (
    ErrorCode,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    KafkaError,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import (
    Assignment as AnsweredAssignment,
)
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.broker.coordinator.assignors import Assignment
    from kafkalite.broker.coordinator.base import Environment, GroupBase
    from kafkalite.broker.coordinator.consumer_turns import ConsumerEnvironment, Describes
    from kafkalite.broker.coordinator.group import Group
    from kafkalite.broker.coordinator.group_offsets import Committed
    from kafkalite.broker.coordinator.records import Record
    from kafkalite.broker.coordinator.timer_queue import Timer
    from kafkalite.broker.limits.holder import Holder

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
COMMIT_VERSION_MIN: Final = 9


@dataclass(frozen=True, slots=True)
class HeartbeatCaller:
    """Who sends a heartbeat."""

    client_id: str
    client_host: str
    describes: Describes | None = None
    holder: Holder | None = None
    """Whom a group that this begins is charged to."""


class ConsumerGroup(ClassicMembers):
    """One group of the newer protocol and its committed offsets."""

    kind: ClassVar[str] = "consumer"
    protocol_type = CONSUMER_PROTOCOL

    def __init__(
        self,
        group_id: str,
        environment: Environment,
        consumers: ConsumerEnvironment,
        predecessor: GroupBase | None = None,
        preface: list[Record] | None = None,
    ) -> None:
        super().__init__(group_id, environment, consumers, predecessor, preface)
        self._sessions: dict[str, Timer] = {}
        self._revocations: dict[str, Timer] = {}

    def __repr__(self) -> str:
        state = self._durable
        return f"<ConsumerGroup {self.group_id!r} {self.state_name}, {len(state.members)} members, epoch {state.epoch}>"

    # --- what others see ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """What is durable. Read it under the lock, or for a glance."""
        return self._durable

    @property
    def state_name(self) -> str:
        return "Dead" if self._dead else self._durable.name

    @property
    def dead(self) -> bool:
        return self._dead

    @property
    def member_count(self) -> int:
        return len(self._durable.members)

    @property
    def empty(self) -> bool:
        return not (self._dead or self._staged.members or self._durable.members or self._queue or self._writing)

    @property
    def expendable(self) -> bool:
        return self.empty

    @property
    def assigns_next(self) -> bool:
        """Whether the next heartbeat has to make a target assignment, which may take a while."""
        return self._staged.epoch > self._staged.target_epoch

    def assignor_locked(self) -> str:
        """The assignor in use."""
        return self._durable.assignor(self._consumers.assignors[0])

    def commit_error_locked(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        version: int = 9,
        *,
        transactional: bool = False,
    ) -> int:
        """Why these may not commit now, 0 when they may: the epoch has to be the member's own, or the generation.

        Without epoch it is an administrator or a consumer outside the protocol: fine as long as nobody is in the group.
        """
        if self._dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and not self._staged.members:
            return 0
        if transactional and generation < 0 and not member_id and instance_id is None:
            return 0
        member = self._staged.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        classic = member.classic is not None
        if version < COMMIT_VERSION_MIN and not transactional and not classic:
            return ErrorCode.UNSUPPORTED_VERSION
        if generation == member.epoch:
            return 0
        return ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH

    def fetch_error_locked(self, member_id: str | None, member_epoch: int) -> int:
        if self._dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not member_id and member_epoch < 0:
            return 0
        member = self._durable.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.epoch:
            return 0
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    def offset_delete_error_locked(self) -> int:
        return ErrorCode.GROUP_ID_NOT_FOUND if self._dead else 0

    def subscribes_locked(self, topic: str) -> bool:
        return topic in self._staged.subscribed()

    def kept_since_locked(self, topic: str, committed: Committed) -> int | None:
        return None if self.subscribes_locked(topic) else committed.commit_ms

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: HeartbeatCaller,
        again: Callable[[], Deferred[ConsumerGroupHeartbeatResponse]] | None = None,
    ) -> Deferred[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat, whose fields the handler has checked; answered when what it changed is durable.

        `again`: see `Move`.
        """
        answer: Deferred[ConsumerGroupHeartbeatResponse] = Deferred()
        self._ask(Move(lambda: self._play_heartbeat(request, caller), answer, refusal, _member_of, again))
        return answer

    def _play_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller
    ) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch in (LEAVE_EPOCH, AWAY_EPOCH):
            return self._play_leave(request)
        state = self._staged
        owned = None
        if request.topic_partitions is not None:
            owned = {row.topic_id: frozenset(row.partitions) for row in request.topic_partitions}
        member_id = request.member_id or randomness.uuid4()
        if member_id not in state.members and len(state.members) >= self._consumers.size_max:
            raise GroupMaxSizeReached(f"group {self.group_id} has {len(state.members)} members and takes no more")
        before = self._recognised(request, member_id, owned)
        after = self._described(request, caller, before)
        if after.expression and after.expression not in state.expressions:
            topic_regex.check(after.expression)
        if after != before.member or before.replaces:
            self._check_memory(after, caller.holder)
        # From here on nothing is refused.
        if after.expression and caller.describes is not None:
            self._show_to(after.expression, caller.describes)
        replaced = state.members.get(before.replaces) if before.replaces else None
        changed = self._change(before.member, after, replaced)
        if self._staged.epoch > self._staged.target_epoch:
            self._assign()
        member = self._step(member_id, owned, subscription_changed=changed)
        full = request.rebalance_timeout_ms != -1 and owned is not None
        full = full and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        tell = request.member_epoch == JOIN_EPOCH or full or member.assigned != before.member.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._consumers.timing(self.group_id).heartbeat_interval_ms,
            assignment=answered(member.assigned) if tell else None,
        )

    def _recognised(
        self, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Assignment | None
    ) -> Recognised:
        """The member that sent a heartbeat, as it was; raises when it may not go on as what it says it is."""
        state = self._staged
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = state.members.get(member_id)
            if member is None and not joins:
                raise UnknownMemberId(f"{member_id} is not in group {self.group_id}")
            if member is not None:
                self._check_epoch(member, request.member_epoch, owned)
            return Recognised(member or ConsumerMember(member_id=member_id))
        holder = state.members.get(state.static_ids.get(request.instance_id, ""))
        if joins:
            if holder is None:
                return Recognised(state.members.get(member_id) or ConsumerMember(member_id=member_id))
            if holder.epoch != AWAY_EPOCH and holder.classic is None:
                raise UnreleasedInstanceId(f"instance {request.instance_id} is held by member {holder.member_id}")
            heir = replace(holder, member_id=member_id, epoch=0, previous_epoch=0)
            return Recognised(heir, "" if member_id == holder.member_id else holder.member_id)
        self._check_holder(holder, request.instance_id, member_id)
        assert holder is not None, "checked"
        self._check_epoch(holder, request.member_epoch, owned)
        return Recognised(holder)

    def _check_epoch(self, member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
        """A member that joins again may; so may one whose last answer with a higher epoch got lost.

        A classic member has another process's place, and does not join in this protocol under its id.
        """
        if epoch == member.epoch or (epoch == JOIN_EPOCH and member.classic is None):
            return
        repeats = epoch == member.previous_epoch and owned is not None and contains(member.assigned, owned)
        if epoch > member.epoch or not repeats:
            raise FencedMemberEpoch(f"epoch {epoch} is not that of the member, {member.epoch}: give all up and join")

    def _described(
        self, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, recognised: Recognised
    ) -> ConsumerMember:
        """The member with what a heartbeat says of it; what is null has not changed."""
        news: dict[str, Any] = {
            "instance_id": request.instance_id,
            "rack_id": request.rack_id,
            "rebalance_timeout_ms": None if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms,
            "expression": request.subscribed_topic_regex,
            "assignor": request.server_assignor,
        }
        if request.subscribed_topic_names is not None:
            news["topics"] = frozenset(request.subscribed_topic_names)
        return replace(
            recognised.member,
            client_id=caller.client_id,
            client_host=caller.client_host,
            classic=None,
            **{name: value for name, value in news.items() if value is not None},
        )

    def _play_leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        member = self._leaving(request.member_id, request.instance_id)
        if request.instance_id is not None and request.member_epoch == AWAY_EPOCH:
            self._move_on(member.away())
        else:
            self._fence([member], "it left")
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)

    def leave(
        self, leaving: Sequence[tuple[str, str | None]], again: Callable[[], Deferred[list[int]]] | None = None
    ) -> Deferred[list[int]]:
        """LeaveGroup: members by member id and instance id, or by instance id alone; a code for each of them.

        `again`: see `Move`.
        """
        answer: Deferred[list[int]] = Deferred()
        self._ask(
            Move(
                lambda: self._play_removal(leaving),
                answer,
                lambda code, _text: [code] * len(leaving),
                again=again,
            )
        )
        return answer

    def _play_removal(self, leaving: Sequence[tuple[str, str | None]]) -> list[int]:
        codes: list[int] = []
        gone: dict[str, ConsumerMember] = {}
        for member_id, instance_id in leaving:
            if instance_id is not None and not member_id:
                member_id = self._staged.static_ids.get(instance_id, "")
            try:
                member = self._leaving(member_id, instance_id)
            except KafkaError as error:
                codes.append(error.code)
            else:
                gone[member.member_id] = member
                codes.append(0)
        if gone:
            self._fence(list(gone.values()), "it left the group by name, or was taken out")
        return codes

    def _leaving(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        state = self._staged
        if instance_id is None:
            member = state.members.get(member_id)
            if member is None:
                raise UnknownMemberId(f"{member_id} is not in group {self.group_id}")
            return member
        holder = state.members.get(state.static_ids.get(instance_id, ""))
        self._check_holder(holder, instance_id, member_id)
        assert holder is not None, "checked"
        return holder

    # --- time ---------------------------------------------------------------------------------------------------------

    def _touch_locked(self, member_id: str) -> None:
        """A member was heard of, and what it said was good."""
        timer = self._sessions.get(member_id)
        if timer is not None:
            timer.set(self._session_s(self._durable.members[member_id]))

    def _session_s(self, member: ConsumerMember) -> float:
        classic = member.classic
        own = (
            self._consumers.timing(self.group_id).session_timeout_ms if classic is None else classic.session_timeout_ms
        )
        return own / 1000

    def _set_timers_locked(self, before: ConsumerState) -> None:
        """Sessions of members that came or went, and deadlines of those that have begun or ended to give up."""
        if self._dead:
            return
        for member_id in before.members.keys() - self._durable.members.keys():
            self._sessions.pop(member_id).cancel()
            self._memory.drop(member_id)
            self._end_revocation_locked(member_id)
        for member_id, member in self._durable.members.items():
            old = before.members.get(member_id)
            if old is member:
                continue
            self._memory.put(member_id, consumer_size(member))
            if old is None:
                self._sessions[member_id] = self._environment.timers.timer(
                    partial(self._session_due, member_id), awaits_client=True
                )
                self._touch_locked(member_id)
            if member.state is not MemberState.UNREVOKED or member.epoch == AWAY_EPOCH or member.classic is not None:
                self._end_revocation_locked(member_id)
            elif member_id not in self._revocations or (old is not None and old.epoch != member.epoch):
                self._begin_revocation_locked(member)
        self._end_waits_locked()

    def _set_again_locked(self) -> None:
        """What timers have found to be over could not be written down: they look again."""
        for member_id, timer in self._sessions.items():
            if not timer.armed:
                self._touch_locked(member_id)
        for member_id, timer in list(self._revocations.items()):
            if not timer.armed:
                self._begin_revocation_locked(self._durable.members[member_id])
        self._wait_again_locked()

    def _begin_revocation_locked(self, member: ConsumerMember) -> None:
        member_id, epoch = member.member_id, member.epoch
        self._end_revocation_locked(member_id)
        timer = self._environment.timers.timer(lambda: self._revocation_due(member_id, epoch), awaits_client=True)
        timer.set(max(member.rebalance_timeout_ms, 0) / 1000)
        self._revocations[member_id] = timer

    def _end_revocation_locked(self, member_id: str) -> None:
        timer = self._revocations.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def _session_due(self, member_id: str) -> None:
        def play() -> None:
            timer = self._sessions.get(member_id)
            member = self._staged.members.get(member_id)
            if member is not None and timer is not None and not timer.armed:
                self._fence([member], "its session ended")

        self._play_later(play)

    def _revocation_due(self, member_id: str, epoch: int) -> None:
        def play() -> None:
            member = self._staged.members.get(member_id)
            if member is not None and member.state is MemberState.UNREVOKED and member.epoch == epoch:
                self._fence([member], "it did not give up its partitions in time")

        self._play_later(play)

    # --- what outlives the broker -------------------------------------------------------------------------------------

    def restore(self, state: ConsumerState) -> None:
        """Takes over what the log says, before anybody knows the group. Sessions begin with `wake`."""
        with self.changing():
            self._durable = self._staged = state

    def wake(self) -> None:
        with self.changing():
            if not self._dead:
                self._set_timers_locked(ConsumerState())
                self._submit_locked(Move(lambda: self._play_topics(None)))

    def tombstones_locked(self) -> list[Record]:
        state = self._durable
        if state.epoch == 0 and not state.members:
            return list(self._preface)
        return erasing_records(self.group_id, state)

    def take_over_locked(self, group: Group, state: ConsumerState) -> None:
        """Goes on with a classic group's members, as `conversion.upgraded` has them, before anybody knows this one.

        What says so is written with the first change, which whoever brings this about is about to make.
        """
        self._preface = [*group.tombstones_locked(), *creation_records(self.group_id, state)]
        self._durable = self._staged = state
        self._set_timers_locked(ConsumerState())

    def bury_locked(self) -> None:
        self._dead = True
        self._memory.keep(())
        self._cancel_timers_locked()

    def exhume_locked(self) -> None:
        self._dead = False

    def stop(self) -> None:
        with self.changing():
            self._cancel_timers_locked()
            self._dead = True
            moves = [*(self._writing or ()), *self._queue]
            self._queue = []
            self._end_locked(moves, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _cancel_timers_locked(self) -> None:
        for timer in (*self._sessions.values(), *self._revocations.values()):
            timer.cancel()
        self._sessions.clear()
        self._revocations.clear()
        self._cancel_waits_locked()


def _member_of(response: ConsumerGroupHeartbeatResponse) -> str:
    return response.member_id or ""


def refusal(code: int, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """The answer of an error."""
    return ConsumerGroupHeartbeatResponse(error_code=int(code), error_message=message)


def answered(assignment: Assignment) -> AnsweredAssignment:
    """An assignment as a heartbeat's answer has it; an empty one is said, which is not the same as unchanged."""
    return AnsweredAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in sorted(assignment.items())
        ]
    )
