"""Group APIs as clients call them, in every version, on the real log: what they answer and what outlives a restart."""

from types import SimpleNamespace

import pytest

from kafkalite.base.clock import SystemClock
from kafkalite.broker.coordinator.shard_epoch import ShardEpoch
from kafkalite.broker.coordinator.state_log import OFFSETS_TOPIC
from kafkalite.broker.log.manager import LogManager
from kafkalite.errors import ErrorCode
from kafkalite.settings.broker import BrokerConfig
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import offset_commit as commits
from kafkalite.wire.protocol.messages import offset_delete as deletions
from kafkalite.wire.protocol.messages import offset_fetch as fetches
from kafkalite.wire.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafkalite.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkalite.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkalite.wire.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafkalite.wire.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafkalite.wire.protocol.schema import ZERO_UUID
from kafkalite.wire.record.batches import encode_batch
from kafkalite.wire.record.columns import Record, RecordColumns
from tests.kit.harness.handler_calls import NODE_ID, HandlerCalls, versions
from tests.kit.processes.broker import wait_until

SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"
DAY_S = 86_400


class Groups:
    """Handlers with their coordinator over a data directory that can be closed and opened again."""

    def __init__(self, directory, **settings):
        self.settings = {"log_dirs": str(directory), "offsets_topic_num_partitions": "3", **settings}
        self.open()

    def open(self):
        texts = {key.replace("_", "."): value for key, value in self.settings.items()}
        config = BrokerConfig.load(overrides={**texts, "node.id": str(NODE_ID)})
        self.logs = LogManager(config, SystemClock(), on_fatal=pytest.fail)
        self.logs.open()
        self.calls = HandlerCalls(self.logs, **self.settings)
        self.calls.groups.start()
        assert self.calls.groups.shards.wait_loaded(10)

    def close(self):
        self.calls.groups.stop()
        assert self.calls.pool.close(10)
        self.logs.close()

    def reopen(self):
        self.close()
        self.open()

    def id_of(self, topic, version):
        """By which a topic is named since version 10; an unknown one by an id that nothing has."""
        if version < 10:
            return ZERO_UUID
        return self.logs.topics[topic].id if topic in self.logs.topics else b"\x07" * 16

    def name_of(self, topic):
        """Of a topic in an answer."""
        if topic.topic_id == ZERO_UUID:
            return topic.name
        return self.logs.topics_by_id[topic.topic_id].name if topic.topic_id in self.logs.topics_by_id else "gone"

    def commit(self, offset=5, *, group="g", version=9, topic="orders", partition=0, generation=-1, member="", **more):
        """The code of the one partition."""
        asked = commits.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=2, committed_metadata="note"
        )
        for name in [name for name in more if name.startswith("committed")]:
            setattr(asked, name, more.pop(name))
        request = commits.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[
                commits.OffsetCommitRequestTopic(
                    name=topic if version < 10 else "", topic_id=self.id_of(topic, version), partitions=[asked]
                )
            ],
            **more,
        )
        (answer,) = self.calls.call(api.OFFSET_COMMIT, version, request).topics
        assert (answer.name, answer.topic_id) == (request.topics[0].name, request.topics[0].topic_id)
        return answer.partitions[0].error_code

    def fetch(self, topics, *, group="g", version=9):
        """Topic → partition → (offset, leader epoch, metadata); None asks for everything."""
        if version >= 8:
            asked = None
            if topics is not None:
                asked = [
                    fetches.OffsetFetchRequestTopics(
                        name=name if version < 10 else "", topic_id=self.id_of(name, version), partition_indexes=numbers
                    )
                    for name, numbers in topics.items()
                ]
            request = fetches.OffsetFetchRequest(groups=[fetches.OffsetFetchRequestGroup(group_id=group, topics=asked)])
            (answer,) = self.calls.call(api.OFFSET_FETCH, version, request).groups
        else:
            asked = None
            if topics is not None:
                asked = [
                    fetches.OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                    for name, numbers in topics.items()
                ]
            answer = self.calls.call(
                api.OFFSET_FETCH, version, fetches.OffsetFetchRequest(group_id=group, topics=asked)
            )
        assert answer.error_code == 0
        codes = {
            (name_of, row.error_code)
            for topic in answer.topics
            for name_of in [self.name_of(topic) if version >= 8 else topic.name]
            for row in topic.partitions
        }
        assert codes <= {(name, 0) for name, _ in codes} | {("gone", ErrorCode.UNKNOWN_TOPIC_ID)}
        return {
            (self.name_of(topic) if version >= 8 else topic.name): {
                row.partition_index: (row.committed_offset, row.committed_leader_epoch, row.metadata)
                for row in topic.partitions
            }
            for topic in answer.topics
        }

    def join(self, group="g", member="", version=9, instance=None, session_ms=10_000):
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=10_000,
            member_id=member,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        return self.calls.call(api.JOIN_GROUP, version, request)

    def stable(self, group="g", version=9):
        """The id of the one member of a stable group."""
        joined = self.join(group, version=version)
        if version >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            joined = self.join(group, joined.member_id, version)
        assert joined.error_code == 0
        assert joined.leader == joined.member_id
        assert [row.metadata for row in joined.members] == [SUBSCRIPTION]
        synced = self.sync(group, joined.member_id, joined.generation_id)
        assert (synced.error_code, synced.assignment) == (0, b"yours")
        return joined.member_id

    def sync(self, group, member, generation, version=5):
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name="range" if version >= 5 else None,
            assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"yours")],
        )
        return self.calls.call(api.SYNC_GROUP, version, request)

    def heartbeat(self, member, generation=1, group="g", version=4):
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
        return self.calls.call(api.HEARTBEAT, version, request).error_code

    def leave(self, member, group="g", version=5):
        if version >= 3:
            request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)])
            answer = self.calls.call(api.LEAVE_GROUP, version, request)
            return answer.error_code or answer.members[0].error_code
        request = LeaveGroupRequest(group_id=group, member_id=member)
        return self.calls.call(api.LEAVE_GROUP, version, request).error_code

    def describe(self, group="g", version=6):
        return self.calls.call(api.DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=[group])).groups[0]

    def listed(self, version=5, **filters):
        answer = self.calls.call(api.LIST_GROUPS, version, ListGroupsRequest(**filters))
        assert answer.error_code == 0
        return {row.group_id: row for row in answer.groups}

    def delete(self, *groups, version=2):
        answer = self.calls.call(api.DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=list(groups)))
        return {row.group_id: row.error_code for row in answer.results}

    def delete_offsets(self, *partitions, group="g", topic="orders"):
        rows = [deletions.OffsetDeleteRequestPartition(partition_index=number) for number in partitions]
        request = deletions.OffsetDeleteRequest(
            group_id=group, topics=[deletions.OffsetDeleteRequestTopic(name=topic, partitions=rows)]
        )
        answer = self.calls.call(api.OFFSET_DELETE, 0, request)
        if answer.error_code:
            return answer.error_code
        return [row.error_code for row in answer.topics[0].partitions]

    def pass_time(self, seconds):
        self.calls.clock.advance(seconds)
        self.calls.groups.timers.run_due()


