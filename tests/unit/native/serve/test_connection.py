"""One connection without a worker thread: frames in over a socket pair, answers out, events given by hand."""

import select
import socket
import struct
import time

import pytest

from kafkalite._native.serve.connection import Connection, InlineShare, WorkerResources
from kafkalite._native.serve.fetch import FetchServer
from kafkalite._native.serve.fetch_session import FetchSessionCache
from kafkalite._native.serve.produce import ProduceServer
from kafkalite._native.serve.topic_table import TopicTable
from kafkalite._native.serve.transfer import Mailbox, OutBuffer, frame_length
from kafkalite.broker.handlers.table import native_apis

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
ECHO, PARK, BIG, FAIL = 100, 101, 102, 103
BIG_SIZE = 100_000
IN_FLIGHT_MAX = 8
OUTPUT_MAX = 1_000_000
REQUEST_MAX = 1_000_000


class Harness:
    """A connection with a dispatcher that echoes, parks or answers at length, and the client's end of its socket."""

    def __init__(self, apis=None, request_max=REQUEST_MAX, memory=None):
        self.interest = READ
        self.closed = 0
        self.work_s = 0.0  # that serving a request takes
        self.on_serve = lambda: None
        self.parked = []
        self.served = []
        out, self.mailbox, table = OutBuffer(), Mailbox(), TopicTable()
        self.io = WorkerResources(
            self.mailbox,
            out,
            ProduceServer(table, out, None, partitions_max=100, deferred_bytes_max=1 << 20, flush_on_acks_all=True),
            FetchServer(
                table,
                out,
                self.mailbox,
                None,
                FetchSessionCache(slots_max=2, partitions_max=100, eviction_ms=1000),
                partitions_max=100,
                response_size_max=1 << 20,
                copy_size_max=1 << 15,
            ),
            self.dispatch,
            self.on_interest,
            self.on_close,
            apis or native_apis(),
            request_size_max=request_max,
            output_bytes_max=OUTPUT_MAX,
            in_flight_max=IN_FLIGHT_MAX,
        )
        self.park_size = 0
        if memory is not None:
            self.io.use_memory(memory)
        self.client, server = socket.socketpair()
        server.setblocking(False)
        self.client.settimeout(20.0)
        self.connection = Connection(self.io, server, "127.0.0.1", 1, None)

    def dispatch(self, connection, key, version, correlation_id, client_id, body):
        self.served.append(correlation_id)
        self.on_serve()
        until = time.monotonic() + self.work_s
        while time.monotonic() < until:
            pass
        if key == PARK:
            self.parked.append((correlation_id, connection.park(self.park_size)))
            return None
        if key == FAIL:
            raise ValueError("on purpose")
        if not isinstance(body, bytes):  # a large one is not copied by the worker
            body = body.take()
        return answer(correlation_id, bytes(BIG_SIZE) if key == BIG else body)

    def on_interest(self, connection, events):
        self.interest = events

    def on_close(self, connection):
        self.closed += 1

    def turn(self):
        """Run one loop turn: data from the client is readable, the socket is writable, the mailbox is emptied."""
        self.io.now += 1.0
        events = self.interest & (READ | WRITE)
        if events and not self.connection.closed:
            self.connection.on_event(events)
        self.io.handle_posted()
        self.io.expire_timers()

    def complete(self, index):
        correlation_id, place = self.parked[index]
        place.complete(answer(correlation_id, b"late"))
        self.io.handle_posted()

    def receive(self, size):
        data = b""
        while len(data) < size:
            piece = self.client.recv(size - len(data))
            assert piece, f"closed after {len(data)} of {size} bytes"
            data += piece
        return data

    def receive_frame(self):
        size = struct.unpack(">i", self.receive(4))[0]
        data = self.receive(size)
        return struct.unpack(">i", data[:4])[0], data[4:]

    def nothing_to_receive(self):
        self.client.setblocking(False)
        try:
            return self.client.recv(1) is None
        except BlockingIOError:
            return True
        finally:
            self.client.settimeout(20.0)

    def client_sees_the_end(self):
        try:
            return self.client.recv(1) == b""
        except ConnectionResetError:
            return True


