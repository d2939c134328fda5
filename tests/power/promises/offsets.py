"""Committed offsets: one that was answered never goes back, whichever protocol its group follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.wire.consumer_protocol import Subscription, encode_assignment, encode_subscription
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite.wire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.power.promises.base import Past, Promise
from tests.power.world import Gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.history import Op
    from tests.power.look import Look
    from tests.power.world import Actor, World

TOPIC, PARTITIONS = "plain", 4
BUSY = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
Place = tuple[str, int]


def fetch_offsets(look: Look, groups: Iterable[str], *, stable: bool) -> dict[str, dict[Place, tuple[int, int]]]:
    """Return group → (topic, partition) → (offset, error). A group's own error has the key ("", 0)."""
    wanted = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    answer = look.patiently(
        api.OFFSET_FETCH,
        8,
        OffsetFetchRequest(groups=wanted, require_stable=stable),
        lambda found: max((group.error_code for group in found.groups if group.error_code in BUSY), default=0),
        BUSY,
    )
    found: dict[str, dict[Place, tuple[int, int]]] = {}
    for group in answer.groups:
        own = found.setdefault(group.group_id, {})
        if group.error_code:
            own["", 0] = (-1, group.error_code)
        for topic in group.topics:
            for part in topic.partitions:
                own[topic.name, part.partition_index] = (part.committed_offset, part.error_code)
    return found


class Offsets(Promise):
    """Groups without members, of the classic protocol, of the newer one (KIP-848), and of either in turn."""

    name = "offsets"

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        yield from ((f"committer {i}", lambda actor, i=i: _simple(actor, f"simple-{i}")) for i in range(2))
        yield "classic member", lambda actor: _classic(actor, "classic-group")
        yield "newer member", lambda actor: _newer(actor, "newer-group")
        yield "classic member of a changing group", lambda actor: _changing(actor, "changing-group")

    def check(self, past: Past, look: Look) -> Iterator[str]:
        ops = past.ops("offsets")
        yield from check_offsets(past, look, ops, stable=False)

    def check_after(self, past: Past, look: Look) -> Iterator[str]:
        yield from check_offsets(past, look, past.ops("offsets"), stable=True)


def check_offsets(past: Past, look: Look, ops: list[Op], *, stable: bool) -> Iterator[str]:
    """Every (group, partition) has the offset of its last answered commit, or of one begun behind that."""
    by_place: dict[tuple[str, str, int], list[Op]] = {}
    for op in ops:
        by_place.setdefault((op.what["group"], op.what["topic"], op.what["partition"]), []).append(op)
    groups = sorted({group for group, _, _ in by_place})
    if not groups:
        return
    found = fetch_offsets(look, groups, stable=stable)
    for (group, topic, partition), own in by_place.items():
        code = found[group].get(("", 0), (0, 0))[1]
        offset, error = found[group].get((topic, partition), (-1, 0))
        sure = max((i for i, op in enumerate(own) if past.promised(op)), default=-1)
        allowed = {op.what["offset"] for op in own[max(sure, 0) :]} | ({-1} if sure < 0 else set())
        if code or error:
            yield f"group {group}, {topic}-{partition}: error {code or error}"
        elif offset not in allowed:
            yield f"group {group}, {topic}-{partition}: {offset}, but {own[sure].what['offset']} was committed"


# ---- actors ----------------------------------------------------------------------------------------------------------


def _commit(actor: Actor, group: str, number: int, *, version: int, member: str = "", epoch: int = -1) -> int:
    """Commits one partition's next offset; the error code."""
    partition = actor.draw.randrange(PARTITIONS)
    token = actor.world.tokens(1)
    part = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=number, committed_metadata=f"q{token:08d}q"
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
    )
    code = [0]

    def succeeded(answer: Any) -> dict[str, Any] | None:
        code[0] = answer.topics[0].partitions[0].error_code
        return None if code[0] else {}

    what = {"group": group, "topic": TOPIC, "partition": partition, "offset": number}
    found = actor.attempt(
        "offsets",
        what,
        api.OFFSET_COMMIT,
        version,
        request,
        succeeded=succeeded,
        token=token,
        place="__consumer_offsets-",
    )
    if found is None:
        actor.come_again()
    return code[0]


def _simple(actor: Actor, group: str) -> None:
    number = [0]

    def step() -> None:
        number[0] += 1
        _commit(actor, group, number[0], version=8)

    actor.rounds(step)


def _joined(actor: Actor, group: str, metadata: bytes, given: bytes) -> tuple[str, int]:
    """(member id, generation) of a static member, which takes its own place again after each loss of the broker."""
    while True:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            group_instance_id="one",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        answer = actor.ask(api.JOIN_GROUP, 7, request)
        if answer.error_code == 0:
            break
        if answer.error_code not in BUSY:
            raise Gone
        actor.come_again()
    request = SyncGroupRequest(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        group_instance_id="one",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=answer.member_id, assignment=given)],
    )
    actor.ask(api.SYNC_GROUP, 5, request)
    return answer.member_id, answer.generation_id


def _classic(actor: Actor, group: str) -> None:
    _commit_as_static(actor, group, b"", b"all", lambda: None)


def _changing(actor: Actor, group: str) -> None:
    """A classic member whose group changes its protocol (KIP-848) each time that another one comes or goes."""
    metadata = encode_subscription(Subscription((TOPIC,)))
    given = encode_assignment([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
    joining: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
    }

    def change() -> None:
        if actor.draw.random() < 0.1:
            leaves = actor.draw.random() < 0.5
            request = ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id="comes-and-goes",
                member_epoch=-1 if leaves else 0,
                **({} if leaves else joining),
            )
            actor.ask(api.CONSUMER_GROUP_HEARTBEAT, 1, request)

    _commit_as_static(actor, group, metadata, given, change)


def _commit_as_static(actor: Actor, group: str, metadata: bytes, given: bytes, between: Callable[[], None]) -> None:
    state: dict[str, Any] = {"number": 0}

    def join() -> None:
        state["member"], state["generation"] = _joined(actor, group, metadata, given)

    def step() -> None:
        between()
        state["number"] += 1
        code = _commit(actor, group, state["number"], version=8, member=state["member"], epoch=state["generation"])
        if (code and code not in BUSY) or actor.draw.random() < 0.03:
            join()

    actor.rounds(step, start=join)


def _newer(actor: Actor, group: str) -> None:
    state = {"epoch": -1, "number": 0}
    member = "member-of-the-newer-kind"

    def join() -> None:
        while True:
            request = ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[TOPIC],
                topic_partitions=[],
            )
            answer = actor.ask(api.CONSUMER_GROUP_HEARTBEAT, 1, request)
            if answer.error_code == 0:
                state["epoch"] = answer.member_epoch
                return
            if answer.error_code not in BUSY:
                raise AssertionError(f"joining {group}: error {answer.error_code}, {answer.error_message}")
            actor.come_again()

    def step() -> None:
        state["number"] += 1
        code = _commit(actor, group, state["number"], version=9, member=member, epoch=state["epoch"])
        if (code and code not in BUSY) or actor.draw.random() < 0.03:
            join()

    actor.rounds(step, start=join)
