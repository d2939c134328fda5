"""The 0.7 listener, row by row of the protocol's description, over raw sockets."""

import gzip
import logging
import random
import struct
import threading
from collections.abc import Iterator

import confluent_kafka
import pytest

from kafkalite.broker import Broker
from kafkalite.broker.log.classic.log import ClassicLog
from kafkalite.wire.record.message_set import wrap
from tests.kit.harness import wire
from tests.kit.harness.classic_client import ClassicClient, eventually
from tests.kit.oracles import classic_oracle as oracle
from tests.kit.oracles.classic_oracle import HELLO_0, HELLO_1, OracleMessage, encode_set, read_deep

LISTENERS = "kafka://127.0.0.1:0,kafka07://127.0.0.1:0"


def started(**settings: object) -> Broker:
    return Broker({"listeners": LISTENERS, "log.flush.interval": 1} | settings).start()


def port_of(broker: Broker) -> int:
    assert broker.classic_endpoint is not None
    return broker.classic_endpoint.port


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    broker = started(**{"topic.partition.count.map": "four:4", "max.message.size": 1000, "num.io.threads": 2})
    yield broker
    broker.stop()


@pytest.fixture
def client(broker: Broker) -> Iterator[ClassicClient]:
    with ClassicClient(port_of(broker)) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return request.node.name.replace("[", "-").replace("]", "").replace(" ", "-")[:100]


def log_of(broker: Broker, topic: str, partition: int = 0) -> ClassicLog:
    log = broker.logs.topics[topic].partitions[partition]
    assert isinstance(log, ClassicLog)
    return log


# ---- the description's test vectors ---------------------------------------------------------------------------------


def test_the_vectors_byte_for_byte(broker: Broker, client: ClassicClient) -> None:
    entry = "0000000b 01 00 3610a686 68656c6c6f"
    client.send(bytes.fromhex("0000001f 0000 0004 74657374 00000000 0000000f" + entry))
    client.send(bytes.fromhex("00000018 0001 0004 74657374 00000000 0000000000000000 00100000"))
    assert client._exactly(21) == bytes.fromhex("00000011 0000" + entry)
    client.send(bytes.fromhex("00000018 0004 0004 74657374 00000000 ffffffffffffffff 00000002"))
    assert client._exactly(26) == bytes.fromhex("00000016 0000 00000002 000000000000000f 0000000000000000")
    client.send(oracle.fetch("test", 0, 16, 100))
    assert client._exactly(6) == bytes.fromhex("00000002 0001")
    broker.create_topic("two", 2, message_format="classic")
    client.send(oracle.produce("two", 0, HELLO_1))
    client.send(oracle.multifetch([("two", 0, 0, 300), ("two", 1, 0, 300)]))
    assert client._exactly(33) == bytes.fromhex("0000001d 0000 00000011 0000" + entry + "00000002 0000")
    client.send(bytes.fromhex("00000021 0003 0001 0004 74657374 00000000 0000000f" + entry))
    assert client.read_all("test") == HELLO_1 * 2


# ---- PRODUCE --------------------------------------------------------------------------------------------------------


def test_a_topic_is_made_by_its_first_message(broker: Broker, client: ClassicClient, topic: str) -> None:
    client.send(oracle.produce(topic, 0, HELLO_0))
    assert client.read_all(topic) == HELLO_0
    assert broker.logs.topics[topic].config.message_format == "classic"
    assert len(broker.logs.topics[topic].partitions) == 1
    client.send(oracle.produce("four", 3, HELLO_1))
    assert client.read_all("four", 3) == HELLO_1
    assert len(broker.logs.topics["four"].partitions) == 4


def test_partition_minus_one_is_any(broker: Broker, client: ClassicClient) -> None:
    broker.create_topic("spread", 4, message_format="classic")
    for _ in range(200):
        client.send(oracle.produce("spread", -1, HELLO_1))
    assert client.fetch("spread", 0, 0)[0] == 0
    ends = [log_of(broker, "spread", i).log_end_offset for i in range(4)]
    assert sum(ends) == 200 * 15
    assert min(ends) > 15 * 20, "four partitions of 50 each, more or less"


