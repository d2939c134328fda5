"""TxnOffsetCommit as clients call it, on the real log: topics by name and by id, and the codes that a version knows."""

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.end_txn import EndTxnRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.kit.processes.broker import wait_until
from tests.unit.broker.handlers.test_consumer_groups import ConsumerGroups

BY_NAME, BY_ID = 5, 6


class Producers(ConsumerGroups):
    """A transactional producer beside groups of both protocols."""

    def begin(self):
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        answer = self.calls.call(api.INIT_PRODUCER_ID, 4, request)
        assert answer.error_code == 0
        self.who = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}

    def commit_in(self, version, *, partition=0, topic="orders", topic_id=None, group="c", **member):
        """(topic's name, its id, code) of the answer."""
        known = self.logs.topics.get(topic)
        asked = TxnOffsetCommitRequestTopic(
            name=topic,
            topic_id=topic_id or (known.id if known else bytes(16)),
            partitions=[TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=7)],
        )
        request = TxnOffsetCommitRequest(transactional_id="tx", group_id=group, topics=[asked], **self.who, **member)
        (answered,) = self.calls.call(api.TXN_OFFSET_COMMIT, version, request).topics
        (row,) = answered.partitions
        return answered.name, answered.topic_id, row.error_code


@pytest.fixture
def broker(tmp_path):
    producers = Producers(tmp_path / "data")
    producers.logs.create_topic("orders", 3, {})
    producers.calls.transactions.start()
    wait_until(lambda: producers.calls.transactions.error_of("tx") == 0, 10, "the transactions to be read")
    producers.begin()
    yield producers
    producers.calls.transactions.stop()
    producers.close()


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_offsets_hold_when_the_transaction_is_committed(broker, version):
    topic_id = broker.logs.topics["orders"].id
    named = ("orders", bytes(16)) if version == BY_NAME else ("", topic_id)
    assert broker.commit_in(version, partition=1) == (*named, 0)
    ended = broker.calls.call(api.END_TXN, 5, EndTxnRequest(transactional_id="tx", committed=True, **broker.who))
    assert ended.error_code == 0
    wait_until(lambda: broker.fetch({"orders": [1]}, group="c")["orders"][1][0] == 7, 10, "the marker of the commit")


def test_a_topic_id_that_nothing_has_is_unknown(broker):
    other = b"\x01" * 16
    assert broker.commit_in(BY_ID, topic_id=other) == ("", other, ErrorCode.UNKNOWN_TOPIC_ID)
    assert broker.commit_in(BY_ID, topic="none") == ("", bytes(16), ErrorCode.UNKNOWN_TOPIC_ID)
    assert broker.commit_in(BY_ID, partition=3)[2] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.commit_in(BY_NAME, topic="none")[2] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("version", "stale", "missing"),
    [
        (BY_NAME, ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
        (BY_ID, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_an_old_epoch_and_a_missing_group_get_the_codes_of_the_version(broker, version, stale, missing):
    assert broker.beat("m").member_epoch == 1
    assert broker.commit_in(version, member_id="m", generation_id=9)[2] == stale
    assert broker.commit_in(version, group="none", member_id="m", generation_id=1)[2] == missing
    assert broker.commit_in(version, member_id="who", generation_id=1)[2] == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.commit_in(version, member_id="m", generation_id=1)[2] == 0
