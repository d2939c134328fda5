"""Faults as they are asked for: names, numbers, counts, ends; and what is refused."""

import socket
import struct

import pytest

from kafkalite.errors import ErrorCode, OffsetOutOfRange
from kafkalite.testing import KafkaBroker
from kafkalite.testing.faults import code_of, key_of
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api, header
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.wire.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.wire.protocol.messages.list_groups import ListGroupsRequest

LONG_S = 3600.0


@pytest.fixture(scope="module", params=[True, False], ids=["in-process", "own-process"])
def broker(request):
    with KafkaBroker(flush_on_acks_all=False, in_process=request.param) as made:
        made.create_topic("t")
        yield made


@pytest.fixture
def ask(broker):
    """Sends requests of one connection, and reads its answers."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=120) as connection:
        yield Asking(connection)
    broker.heal()


class Asking:
    def __init__(self, connection):
        self.socket = connection
        self.sent = []

    def send(self, key, version, request):
        self.socket.sendall(protocol.encode_request_frame(key, version, len(self.sent), "c", request))
        self.sent.append((key, version))

    def receive(self, number):
        """The answer of a request, which has to be the next one."""
        (size,) = struct.unpack(">i", self.exactly(4))
        frame = self.exactly(size)
        key, version = self.sent[number]
        correlation_id, position = header.decode_response_header(key, version, frame)
        assert correlation_id == number
        return protocol.decode_response(key, version, frame[position:])

    def __call__(self, key, version, request):
        self.send(key, version, request)
        return self.receive(len(self.sent) - 1)

    def exactly(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data


def heartbeat(ask):
    return ask(api.HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id="m")).error_code


def test_a_failure_happens_a_given_number_of_times_and_is_counted(broker, ask):
    fault = broker.fail("Heartbeat", "NOT_COORDINATOR", times=2)
    answers = [heartbeat(ask) for _ in range(3)]
    assert answers == [ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_MEMBER_ID]
    assert (fault.count, fault.ended) == (2, True)


def test_a_failure_that_lasts_until_it_is_ended(broker, ask):
    with broker.fail("heartbeat", ErrorCode.NOT_COORDINATOR, times=None) as fault:
        assert [heartbeat(ask) for _ in range(5)] == [ErrorCode.NOT_COORDINATOR] * 5
    assert heartbeat(ask) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fault.count == 5


def test_faults_of_one_api_come_in_their_order_and_leave_others_alone(broker, ask):
    broker.fail(api.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
    broker.fail("Heartbeat", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert ask(api.LIST_GROUPS, 4, ListGroupsRequest()).error_code == 0
    assert [heartbeat(ask) for _ in range(3)] == [27, 15, ErrorCode.UNKNOWN_MEMBER_ID]


def test_disconnection_closes_instead_of_answering_what_was_earned_before_it(broker, ask):
    fault = broker.disconnect("Heartbeat")
    ask.send(api.LIST_GROUPS, 4, ListGroupsRequest())
    ask.send(api.HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id="m"))
    assert ask.receive(0).error_code == 0
    with pytest.raises((EOFError, ConnectionResetError)):
        ask.receive(1)
    assert fault.count == 1


def test_delayed_answer_waits_with_what_is_behind_it_until_the_delay_ends(broker, ask):
    delay = broker.delay("Heartbeat", LONG_S, times=1)
    ask.send(api.LIST_GROUPS, 4, ListGroupsRequest())
    ask.send(api.HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id="m"))
    ask.send(api.LIST_GROUPS, 4, ListGroupsRequest())
    assert ask.receive(0).error_code == 0
    ask.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        ask.socket.recv(1)
    ask.socket.settimeout(120)
    assert delay.count == 1
    broker.heal()
    assert ask.receive(1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ask.receive(2).error_code == 0


def test_delay_passes_by_itself(broker, ask):
    broker.delay("Heartbeat", 0.001)
    assert [heartbeat(ask) for _ in range(3)] == [ErrorCode.UNKNOWN_MEMBER_ID] * 3


def test_failure_may_be_delayed(broker, ask):
    delay = broker.delay("Heartbeat", 0.001)
    broker.fail("Heartbeat", ErrorCode.REBALANCE_IN_PROGRESS)
    assert [heartbeat(ask), heartbeat(ask)] == [27, ErrorCode.UNKNOWN_MEMBER_ID]
    assert delay.count == 2


def test_a_delayed_connection_that_closes_affects_no_other(broker, ask):
    delay = broker.delay("Heartbeat", LONG_S, times=1)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=120) as other:
        gone = Asking(other)
        gone.send(api.HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id="m"))
        gone.send(api.HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id="m"))
        while delay.count == 0:
            assert ask(api.LIST_GROUPS, 4, ListGroupsRequest()).error_code == 0
    broker.heal()
    assert heartbeat(ask) == ErrorCode.UNKNOWN_MEMBER_ID


def test_fetch_of_a_session_that_names_no_partition_is_made_to_name_them(broker, ask):
    """KIP-227: an incremental request says only what changed, so there is no partition in it to carry an error."""
    named = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])]
    opened = ask(api.FETCH, 12, FetchRequest(session_epoch=0, topics=named, max_bytes=1000))
    assert opened.session_id
    fault = broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER")
    again = ask(api.FETCH, 12, FetchRequest(session_id=opened.session_id, session_epoch=1, max_bytes=1000))
    assert again.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert fault.count == 0
    full = ask(api.FETCH, 12, FetchRequest(session_epoch=0, topics=named, max_bytes=1000))
    assert full.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (full.error_code, fault.count) == (0, 1)


def test_request_that_makes_no_sense_is_not_counted(broker, ask):
    fault = broker.fail("Heartbeat", ErrorCode.REBALANCE_IN_PROGRESS)
    ask.socket.sendall(struct.pack(">ihhih", 14, api.HEARTBEAT, 4, 0, -1) + b"\0\xff\xff\xff")
    with pytest.raises((EOFError, ConnectionResetError)):
        ask.exactly(1)
    assert fault.count == 0


def test_names_numbers_and_exceptions():
    assert key_of("ListOffsets") == key_of("listoffsets") == key_of(2) == 2
    assert code_of("offset_out_of_range") == code_of(1) == code_of(OffsetOutOfRange) == code_of(OffsetOutOfRange()) == 1
    assert code_of(-1) == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("Prodduce", 1), "unknown API 'Prodduce', did you mean Produce"),
        ((999, 1), "unknown API 999"),
        (("Produce", "NOT_LEADER"), "unknown Kafka error 'NOT_LEADER', did you mean"),
        (("Produce", 9999), "unknown Kafka error 9999"),
        (("Produce", 0), "NONE is not an error"),
        (("Produce", 1, 0), "invalid times=0; expected at least 1"),
    ],
)
def test_what_cannot_be_is_refused(broker, arguments, text):
    with pytest.raises(ValueError, match=text):
        broker.fail(*arguments)
    with pytest.raises(ValueError, match="a delay must be at least 0 seconds"):
        broker.delay("Produce", -1)
    if broker.in_process:
        assert not broker.faults.armed


@pytest.mark.parametrize("in_process", [True, False])
def test_restart_needs_a_running_broker(in_process):
    broker = KafkaBroker(in_process=in_process)
    with pytest.raises(RuntimeError, match="is not running"):
        broker.restart()
    broker.stop()