@pytest.fixture
def broker(tmp_path):
    groups = Groups(tmp_path / "data")
    groups.logs.create_topic("orders", 3, {})
    groups.logs.create_topic("logs", 1, {})
    yield groups
    groups.close()


# ---- every version --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(api.JOIN_GROUP))
def test_life_of_a_member_in_every_version_of_join(broker, version):
    member = broker.stable(version=version)
    described = broker.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (row,) = described.members
    assert (row.member_id, row.client_id, row.client_host) == (member, "test", "/10.0.0.9")
    assert (row.member_metadata, row.member_assignment) == (SUBSCRIPTION, b"yours")


@pytest.mark.parametrize("version", versions(api.SYNC_GROUP))
def test_sync_in_every_version(broker, version):
    member = broker.stable()
    assert broker.sync("g", member, 1, version).assignment == b"yours"
    assert broker.sync("g", member, 9, version).error_code == ErrorCode.ILLEGAL_GENERATION
    assert broker.sync("other", member, 1, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.sync("", member, 1, version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions(api.HEARTBEAT))
def test_heartbeat_in_every_version(broker, version):
    member = broker.stable()
    assert broker.heartbeat(member, version=version) == 0
    assert broker.heartbeat(member, 3, version=version) == ErrorCode.ILLEGAL_GENERATION
    assert broker.heartbeat(member, group="other", version=version) == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.heartbeat(member, group="", version=version) == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions(api.LEAVE_GROUP))
