"""Long requests of a running broker: answers in order, ends with the connection and with the broker, errors as ever."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from kafkalite import Broker
from kafkalite.broker import dispatch
from kafkalite.broker.dispatch import Dispatcher
from kafkalite.broker.handlers import group_offsets, table
from kafkalite.broker.limits import pace
from kafkalite.errors import ErrorCode
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import create_topics, delete_topics, metadata, offset_fetch
from kafkalite.wire.protocol.messages.heartbeat import HeartbeatRequest
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 60.0
NAMES = 5000


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def connect(broker: Broker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), WAIT_S)


def receive_exactly(client: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = client.recv(size - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return bytes(data)


def receive(client: socket.socket, key: int, version: int) -> tuple[int, Any]:
    data = receive_exactly(client, struct.unpack(">i", receive_exactly(client, 4))[0])
    number, position = protocol.header.decode_response_header(key, version, data)
    return number, protocol.decode_response(key, version, data[position:])


def offsets_of(count: int) -> offset_fetch.OffsetFetchRequest:
    return offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=f"g{i}", topics=None) for i in range(count)]
    )


def topic_frame(number: int, name: str) -> bytes:
    topics = [metadata.MetadataRequestTopic(name=name)]
    request = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return protocol.encode_request_frame(api.METADATA, 9, number, "long", request)


def long_frame(number: int, count: int = NAMES) -> bytes:
    return protocol.encode_request_frame(api.OFFSET_FETCH, 8, number, "long", offsets_of(count))


def test_short_requests_behind_long_ones_are_answered_in_order(broker: Broker) -> None:
    with connect(broker) as client:
        frames = [long_frame(n) if n % 3 == 0 else topic_frame(n, f"t{n}") for n in range(30)]
        client.sendall(b"".join(frames))
        for number in range(30):
            if number % 3 == 0:
                received, answer = receive(client, api.OFFSET_FETCH, 8)
                assert [group.group_id for group in answer.groups] == [f"g{i}" for i in range(NAMES)]
            else:
                received, answer = receive(client, api.METADATA, 9)
                assert answer.topics[0].name == f"t{number}"
            assert received == number


def test_long_and_short_requests_take_effect_in_order_wherever_each_runs(broker: Broker) -> None:
    """Creation waits for the disk, long or short; Metadata does not. None may overtake another."""
    version = 5

    def create(number: int, names: list[str]) -> bytes:
        topics = [create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        request = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=5000)
        return protocol.encode_request_frame(api.CREATE_TOPICS, version, number, "long", request)

    def delete(number: int, names: list[str]) -> bytes:
        request = delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=5000)
        return protocol.encode_request_frame(api.DELETE_TOPICS, 4, number, "long", request)

    many = [f"bad name {i}" for i in range(NAMES)]
    with connect(broker) as client:
        for _ in range(5):
            client.sendall(
                create(1, ["here"])
                + long_frame(2)
                + topic_frame(3, "here")
                + delete(4, ["here"])
                + create(5, ["there", *many])
                + topic_frame(6, "here")
                + topic_frame(7, "there")
                + delete(8, ["there"])
                + topic_frame(9, "there")
            )
            assert receive(client, api.CREATE_TOPICS, version)[1].topics[0].error_code == 0
            receive(client, api.OFFSET_FETCH, 8)
            assert receive(client, api.METADATA, 9)[1].topics[0].error_code == 0
            assert receive(client, api.DELETE_TOPICS, 4)[1].responses[0].error_code == 0
            created = receive(client, api.CREATE_TOPICS, version)[1].topics
            assert created[0].error_code == 0
            assert {topic.error_code for topic in created[1:]} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
            assert receive(client, api.METADATA, 9)[1].topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert receive(client, api.METADATA, 9)[1].topics[0].error_code == 0
            assert receive(client, api.DELETE_TOPICS, 4)[1].responses[0].error_code == 0
            number, answer = receive(client, api.METADATA, 9)
            assert (number, answer.topics[0].error_code) == (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_long_request_that_does_not_follow_its_schema_closes_with_one_line(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    whole = long_frame(1)
    cut = whole[4:-20]
    with connect(broker) as client:
        client.sendall(struct.pack(">i", len(cut)) + cut)
        assert client.recv(1) == b""
    lines = [record.getMessage() for record in caplog.records if "does not match its schema" in record.getMessage()]
    assert len(lines) == 1
    assert "OffsetFetch v8" in lines[0]


class Endless:
    """A handler that works until nothing wants its answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()
        monkeypatch.setattr(group_offsets, "_fetch_group", self._fetch)

    def _fetch(self, *_: object) -> None:
        self.begun.set()
        try:
            while True:
                pace.checkpoint()
        except pace.Stopped:
            self.ended.set()
            raise


