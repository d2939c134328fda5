"""While one client holds all that it can of a limit, a client at another address gets what it needs; nothing is evicted.

The large holder connects from 127.0.0.2, under many client ids, the small one from 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite import Broker
from kafkalite.errors import ErrorCode
from kafkalite.model import new_uuid, uuid_text
from kafkalite.protocol import api
from kafkalite.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tests.kit.harness.typed import TypedConnection
from tests.kit.harness.wire import Closed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration

LIMIT = 200
FOR_LARGE = LIMIT - LIMIT // 10
LARGE, SMALL = "127.0.0.2", "127.0.0.1"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    settings = {
        "log.dirs": str(tmp_path),
        "max.groups": str(LIMIT),
        "transaction.max.ids": str(LIMIT),
        "max.incremental.fetch.session.cache.slots": str(LIMIT),
        "group.consumer.min.session.timeout.ms": "1",
    }
    with Broker(settings) as running:
        running.create_topic("t")
        yield running


def connect(broker: Broker, source: str) -> TypedConnection:
    return TypedConnection(broker.port, source=source)


def commit(client: TypedConnection, group: str, offset: int = 7) -> int:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    answer = client.ask(api.OFFSET_COMMIT, 8, OffsetCommitRequest(group_id=group, topics=topics))
    return int(answer.topics[0].partitions[0].error_code)


def committed(client: TypedConnection, group: str) -> int:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    (found,) = client.ask(api.OFFSET_FETCH, 8, request).groups
    return int(found.topics[0].partitions[0].committed_offset)


def join(client: TypedConnection, group: str) -> int:
    """The first join of a classic member, by the version that is a member at once."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")]
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=30_000, protocol_type="consumer", protocols=protocols
    )
    return int(client.ask(api.JOIN_GROUP, 0, request).error_code)


def heartbeat(client: TypedConnection, group: str) -> int:
    """The first heartbeat of a member of the newer protocol."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=uuid_text(new_uuid()),
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    return int(client.ask(api.CONSUMER_GROUP_HEARTBEAT, 1, request).error_code)


def begin_id(client: TypedConnection, transactional_id: str) -> tuple[int, int, int]:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=10_000)
    answer = client.ask(api.INIT_PRODUCER_ID, 4, request)
    return int(answer.error_code), int(answer.producer_id), int(answer.producer_epoch)


def taken(client: TypedConnection, begin: Callable[[TypedConnection, str], int]) -> tuple[int, set[int]]:
    """How much a client gets that asks for twice the limit, and the codes that it is refused with."""
    codes = []
    for number in range(2 * LIMIT):
        client.client_id = f"another-{number}"
        codes.append(begin(client, f"large-{number}"))
    return codes.count(0), set(codes) - {0}


@pytest.mark.parametrize("begin", [commit, join, heartbeat])
def test_another_clients_new_group_is_admitted(broker: Broker, begin: Callable[[TypedConnection, str], int]) -> None:
    with connect(broker, LARGE) as large, connect(broker, SMALL) as small:
        assert commit(small, "before", 42) == 0
        assert taken(large, begin) == (FOR_LARGE - 1, {ErrorCode.GROUP_MAX_SIZE_REACHED})
        for kind in (commit, join, heartbeat):
            assert kind(small, f"small-{kind.__name__}") == 0
            assert kind(large, f"larger-{kind.__name__}") == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert committed(small, "before") == 42, "nothing was pushed out"


def test_a_group_that_goes_makes_room_for_its_holder(broker: Broker) -> None:
    with connect(broker, LARGE) as large:
        assert taken(large, commit)[0] == FOR_LARGE
        names = [f"large-{number}" for number in range(FOR_LARGE)]
        deleted = large.ask(api.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=names))
        assert {row.error_code for row in deleted.results} == {0}
        assert taken(large, commit)[0] == FOR_LARGE


def test_another_clients_new_transactional_id_is_admitted(broker: Broker) -> None:
    with connect(broker, LARGE) as large, connect(broker, SMALL) as small:
        _, before, epoch = begin_id(small, "before")
        assert taken(large, lambda *asked: begin_id(*asked)[0]) == (FOR_LARGE - 1, {ErrorCode.POLICY_VIOLATION})
        assert begin_id(small, "after")[0] == 0
        assert begin_id(large, "more")[0] == ErrorCode.POLICY_VIOLATION
        assert begin_id(large, "large-0")[0] == 0, "what it has it may use"
        assert begin_id(small, "before") == (0, before, epoch + 1), "nothing was pushed out"


def test_a_restart_forgets_who_held_what_and_keeps_it(tmp_path: Path) -> None:
    settings = {"log.dirs": str(tmp_path), "transaction.max.ids": str(LIMIT)}
    with Broker(settings) as broker, connect(broker, LARGE) as large:
        assert taken(large, lambda *asked: begin_id(*asked)[0])[0] == FOR_LARGE
    with Broker(settings) as broker, connect(broker, LARGE) as large:
        codes = [begin_id(large, f"later-{number}")[0] for number in range(LIMIT)]
        assert codes.count(0) == LIMIT - FOR_LARGE
        assert begin_id(large, "large-0")[0] == 0


def test_who_reached_which_limit_is_logged_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), connect(broker, LARGE) as large:
        taken(large, commit)
        taken(large, lambda *asked: begin_id(*asked)[0])
    lines = [record.getMessage() for record in caplog.records if "is reached" in record.getMessage()]
    assert len(lines) == 2
    assert all(f"User:ANONYMOUS at {LARGE}" in line for line in lines)
    assert "max.groups (200)" in lines[0]
    assert "transaction.max.ids (200)" in lines[1]
