"""Groups that change their protocol while members are in them (KIP-848), as clients call them, on the real log."""

import pytest

from kafkalite.broker.coordinator.members import Caller
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.wire.consumer_protocol import Subscription, decode_assignment, encode_assignment, encode_subscription
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.kit.processes.broker import wait_until
from tests.unit.broker.handlers.test_consumer_groups import ConsumerGroups

ALL = [0, 1, 2]
MISSING = ErrorCode.GROUP_ID_NOT_FOUND


def subscription(*topics, owned=()):
    return encode_subscription(Subscription(topics or ("orders",), owned=tuple(owned), rack="r1"))


class MixedGroups(ConsumerGroups):
    """Handlers of both protocols, and one group that members of both join."""

    def enter(self, member="", instance=None, *, version=3, metadata=None, names=("range",), group="g", **fields):
        """JoinGroup, in a version that asks for no member id first unless the member is static."""
        protocols = [JoinGroupRequestProtocol(name=name, metadata=metadata or subscription()) for name in names]
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=member,
            group_instance_id=instance,
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocols=protocols,
        )
        return self.calls.call(api.JOIN_GROUP, version if instance is None else 9, request)

    def get(self, joined, given=None, instance=None, **changed):
        """SyncGroup of a member that has joined: its partitions of orders, or the code."""
        rows = [
            SyncGroupRequestAssignment(
                member_id=joined.member_id,
                assignment=encode_assignment([TopicPartition("orders", number) for number in given or ()]),
            )
        ]
        fields = {"generation_id": joined.generation_id, "member_id": joined.member_id, **changed}
        request = SyncGroupRequest(
            group_id="g", group_instance_id=instance, protocol_type="consumer", assignments=rows, **fields
        )
        request.protocol_name = request.protocol_name or "range"
        answer = self.calls.call(api.SYNC_GROUP, 5, request)
        return answer.error_code or [number for _, number in decode_assignment(answer.assignment)]

    def classic(self, instance=None, **fields):
        """The one member of a stable classic group, which has everything."""
        joined = self.enter(instance=instance, **fields)
        assert joined.error_code == 0
        assert self.get(joined, ALL, instance) == ALL
        return joined

    def kind(self):
        return self.types()["g"][::2]


@pytest.fixture
def broker(tmp_path):
    groups = MixedGroups(tmp_path / "data")
    groups.logs.create_topic("orders", 3, {})
    groups.logs.create_topic("logs", 1, {})
    yield groups
    groups.close()


def held(answer):
    return [number for row in answer.assignment.topic_partitions for number in row.partitions]


@pytest.mark.parametrize("restarted", [False, True])
def test_group_is_upgraded_and_downgraded_while_a_classic_member_stays(broker, restarted):
    old = broker.classic()
    broker.commit(1, group="g", member=old.member_id, generation=1)
    new = broker.beat("new", group="g")
    assert (new.error_code, new.member_epoch, held(new)) == (0, 2, [])
    assert broker.kind() == ("consumer", "Reconciling")
    if restarted:
        broker.reopen()
    assert broker.commit(2, group="g", member=old.member_id, generation=1, version=8) == 0
    assert broker.heartbeat(old.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = broker.enter(old.member_id)
    assert (joined.error_code, joined.generation_id, joined.leader, joined.members) == (0, 2, "", [])
    kept = broker.get(joined)
    assert len(kept) in {1, 2}
    given = held(broker.beat("new", 2, group="g"))
    assert sorted(kept + given) == ALL
    assert broker.kind() == ("consumer", "Stable")
    members = {row.member_id: row for row in broker.describe_consumers("g").members}
    assert {name: row.member_type for name, row in members.items()} == {old.member_id: 0, "new": 1}
    assert members[old.member_id].rack_id == "r1"
    if restarted:
        broker.reopen()
    assert broker.heartbeat(old.member_id, 2) == 0
    assert broker.beat("new", -1, group="g").error_code == 0
    assert broker.kind() == ("classic", "PreparingRebalance")
    if restarted:
        broker.reopen()
        assert broker.kind() == ("classic", "Stable")
    assert broker.heartbeat(old.member_id, 2) in {0, ErrorCode.REBALANCE_IN_PROGRESS}
    last = broker.enter(old.member_id)
    assert (last.error_code, last.leader) == (0, old.member_id)
    assert broker.get(last, ALL) == ALL
    assert broker.fetch({"orders": [0]}) == {"orders": {0: (2, 2, "note")}}


def test_upgrade_while_the_first_members_are_waited_for(tmp_path):
    """They are asked to rejoin another rebalance, and they do."""
    broker = MixedGroups(tmp_path / "data", group_initial_rebalance_delay_ms="3000")
    try:
        broker.logs.create_topic("orders", 3, {})
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription())],
        )
        caller = Caller("c", "/1.2.3.4", takes_member_id=False, skips_assignment=False)
        waiting = broker.calls.groups.join(request, caller)
        assert not waiting.done
        assert broker.beat("new", group="g").error_code == 0
        told = waiting.response
        assert (told.error_code, bool(told.member_id)) == (ErrorCode.REBALANCE_IN_PROGRESS, True)
        joined = broker.enter(told.member_id)
        assert (joined.error_code, joined.generation_id) == (0, 1)
        assert len(broker.get(joined)) in {1, 2}
    finally:
        broker.close()


