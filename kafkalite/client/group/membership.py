"""A thread that joins a consumer group for one member, sends heartbeats and acts as group leader (classic protocol).

    IDLE, REBALANCING, LOST ─▶ JOINING   the owner calls `join`
    JOINING ─▶ STABLE                    JoinGroup and SyncGroup are answered
    STABLE ─▶ REBALANCING                REBALANCE_IN_PROGRESS, or topics have changed
    any ─▶ LOST                          no longer a member: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, a poll came too late
    any ─▶ FAILED                        a retry cannot help: FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL, ...
    any ─▶ CLOSED                        the thread ends, after `close`

The owner is the GroupReader. Only the owner revokes and adds partitions. REBALANCING and LOST last until the owner
calls `join`.

Thread rule: any thread may call the public methods. `_changed` guards the phase and the assignment, and no thread
blocks while it holds that lock. The thread has a separate Client.
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
"""The first LeaveGroup version with a list of members, which may be static."""
LEAVE_TIMEOUT_S: Final = 5.0
TOPICS_MISSING_AGE_MAX_S: Final = 3.0
"""Seconds until subscribed topics that do not exist are looked up again."""
BROKEN: Final = (*UNREACHED, ProtocolError)
"""Failures that end a connection but not the membership."""

logger = logging.getLogger(__name__)


class Phase(Enum):
    """State of a member; see the module."""

    IDLE = "idle"
    JOINING = "joining"
    STABLE = "stable"
    REBALANCING = "rebalancing"
    LOST = "lost"
    FAILED = "failed"
    CLOSED = "closed"


class Interrupted(Exception):
    """The member was closed while its thread was waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """A member's subscription, assignors and timeouts (seconds)."""

    group_id: str
    instance_id: str | None
    assignors: tuple[Assignor, ...]
    topics: tuple[str, ...]
    pattern: Pattern[str] | None
    """Subscribes to all non-internal topics whose full name matches, in place of `topics`."""
    session_timeout_s: float
    heartbeat_interval_s: float
    max_poll_interval_s: float
    topics_age_max_s: float
    rack: str | None = None

    @property
    def cooperative(self) -> bool:
        """Whether the member keeps its partitions while it rejoins: true if all its assignors are cooperative."""
        return all(assignor.cooperative for assignor in self.assignors)


class GroupIdentity(NamedTuple):
    """A member's generation and ids."""

    generation: int
    member_id: str


