"""One group of the newer protocol (KIP-848): members say what they read, the broker says who reads what.

    Empty ──join──▶ Assigning ──target made──▶ Reconciling ──all arrived──▶ Stable      (Dead: deleted or taken over)

A heartbeat makes the target assignment when the group epoch is ahead of it, and takes its member one step towards its
target (`consumer_state.reconciled`). A member that does not give up in time what it has to, or is not heard of, is out.
What a heartbeat changes is part of a turn (`operation_queue`), and answered when that is durable.

Thread rule: as `base` says. Turns run under the lock, on the thread of whoever came, or on the I/O pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from kafkalite.base.deferred import Deferred
from kafkalite.broker.coordinator.base import CONSUMER_PROTOCOL
from kafkalite.broker.coordinator.consumer_environment import Move
from kafkalite.broker.coordinator.consumer_heartbeats import ConsumerHeartbeats
from kafkalite.broker.coordinator.consumer_state import ConsumerMember, ConsumerState
from kafkalite.broker.coordinator.conversion import creation_records, erasing_records
from kafkalite.errors import (
    ErrorCode,
    KafkaError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.broker.coordinator.group import Group
    from kafkalite.broker.coordinator.group_offsets import Committed
    from kafkalite.broker.coordinator.records import Record


COMMIT_VERSION_MIN: Final = 9


class ConsumerGroup(ConsumerHeartbeats):
    """One group of the newer protocol and its committed offsets."""

    kind: ClassVar[str] = "consumer"
    protocol_type = CONSUMER_PROTOCOL

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

    # --- time ---------------------------------------------------------------------------------------------------------

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