@pytest.fixture
def harness():
    harness = Harness()
    yield harness
    harness.connection.close()
    harness.client.close()


def request(key, correlation_id, body=b"", client_id=b"me", version=0):
    frame = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id + body
    return struct.pack(">i", len(frame)) + frame


def answer(correlation_id, body):
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


@pytest.mark.parametrize("place", [0, 1], ids=["Produce", "Fetch"])
def test_connection_serves_the_versions_that_it_was_given_and_no_others(place):
    """An echo answers requests that the dispatcher gets; the connection closes for those it serves itself, since no
    body follows.
    """
    rows = list(native_apis())
    key, oldest, newest, flexible_from = rows[place]
    rows[place] = (key, oldest + 1, newest - 1, flexible_from)
    for version, own in ((oldest, False), (oldest + 1, True), (newest - 1, True), (newest, False)):
        harness = Harness(tuple(rows))
        harness.client.sendall(request(key, 1, version=version))
        harness.turn()
        assert harness.connection.closed is own
        assert harness.served == ([] if own else [1])
        harness.connection.close()
        harness.client.close()


@pytest.mark.parametrize("place", [0, 1], ids=["Produce", "Fetch"])
def test_a_table_that_contradicts_the_native_codec_is_refused(place):
    rows = list(native_apis())
    key, oldest, newest, flexible_from = rows[place]
    rows[place] = (key, oldest, newest, flexible_from + 1)
    with pytest.raises(ValueError, match=f"API {key}: flexible from {flexible_from + 1}"):
        Harness(tuple(rows))


def test_request_cut_at_every_byte_is_served_once_and_whole(harness):
    frame = request(ECHO, 7, b"payload")
    for cut in range(len(frame) + 1):
        harness.client.sendall(frame[:cut])
        harness.turn()
        if cut < len(frame):
            assert harness.served == []
        harness.client.sendall(frame[cut:])
        harness.turn()
        assert harness.receive_frame() == (7, b"payload")
        assert harness.served == [7]
        harness.served.clear()


def test_request_fed_byte_by_byte_with_the_next_one_behind_it(harness):
    frames = request(ECHO, 1, b"a" * 300) + request(ECHO, 2, b"b")
    for byte in frames:
        harness.client.sendall(bytes([byte]))
        harness.turn()
    assert harness.receive_frame() == (1, b"a" * 300)
    assert harness.receive_frame() == (2, b"b")


def test_pipelined_requests_are_answered_in_order(harness):
    """In one turn, or in several on a busy machine: a turn ends when a connection has used up its share of time."""
    harness.client.sendall(b"".join(request(ECHO, number, bytes([number])) for number in range(200)))
    while len(harness.served) < 200:
        harness.turn()
    assert [harness.receive_frame() for _ in range(200)] == [(number, bytes([number])) for number in range(200)]


def test_parked_answer_holds_those_behind_it(harness):
    harness.client.sendall(request(ECHO, 1) + request(PARK, 2) + request(ECHO, 3) + request(PARK, 4) + request(ECHO, 5))
    while len(harness.served) < 5:  # the bytes may arrive in several pieces
        harness.turn()
    assert harness.receive_frame() == (1, b"")
    assert harness.nothing_to_receive()
    harness.complete(1)
    assert harness.nothing_to_receive(), "4 is complete, but 2 goes out before it"
    harness.complete(0)
    assert [harness.receive_frame()[0] for _ in range(4)] == [2, 3, 4, 5]


def test_reading_pauses_at_the_limit_of_answers_owed_and_goes_on_afterwards(harness):
    count = 3 * IN_FLIGHT_MAX
    harness.client.sendall(b"".join(request(PARK, number) for number in range(count)))
    for _ in range(count):  # far more turns than it takes: a busy machine may end a turn after one request
        harness.turn()
    assert len(harness.served) == IN_FLIGHT_MAX
    assert not harness.interest & READ
    for index in range(count):
        harness.complete(index)
        harness.turn()
    assert [harness.receive_frame()[0] for _ in range(count)] == list(range(count))
    assert harness.interest & READ


