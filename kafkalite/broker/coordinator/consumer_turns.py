"""What a group of the newer protocol (KIP-848) does, whoever asks it to: turns, and the changes that they make.

    a request, a timeout, a topic that changed ─▶ queue ─▶ turn: plays all that wait on the staged state
                                                              │ what changed, as one write
                                                              ▼
                          answers, timers ◀── durable ◀── staged becomes durable (or is thrown away)

What changes nothing is answered at once. What does is answered when the change is on the disk; what comes meanwhile
waits and is played as the next turn, so that a burst of joins costs few writes, and nobody is told what a crash could
take back. A turn whose write fails has not happened: its callers are told to look again.

Thread rule: as `base` says. Turns run under the lock, on the thread of whoever came, or on the I/O pool.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kafkalite.base.dataclass import dataclass
from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator import consumer_records as stored
from kafkalite.broker.coordinator import topic_regex
from kafkalite.broker.coordinator.assignors import ASSIGNORS, Subscriber
from kafkalite.broker.coordinator.base import GroupBase, is_too_large, write_error
from kafkalite.broker.coordinator.consumer_state import ConsumerMember, ConsumerState, reconciled, spoken_by, topic_ids
from kafkalite.broker.coordinator.conversion import downgraded, erasing_records
from kafkalite.broker.coordinator.member_memory import consumer_size
from kafkalite.errors import ErrorCode, FencedInstanceId, GroupMaxSizeReached, KafkaError, UnknownMemberId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.coordinator.assignors import Assignment
    from kafkalite.broker.coordinator.base import Environment
    from kafkalite.broker.coordinator.group import Group
    from kafkalite.broker.coordinator.metadata_hash import MetadataHashes
    from kafkalite.broker.coordinator.records import Record
    from kafkalite.broker.limits.holder import Holder

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)

EPOCH_MAX: Final = (1 << 31) - 1

Describes: TypeAlias = "Callable[[frozenset[str]], frozenset[str]]"
"""Of topics, those that somebody may describe, at any time; no lock of a group's is taken."""


class Timing(NamedTuple):
    """How often members of a group report, and after which silence one is out, both in ms."""

    heartbeat_interval_ms: int
    session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class ConsumerEnvironment:
    """What all groups of this protocol share."""

    topics: Callable[[], Mapping[str, Topic]]
    hashes: MetadataHashes
    run_soon: Callable[[Callable[[], None]], object]
    """Runs something on a thread that may work for a while, not at once: `IoPool.submit`."""
    timing: Callable[[str], Timing]
    """What holds for a group, by its id, at this moment."""
    size_max: int
    assignors: tuple[str, ...]
    """Those that members may ask for; the first is the default."""
    downgrades: bool
    """Whether a group becomes a classic one when nobody is left in it but classic members."""
    succeed: Callable[[GroupBase, GroupBase], None]
    """Under the lock of both: a group takes the place of another, which is dead from then on."""


@dataclass(slots=True)
class Move:
    """Something to be played in a turn. Those without an answer are nobody's request: time passed, a topic changed."""

    play: Callable[[], Any]
    answer: Deferred[Any] | None = None
    refuse: Callable[[int, str | None], Any] | None = None
    """The response for an error, from its code and a text; there if there is an answer."""
    said_by: Callable[[Any], str] | None = None
    """Who was heard of, from a good response."""
    again: Callable[[], Deferred[Any]] | None = None
    """Asks anew, of the group that has taken this one's place."""
    ends: Callable[[Any], None] | None = None
    """Called with a good response when what it says is durable, under the lock."""
    elsewhere: bool = False
    """Playing it has shown that it is not for a group of this kind: it is asked anew."""
    response: Any = None
    refused: bool = False


class Recognised(NamedTuple):
    """Who asks: the member as it was, and the id it had before if it is a static one that came back."""

    member: ConsumerMember
    replaces: str = ""


class Successor(NamedTuple):
    """The classic group that this one becomes once that is durable, and why its members have to join again."""

    group: Group
    rebalances: str | None


