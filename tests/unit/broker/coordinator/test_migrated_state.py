"""What coordinators have written, before a cluster whose topics have other ids reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite.broker.coordinator import consumer_records, records, transaction_records
from kafkalite.broker.coordinator.consumer_records import (
    CurrentPartitions,
    CurrentValue,
    GroupValue,
    MemberValue,
    TargetMemberValue,
    TargetValue,
    TopicPartitions,
)
from kafkalite.broker.coordinator.migrated_state import fit_groups, look_at_groups, look_at_transactions
from kafkalite.broker.coordinator.records import GroupMetadataValue, OffsetCommitValue
from kafkalite.broker.coordinator.state_log import append_records, entries_of
from kafkalite.broker.coordinator.transaction_rules import Metadata, TransactionState
from kafkalite.errors import StartupError
from kafkalite.wire.protocol.schema import ZERO_UUID
from tests.kit.harness.log_harness import TIME_MS, started

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog

ID = bytes(range(16))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    manager = started(tmp_path)
    yield manager.create_topic("__consumer_offsets", 1, {"cleanup.policy": "compact"}).partitions[0]
    manager.close()


def rows(log: PartitionLog) -> list[tuple[bytes, bytes | None]]:
    return [(entry.key, entry.value) for entry in entries_of(log)]  # type: ignore[union-attr]  # no markers here


def test_positions_lose_the_id_of_their_topic_and_nothing_else(log: PartitionLog) -> None:
    said = OffsetCommitValue(offset=42, leader_epoch=3, metadata="here", commit_timestamp=TIME_MS, topic_id=ID)
    key, value = records.offset_record("group", "events", 1, said)
    append_records(log, [(key, value), records.offset_record("other", "events", 0, None)], TIME_MS)
    fit_groups([log], TIME_MS)
    assert [each for each, _ in rows(log)][2:] == [key]
    now = records.read_offset(rows(log)[-1][1] or b"")
    assert now == OffsetCommitValue(offset=42, leader_epoch=3, metadata="here", commit_timestamp=TIME_MS)
    assert now.topic_id == ZERO_UUID
    end = log.log_end_offset
    fit_groups([log], TIME_MS)
    assert log.log_end_offset == end, "the second time nothing is left to say"
    assert log.flushed_offset == end


def test_members_by_ids_go_in_the_order_of_kafka_and_groups_stay(log: PartitionLog) -> None:
    assignment = [TopicPartitions(topic_id=ID, partitions=[0, 1])]
    held = [CurrentPartitions(topic_id=ID, partitions=[0, 1], assignment_epochs=[5, 5])]
    append_records(
        log,
        [
            consumer_records.record("group", "", GroupValue(epoch=5)),
            consumer_records.record("group", "member", MemberValue(client_id="c", client_host="h")),
            consumer_records.record("group", "", TargetValue(assignment_epoch=5)),
            consumer_records.record("group", "member", TargetMemberValue(topic_partitions=assignment)),
            consumer_records.record("group", "member", CurrentValue(member_epoch=5, assigned_partitions=held)),
            records.group_record("classic", GroupMetadataValue(generation=2)),
        ],
        TIME_MS,
    )
    fit_groups([log], TIME_MS)
    assert rows(log)[6:] == [
        consumer_records.tombstone(consumer_records.CURRENT, "group", "member"),
        consumer_records.tombstone(consumer_records.TARGET_MEMBER, "group", "member"),
        consumer_records.tombstone(consumer_records.MEMBER, "group", "member"),
    ]
    assert look_at_groups([log]).names == {"group", "classic"}


def test_what_is_there_is_counted_as_the_last_record_of_a_key_says(log: PartitionLog) -> None:
    value = OffsetCommitValue(offset=1)
    append_records(log, [records.offset_record("a", "t", number, value) for number in range(3)], TIME_MS)
    append_records(log, [records.offset_record("a", "t", 0, None), records.offset_record("b", "t", 0, value)], TIME_MS)
    found = look_at_groups([log])
    assert (found.names, found.positions) == ({"a", "b"}, 3)


def test_transactions_that_have_not_ended_are_named(log: PartitionLog) -> None:
    def said(name: str, producer_id: int, state: TransactionState) -> tuple[bytes, bytes | None]:
        return transaction_records.transaction_record(name, Metadata(producer_id=producer_id, epoch=0, state=state))

    append_records(
        log,
        [
            said("done", 1, TransactionState.ONGOING),
            said("open", 2, TransactionState.ONGOING),
            said("done", 1, TransactionState.COMPLETE_COMMIT),
            said("half", 3, TransactionState.PREPARE_ABORT),
        ],
        TIME_MS,
    )
    found = look_at_transactions([log])
    assert (found.ids, found.producer_ids, found.under_way) == (3, {1, 2, 3}, ["half", "open"])


def test_a_record_of_a_later_release_is_refused(log: PartitionLog) -> None:
    key, _ = records.offset_record("a", "t", 0, None)
    append_records(log, [(key, b"\x00\x7f")], TIME_MS)
    with pytest.raises(StartupError, match=r"__consumer_offsets-0 has a record"):
        fit_groups([log], TIME_MS)
