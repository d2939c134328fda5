"""Change the members of a consumer group (KIP-848): they join, subscribe, are reconciled, leave or are fenced.

    update ─▶ subscription changed? ─▶ bump the group epoch ─▶ compute the target assignment ─▶ reconcile the member

A ConsumerGroupHeartbeat takes these steps, and so does a classic member's JoinGroup (`classic_members`). The last step
takes the member one step towards its target assignment.

Thread rule: guarded by the group's lock.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator.assignors import ASSIGNORS, Subscriber
from kafkalite.broker.coordinator.consumer_state import reconciled, topic_ids
from kafkalite.errors import FencedInstanceId, GroupMaxSizeReached, KafkaError, UnknownMemberId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite.broker.coordinator.assignors import Assignment
    from kafkalite.broker.coordinator.consumer_environment import ConsumerEnvironment
    from kafkalite.broker.coordinator.consumer_state import ConsumerMember, ConsumerState
    from kafkalite.broker.coordinator.downgrade import Downgrade
    from kafkalite.broker.coordinator.staged_changes import StagedChanges
    from kafkalite.broker.coordinator.subscriptions import Subscriptions

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)


class Recognised(NamedTuple):
    """The member that sent a request, in its state before the request."""

    member: ConsumerMember
    replaces: ConsumerMember | None = None
    """The same static member under its earlier member id."""


class Membership:
    """The members of one group and their assignments."""

    __slots__ = ("_changes", "_consumers", "_downgrade", "_group_id", "_subscriptions")

    def __init__(
        self,
        group_id: str,
        consumers: ConsumerEnvironment,
        changes: StagedChanges,
        subscriptions: Subscriptions,
        downgrade: Downgrade,
    ) -> None:
        self._group_id = group_id
        self._consumers = consumers
        self._changes = changes
        self._subscriptions = subscriptions
        self._downgrade = downgrade

    # --- who it is ----------------------------------------------------------------------------------------------------

    def check_size(self, member_id: str) -> None:
        """Raise GroupMaxSizeReached if the group would exceed group.consumer.max.size with this member."""
        members = self._changes.staged.members
        if member_id not in members and len(members) >= self._consumers.size_max:
            raise GroupMaxSizeReached(f"group {self._group_id} already has its maximum of {len(members)} members")

    def find(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the member with these ids; raise UnknownMemberId or FencedInstanceId if no member has them."""
        state = self._changes.staged
        if instance_id is not None:
            return self.find_static(state, instance_id, member_id)
        member = state.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"member {member_id} is not in group {self._group_id}")
        return member

    def find_static(self, state: ConsumerState, instance_id: str, member_id: str) -> ConsumerMember:
        """Return the member with a group.instance.id.

        UnknownMemberId if there is none; FencedInstanceId if that member has another member id.
        """
        holder = state.members.get(state.static_ids.get(instance_id, ""))
        if holder is None:
            raise UnknownMemberId(f"group {self._group_id} has no member with instance id {instance_id}")
        if holder.member_id != member_id:
            raise FencedInstanceId(f"instance id {instance_id} is in use by member {holder.member_id}")
        return holder

    # --- changes ------------------------------------------------------------------------------------------------------

    def update(
        self, before: Recognised, after: ConsumerMember, owned: Assignment | None
    ) -> tuple[ConsumerMember, bool]:
        """Update a member with the data of a request, and reconcile it. Return (the member, whether its subscription
        changed).

        `owned` has the partitions that the client reports as owned; None if its request lacks this list.
        """
        changed = self._put(before.member, after, before.replaces)
        staged = self._changes.staged
        if staged.epoch > staged.target_epoch:
            self._assign()
        return self._reconcile(after.member_id, owned, subscription_changed=changed), changed

    def leave(self, leaving: Sequence[tuple[str, str | None]]) -> list[int]:
        """Remove the members that leave; return a code for each. `leaving` has (member id or "", instance id) for
        each.
        """
        codes: list[int] = []
        gone: dict[str, ConsumerMember] = {}
        for member_id, instance_id in leaving:
            if instance_id is not None and not member_id:
                member_id = self._changes.staged.static_ids.get(instance_id, "")
            try:
                member = self.find(member_id, instance_id)
            except KafkaError as error:
                codes.append(error.code)
            else:
                gone[member.member_id] = member
                codes.append(0)
        if gone:
            self.fence(list(gone.values()), "removed by a LeaveGroup request")
        return codes

    def fence(self, members: Sequence[ConsumerMember], why: str) -> None:
        """Remove members and bump the group epoch. If the rest may be a classic group, downgrade the group instead."""
        for member in members:
            logger.info("member removed", extra=fields(group=self._group_id, member=member.member_id, why=why))
        gone = {member.member_id for member in members}
        if self._downgrade.is_possible(gone):
            self._downgrade.stage(
                gone, self._changes.staged.epoch, "the last member that used ConsumerGroupHeartbeat has left"
            )
            return
        for member in members:
            self._changes.remove_member(member)
        for member in members:
            self._subscriptions.drop_unused(member.expression)
        self._subscriptions.bump_epoch()

    def _put(self, before: ConsumerMember, after: ConsumerMember, replaced: ConsumerMember | None) -> bool:
        """Store the updated member; return whether its subscription changed."""
        changes, subscriptions = self._changes, self._subscriptions
        if replaced is not None:
            target = changes.staged.targets.get(replaced.member_id, {})
            changes.remove_member(replaced)
            changes.put_target(after.member_id, target)
        if after != before or after.member_id not in changes.staged.members:
            changes.put_member(after)
            if replaced is not None:
                changes.put_position(after)
        if after.expression:
            subscriptions.resolve(after.expression)
        changed = after.topics != before.topics or after.expression != before.expression
        if after.expression != before.expression:
            subscriptions.drop_unused(before.expression)
        if changed or changes.staged.epoch == 0:
            subscriptions.bump_epoch()
        return changed

    def _assign(self) -> None:
        """Compute the target assignment for the group epoch."""
        state, topics = self._changes.edit(), self._consumers.topics()
        counts = {topics[name].id: len(topics[name].partitions) for name in state.subscribed() & topics.keys()}
        members = {
            member_id: Subscriber(topic_ids(state.topics_of(member), topics), state.targets.get(member_id, {}))
            for member_id, member in state.members.items()
        }
        assign = ASSIGNORS[state.assignor(self._consumers.assignors[0])]
        for member_id, target in assign(members, counts).items():
            if state.targets.get(member_id) != target:
                self._changes.put_target(member_id, target)
        self._changes.put_target_epoch(state.epoch)
        logger.info("group assigned", extra=fields(group=self._group_id, epoch=state.epoch, members=len(state.members)))

    def _reconcile(self, member_id: str, owned: Assignment | None, *, subscription_changed: bool) -> ConsumerMember:
        """Take a member one step towards its target assignment."""
        state = self._changes.staged
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
            self._changes.put_position(after)
        return after