def test_classic_members_join_a_group_of_the_newer_protocol(broker):
    broker.beat("new", group="g")
    promised = broker.enter(version=9)
    assert promised.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = broker.enter(promised.member_id, version=9)
    assert (joined.member_id, joined.generation_id, joined.protocol_name) == (promised.member_id, 2, "range")
    assert broker.calls.blocked
    assert broker.get(joined) == []
    assert broker.heartbeat(joined.member_id, 2) == 0  # its partitions are not free yet
    left = held(broker.beat("new", 1, group="g", owned={"orders": ALL}))
    broker.beat("new", 1, group="g", owned={"orders": left})
    assert broker.heartbeat(joined.member_id, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert sorted(left + broker.get(broker.enter(joined.member_id))) == ALL


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"names": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"names": ("sticky",)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"metadata": b"\0"}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"metadata": b"\xff\xff\0\0\0\0"}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"member": "nobody", "instance": "one"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_join_that_is_refused_changes_nothing(broker, fields, code):
    broker.beat("new", group="g")
    broker.enter()
    before = broker.describe_consumers("g")
    answer = broker.enter(**fields)
    assert (answer.error_code, answer.member_id, answer.generation_id) == (code, "", -1)
    assert broker.describe_consumers("g") == before


def test_requests_of_the_wrong_member(broker):
    old = broker.classic("one")
    broker.beat("new", group="g")
    joined = broker.enter(old.member_id, "one")
    assert broker.get(joined, instance="one", generation_id=7) == ErrorCode.ILLEGAL_GENERATION
    assert broker.get(joined, instance="one", protocol_name="sticky") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert broker.get(joined, instance="one", member_id="new") == ErrorCode.FENCED_INSTANCE_ID
    assert broker.get(joined, instance="two") == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.get(joined, member_id="new") == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.heartbeat("new", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.heartbeat(old.member_id, 1) == ErrorCode.ILLEGAL_GENERATION
    assert broker.commit(group="g", member=old.member_id, generation=7) == ErrorCode.ILLEGAL_GENERATION
    assert broker.commit(group="g", member="new", generation=7) == ErrorCode.STALE_MEMBER_EPOCH
    assert broker.commit(group="g", member="new", generation=2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert broker.beat(old.member_id, 0, group="g").error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert broker.delete("g") == {"g": ErrorCode.NON_EMPTY_GROUP}


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [("disabled", MISSING, False), ("Upgrade", 0, False), ("DOWNGRADE", MISSING, True), ("bidirectional", 0, True)],
)
def test_policy(tmp_path, policy, up, down):
    broker = MixedGroups(tmp_path / "data", group_consumer_migration_policy=policy)
    try:
        broker.logs.create_topic("orders", 3, {})
        old = broker.classic()
        assert broker.beat("new", group="g").error_code == up
        assert broker.kind()[0] == ("classic" if up else "consumer")
        if up:
            broker.leave(old.member_id)
            broker.beat("new", group="g")
            old = broker.enter()
        broker.beat("new", -1, group="g")
        assert broker.kind()[0] == ("classic" if down else "consumer")
        rejoins = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
        assert broker.heartbeat(old.member_id, old.generation_id) in rejoins
    finally:
        broker.close()


@pytest.mark.parametrize(
    ("fields", "given"),
    [
        ({"protocol_type": "connect"}, b""),
        ({"metadata": b"\0"}, b""),
        ({}, b"\0\0\0\0\0\0\0\0\0\1x"),
        ({}, b"\0\0\0"),
    ],
    ids=["no consumers", "no subscription", "an assignor of the clients' own", "no assignment"],
)
def test_group_that_stays_classic(broker, fields, given):
    joined = broker.enter(**fields)
    rows = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=given)]
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id, assignments=rows)
    broker.calls.call(api.SYNC_GROUP, 3, request)
    refused = broker.beat("new", group="g")
    assert (refused.error_code, bool(refused.error_message)) == (ErrorCode.GROUP_ID_NOT_FOUND, True)
    assert broker.heartbeat(joined.member_id, 1) == 0
    assert broker.kind() == ("classic", "Stable")