def test_the_first_message_to_any_partition_makes_the_topic(broker: Broker, client: ClassicClient, topic: str) -> None:
    client.send(oracle.produce(topic, -1, HELLO_1))
    assert client.read_all(topic) == HELLO_1


def test_nothing_is_answered_to_produce(client: ClassicClient, topic: str) -> None:
    client.send(oracle.produce(topic, 0, HELLO_1) + oracle.multiproduce([(topic, 0, HELLO_1)]))
    assert client.offsets(topic, 0) == [30], "the first bytes that come back are those of OFFSETS"


def test_a_set_too_large_is_dropped_and_the_connection_stays(
    client: ClassicClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    large = OracleMessage(bytes(1001)).encode()
    client.send(oracle.produce(topic, 0, HELLO_1))
    client.send(oracle.produce(topic, 0, HELLO_1 + large + HELLO_1))
    client.send(oracle.produce(topic, 0, HELLO_0))
    assert client.read_all(topic) == HELLO_1 + HELLO_0
    assert any("larger than max.message.size" in record.message for record in caplog.records)


def test_a_set_too_large_for_a_new_topic_is_dropped_too(client: ClassicClient, topic: str) -> None:
    client.send(oracle.produce(topic, 0, OracleMessage(bytes(1001)).encode()))
    assert client.fetch(topic, 0, 77) == (0, b"")


REFUSED = [
    pytest.param(1, HELLO_1, id="partition too high"),
    pytest.param(-2, HELLO_1, id="partition below minus one"),
    pytest.param(0, HELLO_1[:-1] + b"x", id="checksum"),
    pytest.param(0, HELLO_1[:-1], id="first message incomplete"),
    pytest.param(0, HELLO_1[:4] + b"\x05" + HELLO_1[5:], id="magic"),
    pytest.param(0, OracleMessage(b"x", attributes=3).encode(), id="codec"),
    pytest.param(0, OracleMessage(b"x", attributes=1).encode(), id="wrapper of nothing"),
    pytest.param(0, b"\xff\xff\xff\xff" + HELLO_1, id="negative message size"),
]


@pytest.mark.parametrize("known", [True, False], ids=["known topic", "new topic"])
@pytest.mark.parametrize(("partition", "data"), REFUSED)
def test_a_refused_produce_closes_the_connection(
    broker: Broker, client: ClassicClient, topic: str, caplog: pytest.LogCaptureFixture,
    partition: int, data: bytes, known: bool,
) -> None:  # fmt: skip
    if known:
        broker.create_topic(topic, 1, message_format="classic")
    client.send(oracle.produce(topic, partition, data))
    assert client.closed()
    eventually(lambda: any("closed 127.0.0.1" in record.getMessage() for record in caplog.records), "a log line")
    with ClassicClient(port_of(broker)) as other:
        assert other.fetch(topic, 0, 0) == (0, b"")


@pytest.mark.parametrize(
    "name", [b"", b".", b"..", b"a/b", b"a\x00b", "\u0085".encode(), b"\xff\xfe", b"x" * 300, b"two words"]
)
def test_an_illegal_topic_closes_on_produce_and_offsets_and_is_minus_one_on_fetch(broker: Broker, name: bytes) -> None:
    for frame in (oracle.produce(name, 0, HELLO_1), oracle.offsets(name, 0, -1, 1)):
        with ClassicClient(port_of(broker)) as client:
            client.send(frame)
            assert client.closed()
    with ClassicClient(port_of(broker)) as client:
        assert client.ask(oracle.fetch(name, 0, 0, 100)) == (-1, b"")
        assert client.fetch("after", 0, 0) == (0, b"")


def test_a_v2_topic_is_code_3_and_closes_on_produce(
    broker: Broker, client: ClassicClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic(topic, 2)
    assert client.fetch(topic, 0, 0) == (3, b"")
    code, body = client.ask(oracle.multifetch([(topic, 1, 0, 10), ("nowhere", 0, 0, 10)]))
    assert code == 0
    assert oracle.read_multifetch(body) == [(3, b""), (0, b"")]
    client.send(oracle.produce(topic, 0, HELLO_1))
    assert client.closed()
    eventually(lambda: any("message.format is v2" in r.getMessage() for r in caplog.records), "a log line")
    with ClassicClient(port_of(broker)) as other:
        other.send(oracle.offsets(topic, 0, -1, 1))
        assert other.closed()
    assert broker.logs.topics[topic].partitions[0].log_end_offset == 0


def test_multiproduce_applies_parts_in_order_and_a_bad_one_stops_the_rest(
    broker: Broker, client: ClassicClient, topic: str
) -> None:
    broker.create_topic(topic, 3, message_format="classic")
    bad = HELLO_1[:-1] + b"x"
    client.send(oracle.multiproduce([(topic, 0, HELLO_0), (topic, 1, bad), (topic, 2, HELLO_1)]))
    assert client.closed()
    with ClassicClient(port_of(broker)) as other:
        other.wait_for(topic, 0, 14)
        assert other.read_all(topic, 2) == b""


def test_multiproduce_skips_a_part_too_large(broker: Broker, client: ClassicClient, topic: str) -> None:
    large = OracleMessage(bytes(2000)).encode()
    client.send(oracle.multiproduce([(topic, 0, HELLO_0), (topic, 0, large), (topic, 0, HELLO_1)]))
    assert client.read_all(topic) == HELLO_0 + HELLO_1


def test_multiproduce_of_nothing(client: ClassicClient) -> None:
    client.send(oracle.multiproduce([]) + oracle.frame(oracle.MULTIPRODUCE, struct.pack(">h", -5)))
    assert client.fetch("nothing", 0, 0) == (0, b"")


def test_sets_are_stored_as_they_came_wrappers_too(client: ClassicClient, topic: str) -> None:
    wrapper = wrap(encode_set([OracleMessage(b"%d" % i * 30) for i in range(20)]), 1)
    client.send(oracle.produce(topic, 0, HELLO_0 + wrapper + HELLO_1 + HELLO_0[:-3]))
    assert client.read_all(topic) == HELLO_0 + wrapper + HELLO_1
    assert len(list(read_deep(client.read_all(topic)))) == 22


def test_requests_of_one_connection_take_effect_in_order(client: ClassicClient, topic: str) -> None:
    """Plain sets are appended by the worker, wrappers and the first one by the pool."""
    expected = b""
    frames = b""
    for i in range(50):
        plain = OracleMessage(b"plain %d" % i).encode()
        data = plain if i % 3 else OracleMessage(gzip.compress(plain, mtime=0), attributes=1).encode()
        expected += data
        frames += oracle.produce(topic, 0, data)
    client.send(frames + oracle.fetch(topic, 0, 0, 1 << 20))
    assert client.receive() == (0, expected)


# ---- FETCH, MULTIFETCH, OFFSETS -------------------------------------------------------------------------------------


def test_fetch_of_what_is_not_there(broker: Broker, client: ClassicClient, topic: str) -> None:
    assert client.fetch(topic, 0, 10**12) == (0, b""), "no log: an empty set, whatever the offset"
    assert client.fetch(topic, 1, 0) == (3, b"")
    assert client.fetch(topic, -1, 0) == (3, b"")
    assert client.fetch("four", 3, 5)[0] in {0, 1}
    assert client.fetch("four", 4, 0) == (3, b"")
    assert topic not in broker.logs.topics


def test_fetch_limits(client: ClassicClient, topic: str) -> None:
    client.send(oracle.produce(topic, 0, HELLO_0 + HELLO_1))
    assert client.fetch(topic, 0, 0, 20) == (0, (HELLO_0 + HELLO_1)[:20])
    assert client.fetch(topic, 0, 3, 5) == (0, HELLO_0[3:8])
    assert client.fetch(topic, 0, 29) == (0, b"")
    assert client.fetch(topic, 0, 30) == (1, b"")
    assert client.fetch(topic, 0, -1) == (1, b"")
    assert client.fetch(topic, 0, 0, 0) == (0, b"")
    assert client.fetch(topic, 0, 0, -7) == (0, b"")


def test_a_large_fetch_leaves_by_sendfile_and_multifetch_mixes(client: ClassicClient, topic: str) -> None:
    data = encode_set([OracleMessage(b"%04d" % i * 200) for i in range(100)])
    for _ in range(5):
        client.send(oracle.produce(topic, 0, data))
    assert client.fetch(topic, 0, 0) == (0, data * 5)
    code, body = client.ask(
        oracle.multifetch([(topic, 0, 0, 1 << 20), (topic, 9, 0, 10), (topic, 0, 7, 70_000), ("none", 0, 0, 10)])
    )
    assert code == 0
    assert oracle.read_multifetch(body) == [(0, data * 5), (3, b""), (0, (data * 5)[7:70_007]), (0, b"")]


def test_offsets(client: ClassicClient, topic: str) -> None:
    assert client.offsets(topic, 0, -1, 5) == [0]
    assert client.offsets(topic, 0, -2, 0) == [0]
    assert client.offsets(topic, 0, 12345, 5) == []
    client.send(oracle.produce(topic, 0, HELLO_1))
    assert client.offsets(topic, 0, -1, 5) == [15, 0]
    assert client.offsets(topic, 0, -1, 1) == [15]
    assert client.offsets(topic, 0, -1, 0) == []
    assert client.offsets(topic, 0, -2, 5) == [0]
    assert client.offsets(topic, 0, 12345, 5) == []
    assert client.offsets(topic, 0, 1 << 62, 5) == [15, 0]


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(oracle.offsets("four", 4, -1, 1), id="wrong partition"),
        pytest.param(oracle.offsets("unknown", 1, -1, 1), id="wrong partition of no topic"),
        pytest.param(oracle.offsets("unknown", 0, -1, -1), id="negative count"),
        pytest.param(struct.pack(">i", 0), id="size zero"),
        pytest.param(struct.pack(">i", -1), id="size negative"),
        pytest.param(struct.pack(">i", 200 << 20), id="size over the limit"),
        pytest.param(struct.pack(">ib", 1, 0), id="no room for a type"),
        pytest.param(oracle.frame(5, b""), id="type 5"),
        pytest.param(oracle.frame(-1, b""), id="type -1"),
        pytest.param(oracle.frame(18, bytes(20)), id="a modern request"),
        pytest.param(oracle.frame(0, b"\xff\xff" + bytes(20)), id="null topic"),
        pytest.param(oracle.frame(0, oracle.string("t") + struct.pack(">ii", 0, 50)), id="set longer than the frame"),
        pytest.param(oracle.frame(0, oracle.string("t") + struct.pack(">ii", 0, -5)), id="negative set size"),
        pytest.param(oracle.frame(1, oracle.string("t")), id="fetch cut"),
        pytest.param(oracle.frame(2, struct.pack(">h", 32767) + oracle.fetch_part("t", 0, 0, 1)), id="count a lie"),
        pytest.param(oracle.frame(3, struct.pack(">h", 2) + oracle.produce_part("t", 0, b"")), id="parts missing"),
        pytest.param(oracle.frame(4, b""), id="offsets cut"),
        pytest.param(oracle.frame(2, b""), id="no count"),
    ],
)
def test_what_closes_the_connection(client: ClassicClient, frame: bytes) -> None:
    client.send(frame)
    assert client.closed()