def test_leave_in_every_version(broker, version):
    member = broker.stable()
    assert broker.leave("nobody", version=version) == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.leave(member, version=version) == 0
    assert broker.leave(member, version=version) == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.leave(member, group="", version=version) == ErrorCode.INVALID_GROUP_ID
    assert broker.describe().group_state == "Empty"


@pytest.mark.parametrize("version", versions(api.OFFSET_COMMIT))
def test_commit_in_every_version(broker, version):
    assert broker.commit(7, version=version) == 0
    epoch = 2 if version >= 6 else -1
    assert broker.fetch({"orders": [0]}) == {"orders": {0: (7, epoch, "note")}}
    missing = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert broker.commit(group="none", generation=1, member="m", version=version) == missing


@pytest.mark.parametrize("version", versions(api.OFFSET_FETCH))
def test_fetch_in_every_version(broker, version):
    broker.commit(7)
    epoch = 2 if version >= 5 else -1
    found = {"orders": {0: (7, epoch, "note"), 1: (-1, -1, "")}, "gone": {0: (-1, -1, "")}}
    assert broker.fetch({"orders": [0, 1], "gone": [0]}, version=version) == found
    assert broker.fetch({}, version=version) == {}
    if version >= 2:
        assert broker.fetch(None, version=version) == {"orders": {0: (7, epoch, "note")}}
    assert broker.fetch({"orders": [0]}, group="other", version=version) == {"orders": {0: (-1, -1, "")}}


@pytest.mark.parametrize("version", versions(api.DESCRIBE_GROUPS))
def test_describe_in_every_version(broker, version):
    broker.stable()
    assert broker.describe(version=version).group_state == "Stable"
    unknown = broker.describe("none", version)
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@pytest.mark.parametrize("version", versions(api.LIST_GROUPS))
def test_list_in_every_version(broker, version):
    broker.stable("busy")
    broker.commit(group="idle")
    listed = broker.listed(version)
    assert {name: row.protocol_type for name, row in listed.items()} == {"busy": "consumer", "idle": ""}
    if version >= 4:
        assert {name: row.group_state for name, row in listed.items()} == {"busy": "Stable", "idle": "Empty"}
        assert set(broker.listed(version, states_filter=["stable"])) == {"busy"}
    if version >= 5:
        assert {row.group_type for row in listed.values()} == {"classic"}
        assert broker.listed(version, types_filter=["consumer"]) == {}


