"""Images of a cluster: what each record changes, what two images share, and what does not fit."""

import pytest

from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.cluster.image import EMPTY, MIGRATING, Delta, Image
from kafkalite.broker.cluster.records import MetadataFault

FIRST, SECOND = bytes([1]) * 16, bytes([2]) * 16
HERE, THERE = bytes([7]) * 16, bytes([8]) * 16


def after(image: Image, *records: object) -> Image:
    delta = Delta(image)
    for record in records:
        delta.apply(record)
    return delta.build(image.offset + len(records), 1)


def topic(name: str, topic_id: bytes, partitions: int = 1) -> list[object]:
    made = [
        types.PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=[1, 2],
            isr=[1, 2],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[HERE, THERE],
        )
        for index in range(partitions)
    ]
    return [types.TopicRecord(name=name, topic_id=topic_id), *made]


def broker(node_id: int, epoch: int, **more: object) -> types.RegisterBrokerRecord:
    return types.RegisterBrokerRecord(
        broker_id=node_id,
        broker_epoch=epoch,
        incarnation_id=HERE,
        end_points=[types.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)],
        **more,
    )


def test_sections_that_no_record_touches_are_shared() -> None:
    before = after(EMPTY, broker(1, 0), *topic("a", FIRST), *topic("b", SECOND))
    now = after(before, types.PartitionChangeRecord(partition_id=0, topic_id=FIRST, leader=2))
    assert now.brokers is before.brokers
    assert now.topics[SECOND] is before.topics[SECOND]
    assert before.topics[FIRST].partitions[0].leader == 1
    assert now.topics[FIRST].partitions[0].leader == 2


def test_change_of_a_partition_raises_the_epochs_that_it_shall() -> None:
    image = after(EMPTY, *topic("a", FIRST))
    change = types.PartitionChangeRecord(partition_id=0, topic_id=FIRST, isr=[1])
    shrunk = after(image, change).topics[FIRST].partitions[0]
    assert (shrunk.isr, shrunk.leader, shrunk.leader_epoch, shrunk.epoch) == ((1,), 1, 0, 1)
    change = types.PartitionChangeRecord(partition_id=0, topic_id=FIRST, leader=1, leader_recovery_state=1)
    again = after(image, change).topics[FIRST].partitions[0]
    assert (again.leader, again.leader_epoch, again.epoch, again.recovery) == (1, 1, 1, 1)
    change = types.PartitionChangeRecord(
        partition_id=0, topic_id=FIRST, leader=-1, isr=[], eligible_leader_replicas=[1]
    )
    gone = after(image, change).topics[FIRST].partitions[0]
    assert (gone.leader, gone.leader_epoch, gone.isr, gone.elr) == (-1, 1, (), (1,))


def test_reassignment_without_directories_has_as_many_as_replicas() -> None:
    image = after(EMPTY, *topic("a", FIRST))
    change = types.PartitionChangeRecord(partition_id=0, topic_id=FIRST, replicas=[1, 2, 3], adding_replicas=[3])
    moved = after(image, change).topics[FIRST].partitions[0]
    assert (moved.replicas, moved.adding, moved.directories) == ((1, 2, 3), (3,), (MIGRATING,) * 3)
    change = types.PartitionChangeRecord(partition_id=0, topic_id=FIRST, directories=[THERE, HERE])
    assert after(image, change).topics[FIRST].partitions[0].directories == (THERE, HERE)


def test_partition_of_an_old_version_has_no_known_directory() -> None:
    record = types.PartitionRecord(partition_id=0, topic_id=FIRST, replicas=[1, 2], isr=[1])
    image = after(EMPTY, types.TopicRecord(name="a", topic_id=FIRST), record)
    assert image.topics[FIRST].partitions[0].directories == (MIGRATING, MIGRATING)


def test_removed_topic_takes_its_settings_and_another_may_have_its_name() -> None:
    setting = types.ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="1")
    image = after(EMPTY, *topic("a", FIRST), setting)
    assert image.configs == {(2, "a"): {"retention.ms": "1"}}
    now = after(image, types.RemoveTopicRecord(topic_id=FIRST), *topic("a", SECOND, 2))
    assert now.configs == {}
    assert now.topic("a") is now.topics[SECOND]
    assert now.topic_ids == {"a": SECOND}
    assert list(now.topics) == [SECOND]
    assert after(now, types.RemoveTopicRecord(topic_id=SECOND)).topic("a") is None


def test_registration_replaces_and_its_changes_hold() -> None:
    image = after(EMPTY, broker(1, 5, rack="r", log_dirs=[HERE]))
    assert image.brokers[1].fenced
    change = types.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1)
    image = after(image, change)
    assert not image.brokers[1].fenced
    change = types.BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=5, fenced=1, in_controlled_shutdown=1, log_dirs=[THERE]
    )
    image = after(image, change)
    assert (image.brokers[1].fenced, image.brokers[1].stopping) == (True, True)
    assert image.brokers[1].directories == (THERE,)
    image = after(image, types.UnfenceBrokerRecord(id=1, epoch=5))
    assert not image.brokers[1].fenced
    image = after(image, types.FenceBrokerRecord(id=1, epoch=5))
    assert image.brokers[1].fenced
    again = after(image, broker(1, 9)).brokers[1]
    assert (again.epoch, again.stopping, again.directories, again.rack) == (9, False, (), "")
    assert after(image, types.UnregisterBrokerRecord(broker_id=1, broker_epoch=5)).brokers == {}


