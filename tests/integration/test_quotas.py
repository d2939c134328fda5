"""Clients limited by quotas: the throttle time they get, when their connections are muted, and that no way avoids it.

A quota of a byte a second makes waits of minutes, so that nothing here depends on how long anything takes.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite import Broker
from kafkalite.broker.handlers import table
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.kit.harness import wire
from tests.kit.harness.quotas import SETTER, Client, records_in, set_quotas
from tests.kit.harness.wire import Closed

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

ANYBODY = {"user": "ANONYMOUS"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(num_partitions=1) as running:
        running.create_topic("t")
        yield running


@pytest.fixture
def port(broker: Broker) -> int:
    return broker.port


def others_are_served(port: int) -> None:
    """Some round trips of somebody who has no quota: by their end a request that is listened to has been answered."""
    with Client(port, SETTER) as client:
        for _ in range(20):
            assert not client.put(100).throttle_time_ms


def versions(key: int) -> list[int]:
    row = table.find(key)
    assert row is not None
    return list(range(row.oldest, row.newest + 1))


@pytest.mark.parametrize("version", versions(api.PRODUCE))
def test_a_producer_over_its_quota_is_answered_told_and_then_not_listened_to(port: int, version: int) -> None:
    set_quotas(port, {"client-id": "p"}, producer_byte_rate=1.0)
    with Client(port, "p") as client:
        answer = client.put(1000, version=version)
        assert answer.responses[0].partition_responses[0].base_offset == 0
        assert 1_000_000 < answer.throttle_time_ms < 1_300_000
        sent = client.send_message(api.API_VERSIONS, 0, ApiVersionsRequest())
        others_are_served(port)
        assert client.hears_nothing()
        assert sent


@pytest.mark.parametrize("acks", [0, -1])
def test_a_producer_that_is_not_answered_at_once_is_not_listened_to_either(port: int, acks: int) -> None:
    set_quotas(port, {"client-id": "p"}, producer_byte_rate=1.0)
    with Client(port, "p") as client:
        sent = client.send_put(1000, acks=acks)
        if acks:
            assert client.receive_message(*sent).throttle_time_ms > 1_000_000
        client.send_message(api.API_VERSIONS, 0, ApiVersionsRequest())
        others_are_served(port)
        assert client.hears_nothing()
    with Client(port, SETTER) as reader:
        assert records_in(reader.get()) > 1000


def test_who_has_waited_is_listened_to_again(port: int) -> None:
    set_quotas(port, {"client-id": "p"}, producer_byte_rate=10_000.0)
    with Client(port, "p") as client:
        assert client.put(12_000).throttle_time_ms > 0
        for _ in range(3):
            client.put(100)


@pytest.mark.parametrize("version", versions(api.FETCH))
def test_a_consumer_over_its_quota_gets_no_records_and_a_throttle_time(port: int, version: int) -> None:
    with Client(port, SETTER) as producer:
        producer.put(5000)
        producer.put(5000)
    set_quotas(port, {"client-id": "c"}, consumer_byte_rate=1.0)
    with Client(port, "c") as client:
        first = client.get(version=version)
        assert 5000 < records_in(first) < 6000, "one batch however large, and no more than a window allows"
        assert first.throttle_time_ms == 0
        second = client.get(version=version)
        assert second.responses == []
        assert second.throttle_time_ms > 1_000_000
        if version >= 7:
            assert second.error_code == 0
        client.send_message(api.API_VERSIONS, 0, ApiVersionsRequest())
        others_are_served(port)
        assert client.hears_nothing()


def test_a_consumer_over_its_quota_that_names_many_partitions(port: int) -> None:
    """What it has parked is answered first, within a window's bytes; then it gets no records."""
    set_quotas(port, {"client-id": "c"}, consumer_byte_rate=1.0)
    with Client(port, SETTER) as producer, Client(port, "c") as client:
        sent = client.send_get(times=5000, wait_ms=600_000)
        producer.put(5000)
        producer.put(5000)
        first = client.receive_message(*sent)
        assert 5000 < records_in(first) < 6000
        assert first.throttle_time_ms == 0
        second = client.get(times=5000)
        assert (second.error_code, second.responses) == (0, [])
        assert second.throttle_time_ms > 1_000_000
        client.send_message(api.API_VERSIONS, 0, ApiVersionsRequest())
        others_are_served(port)
        assert client.hears_nothing()