class Turns(GroupBase):
    """A group's states, what waits for its next turn, and the changes that a turn may make."""

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
        self._queue: list[Move] = []
        self._writing: list[Move] | None = None
        self._successor: Successor | None = None
        self._describers: dict[str, Describes] = {}  # of expressions, as far as a member was heard of

    # --- turns --------------------------------------------------------------------------------------------------------

    def _ask(self, move: Move) -> None:
        """Plays somebody's request when its turn comes."""
        with self.changing():
            if self._dead:
                self._refuse_locked(move, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                self._deliver_locked(move)
            else:
                self._submit_locked(move)

    def _submit_locked(self, move: Move) -> None:
        self._queue.append(move)
        if self._writing is None:
            self._turn_locked()

    def _turn_locked(self) -> None:
        """Plays all that waits; one write for all that it changed."""
        moves, self._queue = self._queue, []
        try:
            for place, move in enumerate(moves, 1):
                self._play_locked(move)
                if self._successor is not None:  # what comes behind is for the group that this one becomes
                    moves, self._queue = moves[:place], moves[place:]
                    break
        except Exception:
            logger.exception("a group's turn failed and is taken back", extra=fields(group=self.group_id))
            self._staged, self._records, self._successor = self._durable, [], None
            self._count_again_locked()
            self._end_locked(moves, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        records, self._records = self._records, []
        if not records:
            self._end_locked(moves, 0)
            return
        self._writing = moves
        self._environment.write(self.group_id, self._preface + records, self._turn_stored)

    def _play_locked(self, move: Move) -> None:
        try:
            move.response = move.play()
        except KafkaError as error:
            self._refuse_locked(move, error.code, str(error))
        else:
            self._heard_locked(move)

    def _turn_stored(self, code: int) -> None:
        with self.changing():
            moves, self._writing = self._writing or [], None
            successor, self._successor = self._successor, None
            if code:
                self._staged = self._durable
                self._count_again_locked()
                if not self._dead:
                    self._set_again_locked()
            elif successor is None:
                before, self._durable = self._durable, self._staged
                self._preface = []
                self._set_timers_locked(before)
            if code and len(moves) > 1:  # whose fault it was cannot be told: each may try again, alone if need be
                self._end_locked(moves, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            elif is_too_large(code):  # Kafka answers UNKNOWN_SERVER_ERROR, which does not say whose fault it is
                self._end_locked(moves, ErrorCode.INVALID_REQUEST, "the member does not fit into the group's log")
            else:
                self._end_locked(moves, write_error(code))
            if not code and successor is not None and not self._dead:
                self._give_way_locked(successor)
            if self._queue:
                self.later_locked(lambda: self._consumers.run_soon(self._next_turn))

    def _give_way_locked(self, successor: Successor) -> None:
        """The classic group begins; what was asked meanwhile is asked of it."""
        self._consumers.succeed(self, successor.group)
        successor.group.begin_locked(successor.rebalances)
        moves, self._queue = self._queue, []
        for move in moves:
            move.elsewhere = True
        self._end_locked(moves, 0)

    def _next_turn(self) -> None:
        with self.changing():
            if self._queue and self._writing is None:
                self._turn_locked()

    def _end_locked(self, moves: list[Move], code: int, text: str | None = None) -> None:
        for move in moves:
            if code:
                self._refuse_locked(move, code, text)
            else:
                self._heard_locked(move)
                if move.ends is not None and not move.refused and not move.elsewhere:
                    move.ends(move.response)
            self._deliver_locked(move)

    def _refuse_locked(self, move: Move, code: int, text: str | None = None) -> None:
        move.refused = True
        if move.refuse is not None:
            move.response = move.refuse(code, text)

    def _heard_locked(self, move: Move) -> None:
        if move.said_by is not None and not move.refused and not move.elsewhere:
            self._touch_locked(move.said_by(move.response))

    def _deliver_locked(self, move: Move) -> None:
        answer, again = move.answer, move.again
        if answer is None:
            return
        if move.elsewhere and not move.refused and again is not None:
            self.later_locked(lambda: self._consumers.run_soon(lambda: again().then(answer.complete)))
            return
        if move.response is None:
            self._refuse_locked(move, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        response = move.response
        self.later_locked(lambda: answer.complete(response))

    def _play_later(self, play: Callable[[], None]) -> None:
        with self.changing():
            if not self._dead:
                self._submit_locked(Move(play))

    def _check_memory(self, member: ConsumerMember, holder: Holder | None) -> None:
        """Charges what a member says of itself, before it is durable; raises where there is no memory for it."""
        size = consumer_size(member)
        if not self._memory.admits(member.member_id, size, holder):
            raise GroupMaxSizeReached(f"the client of {member.member_id} holds too much memory (broker.memory.max)")
        self._memory.put(member.member_id, size, holder)

    def _count_again_locked(self) -> None:
        """What was staged is thrown away: what is durable is charged."""
        members = self._durable.members
        self._memory.keep(members)
        for member in members.values():
            self._memory.put(member.member_id, consumer_size(member))

    @abstractmethod
    def _touch_locked(self, member_id: str) -> None:
        """A member was heard of, and what it said was good."""

    @abstractmethod
    def _set_timers_locked(self, before: ConsumerState) -> None:
        """Something else is durable now: what is to be waited for has changed with it."""

    @abstractmethod
    def _set_again_locked(self) -> None:
        """What timers have found to be over could not be written down: they look again."""

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
        state.metadata_hash = self._consumers.hashes.of_topics(state.subscribed(), self._consumers.topics())
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

    def _fence(self, members: Sequence[ConsumerMember], why: str) -> None:
        """Takes members out; the next heartbeat of another one makes the new target. Where none but classic members are
        left, they go on as a classic group."""
        for member in members:
            logger.info("member is out", extra=fields(group=self.group_id, member=member.member_id, why=why))
        gone = {member.member_id for member in members}
        if self._may_become_classic(gone):
            self._become_classic(gone, self._staged.epoch, "no member of the newer protocol is left")
            return
        for member in members:
            self._remove(member)
        for member in members:
            self._drop_expression(member.expression)
        self._raise_epoch()

    def _may_become_classic(self, gone: Collection[str]) -> bool:
        """Whether a group without some of its members is one of classic members alone, and may be a classic one."""
        left = [member for member_id, member in self._staged.members.items() if member_id not in gone]
        if not left or any(member.classic is None for member in left) or not spoken_by(left):
            return False
        return self._consumers.downgrades and len(left) <= self._environment.size_max

    def _become_classic(self, gone: Collection[str], generation: int, rebalances: str | None) -> None:
        """Ends the turn: all that comes is for the successor."""
        state, topics = self._staged, self._consumers.topics()
        group = downgraded(state, gone, generation, self, self._environment, topics)
        self._records += [*erasing_records(self.group_id, state), group.inherited_record_locked()]
        self._successor = Successor(group, rebalances)

    def _check_holder(self, holder: ConsumerMember | None, instance_id: str, member_id: str) -> None:
        if holder is None:
            raise UnknownMemberId(f"no member of group {self.group_id} has instance {instance_id}")
        if holder.member_id != member_id:
            raise FencedInstanceId(f"instance {instance_id} is held by member {holder.member_id}")

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

    # --- topics -------------------------------------------------------------------------------------------------------

    def topic_changed(self, name: str) -> None:
        """A topic came, went, or has more partitions."""
        with self.changing():
            staged = self._staged
            if not self._dead and (self._queue or self._writing or staged.expressions or name in staged.subscribed()):
                self._submit_locked(Move(lambda: self._play_topics({name})))

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
        staged = self._staged
        if staged.members and self._consumers.hashes.of_topics(staged.subscribed(), topics) != staged.metadata_hash:
            self._raise_epoch()
