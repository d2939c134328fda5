"""E1 to E7 and E9: hostile and broken clients, with an honest one (the canary) served all the while."""

from __future__ import annotations

import contextlib
import gzip
import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kafkalite.errors import ErrorCode
from tests.kit.checkers.ledger import Ledger
from tests.kit.fakes.proxy import Proxy
from tests.kit.harness import wire
from tests.kit.harness.hostile_frames import (
    FrameTap,
    frames_with_ids,
    hand_made_frames,
    mutate,
    random_frames,
    record_frames,
)
from tests.kit.harness.load import Producers, create_topic, read_all
from tests.kit.harness.samples import sample
from tests.kit.hostile.requests import Populace, list_attacks
from tests.kit.processes.broker import BrokerProcess, Usage, free_port, wait_until

MEMORY_GROWTH_MAX = 300 << 20
MakeBroker = Callable[..., BrokerProcess]
MIB = 1 << 20


class Canary:
    """An honest client: produces a record and reads it back, again and again, until stopped."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker, self.round_count, self.problem = broker, 0, ""
        self.stopping = threading.Event()
        create_topic(broker.port, "canary", 1)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with wire.Connection(self.broker.port, timeout_s=30) as connection:
                while not self.stopping.is_set():
                    value = b"canary %d" % self.round_count
                    sent = connection.produce("canary", 0, wire.batch_of([wire.Record(None, value)]))
                    assert (sent.error, sent.base_offset) == (0, self.round_count), sent
                    batch = wire.split_batches(connection.fetch("canary", 0, sent.base_offset).records)[0]
                    assert wire.decode_records(batch) == [(sent.base_offset, None, value)]
                    self.round_count += 1
                    self.stopping.wait(0.002)
        except (OSError, AssertionError, ValueError, IndexError) as error:
            self.problem = f"after {self.round_count} rounds: {error!r}"

    def check(self) -> None:
        assert not self.problem, self.problem

    def finish(self, rounds_min: int = 20) -> None:
        wait_until(lambda: self.round_count >= rounds_min or self.problem, 30, "the canary's rounds")
        self.stopping.set()
        self.thread.join(60)
        self.check()


@pytest.fixture
def broker(make_broker: MakeBroker) -> BrokerProcess:
    return make_broker(settings={"auto.create.topics.enable": "false"}).start()


@pytest.fixture
def canary(broker: BrokerProcess) -> Iterator[Canary]:
    canary = Canary(broker)
    wait_until(lambda: canary.round_count or canary.problem, 10, "first round")
    yield canary
    canary.finish()
    assert broker.alive


def settled(broker: BrokerProcess, before: Usage) -> Usage:
    """Waits until descriptors and threads are back at what they were, a few apart (segments opened since)."""
    return wait_until(
        lambda: (
            (usage := broker.usage()).descriptor_count <= before.descriptor_count + 10
            and usage.thread_count <= before.thread_count + 4
            and usage
        ),
        30,
        f"descriptors and threads back to {before}",
    )


class Attacker:
    """One connection at a time; opens another one when the broker has closed it. Answers are read and thrown away."""

    def __init__(self, port: int) -> None:
        self.port, self.closed_count, self.answer_bytes = port, 0, 0
        self.socket = self._connect()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
            self._take()
        except OSError:
            self.reconnect()

    def _take(self) -> None:
        self.socket.setblocking(False)
        try:
            while True:
                piece = self.socket.recv(MIB)
                if not piece:
                    raise ConnectionError
                self.answer_bytes += len(piece)
        except BlockingIOError:
            self.socket.settimeout(30)

    def reconnect(self) -> None:
        self.socket.close()
        self.closed_count += 1
        self.socket = self._connect()

    def close(self) -> None:
        self.socket.close()


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Valid requests of every kind; the recorded ones come from a session of librdkafka with a separate broker."""
    port = free_port()
    tap = FrameTap(port)
    settings = {"advertised.listeners": f"kafka://127.0.0.1:{tap.port}"}
    with BrokerProcess(tmp_path_factory.mktemp("tapped"), settings, port=port):
        recorded = record_frames(tap, "victim")
    tap.close()
    assert len({frame[:2] for frame in recorded}) >= 8, "hardly an API was recorded"
    long = [attack.frame(names, 3, Populace()) for attack in list_attacks() for names in attack.kinds_of_names()]
    return [*recorded, *hand_made_frames("victim"), *random_frames(seed=1), *(frame[4:] for frame in long)]


