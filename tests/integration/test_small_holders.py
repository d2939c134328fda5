"""While one client holds all it can of a limit, a client at another address gets what it needs; nothing is evicted.

The large holder connects from 127.0.0.2, under many client ids, the small one from 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite import Broker
from kafkalite.base.logging import EVENT_LINES
from kafkalite.errors import ErrorCode
from kafkalite.model import new_uuid, uuid_text
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from kafkalite.wire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.kit.harness import wire
from tests.kit.harness.sasl_broker import PASSWORD, SaslBroker, answer, plain_token, request
from tests.kit.harness.tls_broker import TlsBroker, answered, api_versions
from tests.kit.harness.typed import TypedConnection
from tests.kit.harness.wire import Closed
from tests.kit.processes.broker import wait_until

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
    request = JoinGroupRequest(group_id=group, session_timeout_ms=30_000, protocol_type="consumer", protocols=protocols)
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
    lines = [record.getMessage() for record in caplog.records if "is reserved" in record.getMessage()]
    assert len(lines) == 2
    assert all(f"User:ANONYMOUS at {LARGE}" in line for line in lines)
    assert "max.groups (200)" in lines[0]
    assert "transaction.max.ids (200)" in lines[1]


def served(stack: contextlib.ExitStack, port: int, source: str, count: int) -> list[TypedConnection]:
    """Open `count` connections and return those that are served; all stay open."""
    opened = [stack.enter_context(TypedConnection(port, source=source)) for _ in range(count)]
    return [client for client in opened if is_served(client)]


def is_served(client: TypedConnection) -> bool:
    try:
        return client.ask(api.API_VERSIONS, 0, ApiVersionsRequest()).error_code == 0
    except (Closed, ConnectionError):
        return False


@pytest.mark.parametrize("key", ["max.connections", "listener.name.plaintext.max.connections"])
def test_another_clients_connection_is_admitted(key: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", key: str(LIMIT)}
    with Broker(settings) as broker, contextlib.ExitStack() as stack, caplog.at_level(logging.INFO):
        before = served(stack, broker.port, SMALL, 2)
        large = served(stack, broker.port, LARGE, 2 * LIMIT)
        assert len(large) == FOR_LARGE - len(before)
        assert len(served(stack, broker.port, SMALL, 5)) == 5
        assert served(stack, broker.port, LARGE, 3) == []
        assert all(map(is_served, before)), "nothing was pushed out"
        large[0].close()
        wait_until(lambda: broker.connection_count < FOR_LARGE + 5, 60, "the broker to see the close")
        assert served(stack, broker.port, LARGE, 1) == [], "the last tenth is still used"
        assert len(served(stack, broker.port, SMALL, 1)) == 1
    lines = [record.getMessage() for record in caplog.records if "refused a connection" in record.getMessage()]
    assert len(lines) == 1
    assert LARGE in lines[0]
    assert f"max.connections ({LIMIT})" in lines[0]


def test_connections_that_are_closed_are_counted_out() -> None:
    with Broker({"max.connections": str(LIMIT)}) as broker:
        for _ in range(3):
            with contextlib.ExitStack() as stack:
                assert len(served(stack, broker.port, LARGE, LIMIT)) == FOR_LARGE
            wait_until(lambda: broker.connection_count == 0, 60, "the connections to go")


def fetch(client: TypedConnection, session_id: int, epoch: int, *partitions: int) -> Any:
    asked = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000) for number in partitions]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=asked)] if asked else [],
    )
    return client.ask(api.FETCH, 11, request)


def test_another_clients_fetch_session_is_admitted(broker: Broker) -> None:
    with connect(broker, LARGE) as large, connect(broker, SMALL) as small:
        before = fetch(small, 0, 0, 0).session_id
        assert before != 0
        opened = [fetch(large, 0, 0, 0).session_id for _ in range(2 * LIMIT)]
        assert sum(found != 0 for found in opened) == FOR_LARGE - 1
        assert fetch(small, 0, 0, 0).session_id != 0
        assert fetch(large, 0, 0, 0).session_id == 0
        assert fetch(small, before, 1).error_code == 0, "nothing was pushed out"
        fetch(large, opened[0], -1, 0)
        assert fetch(large, 0, 0, 0).session_id == 0, "the last tenth is still used"
        fetch(large, opened[1], -1, 0)
        assert fetch(large, 0, 0, 0).session_id != 0


def test_another_clients_partitions_of_fetch_sessions_are_admitted(tmp_path: Path) -> None:
    settings = {"log.dirs": str(tmp_path), "fetch.session.cache.max.partitions": "1000"}
    with Broker(settings) as broker, connect(broker, LARGE) as large, connect(broker, SMALL) as small:
        broker.create_topic("t", partitions=1000)
        before = fetch(small, 0, 0, 0).session_id
        assert fetch(large, 0, 0, *range(1000)).session_id == 0
        session_id = fetch(large, 0, 0, *range(500)).session_id
        assert session_id != 0
        assert fetch(large, session_id, 1, *range(500, 899)).error_code == 0
        assert fetch(small, 0, 0, *range(100)).session_id != 0
        assert fetch(large, session_id, 2).error_code == 0, "what it has it may use"
        assert fetch(large, session_id, 3, 900).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert fetch(small, before, 1).error_code == 0, "nothing was pushed out"


def test_another_clients_sign_in_is_admitted(tmp_path: Path) -> None:
    with SaslBroker(tmp_path, connection_authentication_max=str(LIMIT)) as sasl, contextlib.ExitStack() as stack:
        workers = sasl.broker.config.num_network_threads
        before = [stack.enter_context(sasl.connect(source=SMALL)) for _ in range(workers)]
        for client in before:
            client.handshake("PLAIN")
        large = [stack.enter_context(sasl.connect(source=LARGE)) for _ in range(2 * LIMIT)]
        for client in large:
            client.send(b"\0")
        for_large = workers * (LIMIT // workers - LIMIT // workers // 10)
        wait_until(lambda: sasl.broker.connection_count <= for_large, 60, "the oldest of the large holder to be closed")
        for client in before:
            assert client.authenticate(plain_token("alice", PASSWORD)).error_code == 0, "nothing was pushed out"
        with sasl.connect(source=SMALL) as after:
            after.plain()
            assert after.metadata().cluster_id


def test_another_clients_tls_handshake_is_admitted(tmp_path: Path) -> None:
    settings = {"connection_authentication_max": str(LIMIT), "num_network_threads": "1"}
    with TlsBroker(tmp_path, **settings) as tls, contextlib.ExitStack() as stack:
        large = []
        for _ in range(2 * LIMIT):
            address = ("127.0.0.1", tls.broker.endpoints["SSL"].port)
            sock = stack.enter_context(socket.create_connection(address, timeout=60, source_address=(LARGE, 0)))
            sock.sendall(b"\x16\x03\x01\x02")
            large.append(sock)
        wait_until(lambda: tls.broker.connection_count <= FOR_LARGE, 60, "the oldest of the large holder to be closed")
        with tls.secure() as small:
            small.sendall(api_versions(5))
            assert answered(small) == 5


def test_what_one_client_has_sent_before_it_signs_in_does_not_close_another(tmp_path: Path) -> None:
    limits = {"connection_authentication_max_bytes": str(2 << 20), "num_network_threads": "1"}
    with SaslBroker(tmp_path, **limits) as sasl, contextlib.ExitStack() as stack:
        before, after = (stack.enter_context(sasl.connect(source=SMALL)) for _ in range(2))
        for client in (before, after):
            client.handshake("PLAIN")
        message = SaslAuthenticateRequest(auth_bytes=plain_token("alice", PASSWORD))
        begun = request(api.SASL_AUTHENTICATE, 2, message)
        before.send(begun[:-3])
        large = [stack.enter_context(sasl.connect(source=LARGE)) for _ in range(20)]
        for client in large:
            client.handshake("PLAIN")
            client.send(struct.pack(">i", 500_000) + b"\0" * 300_000)
        wait_until(lambda: sasl.broker.connection_count < 10, 60, "the oldest of the large holder to be closed")
        after.send(begun[:-3])
        for client in (before, after):
            client.send(begun[-3:])
            assert answer(api.SASL_AUTHENTICATE, 2, client.frame()).error_code == 0


MISTAKES = {
    "version": lambda number: wire.header(3, 999, number),
    "api": lambda number: wire.header(10_000 + number % 100, 0, number),
    "schema": lambda number: wire.header(3, 12, number) + b"\xff" * (number % 30 + 1),
    "size": lambda number: b"",
    "produce": lambda number: wire.header(0, 9, number) + bytes(1 + number % 30),
    "fetch": lambda number: wire.header(1, 11, number) + bytes(number % 30),
}
"""Requests that a client may repeat, each time with a small difference."""


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_that_is_repeated_is_logged_once(broker: Broker, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for number in range(100):
            with connect(broker, LARGE) as client, contextlib.suppress(ConnectionError):
                client.send_bytes(wire.frame(MISTAKES[kind](number)))
                client.socket.recv(1)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1, lines
    assert f"closed {LARGE}" in lines[0]


def test_sign_ins_that_fail_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with SaslBroker(tmp_path) as sasl, caplog.at_level(logging.WARNING):
        for number in range(30):
            with sasl.connect() as client:
                client.handshake("PLAIN")
                assert client.authenticate(plain_token(f"user-{number}", "wrong")).error_code != 0
                assert client.is_closed()
    assert len([record for record in caplog.records if "failed to authenticate" in record.getMessage()]) == 1


def test_what_clients_do_in_the_ordinary_course_is_logged_a_few_times(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), connect(broker, SMALL) as client:
        for number in range(50):
            assert client.create_topic(f"topic-{number}") == 0
            assert client.delete_topic(f"topic-{number}") == 0
            assert heartbeat(client, f"group-{number}") == 0
            assert join(client, f"classic-{number}") == 0
    kinds = Counter(record.msg for record in caplog.records)
    assert kinds["topic created"] == kinds["topic deleted"] == EVENT_LINES
    assert max(kinds.values()) == EVENT_LINES


def ask_for(client: TypedConnection, name: str) -> int:
    """Request metadata of a topic with auto-creation; return its error code."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    return int(client.ask(api.METADATA, 9, request).topics[0].error_code)


@pytest.mark.parametrize("begin", [TypedConnection.create_topic, ask_for])
def test_another_clients_topic_is_created(tmp_path: Path, begin: Callable[[TypedConnection, str], int]) -> None:
    settings = {"log.dirs": str(tmp_path), "max.partitions": str(LIMIT)}
    with Broker(settings) as broker, connect(broker, LARGE) as large, connect(broker, SMALL) as small:
        assert taken(large, begin) == (FOR_LARGE, {ErrorCode.POLICY_VIOLATION})
        assert begin(small, "small") == 0
        assert large.delete_topic("large-0") == large.delete_topic("large-1") == 0
        assert begin(large, "larger") == 0, "what goes makes room for its holder"
        assert begin(large, "largest") == ErrorCode.POLICY_VIOLATION
