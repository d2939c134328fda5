"""Classic members in a group of the newer protocol (KIP-848): time, failing writes, what comes while it turns back."""

from types import SimpleNamespace

import pytest

from kafkalite.base.deferred import completed
from kafkalite.broker.coordinator.classic_state import State
from kafkalite.broker.coordinator.conversion import upgraded
from kafkalite.broker.coordinator.group import Group
from kafkalite.broker.coordinator.members import Caller
from kafkalite.broker.coordinator.metadata_hash import MetadataHashes, OwnRack
from kafkalite.broker.coordinator.records import read_key
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.wire.consumer_protocol import Subscription, encode_subscription
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest
from tests.kit.harness.consumer_group_bench import SESSION_S, ConsumerBench, topic_id
from tests.kit.harness.group_bench import GroupBench

CLASSIC_SESSION_S, CLASSIC_REBALANCE_S = 20.0, 30.0
AGAIN = JoinGroupResponse(member_id="asked anew")


@pytest.fixture
def bench():
    """A group with a member of the newer protocol, `new`, which has all of `orders`."""
    bench = ConsumerBench()
    bench.join("new")
    return bench


def enter(bench, member="", *, instance=None, again=None):
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=int(CLASSIC_SESSION_S * 1000),
        rebalance_timeout_ms=int(CLASSIC_REBALANCE_S * 1000),
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=encode_subscription(Subscription(("orders",))))],
    )
    caller = Caller("c", "/1.2.3.4", takes_member_id=False, skips_assignment=True)
    answer = bench.group.join(request, caller, again)
    bench.settle()
    return answer


def get(bench, joined, instance=None):
    request = SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, group_instance_id=instance
    )
    return bench.group.sync(request).error_code


def alive(bench, seconds, member=None, generation=None):
    """Time passes in which `new` reports, and a classic member too."""
    for _ in range(int(seconds / 5)):
        bench.pass_time(5)
        bench.beat("new", bench.group.state.members["new"].epoch)
        if member is not None and member in bench.group.state.members:
            bench.group.classic_heartbeat(member, None, generation)


def test_member_that_joins_and_does_not_sync_is_out(bench):
    joined = enter(bench).response
    alive(bench, CLASSIC_REBALANCE_S - 5, joined.member_id, joined.generation_id)
    assert joined.member_id in bench.group.state.members
    alive(bench, 10, joined.member_id, joined.generation_id)
    assert joined.member_id not in bench.group.state.members


def test_member_that_syncs_in_time_stays(bench):
    joined = enter(bench).response
    assert get(bench, joined) == 0
    alive(bench, 2 * CLASSIC_REBALANCE_S, joined.member_id, joined.generation_id)
    assert joined.member_id in bench.group.state.members


@pytest.mark.parametrize("asks", ["heartbeat", "sync"])
def test_a_member_that_does_not_rejoin_is_removed(bench, asks):
    joined = enter(bench).response
    assert get(bench, joined) == 0
    enter(bench)
    told = (
        bench.group.classic_heartbeat(joined.member_id, None, joined.generation_id)
        if asks == "heartbeat"
        else get(bench, joined)
    )
    assert told == ErrorCode.REBALANCE_IN_PROGRESS
    alive(bench, CLASSIC_REBALANCE_S - 5, joined.member_id, joined.generation_id)  # told again and again: no more time
    assert joined.member_id in bench.group.state.members
    alive(bench, 10, joined.member_id, joined.generation_id)
    assert joined.member_id not in bench.group.state.members


def test_each_member_has_its_session_and_a_restart_resets_it(bench):
    assert CLASSIC_SESSION_S < SESSION_S
    joined = enter(bench).response
    assert get(bench, joined) == 0
    bench.pass_time(CLASSIC_SESSION_S - 5)
    bench.restart()
    bench.pass_time(CLASSIC_SESSION_S - 5)
    assert set(bench.group.state.members) == {"new", joined.member_id}
    bench.pass_time(6)
    assert set(bench.group.state.members) == {"new"}


def test_timeout_whose_write_fails_comes_again(bench):
    joined = enter(bench).response
    bench.writes.failing = ErrorCode.KAFKA_STORAGE_ERROR
    alive(bench, CLASSIC_REBALANCE_S + 5, joined.member_id, joined.generation_id)
    assert joined.member_id in bench.group.state.members
    bench.writes.failing = 0
    alive(bench, CLASSIC_REBALANCE_S + 5, joined.member_id, joined.generation_id)
    assert joined.member_id not in bench.group.state.members


def test_join_whose_write_fails_has_not_happened(bench):
    bench.writes.failing = ErrorCode.KAFKA_STORAGE_ERROR
    assert enter(bench).response.error_code == ErrorCode.NOT_COORDINATOR
    assert set(bench.group.state.members) == {"new"}


