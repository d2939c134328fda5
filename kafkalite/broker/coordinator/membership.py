"""Members that come, change and go."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator import consumer_records as stored
from kafkalite.broker.coordinator.assignors import ASSIGNORS, Assignment, Subscriber
from kafkalite.broker.coordinator.consumer_state import ConsumerMember, reconciled, topic_ids
from kafkalite.broker.coordinator.downgrade import Downgrade
from kafkalite.errors import FencedInstanceId, UnknownMemberId

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)


class Recognised(NamedTuple):
    """Who asks: the member as it was, and the id it had before if it is a static one that came back."""

    member: ConsumerMember
    replaces: str = ""


class Membership(Downgrade):
    """See the module."""

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