def test_sizes_on_the_way_up_and_down(tmp_path):
    broker = MixedGroups(tmp_path / "data", group_consumer_max_size="1")
    try:
        broker.logs.create_topic("orders", 3, {})
        old = broker.classic()
        assert broker.beat("new", group="g").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert broker.heartbeat(old.member_id, 1) == 0
        assert broker.kind() == ("classic", "Stable")
    finally:
        broker.close()


def test_static_member_changes_its_protocol_and_back(broker):
    old = broker.classic("one")
    new = broker.beat("new", group="g", instance_id="one")
    assert (new.error_code, held(new)) == (0, ALL)
    assert broker.kind() == ("consumer", "Stable")
    assert broker.get(old, instance="one") == ErrorCode.FENCED_INSTANCE_ID
    other = broker.enter()
    back = broker.enter(instance="one")
    assert (back.error_code, back.generation_id) == (0, 2)
    assert broker.kind() == ("classic", "PreparingRebalance")  # for what the other one was to get
    assert broker.beat("new", 2, group="g", instance_id="one").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.heartbeat(other.member_id, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_lone_static_member_returns_without_a_rebalance(broker):
    broker.beat("new", group="g", instance_id="one")
    joined = broker.enter()
    part = held(broker.beat("new", 1, group="g", instance_id="one", owned={"orders": ALL}))
    broker.beat("new", 1, group="g", instance_id="one", owned={"orders": part})
    joined = broker.enter(joined.member_id)
    rest = broker.get(joined)
    assert sorted(part + rest) == ALL
    assert broker.kind() == ("consumer", "Stable")
    back = broker.enter(instance="one")
    assert broker.kind() == ("classic", "Stable")
    assert broker.get(back, instance="one") == part
    assert broker.heartbeat(joined.member_id, back.generation_id) == 0
    broker.reopen()
    assert broker.get(joined) == rest


def test_leave_of_several_at_once_is_one_change(broker):
    old = broker.classic()
    broker.beat("new", group="g")
    broker.beat("newer", group="g")
    members = [MemberIdentity(member_id=name) for name in ("new", "nobody", "newer")]
    answer = broker.calls.call(api.LEAVE_GROUP, 5, LeaveGroupRequest(group_id="g", members=members))
    assert [row.error_code for row in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert broker.kind() == ("classic", "PreparingRebalance")
    assert broker.enter(old.member_id).error_code == 0


def test_classic_member_that_reads_other_topics(broker):
    broker.beat("new", group="g")
    joined = broker.enter(metadata=subscription("logs", "later"))
    assert joined.generation_id == 2
    answer = broker.calls.call(
        api.SYNC_GROUP,
        5,
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
        ),
    )
    assert decode_assignment(answer.assignment) == (TopicPartition("logs", 0),)
    broker.logs.create_topic("later", 1, {})
    wait_until(lambda: broker.heartbeat(joined.member_id, 2) == ErrorCode.REBALANCE_IN_PROGRESS, 10, "a new epoch")