def test_controllers_come_and_go() -> None:
    image = after(
        EMPTY, types.RegisterControllerRecord(controller_id=7), types.RegisterControllerRecord(controller_id=8)
    )
    assert {*image.controllers} == {7, 8}
    image = after(image, types.UnregisterControllerRecord(controller_id=7))
    assert {*image.controllers} == {8}


def test_settings_rules_users_and_quotas_come_and_go() -> None:
    user = types.UserScramCredentialRecord(
        name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    rule = types.AccessControlEntryRecord(
        id=FIRST, resource_type=2, resource_name="a", pattern_type=3, principal="User:u", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    entity = [
        types.EntityData(entity_type="user", entity_name=None),
        types.EntityData(entity_type="client-id", entity_name="c"),
    ]
    quota = types.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1.5)
    image = after(
        EMPTY,
        types.ConfigRecord(resource_type=4, resource_name="", name="x", value="1"),
        types.ConfigRecord(resource_type=4, resource_name="", name="y", value="2"),
        user,
        rule,
        quota,
        types.ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=3000),
        types.FeatureLevelRecord(name="group.version", feature_level=1),
    )
    assert image.configs == {(4, ""): {"x": "1", "y": "2"}}
    assert image.credentials[1, "u"].iterations == 4096
    assert image.acls[FIRST].principal == "User:u"
    assert image.quotas == {(("client-id", "c"), ("user", None)): {"producer_byte_rate": 1.5}}
    assert (image.next_producer_id, image.producer_ids_node) == (3000, 1)
    assert image.features == {"group.version": 1}
    now = after(
        image,
        types.ConfigRecord(resource_type=4, resource_name="", name="x", value=None),
        types.ConfigRecord(resource_type=4, resource_name="", name="y", value=None),
        types.RemoveUserScramCredentialRecord(name="u", mechanism=1),
        types.RemoveAccessControlEntryRecord(id=FIRST),
        types.ClientQuotaRecord(entity=entity, key="producer_byte_rate", remove=True),
        types.FeatureLevelRecord(name="group.version", feature_level=0),
    )
    assert (now.configs, now.credentials, now.acls, now.quotas, now.features) == ({}, {}, {}, {}, {})
    assert image.configs == {(4, ""): {"x": "1", "y": "2"}}


def test_cleared_replicas_are_those_of_one_topic_or_of_all() -> None:
    image = after(EMPTY, *topic("a", FIRST), *topic("b", SECOND))
    for topic_id in (FIRST, SECOND):
        change = types.PartitionChangeRecord(
            partition_id=0, topic_id=topic_id, eligible_leader_replicas=[1], last_known_elr=[2]
        )
        image = after(image, change)
    one = after(image, types.ClearElrRecord(topic_name="a"))
    assert one.topics[FIRST].partitions[0].elr == one.topics[FIRST].partitions[0].last_known_elr == ()
    assert one.topics[FIRST].partitions[0].epoch == image.topics[FIRST].partitions[0].epoch
    assert one.topics[SECOND] is image.topics[SECOND]
    assert all(not each.partitions[0].elr for each in after(image, types.ClearElrRecord()).topics.values())


@pytest.mark.parametrize(
    "record",
    [
        types.PartitionChangeRecord(partition_id=0, topic_id=SECOND),
        types.PartitionChangeRecord(partition_id=9, topic_id=FIRST),
        types.PartitionRecord(partition_id=0, topic_id=SECOND),
        types.RemoveTopicRecord(topic_id=SECOND),
        types.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=5),
        types.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4),
        types.UnregisterBrokerRecord(broker_id=1, broker_epoch=4),
        types.FenceBrokerRecord(id=1, epoch=4),
        types.RemoveAccessControlEntryRecord(id=FIRST),
        types.ClearElrRecord(topic_name="b"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_record_that_does_not_fit_is_a_fault(record: object) -> None:
    image = after(EMPTY, broker(1, 5), *topic("a", FIRST))
    with pytest.raises(MetadataFault, match="the metadata log"):
        after(image, record)


def test_records_that_change_nothing_here_pass() -> None:
    image = after(EMPTY, types.NoOpRecord(), types.ZkMigrationStateRecord(), types.DelegationTokenRecord())
    assert (image.offset, image.topics) == (2, {})


def test_partitions_that_say_the_same_share_it() -> None:
    """A thousand brokers have many of them."""
    image = after(EMPTY, *topic("a", FIRST, 2))
    first, second = (image.topics[FIRST].partitions[number] for number in (0, 1))
    assert first.isr is first.replicas
    assert second.replicas is first.replicas
    assert second.directories is first.directories