def test_a_fetch_session_continues_after_the_throttle_time(port: int) -> None:
    with Client(port, SETTER) as producer:
        producer.put(5000)
    set_quotas(port, ANYBODY, consumer_byte_rate=1.0)
    with Client(port, "c") as client:
        opened = client.get(session_epoch=0)
        assert opened.session_id > 0
        kept = {"session_id": opened.session_id}
        held = client.get(**kept, session_epoch=1)
        assert (held.error_code, held.session_id, held.responses) == (0, opened.session_id, [])
        assert held.throttle_time_ms > 0
    set_quotas(port, ANYBODY, consumer_byte_rate=None)
    with Client(port, "c") as client:
        went_on = client.get(**kept, session_epoch=2)
        assert (went_on.error_code, went_on.session_id) == (0, opened.session_id)
        assert records_in(went_on) > 5000


def test_a_full_fetch_that_is_held_up_opens_no_session(port: int) -> None:
    with Client(port, SETTER) as producer:
        producer.put(5000)
    set_quotas(port, ANYBODY, consumer_byte_rate=1.0)
    with Client(port, "c") as client:
        client.get()
        held = client.get(session_epoch=0)
        assert (held.error_code, held.session_id, held.responses) == (0, 0, [])


def test_a_parked_fetch_whose_quota_others_have_used_up_is_answered_without_records(port: int) -> None:
    set_quotas(port, ANYBODY, consumer_byte_rate=1.0)
    with Client(port, "one") as first, Client(port, "two") as second, Client(port, SETTER) as producer:
        waiting = [client.send_get(wait_ms=600_000) for client in (first, second)]
        others = producer.put(5000)
        assert others.throttle_time_ms == 0
        answers = [client.receive_message(*sent) for client, sent in zip((first, second), waiting, strict=True)]
        sizes = sorted(map(records_in, answers))
        assert sizes[0] == 0
        assert sizes[1] > 5000
        assert sorted(answer.throttle_time_ms > 0 for answer in answers) == [False, True]


def test_time_of_threads_is_counted_and_nobody_waits_for_it_longer_than_a_sample(port: int) -> None:
    set_quotas(port, {"client-id": "busy"}, request_percentage=0.001)
    with Client(port, "busy") as client:
        waits = [client.ask(api.METADATA, 9, MetadataRequest(topics=None)).throttle_time_ms for _ in range(3)]
        assert waits[0] == 0
        assert waits[1:] == [1000, 1000]
        assert client.ask(api.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[])).throttle_time_ms == 1000
        assert client.put(10).throttle_time_ms == 1000
        assert client.get().throttle_time_ms == 1000


def test_requests_without_an_answer_are_not_held_up_for_their_time(port: int) -> None:
    set_quotas(port, {"client-id": "busy"}, request_percentage=1e-6)
    with Client(port, "busy") as client:
        client.ask(api.METADATA, 9, MetadataRequest(topics=None))
        for _ in range(100):
            client.send_put(10, acks=0)  # a wait of a second each, if it counted
        assert client.ask(api.METADATA, 9, MetadataRequest(topics=[])).throttle_time_ms == 1000


class Topics:
    """Partitions created and deleted by a client with a quota of 0.01 a second and, so, 0.11 at once."""

    def __init__(self, client: Client, version: dict[str, int]) -> None:
        self.client = client
        self.version = version

    def create(self, *names: str, partitions: int = 1, validate_only: bool = False) -> tuple[list[int], int]:
        topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
        request = CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)
        answer = self.client.ask(api.CREATE_TOPICS, self.version["create"], request)
        return [topic.error_code for topic in answer.topics], answer.throttle_time_ms

    def grow(self, name: str, count: int) -> tuple[list[int], int]:
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)])
        answer = self.client.ask(api.CREATE_PARTITIONS, self.version["grow"], request)
        return [topic.error_code for topic in answer.results], answer.throttle_time_ms

    def delete(self, *names: str) -> tuple[list[int], int]:
        states = [DeleteTopicState(name=name) for name in names]
        version = self.version["delete"]
        fields: dict[str, Any] = {"topics": states} if version >= 6 else {"topic_names": list(names)}
        answer = self.client.ask(api.DELETE_TOPICS, version, DeleteTopicsRequest(timeout_ms=1000, **fields))
        return [topic.error_code for topic in answer.responses], answer.throttle_time_ms


