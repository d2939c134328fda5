"""One member of a consumer group (classic protocol): joins, beats, notices rebalances, on a thread of its own.

    IDLE ──join──▶ JOINING ──join and sync answered──▶ STABLE ──REBALANCE_IN_PROGRESS──▶ REBALANCING ──join──▶ JOINING …
                      │                                  │  topics changed ─────────────────▲
                      ▼                                  ▼
                    LOST (not a member any more: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, poll came too late) ──join──▶ …
                    FAILED (what no repetition helps: FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL, ...)

The thread decides nothing about partitions: it reports REBALANCING, LOST or a new assignment and waits until its owner,
who has to give up partitions first and runs the callbacks, asks for `join`. Meanwhile it beats, so that the group waits
for this member and no longer than `max_poll_interval_s`: an owner who does not poll that often leaves the group.

As leader it divides the partitions by the assignor that the group chose, and looks whether topics have changed every
`topics_age_max_s`.

Thread rule: methods may be called from any thread; state is guarded by `_changed`, nothing is awaited under it. The
thread has a Client of its own.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.dataclass import dataclass
from kafkalite.base.wakeup import Wakeup
from kafkalite.client.cluster import RETRY_BACKOFF_S_MAX
from kafkalite.client.coordinators import WAITING, Coordinator
from kafkalite.client.errors import UNREACHED, ClientError, ProtocolError
from kafkalite.client.group.assignors import ASSIGNORS, user_data
from kafkalite.errors import ErrorCode, KafkaError, error_for
from kafkalite.wire.consumer_protocol import (
    NO_GENERATION,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafkalite.wire.protocol.api import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from kafkalite.wire.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from collections.abc import Callable
    from re import Pattern

    from kafkalite.client.cluster import Cluster
    from kafkalite.client.group.assignors import Assignor
    from kafkalite.model import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
MEMBERS_LEAVE_SINCE: Final = 3
"""From this version on LeaveGroup takes a list, and static members may be named."""
LEAVE_TIMEOUT_S: Final = 5.0
TOPICS_MISSING_AGE_MAX_S: Final = 3.0
"""Seconds after which topics that are subscribed to and do not exist are looked for again."""
BROKEN: Final = (*UNREACHED, ProtocolError)
"""Failures that end a connection, not a membership."""

logger = logging.getLogger(__name__)


class Phase(Enum):
    """Where a member stands; see the module."""

    IDLE = "idle"
    JOINING = "joining"
    STABLE = "stable"
    REBALANCING = "rebalancing"
    LOST = "lost"
    FAILED = "failed"
    CLOSED = "closed"


class Interrupted(Exception):
    """The member is being closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """What a member tells the group about itself, and how patient it is; times in seconds."""

    group_id: str
    instance_id: str | None
    assignors: tuple[Assignor, ...]
    topics: tuple[str, ...]
    pattern: Pattern[str] | None
    """In place of topics: all whose whole name it matches, internal ones left out."""
    session_timeout_s: float
    heartbeat_interval_s: float
    max_poll_interval_s: float
    topics_age_max_s: float
    rack: str | None = None

    @property
    def cooperative(self) -> bool:
        """Whether partitions are kept while rejoining: only where every strategy offered can do that."""
        return all(assignor.cooperative for assignor in self.assignors)


class GroupIdentity(NamedTuple):
    """A member as the group knows it."""

    generation: int
    member_id: str