@pytest.mark.parametrize("version", versions(api.DELETE_GROUPS))
def test_delete_in_every_version(broker, version):
    broker.stable("busy")
    broker.commit(group="idle")
    codes = broker.delete("busy", "idle", "none", version=version)
    assert codes == {"busy": ErrorCode.NON_EMPTY_GROUP, "idle": 0, "none": ErrorCode.GROUP_ID_NOT_FOUND}
    assert set(broker.listed()) == {"busy"}


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_join_refusals(broker):
    assert broker.join("").error_code == ErrorCode.INVALID_GROUP_ID
    assert broker.join(session_ms=5999).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert broker.join(session_ms=1_800_001).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert broker.join(member="nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_a_topic_id_that_nothing_has(broker):
    """The topic's error takes precedence over the group's, as in Kafka."""
    assert broker.commit(topic="none", version=10) == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.commit(topic="none", version=10, group="new", generation=3, member="m") == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.commit(topic="none", version=9, generation=3, member="m") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.listed() == {}


def test_everything_committed_by_id_leaves_out_topics_without_an_id(broker):
    for topic in ("orders", "logs"):
        assert broker.commit(topic=topic, version=10) == 0
    broker.logs.on_topic_deleted = None  # so that the offset outlives its topic
    broker.logs.delete_topic("logs")
    assert set(broker.fetch(None, version=10)) == {"orders"}
    assert set(broker.fetch(None, version=9)) == {"orders", "logs"}


def test_commit_refusals(broker):
    assert broker.commit(topic="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.commit(partition=3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.commit(partition=-1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.commit(committed_metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert broker.commit(committed_metadata="é" * 2049) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert broker.commit(committed_metadata="x" * 4096) == 0
    assert broker.commit(committed_metadata=None) == 0
    member = broker.stable()
    assert broker.commit() == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.commit(member=member, generation=2) == ErrorCode.ILLEGAL_GENERATION
    assert broker.commit(member=member, generation=1) == 0


def test_one_bad_partition_does_not_harm_the_others(broker):
    rows = [commits.OffsetCommitRequestPartition(partition_index=number, committed_offset=9) for number in (2, 7, 0)]
    request = commits.OffsetCommitRequest(
        group_id="g",
        topics=[
            commits.OffsetCommitRequestTopic(name="orders", partitions=rows),
            commits.OffsetCommitRequestTopic(name="none", partitions=rows[:1]),
            commits.OffsetCommitRequestTopic(name="logs", partitions=rows[2:]),
        ],
    )
    answer = broker.calls.call(api.OFFSET_COMMIT, 8, request)
    assert [(topic.name, [row.error_code for row in topic.partitions]) for topic in answer.topics] == [
        ("orders", [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]),
        ("none", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ("logs", [0]),
    ]
    assert broker.fetch(None) == {"orders": {2: (9, -1, ""), 0: (9, -1, "")}, "logs": {0: (9, -1, "")}}


def test_number_of_groups_is_bounded(tmp_path):
    broker = Groups(tmp_path / "data", max_groups="1")
    broker.logs.create_topic("orders", 3, {})
    try:
        assert broker.commit(group="a") == 0
        assert broker.commit(group="b") == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert broker.join("b").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    finally:
        broker.close()


def test_offsets_of_a_topic_that_members_read_stay(broker):
    broker.commit(group="g")
    broker.commit(group="g", topic="logs")
    broker.stable()
    assert broker.delete_offsets(0, 1) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2
    assert broker.delete_offsets(0, 5, topic="logs") == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.delete_offsets(0, group="none") == ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.fetch(None) == {"orders": {0: (5, 2, "note")}}


def test_the_offsets_topic_is_made_once_needed_and_left_alone(broker):
    assert OFFSETS_TOPIC not in broker.logs.topics
    broker.commit()
    topic = broker.logs.topics[OFFSETS_TOPIC]
    assert (len(topic.partitions), topic.internal, topic.overrides["cleanup.policy"]) == (3, True, "compact")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=OFFSETS_TOPIC)])
    assert broker.calls.call(api.DELETE_TOPICS, 6, request).responses[0].error_code == ErrorCode.INVALID_REQUEST
    grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=OFFSETS_TOPIC, count=9, assignments=None)])
    assert broker.calls.call(api.CREATE_PARTITIONS, 3, grow).results[0].error_code == ErrorCode.INVALID_REQUEST


# ---- restart --------------------------------------------------------------------------------------------------------


def test_commits_members_and_deletions_outlive_a_restart(broker):
    broker.commit(11)
    broker.commit(12)
    broker.commit(13, partition=1)
    broker.delete_offsets(1)
    broker.commit(group="deleted")
    broker.delete("deleted")
    member = broker.stable("busy")
    broker.commit(14, group="busy", member=member, generation=1)
    broker.reopen()
    assert broker.fetch(None) == {"orders": {0: (12, 2, "note")}}
    assert set(broker.listed()) == {"g", "busy"}
    assert broker.heartbeat(member, group="busy") == 0
    assert broker.sync("busy", member, 1).assignment == b"yours"
    assert broker.commit(15, group="busy", member=member, generation=1) == 0
    broker.reopen()
    assert broker.fetch(None, group="busy") == {"orders": {0: (15, 2, "note")}}
    broker.pass_time(10)
    assert broker.describe("busy").group_state == "Empty"