def test_answers_earned_before_a_mistake_are_sent(client: ClassicClient) -> None:
    client.send(oracle.fetch("none", 0, 0, 1) * 3 + oracle.frame(9, b""))
    assert [client.receive() for _ in range(3)] == [(0, b"")] * 3
    assert client.closed()


def test_frames_cut_at_each_byte_are_put_together(client: ClassicClient, topic: str) -> None:
    for byte in oracle.produce(topic, 0, HELLO_1) + oracle.fetch(topic, 0, 0, 100):
        client.send(bytes([byte]))
    assert client.receive() == (0, HELLO_1)


def test_a_stream_of_frames_cut_anywhere_is_put_together(broker: Broker, topic: str) -> None:
    """Small frames, some larger than the start that is read on in the worker's buffer, some than that buffer."""
    draw = random.Random(7)
    message_counts = [draw.choice((1, 2, 20)) for _ in range(400)]
    message_counts[100:101] = [300] * 6
    message_counts[200:201] = [2_000] * 2
    sets = [
        encode_set([OracleMessage(b"%06d" % n + bytes(draw.choice((0, 200, 600)))) for _ in range(count)])
        for n, count in enumerate(message_counts)
    ]
    sent = b"".join(oracle.produce(topic, 0, one) for one in sets)
    with ClassicClient(port_of(broker)) as client:
        at = 0
        while at < len(sent):
            size = draw.choice((1, 3, 211, 4_097, 40_000, 300_000))
            client.send(sent[at : at + size])
            at += size
        stored = b"".join(sets)
        client.wait_for(topic, 0, len(stored))
        found = b""
        while len(found) < len(stored):
            found += client.fetch(topic, 0, len(found), len(stored))[1]
        assert found == stored


