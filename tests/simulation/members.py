"""Members of one group for a simulation, of both protocols, who take turns, change sides, leave and fall silent.

A member follows its protocol as a client does: eager ones give all up before they join, cooperative ones and those of
the newer protocol (KIP-848) revoke what they must, before they report it. Eager ones speak the cooperative assignor's
protocol too, as while a group is rolled from one to the other. What each believes to have is in `Table`, which looks
for partitions with two owners at each new assignment: of two members known to the broker only one may own it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite.broker.coordinator.consumer_group import ConsumerGroup
from kafkalite.broker.coordinator.consumer_heartbeats import HeartbeatCaller
from kafkalite.broker.coordinator.group import Group
from kafkalite.broker.coordinator.members import Caller
from kafkalite.broker.coordinator.offset_requests import Offset
from kafkalite.client.group.assignors import CooperativeStickyAssignor, RangeAssignor
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.wire.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulation.workload import patiently
from tests.simulation.world import Lost

if TYPE_CHECKING:
    from tests.simulation.workload import Promises, Steps
    from tests.simulation.world import Client, Node, Program

GROUP, TOPIC, COUNT = "mixed", "m", 5
BEAT_S = 1.0
SESSION_MS, REBALANCE_MS = 10_000, 8_000
KINDS = ("eager", "cooperative", "newer")
SETTINGS = {
    "group_consumer_session_timeout_ms": SESSION_MS,
    "group_consumer_heartbeat_interval_ms": 1000,
    "group_initial_rebalance_delay_ms": 0,
}
COMES_BACK = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
}


@dataclass
class Table:
    """What members believe, and what of it cannot be."""

    members: dict[str, Life] = field(default_factory=dict)
    """By the client's name: the life it leads now."""
    broken: list[str] = field(default_factory=list)
    kinds_seen: set[str] = field(default_factory=set)
    """Of the group, by what was asked of it."""
    may_end: bool = False

    def takes(self, node: Node, taker: Life, partitions: set[int]) -> None:
        for other in self.members.values():
            both = other.owned & partitions
            if other is not taker and both and knows(node, other):
                self.broken.append(f"{taker.name} ({taker.kind}) takes {sorted(both)}, {other.name} ({other.kind}) has")
        taker.owned = set(partitions)

    def settled(self) -> bool:
        """Return whether each partition has one owner, and no member gets a new assignment."""
        lives = list(self.members.values())
        owned = sorted(number for life in lives for number in life.owned)
        return owned == list(range(COUNT)) and all(life.quiet > 3 for life in lives)


def knows(node: Node, life: Life) -> bool:
    """Whether the broker takes a member for one who has what it was given."""
    group = node.groups.find(GROUP) if node.up else None
    if isinstance(group, ConsumerGroup):
        member = group.state.members.get(life.member_id)
        return member is not None and member.epoch == life.epoch
    if isinstance(group, Group):
        return life.member_id in group.members and group.generation == life.epoch
    return False


@dataclass
class Life:
    """A client's process: one member, of one kind."""

    name: str
    kind: str
    instance: str | None
    draw: random.Random
    member_id: str = ""
    epoch: int = -1
    owned: set[int] = field(default_factory=set)
    quiet: int = 0

    def forget(self) -> None:
        self.owned = set()
        self.epoch = 0 if self.kind == "newer" else -1
        self.quiet = 0


def member(node: Node, promises: Promises, table: Table, lives: int) -> Program:
    """A client that lives several times, and the last time until the table says that all may end."""

    def program(client: Client) -> Steps:
        for number in range(lives):
            draw = client.draw
            kind = KINDS[draw.randrange(len(KINDS))]
            instance = client.name if draw.random() < 0.3 else None
            life = table.members[client.name] = Life(client.name, kind, instance, draw)
            life.member_id = f"{client.name}.{number}" if kind == "newer" else ""
            life.forget()
            last = number == lives - 1
            beats = None if last else draw.randint(1, 25)
            step = newer if kind == "newer" else classic
            while not table.may_end and (beats is None or beats > 0):
                yield from patiently(node)
                try:
                    yield from step(node, table, life)
                    yield from commit(node, promises, table, life)
                except Lost:
                    life.quiet = 0
                beats = None if beats is None else beats - 1
                yield BEAT_S * (0.5 + draw.random())
            if draw.random() < 0.7:
                yield from leaving(node, life)
            if not last:
                del table.members[client.name]
                yield draw.random() * 5
        life.owned = set()

    return program