FRAME_COUNTS = [pytest.param(4_000, id="4000"), pytest.param(20_000, id="20000", marks=pytest.mark.slow)]


@pytest.mark.parametrize("frame_count", FRAME_COUNTS)
@pytest.mark.scenario("E1")
def test_mutated_frames(
    broker: BrokerProcess, canary: Canary, frames: list[bytes], seed: int, frame_count: int
) -> None:
    create_topic(broker.port, "victim", 2)
    corpus = frames + frames_with_ids(broker.port, "victim")
    before, chance = broker.usage(), random.Random(seed)
    attacker = Attacker(broker.port)
    for number in range(frame_count):
        attacker.send(mutate(chance.choice(corpus), chance))
        if number % 50 == 0:
            attacker.reconnect()  # an incomplete frame must not swallow all later ones
        if number % 500 == 0:
            canary.check()
            assert broker.alive, f"seed {seed}, frame {number}"
    attacker.close()
    after = settled(broker, before)
    assert after.rss_bytes - before.rss_bytes < MEMORY_GROWTH_MAX
    assert attacker.closed_count > frame_count // 100, "hardly a frame was refused: were they spoiled?"


@pytest.mark.scenario("E2")
def test_every_truncation_of_each_request(broker: BrokerProcess, canary: Canary, frames: list[bytes]) -> None:
    """One frame of each (API, version)."""
    create_topic(broker.port, "victim", 2)
    kinds = {struct.unpack_from(">hh", frame): frame for frame in frames + frames_with_ids(broker.port, "victim")}
    before = broker.usage()
    attacker = Attacker(broker.port)
    for frame in kinds.values():
        for size in range(min(len(frame), 200)):
            attacker.send(struct.pack(">i", size) + frame[:size])
        canary.check()
    attacker.close()
    settled(broker, before)


@pytest.mark.parametrize("size", [0, -1, -(2**31), 2**31 - 1, 100 * MIB + 1])
@pytest.mark.scenario("E3")
def test_frame_length_is_checked_before_anything_is_allocated(broker: BrokerProcess, canary: Canary, size: int) -> None:
    before = broker.usage()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", broker.port), timeout=10) as connection:
            connection.sendall(struct.pack(">i", size))
            if size == 0:
                connection.sendall(b"\0" * 8)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b"", "answered instead of closed"
    assert settled(broker, before).rss_bytes - before.rss_bytes < 20 * MIB


@pytest.mark.scenario("E3")
def test_claimed_but_never_sent_bytes_cost_nothing(broker: BrokerProcess, canary: Canary) -> None:
    """100 connections claim 100 MiB each and send a little."""
    before = broker.usage()
    held = [wire.Connection(broker.port) for _ in range(100)]
    for connection in held:
        connection.send_bytes(struct.pack(">i", 100 * MIB) + bytes(1000))
    canary_rounds = canary.round_count
    wait_until(lambda: canary.round_count > canary_rounds + 20 or canary.problem, 30, "canary beside claims")
    assert broker.usage().rss_bytes - before.rss_bytes < 100 * MIB
    for connection in held:
        connection.close()
    settled(broker, before)


ROWS = [wire.Record(b"k", b"v" * 30) for _ in range(5)]
PAYLOAD = wire.encode_records(ROWS)


def bad_lengths() -> bytes:
    """Records whose inner lengths point outside of the batch."""
    return wire.varint(1000) + PAYLOAD[1:]


