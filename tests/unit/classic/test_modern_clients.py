"""Clients of today read classic topics: every message once, wherever they stopped, inside wrappers too."""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite._native.classic.message_set import MessageIterator, MessageSetError, encode
from kafkalite.broker import Broker
from kafkalite.broker.log import segment_removal
from kafkalite.broker.log.classic.log import ClassicLog
from kafkalite.broker.log.classic.view import BatchView
from kafkalite.errors import CorruptMessage
from kafkalite.wire.record.message_set import SPLIT_COUNT, check_deep, fit_wrappers, messages, wrap
from tests.kit.harness.classic_client import ClassicClient
from tests.kit.harness.log_harness import LogHarness, release
from tests.kit.oracles import classic_oracle as oracle
from tests.kit.oracles.classic_oracle import HELLO_0, HELLO_1, OracleMessage, encode_set, gzip_wrapper
from tests.kit.oracles.record_oracle import decode_batch

TIMEOUT_S = 60.0
plain = st.builds(OracleMessage, st.binary(max_size=60), st.sampled_from([0, 1]))
any_message = st.one_of(plain, st.builds(gzip_wrapper, st.lists(plain, max_size=9)))


def filled(directory: Path, *sets: bytes, **config: object) -> ClassicLog:
    log = LogHarness(directory, message_format="classic", **config).open()
    assert isinstance(log, ClassicLog)
    for data in sets:
        log.append_set(data)
    log.flush()
    return log


def records(data: bytes) -> list[tuple[int, bytes]]:
    """(offset, payload) of a batch, checked for what 0.7's messages do not have."""
    if not data:
        return []
    batch = decode_batch(data)
    assert (batch.base_timestamp, batch.max_timestamp, batch.producer_id, batch.leader_epoch) == (-1, -1, -1, -1)
    found = []
    for record in batch.records:
        assert (record.key, record.timestamp_delta, list(record.headers)) == (None, 0, [])
        assert record.value is not None
        found.append((batch.base_offset + record.offset_delta, record.value))
    assert batch.last_offset_delta is not None
    assert batch.base_offset + batch.last_offset_delta >= found[-1][0]
    return found


def expected(data: bytes) -> list[tuple[int, bytes]]:
    """(offset, payload) of every message as clients of today see them: by position, and by place inside a wrapper."""
    found = []
    for position, message in oracle.read_entries(data):
        inner = list(oracle.read_deep(message.encode()))
        found += [(position + i, payload) for i, (payload, _) in enumerate(inner)]
    return found


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(any_message, min_size=1, max_size=4), min_size=1, max_size=5), st.integers(1, 400))
def test_each_offset_gives_the_next_message(
    tmp_path_factory: pytest.TempPathFactory, sets: list[list[OracleMessage]], size_max: int
) -> None:
    log = filled(tmp_path_factory.mktemp("view"), *(encode_set(items) for items in sets), segment_bytes=200)
    stored = b""
    while piece := log.read_range(len(stored), 1 << 20):
        stored += piece
    wanted = expected(stored)
    for offset in range(len(stored)):
        error, data = log.as_batches(offset, size_max)
        behind = [row for row in wanted if row[0] >= offset]
        got = records(data)
        assert error == 0
        assert got == behind[: len(got)]
        assert bool(got) == bool(behind)
    at = 0
    read: list[tuple[int, bytes]] = []
    while data := log.as_batches(at, size_max)[1]:
        read += records(data)
        batch = decode_batch(data)
        assert batch.last_offset_delta is not None
        at = batch.base_offset + batch.last_offset_delta + 1
    assert read == wanted
    release(log)


def test_a_whole_message_ends_its_batch_so_that_lag_is_none(tmp_path: Path) -> None:
    log = filled(tmp_path, HELLO_0 + HELLO_1)
    batch = decode_batch(log.as_batches(0, 1000)[1])
    assert batch.last_offset_delta == 28
    assert [r.offset_delta for r in batch.records] == [0, 14]


def test_a_message_larger_than_asked_comes_whole(tmp_path: Path) -> None:
    log = filled(tmp_path, OracleMessage(bytes(300_000)).encode() + HELLO_1)
    assert records(log.as_batches(0, 100)[1]) == [(0, bytes(300_000))]


@pytest.mark.parametrize("codec", [1, 2])
def test_a_wrapper_with_more_messages_than_bytes_is_wrapped_anew(tmp_path: Path, codec: int) -> None:
    dense = wrap(HELLO_1 * 2000, codec)
    assert len(dense) < 2000
    log = filled(tmp_path, HELLO_0 + dense + HELLO_1)
    found = []
    at = 0
    while data := log.as_batches(at, 5000)[1]:
        found += records(data)
        at = found[-1][0] + 1
    assert [payload for _, payload in found] == [b"hello"] * 2002
    assert len({offset for offset, _ in found}) == 2002
    assert fit_wrappers(wrap(HELLO_1 * 3, codec)) is None


def test_a_wrapper_of_very_many_messages_is_split_a_part_at_a_time() -> None:
    count = 3 * SPLIT_COUNT + 7
    fitted = fit_wrappers(HELLO_0 + wrap(HELLO_1 * count, 1) + HELLO_1)
    assert fitted is not None
    wrappers = list(MessageIterator(fitted, shallow=True))
    for wrapper in wrappers:
        entry = encode([wrapper])
        assert len(list(messages(entry))) <= min(len(entry), SPLIT_COUNT)
    assert len(list(messages(fitted))) == count + 2


