"""Bundle the objects that the parts of one classic group have in common, such as its state and its sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from kafkalite.broker.coordinator.base import Environment
    from kafkalite.broker.coordinator.classic_state import ClassicState
    from kafkalite.broker.coordinator.member_answers import MemberAnswers
    from kafkalite.broker.coordinator.member_memory import MemberMemory
    from kafkalite.broker.coordinator.member_sessions import MemberSessions
    from kafkalite.broker.coordinator.pending_members import PendingMembers


@dataclass(frozen=True, slots=True)
class ClassicParts:
    """The common objects of one classic group, for the parts that answer requests and rebalance."""

    classic: ClassicState
    answers: MemberAnswers
    sessions: MemberSessions
    pending: PendingMembers
    memory: MemberMemory
    environment: Environment
    changing: Callable[[], AbstractContextManager[None]]
    """Takes the group's lock."""
