"""confluent-kafka with group.protocol=consumer (KIP-848): ConsumerGroupHeartbeat 1, OffsetCommit and OffsetFetch 9."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.compat.confluent.test_confluent import take
from tests.compat.confluent.test_confluent_groups import PARTITION_COUNT, admin, filled, member, share_out

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

__all__ = ["admin", "filled", "member"]

TIMEOUT_S = 30
NEXT = {"group.protocol": "consumer", "heartbeat.interval.ms": None}
"""None takes away a setting that this protocol leaves to the broker."""


@pytest.mark.capability("KIP-848")
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_join_and_leave(
    member: Callable[..., Consumer], admin: AdminClient, filled: str, assignor: str
) -> None:
    settings = {**NEXT, "group.remote.assignor": assignor}
    first = member(**settings)
    assert share_out(first) == [set(range(PARTITION_COUNT))]
    second = member(**settings)
    assert sorted(map(len, share_out(first, second))) == [2, 2]
    described = admin.describe_consumer_groups([f"group-{filled}"])[f"group-{filled}"].result(TIMEOUT_S)
    assert (described.type.name, len(described.members)) == ("CONSUMER", 2)
    first.close()
    assert share_out(second) == [set(range(PARTITION_COUNT))]


@pytest.mark.capability("KIP-848")
def test_commits_are_found_again_by_either_protocol(member: Callable[..., Consumer], filled: str) -> None:
    first = member(**NEXT)
    assert len(take(first, 15)) == 15
    (committed,) = [part for part in first.commit(asynchronous=False) if part.offset >= 0]
    assert (committed.partition, committed.offset, committed.error) == (0, 15, None)
    first.close()
    second = member()  # of the classic protocol: an empty group changes over
    assert take(second, 1)[0].offset() == 15
    second.close()
    third = member(**NEXT)
    found = third.committed([TopicPartition(filled, number) for number in range(2)], TIMEOUT_S)
    assert [part.offset for part in found] == [15, -1001]