@pytest.mark.parametrize("sent", [1, 300], ids=["one", "more-than-is-read"])
def test_work_ends_with_its_connection(broker: Broker, monkeypatch: pytest.MonkeyPatch, sent: int) -> None:
    endless = Endless(monkeypatch)
    client = connect(broker)
    with client:
        client.sendall(long_frame(1))
        assert endless.begun.wait(WAIT_S)
        client.sendall(b"".join(topic_frame(number, "t") for number in range(2, 2 + sent)))
    assert endless.ended.wait(WAIT_S)
    wait_until(lambda: broker.connection_count == 0, WAIT_S, "the connection is closed")
    monkeypatch.undo()
    with connect(broker) as other:
        other.sendall(long_frame(1))
        assert receive(other, api.OFFSET_FETCH, 8)[0] == 1


def test_a_stop_ends_the_work_and_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless(monkeypatch)
    with Broker() as broker, connect(broker) as client:
        client.sendall(long_frame(1) * 10)
        assert endless.begun.wait(WAIT_S)
        broker.stop()
        assert endless.ended.is_set()
        assert client.recv(1) == b""


def test_a_client_with_long_requests_does_not_hold_up_another(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless(monkeypatch)
    with connect(broker) as greedy, connect(broker) as client:
        greedy.sendall(long_frame(1))
        assert endless.begun.wait(WAIT_S)
        for number in range(100):
            client.sendall(topic_frame(number, "t"))
            assert receive(client, api.METADATA, 9)[0] == number
        assert not endless.ended.is_set()


def deletion_frame(number: int, count: int) -> bytes:
    request = delete_topics.DeleteTopicsRequest(topic_names=[f"t{number}-{i}" for i in range(count)], timeout_ms=5000)
    return protocol.encode_request_frame(api.DELETE_TOPICS, 4, number, "long", request)


def test_what_waits_for_the_pool_is_charged_before_it_is_decoded(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends hundreds of requests at once would otherwise have a network thread decode them all."""
    sent, names = 500, 100
    free, begun = threading.Event(), threading.Event()
    decoded: Counter[bool] = Counter()
    decode, respond = table.Row.decode, dispatch.Dispatcher.respond

    def counted_decode(row: table.Row, *args: Any) -> Any:
        decoded[threading.current_thread().name.startswith("kafkalite-net")] += 1
        return decode(row, *args)

    def held_respond(*args: Any) -> Any:
        begun.set()
        assert free.wait(WAIT_S)
        return respond(*args)

    monkeypatch.setattr(table.Row, "decode", counted_decode)
    monkeypatch.setattr(dispatch.Dispatcher, "respond", staticmethod(held_respond))
    with connect(broker) as client:
        client.sendall(deletion_frame(0, names))
        assert begun.wait(WAIT_S)
        client.sendall(b"".join(deletion_frame(number, names) for number in range(1, sent)))
        free.set()
        for number in range(sent):
            received, answer = receive(client, api.DELETE_TOPICS, 4)
            assert received == number
            assert len(answer.responses) == names
    assert decoded.total() == sent
    assert decoded[True] < sent // 2


def test_what_waits_for_the_pool_is_not_done_when_its_client_has_gone(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, begun = threading.Event(), threading.Event()
    handled: list[Any] = []
    respond = dispatch.Dispatcher.respond

    def held_respond(row: table.Row, context: Any, request: Any) -> Any:
        handled.append(request)
        begun.set()
        assert free.wait(WAIT_S)
        return respond(row, context, request)

    monkeypatch.setattr(dispatch.Dispatcher, "respond", staticmethod(held_respond))
    with connect(broker) as client:
        client.sendall(deletion_frame(0, 1))
        assert begun.wait(WAIT_S)
        client.sendall(b"".join(deletion_frame(number, 1) for number in range(1, 5)))
        assert broker._parts is not None
        strands = broker._parts.pool._strands
        wait_until(lambda: sum(map(len, strands.values())) >= 5, WAIT_S, "the others wait for the first")
    free.set()
    wait_until(lambda: not strands, WAIT_S, "none waits")
    assert len(handled) == 1


def test_a_request_does_not_overtake_one_that_moves_from_the_pool_meanwhile() -> None:
    """A long request leaves the pool for the thread for long requests between two looks of dispatch."""
    strands: dict[object, object] = {}
    submitted: list[object] = []

    class Pool:
        def has_jobs(self, connection: object) -> bool:
            strands[connection] = "the long request, which has just been moved"
            return False

    class Connection:
        share = None
        throttle = None
        principal, client_host = "User:a", "127.0.0.1"

        def affords(self, _cost_us: float, _limit_us: float) -> bool:
            return True

        def park(self, _size: int, *, decoded: bool) -> None:
            assert decoded

    long_requests = SimpleNamespace(
        strands=strands, share_of=lambda _client: "", submit=lambda _client, job: submitted.append(job)
    )
    services = SimpleNamespace(pool=Pool(), config=SimpleNamespace(request_max_partitions=100))
    dispatcher = Dispatcher(cast("Any", services), long_requests=cast("Any", long_requests))
    body = protocol.encode_request_frame(api.HEARTBEAT, 4, 1, "short", HeartbeatRequest(group_id="g", member_id="m"))
    size = len(b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0short")  # size, key and version, number, client id
    answer = dispatcher(cast("Any", Connection()), api.HEARTBEAT, 4, 1, b"short", body[size:])
    assert (answer, len(submitted)) == (None, 1)
