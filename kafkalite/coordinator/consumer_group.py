"""One group of the newer protocol (KIP-848): members say what they read, the broker says who reads what.

    heartbeat, leave, timeout, topic changed ─▶ queue ─▶ turn: plays all that wait on the staged state
                                                            │ what changed, as one write
                                                            ▼
                        answers, timers ◀── durable ◀── staged becomes durable (or is thrown away)

    Empty ──join──▶ Assigning ──target made──▶ Reconciling ──all arrived──▶ Stable      (Dead: deleted or taken over)

A heartbeat that changes nothing is answered at once. One that does is answered when the change is on the disk; what
comes meanwhile waits and is played as the next turn, so that a burst of joins costs few writes, and nobody is told what
a crash could take back. A turn whose write fails has not happened: its callers are told to look again.

A heartbeat makes the target assignment when the group epoch is ahead of it, and takes its member one step towards its
target (`consumer_state.reconciled`). A member that does not give up in time what it has to, or is not heard of, is out.

Thread rule: as `base` says. Turns run under the lock, on the thread of whoever came, or on the I/O pool.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from kafkalite import chance
from kafkalite.coordinator import consumer_records as stored
from kafkalite.coordinator import topic_regex
from kafkalite.coordinator.assignors import ASSIGNORS, Subscriber
from kafkalite.coordinator.base import CONSUMER_PROTOCOL, GroupBase, write_error
from kafkalite.coordinator.consumer_state import (
    AWAY_EPOCH,
    ConsumerMember,
    ConsumerState,
    MemberState,
    contains,
    reconciled,
    topic_ids,
)
from kafkalite.deferred import Deferred
from kafkalite.errors import (
    ErrorCode,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    KafkaError,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from kafkalite.logging import fields
from kafkalite.protocol.messages.consumer_group_heartbeat import (
    Assignment as AnsweredAssignment,
)
from kafkalite.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.coordinator.assignors import Assignment
    from kafkalite.coordinator.base import Environment
    from kafkalite.coordinator.offsets import Committed
    from kafkalite.coordinator.records import Record
    from kafkalite.coordinator.timers import Timer

logger = logging.getLogger(__name__)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
COMMIT_VERSION_MIN: Final = 9
EPOCH_MAX: Final = (1 << 31) - 1

Answer = Deferred[ConsumerGroupHeartbeatResponse]
Describes: TypeAlias = "Callable[[frozenset[str]], frozenset[str]]"
"""Of topics, those that somebody may describe, at any time; no lock of a group's is taken."""


@dataclass(frozen=True, slots=True)
class ConsumerEnvironment:
    """What all groups of this protocol share."""

    topics: Callable[[], Mapping[str, Topic]]
    run_soon: Callable[[Callable[[], None]], object]
    """Runs something on a thread that may work for a while, not at once: `IoPool.submit`."""
    heartbeat_interval_ms: int
    session_timeout_ms: int
    size_max: int
    assignors: tuple[str, ...]
    """Those that members may ask for; the first is the default."""


@dataclass(frozen=True, slots=True)
class HeartbeatCaller:
    """Who sends a heartbeat."""

    client_id: str
    client_host: str
    describes: Describes | None = None


@dataclass(slots=True)
class _Move:
    """Something to be played in a turn; `answer` is None when nobody waits for it."""

    play: Callable[[], ConsumerGroupHeartbeatResponse | None]
    answer: Answer | None = None
    response: ConsumerGroupHeartbeatResponse | None = None