def test_empty_group_keeps_its_generation_over_a_restart(broker):
    member = broker.stable()
    broker.leave(member)
    broker.commit()
    broker.reopen()
    assert broker.describe().group_state == "Empty"
    joined = broker.join(member="")
    assert broker.join(member=joined.member_id).generation_id == 3


def test_offsets_of_a_recreated_topic_are_dropped(broker):
    broker.commit()
    broker.commit(topic="logs")
    broker.logs.on_topic_deleted = None  # a crash between the deletion and its tombstones
    broker.logs.delete_topic("orders")
    broker.logs.create_topic("orders", 3, {})
    assert broker.fetch({"orders": [0]}) == {"orders": {0: (-1, -1, "")}}
    broker.reopen()
    assert broker.fetch({"orders": [0]}) == {"orders": {0: (-1, -1, "")}}
    wait_until(lambda: broker.calls.groups.offsets.committed_partitions("g") == {"logs": [0]}, 10, "tombstones")


def test_deleting_a_topic_deletes_its_commits(broker):
    broker.commit()
    broker.commit(topic="logs")
    broker.logs.delete_topic("orders")
    wait_until(lambda: broker.calls.groups.offsets.committed_partitions("g") == {"logs": [0]}, 10, "the commits' end")
    broker.reopen()
    assert broker.fetch(None) == {"logs": {0: (5, 2, "note")}}


def test_groups_that_cannot_be_read_are_not_served(broker, caplog):
    broker.commit()
    topic = broker.logs.topics[OFFSETS_TOPIC]
    log = topic.partitions[broker.calls.groups.log.partition_of("g")]
    log.append(encode_batch(RecordColumns.from_records([Record(-1, 0, b"\x00\x01junk", b"")]))[0])
    broker.reopen()
    assert broker.join().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.commit() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    other = next(f"g{n}" for n in range(99) if broker.calls.groups.log.partition_of(f"g{n}") != log.partition)
    assert broker.commit(group=other) == 0
    assert "unavailable until the broker restarts" in caplog.text


@pytest.mark.parametrize(("version", "asks"), [(7, "error_of"), (8, "fetch_error")])
def test_a_group_that_is_dropped_while_its_offsets_are_told_has_not_lost_them(broker, monkeypatch, version, asks):
    """-1 would have its consumers begin where auto.offset.reset says."""
    assert broker.commit() == 0
    groups, elsewhere = broker.calls.groups, ErrorCode.NOT_COORDINATOR
    led = SimpleNamespace(error_of=lambda _number: 0, home=lambda number: ShardEpoch(number, 5))
    monkeypatch.setattr(groups.log, "led", led)
    asked_of = groups if version < 8 else groups.offsets
    question = getattr(asked_of, asks)

    def asked(*arguments, **named):
        code = question(*arguments, **named)
        groups.table.groups.clear()
        led.error_of, led.home = lambda _number: elsewhere, lambda number: ShardEpoch(number, -1)
        return code

    monkeypatch.setattr(asked_of, asks, asked)
    if version < 8:
        topic = fetches.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
        request = fetches.OffsetFetchRequest(group_id="g", topics=[topic])
        answer = broker.calls.call(api.OFFSET_FETCH, version, request)
    else:
        row = fetches.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
        group = fetches.OffsetFetchRequestGroup(group_id="g", topics=[row])
        (answer,) = broker.calls.call(api.OFFSET_FETCH, version, fetches.OffsetFetchRequest(groups=[group])).groups
    assert answer.error_code == elsewhere