def commit(node: Node, promises: Promises, table: Table, life: Life) -> Steps:
    """Members commit what they have; those whom the broker does not know any more may not."""
    if not life.owned or life.epoch <= 0:
        return
    asked = Offset(TopicPartition(TOPIC, min(life.owned)), promises.answers, -1, "")
    group = node.groups.find(GROUP)
    table.kinds_seen.add("none" if group is None else group.kind)
    yield node.groups.offsets.commit(GROUP, life.member_id, life.instance, life.epoch, [asked])
    promises.answers += 1


def leaving(node: Node, life: Life) -> Steps:
    life.owned = set()
    if not node.up:
        return
    try:
        if life.kind == "newer":
            yield node.groups.consumer_heartbeat(heartbeat(life, node, -1), HeartbeatCaller("c", "/1.2.3.4"))
        elif node.groups.error_of(GROUP) == 0:
            yield node.groups.leave(GROUP, [(life.member_id, life.instance)])
    except Lost:
        return


# ---- the newer protocol ---------------------------------------------------------------------------------------------


def heartbeat(life: Life, node: Node, epoch: int, **more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id=life.member_id, member_epoch=epoch, instance_id=life.instance, **more
    )


def newer(node: Node, table: Table, life: Life) -> Steps:
    """One heartbeat, which says everything each time."""
    topic_id = node.logs.topics[TOPIC].id
    rows = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=sorted(life.owned))]
    request = heartbeat(
        life,
        node,
        life.epoch,
        rebalance_timeout_ms=REBALANCE_MS,
        subscribed_topic_names=[TOPIC],
        topic_partitions=rows if life.owned else [],
    )
    answer = yield node.groups.consumer_heartbeat(request, HeartbeatCaller("c", "/1.2.3.4"))
    if answer.error_code in COMES_BACK:
        life.forget()
    if answer.error_code:
        life.quiet = 0
        return
    given = {number for row in answer.assignment.topic_partitions for number in row.partitions}
    same = (life.epoch, life.owned) == (answer.member_epoch, given)
    life.epoch = answer.member_epoch
    table.takes(node, life, given)
    life.quiet = life.quiet + 1 if same else 0


# ---- the classic protocol -------------------------------------------------------------------------------------------


def classic(node: Node, table: Table, life: Life) -> Steps:
    """Send a heartbeat, and follow its response."""
    if life.epoch >= 0:
        code = node.groups.heartbeat(GROUP, life.member_id, life.instance, life.epoch)
        if code == 0:
            life.quiet += 1
            return
        life.quiet = 0
        if code in COMES_BACK:
            lost(life, code)
        elif code != ErrorCode.REBALANCE_IN_PROGRESS:
            return
    yield from join(node, table, life)


def lost(life: Life, code: int) -> None:
    life.forget()
    if code != ErrorCode.ILLEGAL_GENERATION:
        life.member_id = ""


def join(node: Node, table: Table, life: Life) -> Steps:
    if life.kind == "eager":
        life.owned = set()
    owned = tuple(TopicPartition(TOPIC, number) for number in sorted(life.owned))
    names = ("cooperative-sticky", "range") if life.kind == "eager" else ("cooperative-sticky",)
    metadata = encode_subscription(Subscription((TOPIC,), owned=owned, generation=life.epoch))
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=life.member_id,
        group_instance_id=life.instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names],
    )
    answer = yield node.groups.join(request, Caller("c", "/1.2.3.4", takes_member_id=True, skips_assignment=True))
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        life.member_id = answer.member_id
    if answer.error_code in COMES_BACK:
        lost(life, answer.error_code)
    if answer.error_code:
        return
    life.member_id, life.epoch = answer.member_id, answer.generation_id
    yield life.draw.random() * BEAT_S / 2  # others act in between
    yield from patiently(node)
    yield from sync(node, table, life, answer)


def sync(node: Node, table: Table, life: Life, joined: Any) -> Steps:
    given: dict[str, list[TopicPartition]] = {}
    if joined.leader == life.member_id and not joined.skip_assignment:
        members = {row.member_id: decode_subscription(row.metadata, row.group_instance_id) for row in joined.members}
        assignor = RangeAssignor() if joined.protocol_name == "range" else CooperativeStickyAssignor()
        given = assignor.assign({TOPIC: COUNT}, members)
    rows = [
        SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
        for member_id, partitions in given.items()
    ]
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=life.epoch,
        member_id=life.member_id,
        group_instance_id=life.instance,
        protocol_type="consumer",
        protocol_name=joined.protocol_name,
        assignments=rows,
    )
    answer = yield node.groups.sync(request)
    if answer.error_code in COMES_BACK:
        lost(life, answer.error_code)
    if answer.error_code:
        return
    partitions = {number for _, number in decode_assignment(answer.assignment)}
    gives_up = life.owned - partitions
    table.takes(node, life, partitions)
    if gives_up:  # cooperative members join again once they have given something up
        yield from join(node, table, life)