class Membership:
    """One group member and its thread.

    After each change that the owner must see, it calls `notify`, without a lock.
    """

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
        """The new assignment until the owner takes it."""
        self._owned: tuple[TopicPartition, ...] = ()
        """The partitions the owner reported in `join`."""
        self._topics: tuple[str, ...] = settings.topics
        self._polled_at = time.monotonic()
        self._closing = False
        self._leaves = False
        self._beat_at = 0.0
        self._look_at = 0.0
        self._unreached: tuple[float, Exception] | None = None
        """Since when, and why, the coordinator cannot be reached."""
        self._led: dict[str, int] | None = None
        """As leader: the group's topics and the partition counts of the last assignment."""
        self._bell = Wakeup()
        self._thread = threading.Thread(target=self._run, name=f"kafkalite-member-{settings.group_id}", daemon=True)
        self._thread.start()

    # --- for the owner ------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def failure(self) -> Exception | None:
        """The error, if FAILED."""
        return self._failure

    @property
    def topics(self) -> tuple[str, ...]:
        """The subscribed topics; for a pattern, the topics that it matched last."""
        return self._topics

    @property
    def unreached(self) -> tuple[float, Exception] | None:
        """The time (time.monotonic) since which the coordinator cannot be reached, and the error.

        None if the coordinator can be reached.
        """
        return self._unreached

    def take_assignment(self) -> tuple[TopicPartition, ...] | None:
        """Return the new assignment once; None if there is no new assignment."""
        with self._changed:
            taken, self._assignment = self._assignment, None
            return taken

    @property
    def has_new_assignment(self) -> bool:
        """Return whether `take_assignment` would return an assignment."""
        return self._assignment is not None

    def polled(self) -> None:
        """Note that the owner has polled. The thread leaves the group after `max_poll_interval_s` without a poll."""
        self._polled_at = time.monotonic()

    def join(self, owned: tuple[TopicPartition, ...]) -> None:
        """Start to join the group or its next generation. `owned` are the partitions that the member keeps."""
        with self._changed:
            if self._phase not in {Phase.FAILED, Phase.CLOSED}:
                self._owned = owned
                self._assignment = None
                self._phase = Phase.JOINING
                self._changed.notify_all()
        self._bell.ring()

    def identity(self, timeout_s: float) -> GroupIdentity | None:
        """Return the generation and ids of this member; wait while it rebalances. None if it is not a member."""
        with self._changed:
            self._changed.wait_for(lambda: self._phase != Phase.JOINING, timeout_s)
            member = self._phase in {Phase.STABLE, Phase.REBALANCING}
            return self._identity if member else None

    def holder(self) -> GroupIdentity | None:
        """Return the generation and ids to commit with, without waiting. None if the member cannot commit.

        While a cooperative member rejoins, this is the previous generation: the coordinator accepts its commits until
        all members have joined, which can take long.
        """
        with self._changed:
            keeps = self._phase == Phase.JOINING and self._settings.cooperative and self._owned
            if keeps and self._identity.generation != NO_GENERATION:
                return self._identity
        return self.identity(0.0)

    def known_as(self) -> GroupIdentity:
        """Return the last known generation and ids, without waiting."""
        return self._identity

    def close(self, *, leave: bool, timeout_s: float) -> None:
        """End the thread. With `leave`, send LeaveGroup, so that the group does not wait until the session expires."""
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
        """Do the next step that is due, or wait for it."""
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
        """Send a request to the coordinator and return its response. `wait_s` is added to the usual timeout.

        Raises Interrupted if the member is closed meanwhile.
        """
        connection = self._coordinator.connection()
        timeout_s = self._client.request_timeout_s + wait_s
        connection.send(api_key, message, version_max=version_max, timeout_s=timeout_s)
        poller = select.poll()
        poller.register(connection.fileno(), select.POLLIN)
        poller.register(self._bell.fileno(), select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poller.poll(1000)}
            if self._closing:
                connection.close()  # its response would be read for the next request
                raise Interrupted
            if self._bell.fileno() in ready:
                self._bell.hush()
            if connection.fileno() in ready or connection.overdue:
                answer = connection.receive()[1]
                self._coordinator.note(answer.error_code)
                return answer

    # --- entering a generation ----------------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Join and sync until there is an assignment or a fatal error."""
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
        """Return the existing topics that match the subscribed pattern."""
        pattern = self._settings.pattern
        assert pattern is not None, "asked for topics by name"
        described = self._client.topics()
        return tuple(name for name, topic in described.items() if not topic.is_internal and pattern.fullmatch(name))

    def _join_and_sync(self) -> int:
        """Run one join and sync; return 0 with an assignment, or the error code."""
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
        """As leader, assign partitions with the assignor that the group chose."""
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
        """Decode this member's assignment. Raises ProtocolError if it is invalid."""
        try:
            return decode_assignment(data)
        except ValueError as error:
            raise ProtocolError(f"group {self._settings.group_id}: invalid assignment: {error}") from error

    def _subscription_of(self, row: Any) -> Subscription:
        """Decode a member's subscription.

        A member with an invalid subscription gets no partitions, so that it does not stop the group.
        """
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
            return  # the owner has already rejoined; the response is for the previous generation
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
        """Check whether the pattern matches other topics than before. The group leader also checks whether a topic of
        the last assignment has changed.
        """
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
        """Send LeaveGroup for a dynamic member. A static member stays until its session expires."""
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