def test_what_comes_while_a_group_turns_classic_is_asked_of_the_classic_group(bench):
    joined = enter(bench).response
    bench.writes.at_once = False
    left = bench.beat("new", -1)
    waiting = enter(bench, joined.member_id, again=lambda: completed(AGAIN))
    nobody = bench.beat("new", 0, owned={}, topics=["orders"], rebalance_s=9)
    assert [left.done, waiting.done, nobody.done] == [False] * 3
    assert bench.group.state_name != "Dead"  # it is not in force before it is durable
    bench.writes.settle()
    assert left.response.error_code == 0
    assert waiting.response is AGAIN
    assert nobody.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE  # the upgrade wrote no successor yet
    successor = bench.successor
    assert isinstance(successor, Group)
    assert (successor.state, successor.generation, set(successor.members)) == (
        State.PREPARING,
        joined.generation_id,
        {joined.member_id},
    )
    assert bench.group.dead
    assert bench.replayed() == {}
    (key,) = {key for key, value in bench.writes.log if value is not None and key[:2] == b"\x00\x02"}
    assert read_key(key).group == "g"


def test_downgrade_whose_write_fails_has_not_happened(bench):
    joined = enter(bench).response
    bench.writes.at_once = False
    left = bench.beat("new", -1)
    waiting = enter(bench, joined.member_id, again=lambda: completed(AGAIN))
    bench.writes.failing = ErrorCode.KAFKA_STORAGE_ERROR
    bench.writes.settle()
    bench.writes.failing = 0
    bench.writes.settle()
    assert left.response.error_code == ErrorCode.NOT_COORDINATOR
    assert waiting.response.generation_id == joined.generation_id
    assert set(bench.group.state.members) == {"new", joined.member_id}
    assert not bench.group.dead


def test_broker_stops_while_a_group_turns_classic(bench):
    joined = enter(bench).response
    bench.writes.at_once = False
    left = bench.beat("new", -1)
    bench.group.stop()
    assert left.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.writes.settle()
    assert bench.successor is None
    assert bench.group.classic_heartbeat(joined.member_id, None, 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_last_one_leaves_while_a_classic_member_joins(bench):
    """The joining member finds an empty group, so a classic group is created for it."""
    bench.writes.at_once = False
    left = bench.beat("new", -1)
    waiting = enter(bench, again=lambda: completed(AGAIN))
    bench.writes.settle()
    assert (left.response.error_code, waiting.response) == (0, AGAIN)


def test_commits_in_a_transaction_and_outside(bench):
    """Commits without a member id are accepted as those of older producers."""
    joined = enter(bench).response
    allowed = bench.group.commit_error_locked
    for member, epoch, old in [
        (joined.member_id, joined.generation_id, ErrorCode.ILLEGAL_GENERATION),
        ("new", 1, ErrorCode.STALE_MEMBER_EPOCH),
    ]:
        assert allowed(member, None, epoch, transactional=True) == 0
        assert allowed(member, None, 77, transactional=True) == old
    assert allowed("nobody", None, 2, transactional=True) == ErrorCode.UNKNOWN_MEMBER_ID
    assert allowed("", None, -1, transactional=True) == 0
    assert allowed("", "static", -1, transactional=True) == ErrorCode.UNKNOWN_MEMBER_ID
    assert allowed("", None, -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert allowed(joined.member_id, None, 2, version=2) == 0
    assert allowed("new", None, 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert bench.group.fetch_error_locked(joined.member_id, 77) == ErrorCode.ILLEGAL_GENERATION
    assert bench.group.fetch_error_locked("new", 77) == ErrorCode.STALE_MEMBER_EPOCH
    assert bench.group.fetch_error_locked(joined.member_id, joined.generation_id) == 0


def test_upgrade_in_the_middle_of_a_rebalance_leaves_members_what_they_have():
    """Before any assignment, cooperative members report their partitions; of two claims the first wins."""
    classic = GroupBench()
    topic = SimpleNamespace(name="orders", id=topic_id("orders"), partitions=(None,) * 4)
    claims = [(0, 1), (1, 2, 9)]
    spoken = []
    for numbers in claims:
        owned = tuple(TopicPartition("orders", number) for number in numbers)
        spoken.append((("cooperative-sticky", encode_subscription(Subscription(("orders",), owned=owned))),))
        classic.join(version=3, protocols=spoken[-1])
    first = next(iter(classic.group.members))
    classic.join(first, version=3, protocols=spoken[0])
    assert classic.group.state is State.COMPLETING
    state = upgraded(classic.group, {"orders": topic}, MetadataHashes(OwnRack(None)))
    assert [member.assigned for member in state.members.values()] == [
        {topic.id: frozenset({0, 1})},
        {topic.id: frozenset({2})},
    ]
    assert state.targets == {name: member.assigned for name, member in state.members.items()}
    assert {member.epoch for member in state.members.values()} == {classic.group.generation}