OVER = ErrorCode.THROTTLING_QUOTA_EXCEEDED
NEWER = [{"create": create, "grow": 3, "delete": delete} for create, delete in ((6, 5), (7, 6))]
OLDER = [{"create": create, "grow": grow, "delete": delete} for create, grow, delete in ((2, 0, 1), (5, 2, 4))]


@pytest.mark.parametrize("version", NEWER)
def test_partitions_over_the_quota_are_refused_to_clients_who_know_how(port: int, version: dict[str, int]) -> None:
    set_quotas(port, ANYBODY, controller_mutation_rate=0.01)

    def tried(action: str, *arguments: Any) -> tuple[list[int], int]:
        with Client(port, "admin") as client:  # a new connection, since the one before is not listened to
            return getattr(Topics(client, version), action)(*arguments)

    codes, wait_ms = tried("create", "a", "b", "c")
    assert codes == [0, OVER, OVER]
    assert 80_000 < wait_ms <= 89_000, "one is created, of 0.11: 0.89 are owed"
    assert tried("grow", "t", 3)[0] == [OVER]
    assert tried("delete", "a", "t")[0] == [OVER, OVER]
    with Client(port, SETTER) as client:
        names = {topic.name for topic in client.ask(api.METADATA, 9, MetadataRequest(topics=None)).topics}
        assert names == {"a", "t"}
    codes, wait_ms = tried("create", "nothing", "t")
    assert codes == [OVER, ErrorCode.TOPIC_ALREADY_EXISTS]


@pytest.mark.parametrize("version", OLDER)
def test_partitions_over_the_quota_are_made_for_older_clients_who_then_wait(port: int, version: dict[str, int]) -> None:
    set_quotas(port, ANYBODY, controller_mutation_rate=0.01)
    done = []
    for action, arguments in (("create", ("a", "b")), ("grow", ("a", 3)), ("delete", ("b", "t"))):
        with Client(port, "admin") as client:
            codes, wait_ms = getattr(Topics(client, version), action)(*arguments)
            assert set(codes) == {0}
            client.send_message(api.API_VERSIONS, 0, ApiVersionsRequest())
            others = Client(port, SETTER)
            with others:
                others.ask(api.METADATA, 9, MetadataRequest(topics=None))
            assert client.hears_nothing()
            done.append(wait_ms)
    # v2 of CreateTopics and its like have the field, too
    assert [170_000 < done[0] < 190_000, 360_000 < done[1] < 390_000, 560_000 < done[2] < 590_000] == [True] * 3


