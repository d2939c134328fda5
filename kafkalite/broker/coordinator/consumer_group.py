"""Manage one consumer group (KIP-848): members subscribe to topics, and the broker assigns their partitions.

    Empty ──join──▶ Assigning ──assignment──▶ Reconciling ──all members done──▶ Stable       (Dead: deleted, replaced)

    ConsumerGroup ─┬─ ConsumerHeartbeats    ConsumerGroupHeartbeat
                   ├─ ClassicMembers        JoinGroup, SyncGroup and Heartbeat of classic members
                   ├─ Membership            members join, change, are reconciled, leave and are fenced
                   ├─ Subscriptions         the subscribed topics
                   ├─ Downgrade             the conversion to a classic group
                   ├─ OperationQueue        changes of requests and timeouts, in batches of one write
                   ├─ MemberTimers          sessions, revocations, joins and syncs
                   ├─ ConsumerMemory        members' memory
                   └─ StagedChanges         the state that all of these read and change, and its records

Thread rule: as in `base`. A batch runs under the lock, on the thread that adds an operation or on the I/O pool.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from kafkalite.base.deferred import Deferred
from kafkalite.broker.coordinator.base import CONSUMER_PROTOCOL, GroupBase
from kafkalite.broker.coordinator.classic_members import ClassicMembers
from kafkalite.broker.coordinator.consumer_heartbeats import ConsumerHeartbeats, member_of, refusal
from kafkalite.broker.coordinator.consumer_parts import ConsumerParts
from kafkalite.broker.coordinator.consumer_state import ConsumerState
from kafkalite.broker.coordinator.downgrade import Downgrade
from kafkalite.broker.coordinator.member_memory import ConsumerMemory
from kafkalite.broker.coordinator.member_timers import MemberTimers
from kafkalite.broker.coordinator.membership import Membership
from kafkalite.broker.coordinator.operation_queue import Operation, OperationQueue
from kafkalite.broker.coordinator.staged_changes import StagedChanges
from kafkalite.broker.coordinator.subscriptions import Subscriptions
from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.broker.coordinator.base import Environment
    from kafkalite.broker.coordinator.consumer_environment import ConsumerEnvironment
    from kafkalite.broker.coordinator.consumer_heartbeats import HeartbeatCaller
    from kafkalite.broker.coordinator.group import Group
    from kafkalite.broker.coordinator.group_offsets import Committed
    from kafkalite.broker.coordinator.member_timers import Overdue
    from kafkalite.broker.coordinator.members import Caller
    from kafkalite.broker.coordinator.records import Record
    from kafkalite.wire.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

COMMIT_VERSION_MIN: Final = 9


class ConsumerGroup(GroupBase):
    """One consumer group and its committed offsets."""

    kind: ClassVar[str] = "consumer"
    protocol_type = CONSUMER_PROTOCOL

    def __init__(
        self,
        group_id: str,
        environment: Environment,
        consumers: ConsumerEnvironment,
        predecessor: GroupBase | None = None,
        preface: Sequence[Record] = (),
    ) -> None:
        """Create an empty group.

        If the group replaces another one, `preface` has the records that erase the old group. The first write of this
        group begins with them.
        """
        super().__init__(group_id, environment, predecessor)
        self._consumers = consumers
        self._changes = changes = StagedChanges(group_id, preface)
        self._charges = ConsumerMemory(self._memory)
        self._subscriptions = Subscriptions(group_id, environment.clock, consumers, changes)
        downgrade = Downgrade(self, consumers, changes)
        self._membership = Membership(group_id, consumers, changes, self._subscriptions, downgrade)
        self._timers = MemberTimers(group_id, environment.timers, consumers.timing, changes, self._timed_out)
        self._operations = OperationQueue(self, consumers, changes, self._charges, self._timers, downgrade)
        parts = ConsumerParts(
            group=self,
            consumers=consumers,
            changes=changes,
            memory=self._charges,
            subscriptions=self._subscriptions,
            membership=self._membership,
            timers=self._timers,
            operations=self._operations,
            downgrade=downgrade,
        )
        self._heartbeats = ConsumerHeartbeats(parts)
        self._classic = ClassicMembers(parts)

    def __repr__(self) -> str:
        state = self.state
        return f"<ConsumerGroup {self.group_id!r} {self.state_name}, {len(state.members)} members, epoch {state.epoch}>"

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """The durable state. Read it under the lock; one single look-up needs no lock."""
        return self._changes.durable

    @property
    def state_name(self) -> str:
        return "Dead" if self._operations.closed else self._changes.durable.name

    @property
    def dead(self) -> bool:
        return self._operations.closed

    @property
    def member_count(self) -> int:
        return len(self._changes.durable.members)

    @property
    def empty(self) -> bool:
        operations, changes = self._operations, self._changes
        return not (operations.closed or changes.staged.members or changes.durable.members or operations.busy)

    @property
    def expendable(self) -> bool:
        return self.empty

    @property
    def assigns_next(self) -> bool:
        """Whether the next heartbeat computes a target assignment, which may take long."""
        return self._changes.staged.epoch > self._changes.staged.target_epoch

    def assignor_locked(self) -> str:
        """Return the assignor in use."""
        return self._changes.durable.assignor(self._consumers.assignors[0])

    def commit_error_locked(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        version: int = 9,
        *,
        transactional: bool = False,
    ) -> int:
        """Return the error code if this member may not commit now, else 0. The generation must be the member's epoch.

        A commit without an epoch comes from an administrator, or from a consumer that is not a member. It is allowed
        while the group is empty.
        """
        if self._operations.closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and not self._changes.staged.members:
            return 0
        if transactional and generation < 0 and not member_id and instance_id is None:
            return 0
        member = self._changes.staged.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        classic = member.classic is not None
        if version < COMMIT_VERSION_MIN and not transactional and not classic:
            return ErrorCode.UNSUPPORTED_VERSION
        if generation == member.epoch:
            return 0
        return ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH

    def fetch_error_locked(self, member_id: str | None, member_epoch: int) -> int:
        if self._operations.closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not member_id and member_epoch < 0:
            return 0
        member = self._changes.durable.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.epoch:
            return 0
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    def offset_delete_error_locked(self) -> int:
        return ErrorCode.GROUP_ID_NOT_FOUND if self._operations.closed else 0

    def subscribes_locked(self, topic: str) -> bool:
        return topic in self._changes.staged.subscribed()

    def kept_since_locked(self, topic: str, committed: Committed) -> int | None:
        return None if self.subscribes_locked(topic) else committed.commit_ms

    # --- requests -----------------------------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: HeartbeatCaller,
        again: Callable[[], Deferred[ConsumerGroupHeartbeatResponse]] | None = None,
    ) -> Deferred[ConsumerGroupHeartbeatResponse]:
        """Handle ConsumerGroupHeartbeat, whose fields the handler has checked. If it changes the group, the response
        waits until the changes are durable.

        `again` sends the request to the group that has replaced this group (see `Operation`).
        """
        answer: Deferred[ConsumerGroupHeartbeatResponse] = Deferred()
        run = partial(self._heartbeats.run, request, caller)
        self._operations.ask(Operation(run, answer, refusal, member_of, again))
        return answer

    def join(
        self, request: JoinGroupRequest, caller: Caller, again: Callable[[], Deferred[JoinGroupResponse]] | None = None
    ) -> Deferred[JoinGroupResponse]:
        """Handle JoinGroup; the response waits until its changes are durable.

        `again` sends the request to the group that has replaced this group (see `Operation`).
        """
        return self._classic.join(request, caller, again)

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Handle SyncGroup; the response has the member's assignment."""
        return self._classic.sync(request)

    def classic_heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Handle Heartbeat: extend the session; return REBALANCE_IN_PROGRESS if the member has to rejoin."""
        return self._classic.heartbeat(member_id, instance_id, generation)

    def leave(
        self, leaving: Sequence[tuple[str, str | None]], again: Callable[[], Deferred[list[int]]] | None = None
    ) -> Deferred[list[int]]:
        """Handle LeaveGroup; return a code for each member. `leaving` has (member id or "", instance id) for each.

        `again` sends the request to the group that has replaced this group (see `Operation`).
        """
        answer: Deferred[list[int]] = Deferred()
        run = partial(self._membership.leave, leaving)
        self._operations.ask(Operation(run, answer, lambda code, _text: [code] * len(leaving), again=again))
        return answer

    def topic_changed(self, name: str) -> None:
        """Handle a topic that was created or deleted, or has more partitions."""
        with self.changing():
            operations, subscriptions = self._operations, self._subscriptions
            if not operations.closed and (operations.busy or subscriptions.may_read(name)):
                operations.submit_locked(Operation(lambda: subscriptions.refresh({name})))

    def _timed_out(self, overdue: Overdue, why: str) -> None:
        """Fence a member that missed a timeout."""

        def fence() -> None:
            member = overdue()
            if member is not None:
                self._membership.fence([member], why)

        self._operations.submit(fence)

    # --- from load to stop --------------------------------------------------------------------------------------------

    def restore(self, state: ConsumerState) -> None:
        """Set the state that was read from the log, before the group is in the table. `wake` starts the sessions."""
        with self.changing():
            self._changes.restore(state)

    def wake(self) -> None:
        with self.changing():
            if not self._operations.closed:
                self._operations.members_changed_locked(ConsumerState())
                self._operations.submit_locked(Operation(lambda: self._subscriptions.refresh(None)))

    def tombstones_locked(self) -> list[Record]:
        return self._changes.tombstones()

    def take_over_locked(self, group: Group, state: ConsumerState) -> None:
        """Take the place of a classic group; `state` has its members as `conversion.upgraded` returns them.

        The heartbeat that caused the upgrade writes the group's records together with its own changes.
        """
        self._changes.replace_classic(group, state)
        self._operations.members_changed_locked(ConsumerState())

    def bury_locked(self) -> None:
        self._operations.closed = True
        self._charges.release()
        self._timers.cancel()

    def exhume_locked(self) -> None:
        self._operations.closed = False

    def stop(self) -> None:
        with self.changing():
            self._timers.cancel()
            self._operations.refuse_all_locked()