DAMAGED = {
    "crc": (wire.batch_of(ROWS, crc=12345), {ErrorCode.CORRUPT_MESSAGE}),
    "length short": (wire.batch_of(ROWS, batch_length=60), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "length long": (wire.batch_of(ROWS, batch_length=10_000), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "length negative": (wire.batch_of(ROWS, batch_length=-1), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "length below a header": (
        wire.batch_of(ROWS, batch_length=48),
        {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD},
    ),
    "cut header": (wire.batch_of(ROWS)[:40], {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "empty": (b"", {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "two batches": (wire.batch_of(ROWS) * 2, {ErrorCode.INVALID_RECORD}),
    "magic 1": (wire.batch_of(ROWS, magic=1), {ErrorCode.INVALID_RECORD}),
    "magic 3": (wire.batch_of(ROWS, magic=3), {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}),
    "base offset": (wire.batch_of(ROWS, base_offset=7), {ErrorCode.INVALID_RECORD}),
    "count zero": (wire.seal_batch(b"", 0), {ErrorCode.INVALID_RECORD}),
    "count negative": (wire.seal_batch(PAYLOAD, -1), {ErrorCode.INVALID_RECORD}),
    "count above records": (wire.seal_batch(PAYLOAD, 6), {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}),
    "count below records": (wire.seal_batch(PAYLOAD, 4), {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}),
    "count huge": (wire.seal_batch(PAYLOAD, 2**31 - 1), {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}),
    "last offset delta": (wire.batch_of(ROWS, last_offset_delta=9), {ErrorCode.INVALID_RECORD}),
    "record lengths": (wire.seal_batch(bad_lengths(), 5), {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}),
    "control bit": (wire.batch_of(ROWS, attributes=0x20), {ErrorCode.INVALID_RECORD}),
    "codec 5": (wire.batch_of(ROWS, attributes=5), {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}),
    "codec 7": (wire.batch_of(ROWS, attributes=7), {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}),
    "not gzip": (wire.batch_of(ROWS, attributes=1), {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}),
    "not snappy": (wire.batch_of(ROWS, attributes=2), {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}),
    "not lz4": (wire.batch_of(ROWS, attributes=3), {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}),
    "not zstd": (wire.batch_of(ROWS, attributes=4), {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}),
    "cut gzip": (
        wire.seal_batch(gzip.compress(PAYLOAD)[:-9], 5, attributes=1),
        {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE},
    ),
    "gzip of other records": (
        wire.seal_batch(gzip.compress(PAYLOAD[:30]), 5, attributes=1),
        {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE},
    ),
    "append time bit": (wire.batch_of(ROWS, attributes=8), {ErrorCode.INVALID_TIMESTAMP}),
    "far future": (wire.batch_of(ROWS, base_timestamp=2**62, max_timestamp=2**62), {ErrorCode.INVALID_TIMESTAMP}),
    "too large": (wire.batch_of([wire.Record(None, bytes(2 * MIB))]), {ErrorCode.MESSAGE_TOO_LARGE}),
    "sequence without start": (wire.batch_of(ROWS, producer_id=5, producer_epoch=0), {ErrorCode.INVALID_RECORD}),
}


@pytest.mark.scenario("E4")
def test_damaged_batches_are_refused_and_leave_nothing(broker: BrokerProcess, canary: Canary) -> None:
    create_topic(broker.port, "damaged", 1)
    wrong = {}
    with wire.Connection(broker.port) as connection:
        for name, (batch, errors) in DAMAGED.items():
            answer = connection.produce("damaged", 0, batch)
            if answer.error not in errors:
                wrong[name] = answer.error
        assert not wrong, f"error codes: {wrong}"
        assert connection.list_offset("damaged", 0, -1)[2] == 0, "something was stored"
        good = wire.batch_of(ROWS)
        assert connection.produce("damaged", 0, good).error == 0


@pytest.mark.scenario("E4")
def test_mutated_batches_never_become_unreadable_records(broker: BrokerProcess, canary: Canary, seed: int) -> None:
    """Bits flipped below the CRC, then sealed again: an accepted batch has to be fully readable."""
    chance = random.Random(seed)
    create_topic(broker.port, "mutated", 1)
    accepted = 0
    with wire.Connection(broker.port) as connection:
        for _ in range(2000):
            payload = bytearray(PAYLOAD)
            payload[chance.randrange(len(payload))] ^= 1 << chance.randrange(8)
            codec = chance.choice([0, 1])
            data = gzip.compress(bytes(payload), 1) if codec else bytes(payload)
            answer = connection.produce("mutated", 0, wire.seal_batch(data, len(ROWS), attributes=codec))
            accepted += answer.error == 0
            assert answer.error in (
                0,
                ErrorCode.INVALID_RECORD,
                ErrorCode.CORRUPT_MESSAGE,
                ErrorCode.INVALID_TIMESTAMP,
            ), answer
    assert accepted, "nothing was accepted: the test showed nothing"
    assert len(read_all(broker.port, "mutated", 1)[0]) == accepted * len(ROWS)


def bomb(codec: str) -> tuple[int, bytes]:
    """The codec's number in a batch's attributes, and the bomb."""
    import lz4.frame
    import zstandard

    zeros = bytes(64 * MIB)
    match codec:
        case "gzip":
            return 1, gzip.compress(zeros) * 8
        case "lz4":
            return 3, lz4.frame.compress(zeros * 3)
        case _:
            return 4, zstandard.ZstdCompressor().compress(zeros * 16)


@pytest.mark.parametrize("codec", sample(["zstd", "gzip", "lz4"], 1))
@pytest.mark.scenario("E4")
def test_bombs_are_refused_with_bounded_memory(broker: BrokerProcess, canary: Canary, codec: str) -> None:
    create_topic(broker.port, "bombed", 1)
    before = broker.usage()
    with wire.Connection(broker.port) as connection:
        number, data = bomb(codec)
        assert len(data) < MIB, f"{len(data)} bytes"
        answer = connection.produce("bombed", 0, wire.seal_batch(data, 1, attributes=number))
        assert answer.error in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE), str(answer)
    assert broker.usage().rss_bytes - before.rss_bytes < MEMORY_GROWTH_MAX


def raise_descriptor_limit(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"only {hard} descriptors allowed here, {count} needed")
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@pytest.mark.parametrize("connection_count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.scenario("E5")
def test_idle_connections_cost_little(broker: BrokerProcess, canary: Canary, connection_count: int) -> None:
    """A third of them with half a frame."""
    raise_descriptor_limit(connection_count + 500)
    before = broker.usage()
    held = []
    for number in range(connection_count):
        connection = wire.Connection(broker.port)
        if number % 3 == 0:
            connection.send_bytes(struct.pack(">i", 5000) + bytes(2500))
        else:
            connection.call(wire.API_VERSIONS, 0, b"")
        held.append(connection)
    canary_rounds = canary.round_count
    wait_until(lambda: canary.round_count > canary_rounds + 50 or canary.problem, 30, "canary beside idle ones")
    usage = broker.usage()
    # A broker that has just started may have had a file or two open that it has closed since.
    assert usage.descriptor_count >= before.descriptor_count + connection_count - 10
    per_connection = (usage.rss_bytes - before.rss_bytes) / connection_count
    assert per_connection < 100_000, f"{per_connection:.0f} bytes a connection"
    for connection in held:
        connection.close()
    settled(broker, before)


@pytest.mark.scenario("E5")
def test_idle_connections_are_closed_after_their_time(make_broker: MakeBroker) -> None:
    broker = make_broker(settings={"connections.max.idle.ms": "1500"}).start()
    silent, half, busy = (wire.Connection(broker.port) for _ in range(3))
    half.send_bytes(struct.pack(">i", 5000) + bytes(10))
    began = time.monotonic()
    for connection in (silent, half):
        while True:
            connection.socket.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                assert connection.socket.recv(1) == b""
                break
            busy.call(wire.API_VERSIONS, 0, b"")
            assert time.monotonic() - began < 30, "still open after 30 s"
        connection.close()
    busy.call(wire.API_VERSIONS, 0, b"")
    busy.close()


def fill_topic(port: int, topic: str, size: int) -> None:
    with wire.Connection(port) as connection:
        batch = wire.batch_of([wire.Record(None, random.Random(1).randbytes(500_000))])
        for _ in range(size // 500_000):
            assert connection.produce(topic, 0, batch).error == 0


@pytest.mark.scenario("E6")
def test_clients_that_never_read(broker: BrokerProcess, canary: Canary) -> None:
    """50 connections ask for megabytes again and again and read nothing: their answers do not pile up in memory."""
    create_topic(broker.port, "big", 1)
    fill_topic(broker.port, "big", 8 * MIB)
    before = broker.usage()
    request = wire.fetch_body("big", [(0, 0)], partition_max_bytes=8 * MIB)
    metadata = wire.array([wire.string("big")] * 50) + b"\0"
    held = [wire.Connection(broker.port, receive_buffer=4096) for _ in range(50)]
    for connection in held:
        connection.socket.settimeout(0.05)
        with contextlib.suppress(OSError):  # a full socket is the broker's back-pressure
            for _ in range(300):
                connection.send(wire.FETCH, 11, request)
                connection.send(wire.METADATA, 4, metadata)
    rounds = canary.round_count
    wait_until(lambda: canary.round_count > rounds + 50 or canary.problem, 60, "canary beside deaf clients")
    assert broker.usage().rss_bytes - before.rss_bytes < MEMORY_GROWTH_MAX
    for connection in held:
        connection.close()
    settled(broker, before)


@pytest.mark.scenario("E6")
def test_resets_in_the_middle_of_answers(broker: BrokerProcess, canary: Canary) -> None:
    create_topic(broker.port, "big", 1)
    fill_topic(broker.port, "big", 8 * MIB)
    before = broker.usage()
    linger = struct.pack("ii", 1, 0)
    for number in range(50):
        connection = wire.Connection(broker.port)
        connection.send(wire.FETCH, 11, wire.fetch_body("big", [(0, 0)], partition_max_bytes=8 * MIB))
        if number % 2:
            connection.receive_exactly(number * 1000)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.close()
    settled(broker, before)


@pytest.mark.scenario("E6")
def test_parked_fetches_of_clients_that_left_are_forgotten(broker: BrokerProcess, canary: Canary) -> None:
    create_topic(broker.port, "quiet", 1)
    before = broker.usage()
    body = wire.fetch_body("quiet", [(0, 0)], max_wait_ms=60_000)
    for _ in range(200):
        with wire.Connection(broker.port) as connection:
            connection.send(wire.FETCH, 11, body)
    settled(broker, before)
    with wire.Connection(broker.port) as connection:
        assert connection.produce("quiet", 0, wire.batch_of(ROWS)).error == 0


@pytest.mark.parametrize("cut_count", sample([5, 0, 100], 1))
@pytest.mark.scenario("E7")
def test_cuts_delays_and_silence_between_client_and_broker(make_broker: MakeBroker, seed: int, cut_count: int) -> None:
    chance = random.Random(seed)
    broker = make_broker()
    with Proxy(broker.port, seed) as proxy:
        broker.settings = {"advertised.listeners": f"kafka://127.0.0.1:{proxy.port}"}
        broker.start()
        create_topic(broker.port, "load", 8)
        ledger = Ledger()
        settings = {"socket.timeout.ms": 2000, "request.timeout.ms": 2000}
        producers = Producers(proxy.bootstrap, "load", ledger, 8, seed=seed, settings=settings).start()
        for _ in range(cut_count):
            before = ledger.acknowledged_count
            wait_until(lambda before=before: ledger.acknowledged_count > before, 60, "progress between cuts")
            proxy.delay_s = chance.choice([0, 0, 0.05, 0.3])
            proxy.drop = chance.random() < 0.2
            time.sleep(chance.uniform(0.02, 0.3))
            proxy.delay_s, proxy.drop = 0, False
            proxy.cut()
        wait_until(lambda: ledger.acknowledged_count >= 500, 60, "enough acknowledged")
        producers.stop()
        assert proxy.cut_count >= cut_count, "the faults did not hit"
    verdict = ledger.judge(read_all(broker.port, "load", 8))
    assert not ledger.failures, ledger.failures
    assert verdict, f"seed {seed}: {verdict}"


@pytest.mark.scenario("E9")
def test_ten_thousand_pipelined_requests_are_answered_in_order(broker: BrokerProcess, canary: Canary) -> None:
    """Kinds that finish at different speeds: from memory, from the log, on the io pool, after the disk's flush."""
    create_topic(broker.port, "pipe", 1)
    batch = wire.batch_of([wire.Record(None, b"p")])
    kinds = [
        (wire.API_VERSIONS, 0, b""),
        (wire.PRODUCE, 7, wire.produce_body("pipe", [(0, batch)])),
        (wire.FETCH, 11, wire.fetch_body("pipe", [(0, 0)], partition_max_bytes=100)),
        (wire.METADATA, 4, wire.array([wire.string("pipe")]) + b"\0"),
        (wire.PRODUCE, 7, wire.produce_body("pipe", [(0, batch)], acks=-1)),
        (wire.FETCH, 11, wire.fetch_body("pipe", [(0, 0)], partition_max_bytes=100)),
    ]
    connection = wire.Connection(broker.port)

    def send() -> None:
        for number in range(10_000):
            connection.send(*kinds[0 if number % 7 else number // 7 % len(kinds)])

    sender = threading.Thread(target=send)
    sender.start()
    for expected in range(1, 10_001):
        assert connection.receive()[0] == expected
    sender.join()
    connection.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        connection.receive()
    connection.close()


@pytest.mark.scenario("E9")
def test_thousand_outstanding_requests(broker: BrokerProcess, canary: Canary) -> None:
    """A long poll holds back the answers behind it; then all come, in order."""
    create_topic(broker.port, "pipe", 1)
    with wire.Connection(broker.port) as connection, wire.Connection(broker.port) as other:
        connection.send(wire.FETCH, 11, wire.fetch_body("pipe", [(0, 0)], max_wait_ms=30_000))
        for _ in range(999):
            connection.send(wire.API_VERSIONS, 0, b"")
        connection.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.receive()
        connection.socket.settimeout(30)
        assert other.produce("pipe", 0, wire.batch_of(ROWS)).error == 0
        found = connection.receive()
        assert found[0] == 1
        assert wire.parse_fetch(found[1])[0].records
        assert [connection.receive()[0] for _ in range(999)] == list(range(2, 1001))