def test_client_that_does_not_read_is_owed_a_bounded_amount(harness):
    count = 100
    harness.client.sendall(b"".join(request(BIG, number) for number in range(count)))
    for _ in range(10):
        harness.turn()
    assert len(harness.served) < count
    received = []
    while len(received) < count:
        harness.turn()
        received.append(harness.receive_frame())
    assert received == [(number, bytes(BIG_SIZE)) for number in range(count)]


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 9, REQUEST_MAX + 1, 2**31 - 1])
def test_impossible_frame_length_closes_after_the_answers_already_earned(harness, size):
    harness.client.sendall(request(ECHO, 1) + struct.pack(">i", size) + bytes(64))
    harness.turn()
    assert harness.receive_frame() == (1, b"")
    assert harness.client_sees_the_end()
    assert harness.closed == 1


def test_claimed_length_alone_keeps_no_buffer_for_it(harness):
    harness.client.sendall(struct.pack(">i", REQUEST_MAX) + bytes(100))
    harness.turn()
    assert not harness.connection.closed
    harness.client.close()
    harness.turn()
    assert harness.connection.closed


def test_header_with_a_client_id_beyond_the_frame_closes(harness):
    frame = struct.pack(">hhih", ECHO, 0, 1, 500) + b"short"
    harness.client.sendall(struct.pack(">i", len(frame)) + frame)
    harness.turn()
    assert harness.client_sees_the_end()
    assert harness.served == []


@pytest.mark.parametrize(("key", "version"), [(0, 9), (1, 12), (0, 3), (1, 4)])
def test_malformed_produce_or_fetch_closes(harness, key, version):
    frame = struct.pack(">hhih", key, version, 1, -1) + b"\xff" * 40
    harness.client.sendall(struct.pack(">i", len(frame)) + frame)
    harness.turn()
    assert harness.client_sees_the_end()


def test_answer_completed_after_the_connection_is_gone_is_dropped(harness):
    harness.client.sendall(request(PARK, 1))
    harness.turn()
    harness.connection.close()
    harness.complete(0)
    assert harness.closed == 1


def test_answer_can_be_completed_once(harness):
    harness.client.sendall(request(PARK, 1))
    harness.turn()
    harness.complete(0)
    with pytest.raises(RuntimeError, match="once"):
        harness.complete(0)


def test_failed_parked_request_closes_the_connection(harness):
    harness.client.sendall(request(PARK, 1))
    harness.turn()
    harness.parked[0][1].fail()
    harness.turn()
    assert harness.client_sees_the_end()


def test_connection_owed_an_answer_is_not_idle(harness):
    harness.io.now = 1000.0
    assert harness.connection.idle(500.0)
    harness.client.sendall(request(PARK, 1))
    harness.turn()
    assert not harness.connection.idle(5000.0)
    harness.complete(0)
    harness.receive_frame()
    last = harness.io.now
    assert not harness.connection.idle(last - 1.0)
    assert harness.connection.idle(last)


def test_a_turn_serves_a_share_of_what_was_pipelined_and_the_next_turns_the_rest(harness):
    count = 1000
    harness.work_s = 0.0005
    harness.client.sendall(b"".join(request(ECHO, number) for number in range(count)))
    harness.turn()
    assert 1 <= len(harness.served) < count // 10
    assert harness.io.next_deadline() == harness.io.now, "the rest is not waited for"
    assert not harness.interest & READ, "nor is more of it read"
    harness.work_s = 0.0
    before = len(harness.served)
    while len(harness.served) < count:
        harness.turn()
        assert len(harness.served) > before
        before = len(harness.served)
    assert [harness.receive_frame()[0] for _ in range(count)] == list(range(count))
    assert harness.interest & READ


def test_a_connection_that_closes_while_it_gives_way_is_served_no_more(harness):
    harness.work_s = 0.002
    harness.client.sendall(b"".join(request(ECHO, number) for number in range(10)))
    harness.turn()
    served = len(harness.served)
    assert served < 10
    harness.connection.close()
    harness.turn()
    assert len(harness.served) == served