def test_topics_that_are_made_by_asking_count_too(port: int) -> None:
    set_quotas(port, ANYBODY, controller_mutation_rate=0.01)
    with Client(port, "c") as client:
        names = [MetadataRequestTopic(name=name) for name in ("x", "y")]
        answer = client.ask(api.METADATA, 9, MetadataRequest(topics=names, allow_auto_topic_creation=True))
        assert {topic.name: topic.error_code for topic in answer.topics} == {
            "x": 0,
            "y": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


def test_no_request_is_throttled_once_the_last_quota_is_removed(port: int) -> None:
    set_quotas(port, ANYBODY, producer_byte_rate=1.0, request_percentage=0.001)
    with Client(port, "p") as client:
        assert client.put(1000).throttle_time_ms > 0
    set_quotas(port, ANYBODY, producer_byte_rate=None, request_percentage=None)
    with Client(port, "p") as client:
        for _ in range(3):
            assert client.put(1000).throttle_time_ms == 0


def test_a_new_value_holds_from_the_next_request_on(port: int) -> None:
    set_quotas(port, {"client-id": None}, producer_byte_rate=1e12)
    with Client(port, "p") as client:
        assert client.put(1000).throttle_time_ms == 0
        set_quotas(port, {"client-id": SETTER}, producer_byte_rate=1e12)
        set_quotas(port, {"client-id": None}, producer_byte_rate=1.0)
        assert client.put(1000).throttle_time_ms > 900_000


def test_requests_that_come_together_count_for_the_client_that_each_names(port: int) -> None:
    set_quotas(port, {"client-id": "bound"}, producer_byte_rate=1000.0)
    batch = wire.batch_of([wire.Record(b"k", bytes(4000))])

    def put(client_id: str) -> bytes:
        return wire.frame(wire.header(api.PRODUCE, 7, 0, client_id) + wire.produce_body("t", [(0, batch)]))

    with wire.Connection(port) as client:
        client.send_bytes(b"".join(map(put, ["other", "other", "bound", "other"])))
        waits = [int.from_bytes(client.receive()[1][-4:], "big", signed=True) for _ in range(3)]
    assert waits[:2] == [0, 0]
    assert waits[2] > 2000


def test_each_client_id_has_the_default_for_itself_and_a_user_one_for_all(port: int) -> None:
    set_quotas(port, {"client-id": None}, producer_byte_rate=1.0)
    for name in ("a", "b"):
        with Client(port, name) as client:
            assert 1_000_000 < client.put(1000).throttle_time_ms < 1_300_000
    set_quotas(port, ANYBODY, producer_byte_rate=1000.0)
    with Client(port, "c") as first, Client(port, "d") as second:
        assert first.put(2000).throttle_time_ms > 0
        sent = second.send_put(2000)
        assert sent


class TestNoWayRound:
    """Of a client who wants more than a quota leaves him."""

    def test_new_connections_and_client_ids_of_a_user_wait_for_what_he_owes(self, port: int) -> None:
        set_quotas(port, ANYBODY, producer_byte_rate=1.0)
        with Client(port, "first") as client:
            assert client.put(1000).throttle_time_ms > 0
        later = [Client(port, f"client-{i}") for i in range(10)]
        try:
            for client in later:
                client.send_put(1000)
            with Client(port, "reader") as reader:
                for _ in range(20):
                    end = reader.get(offset=0)
            assert records_in(end) < 1200, "one request was served, not eleven"
            assert all(client.hears_nothing() for client in later)
        finally:
            for client in later:
                client.socket.close()

    @pytest.mark.parametrize("client_id", [None, ""])
    def test_a_client_without_an_id_has_the_default_of_client_ids(self, port: int, client_id: str | None) -> None:
        set_quotas(port, {"client-id": None}, producer_byte_rate=1.0)
        with Client(port, client_id) as client:
            assert client.put(1000).throttle_time_ms > 0

    def test_another_client_id_on_the_same_connection_is_another_client(self, port: int) -> None:
        set_quotas(port, {"client-id": "slow"}, producer_byte_rate=1.0)
        with Client(port, "fast") as client:
            assert client.put(1000).throttle_time_ms == 0
            client.client_id = "slow"
            assert client.put(1000).throttle_time_ms > 0

    def test_what_a_producer_sends_while_it_has_to_wait_stays_in_its_socket(self, port: int) -> None:
        set_quotas(port, {"client-id": "p"}, producer_byte_rate=1.0)
        with Client(port, "p") as client:
            client.put(1000)
            client.socket.setblocking(False)
            sent, piece = 0, bytes(1 << 20)
            with contextlib.suppress(BlockingIOError):
                while sent < 64 << 20:
                    sent += client.socket.send(piece)
            others_are_served(port)
            assert sent < 32 << 20, "the kernel's buffers are full, and nobody empties them"

    def test_a_malformed_request_of_a_client_with_a_quota_ends_its_connection_alone(self, port: int) -> None:
        set_quotas(port, ANYBODY, producer_byte_rate=1e12, request_percentage=1e6)
        for body in (b"\xff\xff" * 5, b"\x00\x00\x00\x0c\x00\x00\x00\x01\x7f\xff", b"\x00" * 12):
            with Client(port, "p") as client:
                client.send_bytes(len(body).to_bytes(4, "big") + body)
                with pytest.raises((Closed, ConnectionResetError)):
                    client.receive_exactly(1 << 20)
        others_are_served(port)


def test_quotas_hold_after_a_restart(tmp_path: Any) -> None:
    with Broker(log_dirs=str(tmp_path)) as broker:
        broker.create_topic("t")
        set_quotas(broker.port, {"client-id": "p"}, producer_byte_rate=1.0)
    with Broker(log_dirs=str(tmp_path)) as broker, Client(broker.port, "p") as client:
        assert client.put(1000).throttle_time_ms > 0


def test_a_broker_with_clients_who_wait_stops(port: int, broker: Broker) -> None:
    set_quotas(port, ANYBODY, producer_byte_rate=1.0)
    with Client(port, "a") as first, Client(port, "b") as second:
        first.put(1000)
        second.send_put(1000)
        broker.stop()
        with pytest.raises((Closed, ConnectionResetError)):
            first.receive_exactly(1)