def test_a_client_that_does_not_read_holds_its_own_requests_only(broker: Broker, topic: str) -> None:
    data = encode_set([OracleMessage(bytes(900))] * 1000)
    with ClassicClient(port_of(broker)) as slow, ClassicClient(port_of(broker)) as other:
        slow.send(oracle.produce(topic, 0, data))
        slow.send(oracle.fetch(topic, 0, 0, len(data)) * 20)
        other.wait_for(topic, 0, len(data))
        assert other.fetch(topic, 0, 0, 10) == (0, data[:10])
        for _ in range(20):
            assert slow.receive() == (0, data)


# ---- visibility, restart, settings ----------------------------------------------------------------------------------


def test_nothing_is_visible_before_its_flush_and_everything_after() -> None:
    broker = started(**{"log.flush.interval": 10, "log.default.flush.interval.ms": 3_600_000})
    try:
        with ClassicClient(port_of(broker)) as client:
            for _ in range(9):
                client.send(oracle.produce("t", 0, HELLO_1))
            assert client.fetch("t", 0, 0) == (0, b"")
            assert client.fetch("t", 0, 15) == (1, b"")
            assert client.offsets("t", 0, -1, 5) == [0]
            assert log_of(broker, "t").log_end_offset == 135
            client.send(oracle.produce("t", 0, HELLO_1))
            assert client.fetch("t", 0, 0) == (0, HELLO_1 * 10)
            assert client.offsets("t", 0, -1, 5) == [150, 0]
    finally:
        broker.stop()