def test_wrappers_in_each_other_unpack_to_no_more_than_the_limit_together() -> None:
    nested = wrap(wrap(HELLO_1 * 500, 1) + HELLO_1 * 500, 1)
    whole = len(HELLO_1) * 1000 + 200
    assert check_deep(nested, size_max=whole).message_count == 1000
    assert len(list(messages(nested, size_max=whole))) == 1000
    less = len(HELLO_1) * 900
    with pytest.raises(MessageSetError):
        check_deep(nested, size_max=less)
    with pytest.raises(MessageSetError):
        list(messages(nested, size_max=less))


def test_one_that_was_copied_in_is_an_error_and_never_left_out(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, message_format="classic")
    (harness.path / f"{0:020d}.kafka").write_bytes(HELLO_0 + wrap(HELLO_1 * 2000, 1) + HELLO_1)
    log = harness.open()
    assert isinstance(log, ClassicLog)
    assert records(log.as_batches(0, 10_000)[1]) == [(0, b"hello")]
    assert log.as_batches(14, 10_000) == (CorruptMessage.code, b"")


def test_damage_is_an_error_behind_what_is_good(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, message_format="classic", segment_bytes=14)
    (harness.path / f"{0:020d}.kafka").write_bytes(HELLO_1 + HELLO_1[:-1] + b"x")
    (harness.path / f"{30:020d}.kafka").write_bytes(HELLO_1)
    log = harness.open()
    assert isinstance(log, ClassicLog)
    assert records(log.as_batches(0, 1000)[1]) == [(0, b"hello")]
    assert log.as_batches(15, 1000) == (2, b"")
    assert records(log.as_batches(30, 1000)[1]) == [(30, b"hello")]


def test_deleted_segments_are_out_of_range(tmp_path: Path) -> None:
    log = filled(tmp_path, HELLO_1, HELLO_1, segment_bytes=14)
    view = BatchView(log, 0, 100)
    segment_removal.delete_records(log, 15)
    assert view.read()[0] in {0, 1}
    assert records(log.as_batches(15, 100)[1]) == [(15, b"hello")]


# ---- librdkafka -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    listeners = "kafka://127.0.0.1:0,kafka07://127.0.0.1:0"
    broker = Broker({"listeners": listeners, "log.flush.interval": 1, "num.io.threads": 2}).start()
    yield broker
    broker.stop()


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"classic-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, 1, message_format="classic")
    return name


def produce(broker: Broker, topic: str, data: bytes) -> None:
    assert broker.classic_endpoint is not None
    with ClassicClient(broker.classic_endpoint.port) as client:
        client.send(oracle.produce(topic, 0, data))
        client.fetch(topic, 0, 0, 1)


def consumer(broker: Broker, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )


def next_message(reader: Consumer) -> confluent_kafka.Message:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = reader.poll(1.0)
        if message is not None:
            assert message.error() is None, message.error()
            return message
    raise TimeoutError("no message arrived")


MIXED = [
    HELLO_0,
    wrap(encode_set([OracleMessage(b"in %d" % i) for i in range(5)]), 1),
    HELLO_1,
    wrap(encode_set([OracleMessage(b"snappy %d" % i) for i in range(4)]), 2),
]
PAYLOADS = [b"hello", *(b"in %d" % i for i in range(5)), b"hello", *(b"snappy %d" % i for i in range(4))]


def test_stop_commit_and_resume_at_every_message(broker: Broker, topic: str) -> None:
    produce(broker, topic, b"".join(MIXED))
    seen = []
    for number in range(len(PAYLOADS)):
        reader = consumer(broker, f"resume-{topic}")
        reader.assign([TopicPartition(topic, 0, confluent_kafka.OFFSET_STORED)])
        message = next_message(reader)
        seen.append(message.value())
        assert message.timestamp()[1] in {-1, 0}
        reader.commit(message=message, asynchronous=False)
        reader.close()
        assert seen == PAYLOADS[: number + 1]


def test_behind_the_last_message_a_reader_waits_for_the_next(broker: Broker, topic: str) -> None:
    produce(broker, topic, b"".join(MIXED))
    reader = consumer(broker, f"end-{topic}")
    reader.assign([TopicPartition(topic, 0, 0)])
    last = [next_message(reader) for _ in PAYLOADS][-1]
    reader.assign([TopicPartition(topic, 0, last.offset() + 1)])
    assert reader.poll(0.5) is None
    produce(broker, topic, HELLO_1)
    assert next_message(reader).value() == b"hello"
    low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    assert (low, high) == (0, len(b"".join(MIXED)) + 15)
    reader.close()


def test_writing_is_refused_by_its_own_code(broker: Broker, topic: str) -> None:
    errors = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"value", on_delivery=lambda error, _message: errors.append(error))
    producer.flush(TIMEOUT_S)
    assert [error.code() for error in errors] == [confluent_kafka.KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT]


def test_a_large_topic_is_read_whole(broker: Broker, topic: str) -> None:
    data = encode_set([OracleMessage(b"%05d" % i * 40) for i in range(500)])
    for i in range(10):
        produce(broker, topic, data if i % 2 else wrap(data, 1))
    reader = consumer(broker, f"large-{topic}")
    reader.assign([TopicPartition(topic, 0, 0)])
    assert [next_message(reader).value()[:5] for _ in range(5000)] == [b"%05d" % (i % 500) for i in range(5000)]
    reader.close()


def test_offsets_by_time_and_out_of_range(broker: Broker, topic: str) -> None:
    produce(broker, topic, HELLO_1)
    reader = consumer(broker, f"time-{topic}")
    found = reader.offsets_for_times([TopicPartition(topic, 0, 1000)], timeout=30)
    assert found[0].offset == 0
    reader.assign([TopicPartition(topic, 0, 10_000)])
    assert next_message(reader).offset() == 0, "reset to the earliest"
    reader.close()
