"""Bundle the parts of one consumer group (KIP-848) that serve its members' requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from kafkalite.broker.coordinator.base import GroupBase
    from kafkalite.broker.coordinator.consumer_environment import ConsumerEnvironment
    from kafkalite.broker.coordinator.downgrade import Downgrade
    from kafkalite.broker.coordinator.member_memory import ConsumerMemory
    from kafkalite.broker.coordinator.member_timers import MemberTimers
    from kafkalite.broker.coordinator.membership import Membership
    from kafkalite.broker.coordinator.operation_queue import OperationQueue
    from kafkalite.broker.coordinator.staged_changes import StagedChanges
    from kafkalite.broker.coordinator.subscriptions import Subscriptions


@dataclass(frozen=True, slots=True)
class ConsumerParts:
    """The parts of one group."""

    group: GroupBase
    consumers: ConsumerEnvironment
    changes: StagedChanges
    memory: ConsumerMemory
    subscriptions: Subscriptions
    membership: Membership
    timers: MemberTimers
    operations: OperationQueue
    downgrade: Downgrade