class HeldSyncs:
    """Syncs of classic logs from now on: `begun` when one was asked for, none is done before `may_end`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        sync = ClassicLog._sync_unless_deleted

        def held(log: ClassicLog, segment: object) -> None:
            self.begun.set()
            assert self.may_end.wait(60)
            sync(log, segment)  # type: ignore[arg-type]

        monkeypatch.setattr(ClassicLog, "_sync_unless_deleted", held)


def test_a_flush_shows_nothing_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = started(**{"log.flush.interval": 1})
    syncs = None
    try:
        port, today = port_of(broker), int(broker.bootstrap_servers.rsplit(":", 1)[1])
        with ClassicClient(port) as producer, ClassicClient(port) as client, wire.Connection(today) as modern:
            producer.send(oracle.produce("t", 0, HELLO_1))
            client.wait_for("t", 0, 15)
            syncs = HeldSyncs(monkeypatch)
            producer.send(oracle.produce("t", 0, HELLO_1))
            assert syncs.begun.wait(60), "the flush has begun: the message is in the file"
            assert log_of(broker, "t").log_end_offset == 30
            assert client.fetch("t", 0, 0) == (0, HELLO_1)
            assert client.fetch("t", 0, 15) == (0, b"")
            assert client.fetch("t", 0, 30) == (1, b"")
            assert client.offsets("t", 0, -1, 5) == [15, 0]
            assert modern.fetch("t", 0, 15).records == b""
            assert modern.fetch("t", 0, 0).high_watermark == 15
            syncs.may_end.set()
            client.wait_for("t", 0, 30)
            assert modern.fetch("t", 0, 0).high_watermark == 30
    finally:
        if syncs is not None:
            syncs.may_end.set()
        broker.stop()


def test_while_a_flush_runs_sets_are_appended_and_reads_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = started(**{"log.flush.interval": 1})
    syncs = None
    try:
        with ClassicClient(port_of(broker)) as client:
            client.send(oracle.produce("t", 0, HELLO_1))
            client.wait_for("t", 0, 15)
            syncs = HeldSyncs(monkeypatch)
            client.send(oracle.produce("t", 0, HELLO_1) * 3)
            client.send(oracle.fetch("t", 0, 15, 1000) + oracle.offsets("t", 0, -1, 1))
            assert syncs.begun.wait(60)
            eventually(lambda: log_of(broker, "t").log_end_offset >= 45, "one more set beside the flush")
            assert log_of(broker, "t").flushed_offset == 15
            syncs.may_end.set()
            assert client.receive() == (0, HELLO_1 * 3)
            assert oracle.read_offsets(client.receive()[1]) == [60]
    finally:
        if syncs is not None:
            syncs.may_end.set()
        broker.stop()


def test_messages_become_visible_by_time() -> None:
    broker = started(**{"log.flush.interval": 1000, "topic.flush.intervals.ms": "quick:1"})
    try:
        with ClassicClient(port_of(broker)) as client:
            client.send(oracle.produce("quick", 0, HELLO_1))
            client.wait_for("quick", 0, 15)
    finally:
        broker.stop()


def test_a_stop_and_a_start_keep_everything(tmp_path: object) -> None:
    settings = {"log.dirs": str(tmp_path), "log.flush.interval": 1000, "log.segment.bytes": 100}
    broker = started(**settings)
    with ClassicClient(port_of(broker)) as client:
        for i in range(30):
            client.send(oracle.produce("t", 0, OracleMessage(b"%d" % i).encode()))
        client.fetch("t", 0, 0)
    broker.stop()
    broker = started(**settings)
    try:
        with ClassicClient(port_of(broker)) as client:
            data = client.read_all("t")
            assert [p for p, _ in read_deep(data)] == [b"%d" % i for i in range(30)]
            assert client.offsets("t", 0, -1, 100)[-1] == 0
            assert len(client.offsets("t", 0, -1, 100)) > 3
    finally:
        broker.stop()


def test_the_listener_is_off_by_default() -> None:
    with Broker() as broker:
        assert broker.classic_endpoint is None
        assert ":" in broker.bootstrap_servers


def test_modern_clients_do_not_see_the_port(broker: Broker) -> None:
    assert str(port_of(broker)) not in broker.bootstrap_servers
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    metadata = producer.list_topics(timeout=30)
    assert [node.port for node in metadata.brokers.values()] == [broker.port]


def test_auto_creation_can_be_off(caplog: pytest.LogCaptureFixture) -> None:
    broker = started(**{"auto.create.topics.enable": "false"})
    try:
        with ClassicClient(port_of(broker)) as client:
            client.send(oracle.produce("t", 0, HELLO_1))
            assert client.closed()
    finally:
        broker.stop()


def test_topics_of_the_listener_are_told_to_who_registers_them() -> None:
    broker = started(**{"topic.partition.count.map": "t:3"})
    told: list[str] = []
    broker.logs.topic_listeners.append(told.append)
    try:
        with ClassicClient(port_of(broker)) as client:
            client.send(oracle.produce("t", 2, HELLO_1))
            assert client.read_all("t", 2) == HELLO_1
        assert told == ["t"]
        assert broker.logs.classic_topics() == {"t": 3}
    finally:
        broker.stop()


def test_waiting_sets_are_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    broker = started(**{"queued.append.max.bytes": 1 << 20, "max.message.size": 10 << 20})
    try:
        with ClassicClient(port_of(broker)) as client, caplog.at_level(logging.WARNING):
            client.send(oracle.produce("t", 0, OracleMessage(bytes(2 << 20)).encode()))
            assert client.closed()
        eventually(lambda: any("queued.append.max.bytes" in r.getMessage() for r in caplog.records), "a log line")
    finally:
        broker.stop()
