"""The newer group protocol (KIP-848) as clients call it, on the real log: refusals, migration, restarts."""

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from kafkalite.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.kit.harness.handler_calls import versions
from tests.kit.processes.broker import wait_until
from tests.unit.broker.handlers.test_groups import Groups


class ConsumerGroups(Groups):
    """Handlers of both protocols."""

    def beat(self, member="m", epoch=0, *, group="c", version=1, owned=None, **fields):
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["orders"], **fields}
            owned = owned or {}
        rows = None
        if owned is not None:
            rows = [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=self.logs.topics[topic].id, partitions=numbers)
                for topic, numbers in owned.items()
            ]
        fields.setdefault("topic_partitions", rows)
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **fields)
        return self.calls.call(api.CONSUMER_GROUP_HEARTBEAT, version, request)

    def describe_consumers(self, group="c", version=1):
        request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
        return self.calls.call(api.CONSUMER_GROUP_DESCRIBE, version, request).groups[0]

    def types(self):
        return {name: (row.group_type, row.protocol_type, row.group_state) for name, row in self.listed().items()}


@pytest.fixture
def broker(tmp_path):
    groups = ConsumerGroups(tmp_path / "data")
    groups.logs.create_topic("orders", 3, {})
    groups.logs.create_topic("logs", 1, {})
    yield groups
    groups.close()


@pytest.mark.parametrize("version", versions(api.CONSUMER_GROUP_HEARTBEAT))
def test_life_of_a_member_in_every_version(broker, version):
    member = "" if version == 0 else "mine"
    joined = broker.beat(member, version=version)
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 1, 5000)
    assert bool(joined.member_id)
    assert [(row.topic_id, row.partitions) for row in joined.assignment.topic_partitions] == [
        (broker.logs.topics["orders"].id, [0, 1, 2])
    ]
    again = broker.beat(joined.member_id, 1, version=version)
    assert (again.error_code, again.assignment) == (0, None)
    assert not broker.calls.blocked
    left = broker.beat(joined.member_id, -1, version=version)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert broker.types() == {"c": ("consumer", "consumer", "Empty")}


@pytest.mark.parametrize("version", versions(api.CONSUMER_GROUP_DESCRIBE))
def test_describe_in_every_version(broker, version):
    broker.beat("m", instance_id="i", rack_id="r", subscribed_topic_regex="lo.*")
    group = broker.describe_consumers(version=version)
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Stable", 1, 1)
    assert group.assignor_name == "uniform"
    assert group.authorized_operations > 0
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", 1)
    assert (member.client_id, member.client_host) == ("test", "/10.0.0.9")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["orders"], "lo.*")
    names = {row.topic_name: row.partitions for row in member.assignment.topic_partitions}
    assert names == {"orders": [0, 1, 2], "logs": [0]}
    assert member.target_assignment == member.assignment
    assert member.member_type == (1 if version >= 1 else -1)
    unknown = broker.describe_consumers("none", version)
    assert (unknown.error_code, bool(unknown.error_message)) == (ErrorCode.GROUP_ID_NOT_FOUND, True)
    assert broker.describe_consumers("", version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    "fields",
    [
        {"member": ""},
        {"member": " "},
        {"group": ""},
        {"group": "  "},
        {"instance_id": ""},
        {"rack_id": " "},
        {"rebalance_timeout_ms": -1},
        {"subscribed_topic_names": None},
        {"topic_partitions": None},
        {"owned": {"orders": [0]}},
        {"epoch": -3},
        {"epoch": -2},
        {"epoch": -1, "member": "", "version": 0},
        {"epoch": 1, "member": "", "version": 0},
    ],
)
def test_request_that_contradicts_itself(broker, fields):
    answer = broker.beat(**fields)
    assert (answer.error_code, bool(answer.error_message)) == (ErrorCode.INVALID_REQUEST, True)
    assert broker.listed() == {}


