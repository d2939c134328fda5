"""One group without a broker: a clock that is turned by hand, and a log whose writes end when the test says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite.broker.coordinator.base import RECORD_SIZE_MAX, Environment
from kafkalite.broker.coordinator.group import Group
from kafkalite.broker.coordinator.members import Caller
from kafkalite.broker.coordinator.timer_queue import TimerQueue
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.kit.fakes.clock import FakeClock

if TYPE_CHECKING:
    from kafkalite._native.serve.memory import MemoryCeiling
    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.limits.holder import Holder
    from kafkalite.wire.protocol.messages.join_group import JoinGroupResponse
    from kafkalite.wire.protocol.messages.sync_group import SyncGroupResponse


@dataclass
class Writes:
    """What groups handed to the log, in order."""

    waiting: list[tuple[str, list[Any], Any]] = field(default_factory=list)
    at_once: bool = True
    failing: int = 0

    def write(self, group_id: str, records: list[Any], callback: Any) -> None:
        self.waiting.append((group_id, records, callback))

    def settle(self) -> int:
        """Ends all writes; how many there were."""
        count = 0
        while self.waiting:
            _, _, callback = self.waiting.pop(0)
            callback(self.failing)
            count += 1
        return count


class GroupBench:
    """A group and what the outside world does to it. Times in seconds."""

    def __init__(
        self,
        *,
        initial_delay_ms: int = 0,
        size_max: int = 1000,
        pending_max: int = 100,
        memory: MemoryCeiling | None = None,
        record_size_max: int = RECORD_SIZE_MAX,
    ) -> None:
        self.clock = FakeClock()
        self.timers = TimerQueue(self.clock, threaded=False)
        self.writes = Writes()
        self.group = Group(
            "g",
            Environment(
                self.clock,
                self.timers,
                self.writes.write,
                initial_delay_ms,
                size_max,
                pending_max,
                lambda: record_size_max,
                memory,
            ),
        )

    def pass_time(self, seconds: float, step: float = 1.0) -> None:
        """Time passes in small steps, so that timers set by timers fire too."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.advance(min(step, end - self.clock.monotonic()))
            self.timers.run_due()
            self.settle()

    def settle(self) -> None:
        if self.writes.at_once:
            self.writes.settle()

    def join(
        self,
        member_id: str = "",
        instance: str | None = None,
        *,
        version: int = 9,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"m"),),
        protocol_type: str = "consumer",
        session_s: float = 10.0,
        rebalance_s: float = 60.0,
        client: str = "c",
        holder: Holder | None = None,
    ) -> Deferred[JoinGroupResponse]:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=int(session_s * 1000),
            rebalance_timeout_ms=int(rebalance_s * 1000),
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        )
        caller = Caller(client, "/1.2.3.4", takes_member_id=version >= 4, skips_assignment=version >= 9, holder=holder)
        answer = self.group.join(request, caller)
        self.settle()
        return answer

    def new_member(self, **options: Any) -> tuple[str, Deferred[JoinGroupResponse]]:
        """The two joins of a dynamic member; (its id, the second answer)."""
        promised = self.join(**options).response
        assert promised.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return promised.member_id, self.join(promised.member_id, **options)

    def sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **more: Any
    ) -> Deferred[SyncGroupResponse]:
        given = [
            SyncGroupRequestAssignment(member_id=key, assignment=value) for key, value in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            group_id="g", generation_id=generation, member_id=member_id, assignments=given, **more
        )
        answer = self.group.sync(request)
        self.settle()
        return answer

    def heartbeat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> int:
        return int(
            self.group.heartbeat(member_id, instance, self.group.generation if generation is None else generation)
        )

    def leave(self, member_id: str, instance: str | None = None) -> int:
        code = int(self.group.leave(member_id, instance))
        self.settle()
        return code

    def stable(self, count: int = 1, **options: Any) -> list[str]:
        """Return the ids of `count` dynamic members of a stable group, the leader first."""
        ids = [self.new_member(**options)[0] for _ in range(count)]
        answers = [self.join(member_id, **options) for member_id in ids] if count > 1 else []
        assert all(answer.done for answer in answers)
        self.sync_all()
        leader = self.group.leader
        assert leader is not None
        return [leader, *(member_id for member_id in ids if member_id != leader)]

    def sync_all(self) -> None:
        """Every member syncs, the leader last."""
        assert self.group.leader is not None
        assignments = {member_id: f"for {member_id}".encode() for member_id in self.group.members}
        followers = [member_id for member_id in self.group.members if member_id != self.group.leader]
        answers = [self.sync(member_id, self.group.generation) for member_id in followers]
        answers.append(self.sync(self.group.leader, self.group.generation, assignments))
        assert all(answer.done and answer.response.error_code == 0 for answer in answers)