def test_while_loading_clients_get_a_retriable_error(broker):
    broker.commit()
    broker.calls.groups.shards.loaded.clear()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert broker.join().error_code == broker.commit() == broker.leave("m") == loading
    assert broker.heartbeat("m") == ErrorCode.NONE, "as Kafka: nothing is known against the member"
    assert broker.describe().error_code == broker.delete("g")["g"] == broker.delete_offsets(0) == loading
    assert broker.calls.call(api.LIST_GROUPS, 5, ListGroupsRequest()).error_code == loading
    topic = fetches.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
    request = fetches.OffsetFetchRequest(group_id="g", topics=[topic])
    first = broker.calls.call(api.OFFSET_FETCH, 1, request).topics[0].partitions[0]
    assert (first.committed_offset, first.error_code) == (-1, loading)  # v1 has no other place for it
    assert broker.calls.call(api.OFFSET_FETCH, 7, request).error_code == loading
    broker.calls.groups.shards.loaded.set()


# ---- retention ------------------------------------------------------------------------------------------------------


def test_offsets_outside_the_group_protocol_expire_after_the_commit(broker):
    broker.commit()
    broker.pass_time(6 * DAY_S)
    broker.commit(6, partition=1)
    broker.pass_time(2 * DAY_S)
    wait_until(lambda: broker.fetch(None) == {"orders": {1: (6, 2, "note")}}, 10, "the older commit's end")
    broker.pass_time(7 * DAY_S)
    wait_until(lambda: broker.listed() == {}, 10, "the group's end")
    broker.reopen()
    assert broker.listed() == {}


def test_offsets_of_a_group_expire_after_it_became_empty(broker):
    member = broker.stable()
    broker.commit(member=member, generation=1)
    for _ in range(9):
        broker.calls.clock.advance(DAY_S)
        broker.calls.groups.expire_now()
        assert broker.heartbeat(member) == 0
    broker.leave(member)
    broker.calls.clock.advance(6 * DAY_S)
    assert broker.calls.groups.expire_now() == 0
    broker.calls.clock.advance(DAY_S)
    assert broker.calls.groups.expire_now() == 1
    wait_until(lambda: broker.listed() == {}, 10, "the group's end")


def test_topics_no_longer_subscribed_expire_in_a_living_group(broker):
    broker.commit()
    broker.commit(topic="logs")
    member = broker.stable()
    broker.calls.clock.advance(8 * DAY_S)
    assert broker.heartbeat(member) == 0
    broker.calls.groups.expire_now()
    wait_until(lambda: broker.fetch(None) == {"orders": {0: (5, 2, "note")}}, 10, "the unread topic's end")


def test_retention_requested_by_the_client(broker):
    assert broker.commit(version=4, retention_time_ms=60_000) == 0
    broker.reopen()
    broker.calls.clock.advance(59)
    assert broker.calls.groups.expire_now() == 0
    broker.calls.clock.advance(1)
    assert broker.calls.groups.expire_now() == 1
    wait_until(lambda: broker.listed() == {}, 10, "the group's end")


# ---- connections ----------------------------------------------------------------------------------------------------


def test_promised_ids_go_with_their_connection(broker):
    promised = broker.join()
    group = broker.calls.groups.find("g")
    assert promised.member_id in group.pending
    broker.calls.groups.connection_closed(broker.calls.connection)
    assert not group.pending
    assert broker.join(member=promised.member_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("names", [(None, "range"), ("consumer", None), (None, None)])
def test_sync_without_a_protocol_is_refused_first_of_all(names):
    calls = HandlerCalls()
    request = SyncGroupRequest(
        group_id="no such group", generation_id=1, member_id="m", protocol_type=names[0], protocol_name=names[1]
    )
    answer = calls.call(api.SYNC_GROUP, 5, request)
    assert (answer.error_code, answer.assignment) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, b"")
    assert (answer.protocol_type, answer.protocol_name) == (None, None)
    assert calls.call(api.SYNC_GROUP, 4, request).error_code != ErrorCode.INCONSISTENT_GROUP_PROTOCOL