def test_refusals_before_there_is_a_group(broker):
    assert broker.beat(server_assignor="sticky").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert broker.beat(epoch=1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.beat(epoch=-1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.beat(epoch=-2, instance_id="i").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.listed() == {}


def test_assignors_can_be_left_out(tmp_path):
    broker = ConsumerGroups(tmp_path / "data", group_consumer_assignors="range")
    try:
        assert broker.beat(server_assignor="uniform").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
        assert broker.beat().error_code == 0
        assert broker.describe_consumers().assignor_name == "range"
    finally:
        broker.close()


# ---- offsets --------------------------------------------------------------------------------------------------------


def test_commit_needs_the_epoch_of_the_member(broker):
    broker.beat("m")
    assert broker.commit(group="c", member="m", generation=1, version=10) == 0
    assert broker.commit(group="c", member="m", generation=2, version=9) == ErrorCode.STALE_MEMBER_EPOCH
    assert broker.commit(group="c", member="m", generation=1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert broker.commit(group="c", member="x", generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.commit(group="c") == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.fetch({"orders": [0]}, group="c") == {"orders": {0: (5, 2, "note")}}


def test_offsets_of_a_topic_that_members_read_stay(broker):
    broker.beat("m")
    for topic in ("orders", "logs"):
        broker.commit(group="c", member="m", generation=1, topic=topic)
    assert broker.delete_offsets(0, group="c") == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert broker.delete_offsets(0, group="c", topic="logs") == [0]
    assert broker.delete("c") == {"c": ErrorCode.NON_EMPTY_GROUP}


def test_offsets_expire_once_their_topic_has_no_subscriber(broker):
    broker.beat("m")
    for topic in ("orders", "logs"):
        broker.commit(group="c", member="m", generation=1, topic=topic)
    broker.calls.clock.advance(8 * 86_400)
    broker.calls.groups.expire_now()
    wait_until(lambda: set(broker.fetch(None, group="c")) == {"orders"}, 10, "the other topic's offset to go")


def test_group_goes_with_its_last_offset(broker):
    broker.beat("m")
    broker.commit(group="c", member="m", generation=1)
    broker.beat("m", -1)
    broker.calls.clock.advance(8 * 86_400)
    broker.calls.groups.expire_now()
    wait_until(lambda: broker.listed() == {}, 10, "the group to go")
    broker.reopen()
    assert broker.listed() == {}


# ---- groups of two kinds --------------------------------------------------------------------------------------------


def test_each_kind_is_described_by_its_own_api(broker):
    broker.beat("m")
    broker.stable("old")
    assert broker.types() == {"c": ("consumer", "consumer", "Stable"), "old": ("classic", "consumer", "Stable")}
    assert (broker.describe("c").group_state, broker.describe("c").error_code) == (
        "Dead",
        ErrorCode.GROUP_ID_NOT_FOUND,
    )
    assert broker.describe("c", version=5).error_code == 0
    assert broker.describe_consumers("old").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert set(broker.listed(types_filter=["Consumer"])) == {"c"}
    assert set(broker.listed(types_filter=["classic"])) == {"old"}


@pytest.mark.parametrize("restarted", [False, True])
def test_empty_group_changes_its_kind_and_keeps_its_offsets(broker, restarted):
    broker.leave(broker.stable("g"))
    broker.commit(7, group="g")
    if restarted:
        broker.reopen()
    assert broker.beat(group="g").error_code == 0
    assert broker.types()["g"] == ("consumer", "consumer", "Stable")
    assert broker.fetch({"orders": [0]}) == {"orders": {0: (7, 2, "note")}}
    if restarted:
        broker.reopen()
    assert broker.types()["g"] == ("consumer", "consumer", "Stable")
    assert broker.beat("m", -1, group="g").error_code == 0
    broker.stable("g")
    if restarted:
        broker.reopen()
    assert broker.types()["g"] == ("classic", "consumer", "Stable")
    assert broker.fetch({"orders": [0]}) == {"orders": {0: (7, 2, "note")}}


def test_classic_requests_to_a_group_of_the_newer_protocol(broker):
    broker.beat("m", group="g")
    assert broker.sync("g", "m", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.heartbeat("m", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.leave("x") == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.join("g").error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert broker.types()["g"] == ("consumer", "consumer", "Stable")


@pytest.mark.parametrize("version", versions(api.LEAVE_GROUP))
def test_administrator_takes_members_out(broker, version):
    broker.beat("m", group="g")
    assert broker.leave("m", version=version) == 0
    assert broker.leave("m", version=version) == ErrorCode.UNKNOWN_MEMBER_ID
    broker.beat("s", group="g", instance_id="i")
    if version >= 3:
        members = [MemberIdentity(member_id="other", group_instance_id="i"), MemberIdentity(group_instance_id="i")]
        request = LeaveGroupRequest(group_id="g", members=members)
        answer = broker.calls.call(api.LEAVE_GROUP, version, request)
        assert [row.error_code for row in answer.members] == [ErrorCode.FENCED_INSTANCE_ID, 0]
        assert broker.types()["g"] == ("consumer", "consumer", "Empty")


# ---- restart --------------------------------------------------------------------------------------------------------


def test_members_outlive_the_broker(broker):
    broker.beat("m", subscribed_topic_regex="l.*")
    broker.beat("n", server_assignor="range", instance_id="i")
    broker.commit(3, group="other")
    before = broker.describe_consumers()
    broker.reopen()
    assert broker.describe_consumers() == before
    assert broker.beat("m", 1).error_code == 0
    assert broker.beat("n", 2, instance_id="i").error_code == 0


def test_partitions_added_through_the_broker_are_assigned(broker):
    broker.beat("m")
    broker.logs.add_partitions("orders", 5)
    answer = broker.beat("m", 1)
    assert [row.partitions for row in answer.assignment.topic_partitions] == [[0, 1, 2, 3, 4]]
    assert broker.calls.blocked


def test_topic_made_while_a_group_waits_for_it(broker):
    broker.beat("m", subscribed_topic_names=["late"], subscribed_topic_regex="late-.*")
    broker.logs.create_topic("late", 1, {})
    broker.logs.create_topic("late-too", 1, {})
    assert len(broker.beat("m", 1).assignment.topic_partitions) == 2
    broker.logs.delete_topic("late")
    assert len(broker.beat("m", 3).assignment.topic_partitions) == 1