def test_what_one_connection_asks_for_in_a_turn_is_bounded_by_its_holders_share(harness):
    asked = []
    harness.connection.share = InlineShare()
    harness.on_serve = lambda: asked.append(
        [harness.connection.affords(cost, 1000.0) for cost in (100.0, 900.0, 1001.0)]
    )
    harness.client.sendall(b"".join(request(ECHO, number) for number in range(4)))
    harness.turn()
    assert asked[0] == [True, True, False], "the first of a turn is short, or charged, or too long"
    assert asked[1] == [True, True, False], "as far as the share goes"
    assert asked[2:] == [[True, False, False], [False, False, False]], "until that is used up"
    harness.client.sendall(request(ECHO, 4))
    harness.turn()
    assert asked[4] == [True, True, False], "and comes back with time"
    other = InlineShare()
    harness.connection.share = other
    harness.client.sendall(request(ECHO, 5))
    harness.turn()
    assert asked[5] == [True, True, False]


def test_lingering_serves_each_request_once_and_in_order_whoever_gets_to_it(harness):
    """Whether the worker lingers depends on the clock; what the client sees must not."""
    for number in range(500):
        harness.client.sendall(request(ECHO, number, b"x"))
        if number % 3:
            harness.connection.linger()
        harness.turn()
        assert harness.receive_frame() == (number, b"x")
    assert harness.served == list(range(500))


def test_lingering_leaves_an_owed_answer_and_a_cut_frame_alone(harness):
    frame = request(ECHO, 2, b"later")
    harness.client.sendall(request(PARK, 1) + frame[:9])
    harness.turn()
    harness.client.sendall(frame[9:])
    harness.connection.linger()
    harness.turn()
    harness.complete(0)
    assert [harness.receive_frame() for _ in range(2)] == [(1, b"late"), (2, b"later")]


def test_lingering_notices_the_end_of_the_connection(harness):
    for number in range(20):
        harness.client.sendall(request(ECHO, number))
        harness.turn()
        harness.receive_frame()
    harness.client.close()
    harness.connection.linger()
    harness.turn()
    assert harness.closed == 1


CLIENT_ID = b"orders\n7"
MALFORMED = {
    "produce": (0, 7, "malformed or over-limit Produce v7 request"),
    "fetch": (1, 4, "malformed or over-limit Fetch v4 request"),
}


@pytest.mark.parametrize(("key", "version", "reason"), MALFORMED.values(), ids=[*MALFORMED])
def test_a_malformed_request_is_logged_with_the_client_id_of_its_header(harness, key, version, reason, caplog):
    header = struct.pack(">hhih", key, version, 1, len(CLIENT_ID)) + CLIENT_ID
    body = header + struct.pack(">hh", -1, 1)  # acks=1, where it is a produce request
    harness.client.sendall(struct.pack(">i", len(body)) + body)
    harness.connection.on_event(READ)
    assert harness.connection.closed
    assert caplog.messages == [f"closed 127.0.0.1:1 (client id orders\n7): {reason}"]


def test_a_produce_request_without_acks_that_fails_is_logged_as_such(harness, caplog):
    header = struct.pack(">hhih", 0, 7, 1, 1) + b"c"
    body = header + struct.pack(">hhii", -1, 0, 1000, 1) + struct.pack(">h", 4) + b"gone" + struct.pack(">iii", 1, 0, 0)
    harness.client.sendall(struct.pack(">i", len(body)) + body)
    harness.connection.on_event(READ)
    assert caplog.messages == [
        "closed 127.0.0.1:1 (client id c): a Produce request with acks=0 failed, and it has no response"
    ]


def test_a_frame_longer_than_its_length_field_can_say_is_an_error():
    assert frame_length(2**31 - 1) == 2**31 - 1
    for size in (2**31, 2**32 + 7, -1):
        with pytest.raises(OverflowError, match=f"a response of {size} bytes does not fit"):
            frame_length(size)