class ConsumerGroup(GroupBase):
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
        """`preface`: records that erase the predecessor, to be written with the first change."""
        super().__init__(group_id, environment, predecessor)
        self._consumers = consumers
        self._dead = False
        self._durable = ConsumerState()
        self._staged = self._durable
        self._records: list[Record] = []
        self._preface = preface or []
        self._queue: list[_Move] = []
        self._writing: list[_Move] | None = None
        self._sessions: dict[str, Timer] = {}
        self._describers: dict[str, Describes] = {}  # of expressions, as far as a member was heard of
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
        instance_id: str | None,  # noqa: ARG002 - the member id says who it is
        generation: int,
        version: int = 9,
        *,
        transactional: bool = False,
    ) -> int:
        """Why these may not commit now, 0 when they may: the epoch has to be the member's own.

        Without epoch it is an administrator or a consumer outside the protocol: fine as long as nobody is in the group.
        """
        if self._dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and not self._staged.members:
            return 0
        member = self._staged.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version < COMMIT_VERSION_MIN and not transactional:
            return ErrorCode.UNSUPPORTED_VERSION
        if generation == member.epoch:
            return 0
        # Transactional producers know the older code alone, and would take the other for fatal.
        return ErrorCode.ILLEGAL_GENERATION if transactional else ErrorCode.STALE_MEMBER_EPOCH

    def fetch_error_locked(self, member_id: str | None, member_epoch: int) -> int:
        if self._dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not member_id and member_epoch < 0:
            return 0
        member = self._durable.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if member_epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def offset_delete_error_locked(self) -> int:
        return ErrorCode.GROUP_ID_NOT_FOUND if self._dead else 0

    def subscribes_locked(self, topic: str) -> bool:
        return topic in self._staged.subscribed()

    def kept_since_locked(self, topic: str, committed: Committed) -> int | None:
        return None if self.subscribes_locked(topic) else committed.commit_ms

    # --- turns --------------------------------------------------------------------------------------------------------

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller) -> Answer:
        """ConsumerGroupHeartbeat, whose fields the handler has checked; answered when what it changed is durable."""
        answer: Answer = Deferred()
        with self.changing():
            if self._dead:
                self._deliver_locked(answer, refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            else:
                self._submit_locked(_Move(lambda: self._play_heartbeat(request, caller), answer))
        return answer

    def leave(self, member_id: str, instance_id: str | None) -> Deferred[int]:
        """LeaveGroup of one member, as an administrator asks it: by member id, or by instance id alone."""
        answer: Answer = Deferred()
        with self.changing():
            if self._dead:
                self._deliver_locked(answer, refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            else:
                self._submit_locked(_Move(lambda: self._play_removal(member_id, instance_id), answer))
        return answer.map(lambda response: response.error_code)

    def _submit_locked(self, move: _Move) -> None:
        self._queue.append(move)
        if self._writing is None:
            self._turn_locked()

    def _turn_locked(self) -> None:
        """Plays all that waits; one write for all that it changed."""
        moves, self._queue = self._queue, []
        try:
            for move in moves:
                self._play_locked(move)
        except Exception:
            logger.exception("a group's turn failed and is taken back", extra=fields(group=self.group_id))
            self._staged, self._records = self._durable, []
            self._end_locked(moves, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        records, self._records = self._records, []
        if not records:
            self._end_locked(moves, 0)
            return
        self._writing = moves
        self._environment.write(self.group_id, self._preface + records, self._turn_stored)

    def _play_locked(self, move: _Move) -> None:
        try:
            move.response = move.play()
        except KafkaError as error:
            move.response = refusal(error.code, str(error))
        else:
            if move.response is not None:
                self._touch_locked(move.response.member_id or "")

    def _turn_stored(self, code: int) -> None:
        with self.changing():
            moves, self._writing = self._writing or [], None
            if code:
                self._staged = self._durable
                if not self._dead:
                    self._set_again_locked()
            else:
                before, self._durable = self._durable, self._staged
                self._preface = []
                self._set_timers_locked(before)
            if code and len(moves) > 1:  # whose fault it was cannot be told: each may try again, alone if need be
                self._end_locked(moves, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                self._end_locked(moves, write_error(code))
            if self._queue:
                self._outbox.append(lambda: self._consumers.run_soon(self._next_turn))

    def _next_turn(self) -> None:
        with self.changing():
            if self._queue and self._writing is None:
                self._turn_locked()

    def _end_locked(self, moves: list[_Move], code: int) -> None:
        for move in moves:
            if move.answer is not None:
                response = refusal(code) if code or move.response is None else move.response
                if not response.error_code:
                    self._touch_locked(response.member_id or "")
                self._deliver_locked(move.answer, response)

    def _deliver_locked(self, answer: Answer, response: ConsumerGroupHeartbeatResponse) -> None:
        self._outbox.append(lambda: answer.complete(response))

    # --- changes of the staged state, each with its record ------------------------------------------------------------

    def _edit(self) -> ConsumerState:
        if self._staged is self._durable:
            self._staged = self._durable.copy()
        return self._staged

    def _write(self, member_id: str, value: stored.Value) -> None:
        self._records.append(stored.record(self.group_id, member_id, value))

    def _erase(self, kind: int, member_id: str) -> None:
        self._records.append(stored.tombstone(kind, self.group_id, member_id))

    def _put(self, member: ConsumerMember) -> None:
        before = self._staged.members.get(member.member_id)
        self._edit().put(member)
        if before is None or before.identity() != member.identity():
            self._write(member.member_id, member.identity())

    def _move_on(self, member: ConsumerMember) -> None:
        """Writes where a member is now."""
        self._edit().put(member)
        self._write(member.member_id, member.position())

    def _remove(self, member: ConsumerMember) -> None:
        for kind in (stored.CURRENT, stored.TARGET_MEMBER, stored.MEMBER):
            self._erase(kind, member.member_id)
        self._edit().remove(member.member_id)

    def _drop_expression(self, expression: str) -> None:
        """Forgets what an expression means if nobody uses it any more."""
        if expression and expression in self._staged.expressions and not self._staged.uses(expression):
            self._edit().set_expression(expression, None)
            self._describers.pop(expression, None)
            self._erase(stored.EXPRESSION, expression)

    def _show_to(self, expression: str, describes: Describes) -> None:
        """From now on an expression means topics that this member's client may describe, as in Kafka."""
        is_news = expression not in self._describers and expression in self._staged.expressions
        self._describers[expression] = describes
        if is_news:  # read from the log: nobody could tell whose it is
            self._play_topics(None)

    def _matching(self, expression: str, names: Iterable[str]) -> frozenset[str]:
        found = topic_regex.matching(expression, names)
        describes = self._describers.get(expression)
        return found if describes is None else describes(found)

    def _means(self, expression: str, topics: frozenset[str]) -> None:
        self._edit().set_expression(expression, topics)
        now_ms = self._environment.clock.time_ms()
        self._write(expression, stored.ExpressionValue(topics=sorted(topics), timestamp=now_ms))

    def _raise_epoch(self) -> None:
        state = self._edit()
        state.epoch = state.epoch % EPOCH_MAX + 1
        state.metadata_hash = state.hash_of(self._consumers.topics())
        self._write("", stored.GroupValue(epoch=state.epoch, metadata_hash=state.metadata_hash))

    def _assign(self) -> None:
        """The target assignment for the group's epoch."""
        state = self._edit()
        topics = self._consumers.topics()
        counts = {topics[name].id: len(topics[name].partitions) for name in state.subscribed() & topics.keys()}
        members = {
            member_id: Subscriber(topic_ids(state.topics_of(member), topics), state.targets.get(member_id, {}))
            for member_id, member in state.members.items()
        }
        assign = ASSIGNORS[state.assignor(self._consumers.assignors[0])]
        for member_id, target in assign(members, counts).items():
            if state.targets.get(member_id) != target:
                state.targets[member_id] = target
                value = stored.TargetMemberValue(topic_partitions=stored.topic_partitions(target))
                self._write(member_id, value)
        state.target_epoch = state.epoch
        self._write("", stored.TargetValue(assignment_epoch=state.epoch))
        logger.info("group assigned", extra=fields(group=self.group_id, epoch=state.epoch, members=len(state.members)))

    def _fence(self, member: ConsumerMember, why: str) -> None:
        """Takes a member out; the next heartbeat of another one makes the new target."""
        logger.info("member is out", extra=fields(group=self.group_id, member=member.member_id, why=why))
        self._remove(member)
        self._drop_expression(member.expression)
        self._raise_epoch()

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    def _play_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller
    ) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch in (LEAVE_EPOCH, AWAY_EPOCH):
            return self._play_leave(request)
        state = self._staged
        owned = None
        if request.topic_partitions is not None:
            owned = {row.topic_id: frozenset(row.partitions) for row in request.topic_partitions}
        member_id = request.member_id or chance.uuid4()
        if member_id not in state.members and len(state.members) >= self._consumers.size_max:
            raise GroupMaxSizeReached(f"group {self.group_id} has {len(state.members)} members and takes no more")
        before = self._recognised(request, member_id, owned)
        after = self._described(request, caller, before)
        if after.expression and after.expression not in state.expressions:
            topic_regex.check(after.expression)
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
            heartbeat_interval_ms=self._consumers.heartbeat_interval_ms,
            assignment=answered(member.assigned) if tell else None,
        )

    def _recognised(
        self, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Assignment | None
    ) -> _Recognised:
        """The member that sent a heartbeat, as it was; raises when it may not go on as what it says it is."""
        state = self._staged
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = state.members.get(member_id)
            if member is None and not joins:
                raise UnknownMemberId(f"{member_id} is not in group {self.group_id}")
            if member is not None:
                self._check_epoch(member, request.member_epoch, owned)
            return _Recognised(member or ConsumerMember(member_id=member_id))
        holder = state.members.get(state.static_ids.get(request.instance_id, ""))
        if joins:
            if holder is None:
                return _Recognised(state.members.get(member_id) or ConsumerMember(member_id=member_id))
            if holder.epoch != AWAY_EPOCH:
                raise UnreleasedInstanceId(f"instance {request.instance_id} is held by member {holder.member_id}")
            heir = replace(holder, member_id=member_id, epoch=0, previous_epoch=0)
            return _Recognised(heir, "" if member_id == holder.member_id else holder.member_id)
        self._check_holder(holder, request.instance_id, member_id)
        assert holder is not None, "checked"
        self._check_epoch(holder, request.member_epoch, owned)
        return _Recognised(holder)

    def _check_holder(self, holder: ConsumerMember | None, instance_id: str, member_id: str) -> None:
        if holder is None:
            raise UnknownMemberId(f"no member of group {self.group_id} has instance {instance_id}")
        if holder.member_id != member_id:
            raise FencedInstanceId(f"instance {instance_id} is held by member {holder.member_id}")

    def _check_epoch(self, member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
        """A member that joins again may; so may one whose last answer with a higher epoch got lost."""
        if epoch in (JOIN_EPOCH, member.epoch):
            return
        repeats = epoch == member.previous_epoch and owned is not None and contains(member.assigned, owned)
        if epoch > member.epoch or not repeats:
            raise FencedMemberEpoch(f"epoch {epoch} is not that of the member, {member.epoch}: give all up and join")

    def _described(
        self, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, recognised: _Recognised
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

    def _change(self, before: ConsumerMember, after: ConsumerMember, replaced: ConsumerMember | None) -> bool:
        """Takes over what a member says of itself; whether its subscription changed."""
        if replaced is not None:
            target = self._staged.targets.get(replaced.member_id, {})
            self._remove(replaced)
            self._edit().targets[after.member_id] = target
            value = stored.TargetMemberValue(topic_partitions=stored.topic_partitions(target))
            self._write(after.member_id, value)
        if after != before or after.member_id not in self._staged.members:
            self._put(after)
            if replaced is not None:
                self._move_on(after)
        if after.expression and after.expression not in self._staged.expressions:
            self._means(after.expression, self._matching(after.expression, self._consumers.topics()))
        changed = after.topics != before.topics or after.expression != before.expression
        if after.expression != before.expression:
            self._drop_expression(before.expression)
        if changed or self._staged.epoch == 0:
            self._raise_epoch()
        return changed

    def _step(self, member_id: str, owned: Assignment | None, *, subscription_changed: bool) -> ConsumerMember:
        state = self._staged
        member = state.members[member_id]
        if not subscription_changed and member.arrived_at(state.target_epoch):
            return member
        after = reconciled(
            member,
            target_epoch=state.target_epoch,
            target=state.targets.get(member_id, {}),
            owners=state.owners,
            readable=topic_ids(state.topics_of(member), self._consumers.topics()),
            owned=owned,
            subscription_changed=subscription_changed,
        )
        if after is not member:
            self._move_on(after)
        return after

    def _play_leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        member = self._leaving(request.member_id, request.instance_id)
        if request.instance_id is not None and request.member_epoch == AWAY_EPOCH:
            self._move_on(replace(member, epoch=AWAY_EPOCH, revoking={}))
        else:
            self._fence(member, "it left")
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)

    def _play_removal(self, member_id: str, instance_id: str | None) -> ConsumerGroupHeartbeatResponse:
        if instance_id is not None and not member_id:
            member_id = self._staged.static_ids.get(instance_id, "")
        member = self._leaving(member_id, instance_id)
        self._fence(member, "it was taken out")
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id)

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

    # --- topics -------------------------------------------------------------------------------------------------------

    def topic_changed(self, name: str) -> None:
        """A topic came, went, or has more partitions."""
        with self.changing():
            staged = self._staged
            if not self._dead and (self._queue or self._writing or staged.expressions or name in staged.subscribed()):
                self._submit_locked(_Move(lambda: self._play_topics({name})))

    def _play_topics(self, names: set[str] | None) -> None:
        """Looks at the topics anew: those that changed, None for all. The group's epoch rises if it matters to it."""
        topics = self._consumers.topics()
        for expression, known in list(self._staged.expressions.items()):
            looked_at = topics.keys() if names is None else names & topics.keys()
            try:
                found = self._matching(expression, looked_at)
            except KafkaError as error:  # read from a log that somebody else wrote
                logger.warning("an expression means no topic: %s", error, extra=fields(group=self.group_id))
                found = frozenset()
            means = found if names is None else (known - names) | found
            if means != known:
                self._means(expression, means)
        if self._staged.members and self._staged.hash_of(topics) != self._staged.metadata_hash:
            self._raise_epoch()

    # --- time ---------------------------------------------------------------------------------------------------------

    def _touch_locked(self, member_id: str) -> None:
        """A member was heard of, and what it said was good."""
        timer = self._sessions.get(member_id)
        if timer is not None:
            timer.set(self._session_s(self._durable.members[member_id]))

    def _session_s(self, member: ConsumerMember) -> float:
        classic = member.classic
        return (self._consumers.session_timeout_ms if classic is None else classic.session_timeout_ms) / 1000

    def _set_timers_locked(self, before: ConsumerState) -> None:
        """Sessions of members that came or went, and deadlines of those that have begun or ended to give up."""
        if self._dead:
            return
        for member_id in before.members.keys() - self._durable.members.keys():
            self._sessions.pop(member_id).cancel()
            self._end_revocation_locked(member_id)
        for member_id, member in self._durable.members.items():
            old = before.members.get(member_id)
            if old is member:
                continue
            if old is None:
                self._sessions[member_id] = self._environment.timers.timer(partial(self._session_due, member_id))
                self._touch_locked(member_id)
            if member.state is MemberState.UNREVOKED and member.epoch != AWAY_EPOCH:
                if old is None or old.state is not MemberState.UNREVOKED or old.epoch != member.epoch:
                    self._begin_revocation_locked(member)
            else:
                self._end_revocation_locked(member_id)

    def _set_again_locked(self) -> None:
        """What timers have found to be over could not be written down: they look again."""
        for member_id, timer in self._sessions.items():
            if not timer.armed:
                self._touch_locked(member_id)
        for member_id, timer in list(self._revocations.items()):
            if not timer.armed:
                self._begin_revocation_locked(self._durable.members[member_id])

    def _begin_revocation_locked(self, member: ConsumerMember) -> None:
        member_id, epoch = member.member_id, member.epoch
        self._end_revocation_locked(member_id)
        timer = self._environment.timers.timer(lambda: self._revocation_due(member_id, epoch))
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
                self._fence(member, "its session ended")

        self._play_later(play)

    def _revocation_due(self, member_id: str, epoch: int) -> None:
        def play() -> None:
            member = self._staged.members.get(member_id)
            if member is not None and member.state is MemberState.UNREVOKED and member.epoch == epoch:
                self._fence(member, "it did not give up its partitions in time")

        self._play_later(play)

    def _play_later(self, play: Callable[[], None]) -> None:
        with self.changing():
            if not self._dead:
                self._submit_locked(_Move(play))

    # --- what outlives the broker -------------------------------------------------------------------------------------

    def restore(self, state: ConsumerState) -> None:
        """Takes over what the log says, before anybody knows the group. Sessions begin with `wake`."""
        with self.changing():
            self._durable = self._staged = state

    def wake(self) -> None:
        with self.changing():
            self._set_timers_locked(ConsumerState())
            self._submit_locked(_Move(lambda: self._play_topics(None)))

    def tombstones_locked(self) -> list[Record]:
        state = self._durable
        if state.epoch == 0 and not state.members:
            return list(self._preface)
        records = [
            stored.tombstone(kind, self.group_id, member_id)
            for kind in (stored.CURRENT, stored.TARGET_MEMBER)
            for member_id in state.members
        ]
        records.append(stored.tombstone(stored.TARGET, self.group_id))
        records += [stored.tombstone(stored.MEMBER, self.group_id, member_id) for member_id in state.members]
        records += [stored.tombstone(stored.EXPRESSION, self.group_id, text) for text in state.expressions]
        records.append(stored.tombstone(stored.GROUP, self.group_id))
        return records

    def bury_locked(self) -> None:
        self._dead = True
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


@dataclass(frozen=True, slots=True)
class _Recognised:
    """Who sent a heartbeat: the member as it was, and the id it had before if it is a static one that came back."""

    member: ConsumerMember
    replaces: str = ""


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