class Membership:
    """See the module. `notify` is called, without a lock, after each change that the owner should look at."""

    def __init__(self, client: Cluster, settings: MemberSettings, notify: Callable[[], None]) -> None:
        self._settings = settings
        self._notify = notify
        self._client = client.twin()
        self._coordinator = Coordinator(self._client, settings.group_id)
        self._changed = threading.Condition()
        self._phase = Phase.IDLE
        self._failure: Exception | None = None
        self._identity = GroupIdentity(NO_GENERATION, "")
        self._assignment: tuple[TopicPartition, ...] | None = None
        """Not taken yet."""
        self._owned: tuple[TopicPartition, ...] = ()
        """What the owner said he has when he asked for join."""
        self._topics: tuple[str, ...] = settings.topics
        self._polled_at = time.monotonic()
        self._closing = False
        self._leaves = False
        self._beat_at = 0.0
        self._look_at = 0.0
        self._unreached: tuple[float, Exception] | None = None
        """Since when, and why, the coordinator cannot be reached for joining."""
        self._led: dict[str, int] | None = None
        """As leader: the topics of the group, with the partitions that were divided."""
        self._bell = Wakeup()
        self._thread = threading.Thread(target=self._run, name=f"kafkalite-member-{settings.group_id}", daemon=True)
        self._thread.start()

    # --- for the owner ------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def failure(self) -> Exception | None:
        """Why it is FAILED."""
        return self._failure

    @property
    def topics(self) -> tuple[str, ...]:
        """What is subscribed to; for a pattern what it matched last."""
        return self._topics

    @property
    def unreached(self) -> tuple[float, Exception] | None:
        """Since when (time.monotonic) no coordinator can be joined, and why."""
        return self._unreached

    def take_assignment(self) -> tuple[TopicPartition, ...] | None:
        """The assignment of a rebalance that is over, once; None when there is no new one."""
        with self._changed:
            taken, self._assignment = self._assignment, None
            return taken

    @property
    def has_new_assignment(self) -> bool:
        """Whether take_assignment has one to give."""
        return self._assignment is not None

    def polled(self) -> None:
        """The owner is alive."""
        self._polled_at = time.monotonic()

    def join(self, owned: tuple[TopicPartition, ...]) -> None:
        """Enters the group, or its next generation, with these partitions."""
        with self._changed:
            if self._phase not in {Phase.FAILED, Phase.CLOSED}:
                self._owned = owned
                self._assignment = None
                self._phase = Phase.JOINING
                self._changed.notify_all()
        self._bell.ring()

    def identity(self, timeout_s: float) -> GroupIdentity | None:
        """Who this is in the present generation, waiting while the next one begins; None when it is no member."""
        with self._changed:
            self._changed.wait_for(lambda: self._phase != Phase.JOINING, timeout_s)
            member = self._phase in {Phase.STABLE, Phase.REBALANCING}
            return self._identity if member else None

    def holder(self) -> GroupIdentity | None:
        """As whom offsets may be committed without waiting. Who keeps partitions while it rejoins (cooperative) is the
        member of the generation before, whose commits are taken until all have joined: that may be long."""
        with self._changed:
            keeps = self._phase == Phase.JOINING and self._settings.cooperative and self._owned
            if keeps and self._identity.generation != NO_GENERATION:
                return self._identity
        return self.identity(0.0)

    def known_as(self) -> GroupIdentity:
        """As it is known now, without waiting."""
        return self._identity

    def close(self, *, leave: bool, timeout_s: float) -> None:
        """Ends the thread; `leave` tells the group, which then need not wait for the session to expire."""
        with self._changed:
            self._leaves = leave
            self._closing = True
        self._bell.ring()
        self._thread.join(timeout_s)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing:
                try:
                    self._step()
                except Interrupted:
                    break
                except Exception as error:  # noqa: BLE001  # whatever it is: the owner's next poll raises it
                    self._become(Phase.FAILED, error)
            if self._leaves:
                self._leave("closed")
        finally:
            self._become(Phase.CLOSED)
            self._client.close()
            self._bell.close()

    def _step(self) -> None:
        """Does what is due, or waits for it."""
        now = time.monotonic()
        member = self._phase in {Phase.STABLE, Phase.REBALANCING}
        if self._phase == Phase.JOINING:
            self._enter()
        elif member and now - self._polled_at > self._settings.max_poll_interval_s:
            limit_s = self._settings.max_poll_interval_s
            logger.warning("group %s: no poll within %g s; leaving the group", self._settings.group_id, limit_s)
            self._leave("poll came too late")
            self._lose(forget_id=True)
        elif member and now >= self._beat_at:
            self._beat()
        elif self._phase == Phase.STABLE and now >= self._look_at:
            self._look_for_topics()
        elif member:
            due = [self._beat_at, self._polled_at + self._settings.max_poll_interval_s]
            if self._phase == Phase.STABLE:
                due.append(self._look_at)
            self._bell.wait(max(min(due) - now, 0.0))
        else:
            self._bell.wait(None)

    def _become(self, phase: Phase, failure: Exception | None = None) -> None:
        with self._changed:
            if self._phase != Phase.CLOSED:
                self._phase = phase
                self._failure = failure
            self._changed.notify_all()
        self._notify()

    def _lose(self, *, forget_id: bool) -> None:
        self._identity = GroupIdentity(NO_GENERATION, "" if forget_id else self._identity.member_id)
        self._become(Phase.LOST)

    def _ask(self, api_key: int, message: object, *, version_max: int | None = None, wait_s: float = 0.0) -> Any:
        """An answer of the coordinator, which may take `wait_s` longer than others. Interrupted: closed meanwhile."""
        connection = self._coordinator.connection()
        timeout_s = self._client.request_timeout_s + wait_s
        connection.send(api_key, message, version_max=version_max, timeout_s=timeout_s)
        poller = select.poll()
        poller.register(connection.fileno(), select.POLLIN)
        poller.register(self._bell.fileno(), select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poller.poll(1000)}
            if self._closing:
                connection.close()  # its answer would meet the next question
                raise Interrupted
            if self._bell.fileno() in ready:
                self._bell.hush()
            if connection.fileno() in ready or connection.overdue:
                answer = connection.receive()[1]
                self._coordinator.note(answer.error_code)
                return answer

    # --- entering a generation ----------------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Joins and syncs until there is an assignment, or no point in trying."""
        backoff_s = self._client.retry_backoff_s
        while self._phase == Phase.JOINING and not self._closing:
            try:
                if self._settings.pattern is not None:
                    self._topics = self._matching()
                code = self._join_and_sync()
                self._unreached = None
            except BROKEN as error:
                self._coordinator.forget()
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                self._unreached = self._unreached or (time.monotonic(), error)
                self._notify()
            except KafkaError as error:
                if not error.retriable:
                    raise
                code = error.code
            if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
                self._identity = GroupIdentity(NO_GENERATION, "")
                if self._owned:
                    self._become(Phase.LOST)
                self._bell.wait(self._client.retry_backoff_s)
            elif code in WAITING or (code and error_for(code).retriable):
                self._bell.wait(backoff_s)
                backoff_s = min(2 * backoff_s, RETRY_BACKOFF_S_MAX)
            elif code and code not in {ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS}:
                raise error_for(code, f"group {self._settings.group_id}: {error_for(code).message}")

    def _matching(self) -> tuple[str, ...]:
        """The topics that the pattern matches now."""
        pattern = self._settings.pattern
        assert pattern is not None, "asked for topics by name"
        described = self._client.topics()
        return tuple(name for name, topic in described.items() if not topic.is_internal and pattern.fullmatch(name))

    def _join_and_sync(self) -> int:
        """One round; 0 with an assignment, or the error code that ended it."""
        owned, topics = self._owned, self._topics
        answer = self._ask(JOIN_GROUP, self._join_request(owned, topics), wait_s=self._settings.max_poll_interval_s)
        if answer.error_code:
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._identity = GroupIdentity(NO_GENERATION, answer.member_id)
            return int(answer.error_code)
        self._identity = identity = GroupIdentity(answer.generation_id, answer.member_id)
        self._led = None
        assignments = []
        if answer.leader == answer.member_id and not answer.skip_assignment:
            assignments = self._divide(answer.protocol_name, answer.members)
        synced = self._ask(
            SYNC_GROUP,
            SyncGroupRequest(
                group_id=self._settings.group_id,
                generation_id=identity.generation,
                member_id=identity.member_id,
                group_instance_id=self._settings.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=answer.protocol_name,
                assignments=assignments,
            ),
            wait_s=self._settings.max_poll_interval_s,
        )
        if synced.error_code:
            return int(synced.error_code)
        assignment = self._assignment_in(synced.assignment)
        now = time.monotonic()
        self._beat_at = now + self._settings.heartbeat_interval_s
        self._look_at = now + self._topics_age_max_s()
        with self._changed:
            self._assignment = tuple(sorted(assignment))
        self._become(Phase.STABLE)
        return 0

    def _join_request(self, owned: tuple[TopicPartition, ...], topics: tuple[str, ...]) -> JoinGroupRequest:
        settings = self._settings
        generation = self._identity.generation
        return JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=int(settings.session_timeout_s * 1000),
            rebalance_timeout_ms=int(settings.max_poll_interval_s * 1000),
            member_id=self._identity.member_id,
            group_instance_id=settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=assignor.name,
                    metadata=encode_subscription(
                        Subscription(topics, user_data(assignor, generation), owned, generation, settings.rack)
                    ),
                )
                for assignor in settings.assignors
            ],
        )

    def _divide(self, protocol: str, rows: list[Any]) -> list[SyncGroupRequestAssignment]:
        """As leader: who gets what, by the strategy that the group has agreed on."""
        if protocol not in {assignor.name for assignor in self._settings.assignors}:
            raise ProtocolError(
                f"group {self._settings.group_id} chose assignor {protocol!r}, which this member does not support"
            )
        members = {row.member_id: self._subscription_of(row) for row in rows}
        topics = sorted({topic for subscription in members.values() for topic in subscription.topics})
        counts = self._client.partition_counts(topics)
        self._led = {topic: counts.get(topic, 0) for topic in topics}
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
            for member_id, partitions in ASSIGNORS[protocol].assign(counts, members).items()
        ]

    def _assignment_in(self, data: bytes) -> tuple[TopicPartition, ...]:
        """What the leader gave this member. ProtocolError: it is no assignment, and nobody knows what was meant."""
        try:
            return decode_assignment(data)
        except ValueError as error:
            raise ProtocolError(f"group {self._settings.group_id}: invalid assignment: {error}") from error

    def _subscription_of(self, row: Any) -> Subscription:
        """What a member wants; one that says nothing sensible gets nothing, rather than stop the group."""
        try:
            return decode_subscription(bytes(row.metadata), row.group_instance_id)
        except ValueError as error:
            logger.warning(
                "group %s: invalid subscription of member %s: %s", self._settings.group_id, row.member_id, error
            )
            return Subscription(())

    # --- staying in it ------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        identity = self._identity
        request = HeartbeatRequest(
            group_id=self._settings.group_id,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=self._settings.instance_id,
        )
        self._beat_at = time.monotonic() + self._settings.heartbeat_interval_s
        try:
            code = self._ask(HEARTBEAT, request).error_code
        except BROKEN:
            self._coordinator.forget()
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        except KafkaError as error:
            code = error.code
        if self._phase == Phase.JOINING:
            return  # the owner was quicker; what it says is about the generation before
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self._phase == Phase.STABLE:
                self._become(Phase.REBALANCING)
        elif code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            self._lose(forget_id=True)
        elif code in WAITING or (code and error_for(code).retriable):
            self._beat_at = time.monotonic() + min(self._settings.heartbeat_interval_s, RETRY_BACKOFF_S_MAX)
        elif code:
            raise error_for(code, f"group {self._settings.group_id}: {error_for(code).message}")

    def _topics_age_max_s(self) -> float:
        missing = self._led is not None and not all(self._led.values())
        age = self._settings.topics_age_max_s
        return min(age, TOPICS_MISSING_AGE_MAX_S) if missing else age

    def _look_for_topics(self) -> None:
        """A pattern may match more by now, and a topic that this leader has divided may have grown, come or gone."""
        self._look_at = time.monotonic() + self._topics_age_max_s()
        try:
            changed = self._settings.pattern is not None and self._matching() != self._topics
            if not changed and self._led is not None:
                counts = self._client.partition_counts(self._led)
                changed = any(counts.get(topic, 0) != count for topic, count in self._led.items())
        except (*BROKEN, KafkaError) as error:
            logger.debug("group %s: cannot refresh its topics: %s", self._settings.group_id, error)
            return
        if changed and self._phase == Phase.STABLE:
            self._become(Phase.REBALANCING)

    def _leave(self, reason: str) -> None:
        """Dynamic members tell the group; static ones are expected back until their session expires."""
        identity = self._identity
        if self._settings.instance_id is not None or not identity.member_id:
            return
        request = LeaveGroupRequest(group_id=self._settings.group_id)
        try:
            connection = self._coordinator.connection()
            if connection.version_for(LEAVE_GROUP) >= MEMBERS_LEAVE_SINCE:
                request.members = [MemberIdentity(member_id=identity.member_id, reason=reason)]
            else:
                request.member_id = identity.member_id
            connection.request(LEAVE_GROUP, request, timeout_s=LEAVE_TIMEOUT_S)
        except (ClientError, KafkaError) as error:
            logger.debug(
                "group %s: LeaveGroup failed, the member stays until its session expires: %s",
                self._settings.group_id,
                error,
            )
