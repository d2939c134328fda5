"""A group of the newer protocol without a broker: a turned clock, topics in a dict, a log that can be read again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kafkalite.broker.coordinator import consumer_records
from kafkalite.broker.coordinator.base import Environment
from kafkalite.broker.coordinator.consumer_environment import ConsumerEnvironment, Timing
from kafkalite.broker.coordinator.consumer_group import ConsumerGroup
from kafkalite.broker.coordinator.consumer_heartbeats import HeartbeatCaller
from kafkalite.broker.coordinator.consumer_replay import ConsumerReplay
from kafkalite.broker.coordinator.metadata_hash import MetadataHashes, OwnRack
from kafkalite.broker.coordinator.timer_queue import TimerQueue
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness.group_bench import Writes

if TYPE_CHECKING:
    from kafkalite._native.serve.memory import MemoryCeiling
    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.coordinator.base import GroupBase
    from kafkalite.broker.coordinator.consumer_environment import Describes
    from kafkalite.broker.coordinator.consumer_state import ConsumerState
    from kafkalite.broker.limits.holder import Holder
    from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

SESSION_S = 45.0
REBALANCE_S = 60.0

Owned = dict[bytes, list[int]]


def topic_id(name: str) -> bytes:
    return hashlib.md5(name.encode(), usedforsecurity=False).digest()


@dataclass
class LoggedWrites(Writes):
    """Writes that are kept once they are durable."""

    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def settle(self) -> int:
        count = 0
        while self.waiting:
            _, records, callback = self.waiting.pop(0)
            if not self.failing:
                self.log += records
            callback(self.failing)
            count += 1
        return count


class ConsumerBench:
    """A group and what the outside world does to it. Times in seconds."""

    def __init__(
        self, topics: dict[str, int] | None = None, *, size_max: int = 1000, memory: MemoryCeiling | None = None
    ) -> None:
        self.memory = memory
        self.clock = FakeClock()
        self.timers = TimerQueue(self.clock, threaded=False)
        self.writes = LoggedWrites()
        self.topics: dict[str, Any] = {}
        self.timing = Timing(5000, int(SESSION_S * 1000))
        self.size_max = size_max
        self.successor: GroupBase | None = None
        for name, count in (topics or {"orders": 4}).items():
            self.set_topic(name, count, tell=False)
        self.group = self._make()

    def _make(self) -> ConsumerGroup:
        return ConsumerGroup(
            "g",
            Environment(self.clock, self.timers, self.writes.write, 0, 1000, 100, memory=self.memory),
            ConsumerEnvironment(
                topics=lambda: self.topics,
                hashes=MetadataHashes(OwnRack(None)),
                run_soon=lambda work: work(),
                timing=lambda _group: self.timing,
                size_max=self.size_max,
                assignors=("uniform", "range"),
                downgrades=True,
                succeed=self._succeed,
            ),
        )

    def _succeed(self, group: GroupBase, successor: GroupBase) -> None:
        group.bury_locked()
        self.successor = successor

    def set_topic(self, name: str, count: int, *, tell: bool = True, generation: int = 0) -> None:
        """Set a topic's number of partitions; 0 deletes it."""
        if count:
            made = SimpleNamespace(name=name, id=topic_id(f"{name}{generation or ''}"), partitions=(None,) * count)
            self.topics = {**self.topics, name: made}
        else:
            self.topics = {other: topic for other, topic in self.topics.items() if other != name}
        if tell:
            self.group.topic_changed(name)
            self.settle()

    def replayed(self) -> dict[str, ConsumerState]:
        """Return the state replayed from the log."""
        replay = ConsumerReplay()
        for key, value in self.writes.log:
            kind = consumer_records.kind_of(key)
            if kind in consumer_records.KINDS:
                replay.take(kind, key, value)
            elif value is not None:
                replay.drop("g")  # it is a classic group from here on
        return replay.finish()

    def restart(self) -> None:
        """The broker dies and comes back: what was not durable is gone."""
        self.writes.waiting.clear()
        self.timers = TimerQueue(self.clock, threaded=False)
        self.group = self._make()
        state = self.replayed().get("g")
        if state is not None:
            self.group.restore(state)
            self.group.wake()
        self.settle()

    def settle(self) -> None:
        while self.writes.at_once and self.writes.settle():
            pass

    def pass_time(self, seconds: float, step: float = 1.0) -> None:
        """Time passes in small steps, so that timers set by timers fire too."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.advance(min(step, end - self.clock.monotonic()))
            self.timers.run_due()
            self.settle()

    def beat(
        self,
        member_id: str = "m1",
        epoch: int = 0,
        *,
        owned: Owned | None = None,
        topics: list[str] | None = None,
        expression: str | None = None,
        instance: str | None = None,
        rebalance_s: float | None = None,
        assignor: str | None = None,
        holder: Holder | None = None,
        describes: Describes | None = None,
    ) -> Deferred[ConsumerGroupHeartbeatResponse]:
        """One heartbeat, field by field."""
        rows = None
        if owned is not None:
            rows = [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic, partitions=numbers)
                for topic, numbers in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance,
            rebalance_timeout_ms=-1 if rebalance_s is None else int(rebalance_s * 1000),
            subscribed_topic_names=topics,
            subscribed_topic_regex=expression,
            server_assignor=assignor,
            topic_partitions=rows,
        )
        answer = self.group.heartbeat(request, HeartbeatCaller("c", "/1.2.3.4", describes, holder))
        self.settle()
        return answer

    def join(
        self, member_id: str = "m1", *topics: str, instance: str | None = None, **more: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """The answer to a first heartbeat."""
        names = None if "expression" in more and not topics else list(topics or ("orders",))
        more.setdefault("rebalance_s", REBALANCE_S)
        return self.beat(member_id, 0, owned={}, topics=names, instance=instance, **more).response

    def code(self, *args: Any, **more: Any) -> int:
        return int(self.beat(*args, **more).response.error_code)

    def given(self, response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
        """An answer's assignment with names; None when it has none."""
        if response.assignment is None:
            return None
        names = {topic.id: name for name, topic in self.topics.items()}
        return {names.get(row.topic_id, "gone"): row.partitions for row in response.assignment.topic_partitions}
