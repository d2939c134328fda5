"""The log of a classic topic: byte offsets, visible when flushed, rolled, recovered and retained as 0.7 does."""

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite._native.classic import classic_log as native
from kafkalite._native.classic import message_set
from kafkalite._native.classic.message_set import Message
from kafkalite._native.log.log_append import APPEND_DEFER, APPEND_DONE, append_batch
from kafkalite._native.log.segment_read import READ_REFUSED
from kafkalite.broker.log import segment_removal
from kafkalite.broker.log.classic.log import ClassicLog
from kafkalite.broker.log.manager import LogManager
from kafkalite.errors import CorruptMessage, ErrorCode, MessageTooLarge, OffsetOutOfRange, StorageError
from kafkalite.wire.record.message_set import wrap
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness.log_harness import TIME_MS, LogHarness, abandon, make_manager, release
from tests.kit.oracles.classic_oracle import HELLO_0, HELLO_1, OracleMessage, encode_set, read_deep, read_entries

LARGE = 1 << 20


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    return LogHarness(tmp_path, message_format="classic")


def opened(harness: LogHarness, **state: object) -> ClassicLog:
    log = harness.open(**state)  # type: ignore[arg-type]
    assert isinstance(log, ClassicLog)
    return log


def everything(log: ClassicLog) -> bytes:
    """All that a 0.7 consumer gets, fetch by fetch."""
    found = b""
    offset = log.log_start_offset
    while piece := log.read_range(offset, LARGE):
        found += piece
        offset += len(piece)
    return found


def test_offsets_are_byte_positions_and_bytes_stay_as_they_came(harness: LogHarness) -> None:
    log = opened(harness)
    assert log.append_set(HELLO_0 + HELLO_1) == (0, 29)
    assert log.append_set(HELLO_1) == (29, 44)
    log.flush()
    assert everything(log) == HELLO_0 + HELLO_1 + HELLO_1
    assert [path.name for path in harness.files(".kafka")] == ["00000000000000000000.kafka"]
    assert harness.files(".kafka")[0].read_bytes() == HELLO_0 + HELLO_1 + HELLO_1


def test_nothing_is_visible_before_its_flush(harness: LogHarness) -> None:
    log = opened(harness)
    log.append_set(HELLO_1)
    assert log.log_end_offset == 15
    assert (log.flushed_offset, log.high_watermark) == (0, 0)
    assert log.read_range(0, LARGE) == b""
    with pytest.raises(OffsetOutOfRange):
        log.read_range(15, LARGE)
    assert log.offsets_before(-1, 10) == [0]
    log.flush()
    assert log.read_range(0, LARGE) == HELLO_1
    log.append_set(HELLO_0)
    assert log.read_range(0, LARGE) == HELLO_1
    assert log.read_range(15, LARGE) == b""


def test_the_flush_interval_counts_the_messages_inside_wrappers(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, message_format="classic", flush_messages=4)
    log = opened(harness)
    log.append_set(HELLO_1 * 2)
    assert log.flushed_offset == 0
    wrapper = wrap(HELLO_1 * 2, 1)
    log.append_set(wrapper)
    assert log.flushed_offset == 30 + len(wrapper)


def test_a_read_may_begin_and_end_anywhere(harness: LogHarness) -> None:
    log = opened(harness)
    stored = HELLO_0 + HELLO_1 * 3
    log.append_set(stored)
    log.flush()
    for offset in range(len(stored)):
        for size in (1, 7, 15, 100):
            assert log.read_range(offset, size) == stored[offset : offset + size]
    assert log.read_range(len(stored), 10) == b""
    assert log.read_range(3, 0) == b""
    assert log.read_range(3, -5) == b""
    for offset in (-1, len(stored) + 1, 1 << 62):
        with pytest.raises(OffsetOutOfRange):
            log.read_range(offset, 10)


def test_a_partition_without_a_message_has_no_directory_and_no_offsets(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, message_format="classic")
    harness.path.rmdir()
    log = opened(harness)
    assert log.read_range(12345, 10) == b""
    assert log.offsets_before(-1, 0) == [0]
    assert log.offsets_before(-2, 5) == [0]
    assert log.offsets_before(TIME_MS, 5) == []
    assert not harness.path.exists()
    log.append_set(HELLO_1)
    assert harness.path.is_dir()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(HELLO_1 + HELLO_1[:-1] + b"x", CorruptMessage, id="checksum"),
        pytest.param(HELLO_1[:4] + b"\x02" + HELLO_1[5:], CorruptMessage, id="magic"),
        pytest.param(HELLO_1[:-1], CorruptMessage, id="first message cut"),
        pytest.param(b"\xff\xff\xff\xff" + HELLO_1, CorruptMessage, id="negative size"),
        pytest.param(OracleMessage(b"x", attributes=3).encode(), CorruptMessage, id="codec 3"),
        pytest.param(OracleMessage(b"no gzip", attributes=1).encode(), CorruptMessage, id="wrapper of nothing"),
        pytest.param(OracleMessage(bytes(1001)).encode(), MessageTooLarge, id="payload"),
        pytest.param(HELLO_1 + OracleMessage(bytes(1001), crc=1).encode(), MessageTooLarge, id="size before checksum"),
    ],
)
def test_a_bad_set_is_refused_as_a_whole(tmp_path: Path, data: bytes, error: type[Exception]) -> None:
    log = opened(LogHarness(tmp_path, message_format="classic", max_message_bytes=1000))
    with pytest.raises(error):
        log.append_set(data)
    assert log.log_end_offset == 0
    log.append_set(OracleMessage(bytes(1000)).encode())


def test_a_partial_message_at_the_end_is_cut(harness: LogHarness) -> None:
    log = opened(harness)
    assert log.append_set(HELLO_1 + HELLO_0[:-1]) == (0, 15)
    assert log.append_set(b"\0\0\0") == (-1, -1)
    assert log.append_set(b"") == (-1, -1)
    log.flush()
    assert everything(log) == HELLO_1


def test_wrappers_are_not_unpacked_on_a_worker(harness: LogHarness) -> None:
    log = opened(harness)
    log.append_set(HELLO_1)
    assert native.append(log.core, wrap(HELLO_1, 1), may_block=False)[0] == APPEND_DEFER
    assert native.append(log.core, HELLO_1, may_block=False) == (APPEND_DONE, 0, 15, 30, False)


def test_nesting_and_size_of_wrappers_are_limited(harness: LogHarness) -> None:
    harness.services.decompressed_size_max = 100_000
    log = opened(harness)
    deep = HELLO_1
    for _ in range(5):
        deep = wrap(deep, 1)
    for data in (deep, wrap(message_set.encode([bytes(200_000)]), 1)):
        with pytest.raises(CorruptMessage):
            log.append_set(data)
    assert log.log_end_offset == 0


def test_a_segment_may_exceed_its_size_by_one_set_and_fetches_stop_at_its_end(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, message_format="classic", segment_bytes=40)
    log = opened(harness)
    for _ in range(7):
        log.append_set(HELLO_1)
    log.flush()
    assert [(s.base_offset, s.size) for s in log.segments] == [(0, 45), (45, 45), (90, 15)]
    assert log.read_range(0, LARGE) == HELLO_1 * 3
    assert log.read_range(44, LARGE) == HELLO_1[-1:]
    assert log.read_range(45, LARGE) == HELLO_1 * 3
    assert everything(log) == HELLO_1 * 7
    assert [path.name for path in harness.files(".kafka")] == [f"{n:020d}.kafka" for n in (0, 45, 90)]


def test_a_roll_puts_the_closed_segment_on_the_disk(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, message_format="classic", segment_bytes=14)
    log = opened(harness)
    log.append_set(HELLO_1)
    log.append_set(HELLO_1)
    assert log.segments[0].flushed_size == 15
    assert log.flushed_offset >= 15


def test_the_reported_log_end_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a roll and the flush that makes what it closed visible, names included."""
    harness = LogHarness(tmp_path, message_format="classic", segment_bytes=14)
    waiting: list[object] = []
    monkeypatch.setattr(harness.services, "request_flush", lambda log, _end, _callback: waiting.append(log))
    log = opened(harness)
    log.append_set(HELLO_1)
    log.append_set(HELLO_1)
    assert waiting, "the roll asked for a flush"
    assert log.offsets_before(-1, 5) == [log.high_watermark]
    log.flush()
    assert log.offsets_before(-1, 5) == [30, 15, 0]


def test_an_old_segment_is_rolled(tmp_path: Path) -> None:
    clock = FakeClock(TIME_MS)
    harness = LogHarness(tmp_path, clock=clock, message_format="classic", segment_ms=1000)
    log = opened(harness)
    log.append_set(HELLO_1)
    clock.advance(1.0)
    log.append_set(HELLO_1)
    assert len(log.segments) == 1
    clock.advance(0.001)
    log.append_set(HELLO_1)
    assert [s.base_offset for s in log.segments] == [0, 30]


# ---- recovery -------------------------------------------------------------------------------------------------------


def build(path: Path, *contents: bytes, start: int = 0) -> None:
    """A partition directory of a 0.7 broker, byte by byte."""
    path.mkdir(exist_ok=True)
    for content in contents:
        (path / f"{start:020d}.kafka").write_bytes(content)
        start += len(content)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_of_magic_0_as_kafka_0_6_wrote_it_loads(harness: LogHarness, clean: bool) -> None:
    stored = encode_set([OracleMessage(b"x" * 100, magic=0)] * 100)
    build(harness.path, stored[:5450], stored[5450:])
    log = opened(harness, clean=clean)
    assert log.log_end_offset == log.flushed_offset == 10_900
    assert everything(log) == stored
    log.append_set(HELLO_1)
    log.flush()
    assert everything(log) == stored + HELLO_1


TAILS = [
    pytest.param(b"\0\0", id="torn size"),
    pytest.param(HELLO_1[:-1], id="torn message"),
    pytest.param(b"\0" * 500, id="zeros"),
    pytest.param(b"\xff" * 64, id="negative size"),
    pytest.param(b"nonsense of any kind, as a disk may hold it", id="nonsense"),
    pytest.param(HELLO_1[:-1] + b"x", id="checksum"),
    pytest.param(HELLO_1[:4] + b"\x07" + HELLO_1[5:], id="magic"),
    pytest.param(b"\0\0\0\x04" + HELLO_1, id="size below five"),
]


@pytest.mark.parametrize("tail", TAILS)
def test_the_last_segment_is_cut_where_it_stops_being_messages(harness: LogHarness, tail: bytes) -> None:
    good = [HELLO_1 * 3, HELLO_0 + OracleMessage(gzip.compress(HELLO_1), attributes=1).encode()]
    build(harness.path, good[0], good[1] + tail, start=1000)
    log = opened(harness, clean=False)
    end = 1000 + sum(map(len, good))
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (1000, end, end)
    assert harness.files(".kafka")[1].read_bytes() == good[1]
    assert everything(log) == b"".join(good)
    assert [p for p, _ in read_deep(everything(log))] == [b"hello"] * 5


def test_segments_before_the_last_are_not_looked_at(harness: LogHarness) -> None:
    bad = HELLO_1[:-1] + b"x" + HELLO_1
    build(harness.path, bad, HELLO_1)
    log = opened(harness, clean=False)
    assert everything(log) == bad + HELLO_1, "0.7's readers find the damage by themselves"


def test_a_gap_between_segments_is_refused(harness: LogHarness) -> None:
    build(harness.path, HELLO_1)
    build(harness.path, HELLO_1, start=16)
    with pytest.raises(OSError, match="ends at 15, but the next one begins at 16"):
        harness.open(clean=True)


def test_what_was_flushed_survives_a_kill_and_the_rest_is_whole_messages(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, message_format="classic", segment_bytes=100)
    log = opened(harness)
    for i in range(40):
        log.append_set(OracleMessage(b"%d" % i).encode())
        if i == 25:
            log.flush()
    flushed = log.flushed_offset
    release(log)
    again = opened(harness, clean=False, recovery_point=flushed)
    assert [m.payload for _, m in read_entries(everything(again))] == [b"%d" % i for i in range(40)]


def test_a_clean_stop_reopens_without_walking(harness: LogHarness) -> None:
    log = opened(harness)
    for i in range(200):
        log.append_set(OracleMessage(b"%d" % i * 50).encode() * 3)
    log.flush()
    end = log.log_end_offset
    log.close()
    again = opened(harness, clean=True, recovery_point=end)
    assert again.log_end_offset == again.flushed_offset == end
    assert again.segments[0].index is None, "the index file's header was enough"
    assert len(list(read_entries(everything(again)))) == 600
    again.append_set(HELLO_1)
    assert again.segments[0].index is not None
    assert len(again.segments[0].index) > 5


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["append", "flush", "kill", "stop", "roll"]), st.integers(1, 60)), max_size=40)
)
def test_any_history_equals_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    harness = LogHarness(tmp_path_factory.mktemp("history"), message_format="classic", segment_bytes=300)
    log = opened(harness)
    model = b""
    for step, number in steps:
        match step:
            case "append":
                data = encode_set([OracleMessage(bytes([number]) * number, magic=number % 2)] * (number % 4))
                log.append_set(data)
                model += data
            case "flush":
                log.flush()
                assert everything(log) == model
            case "roll":
                log.roll()
            case "kill":
                release(log)
                log = opened(harness, clean=False, recovery_point=log.flushed_offset)
                assert everything(log) == model
            case "stop":
                log.close()
                log = opened(harness, clean=True, recovery_point=log.flushed_offset)
        assert log.log_end_offset == len(model)
        assert model.startswith(everything(log))
    log.flush()
    assert everything(log) == model
    release(log)


# ---- times and retention --------------------------------------------------------------------------------------------


@pytest.fixture
def aged(tmp_path: Path) -> tuple[LogHarness, ClassicLog]:
    """Segments 0, 15 and 30 of one message each, last written 3000, 2000 and 1000 ms ago."""
    harness = LogHarness(tmp_path, message_format="classic", segment_bytes=14)
    log = opened(harness)
    for _ in range(3):
        log.append_set(HELLO_1)
    log.flush()
    for age, path in zip((3000, 2000, 1000), harness.files(".kafka"), strict=True):
        os.utime(path, ns=((TIME_MS - age) * 1_000_000,) * 2)
    return harness, log


@pytest.mark.parametrize(
    ("time_ms", "count", "expected"),
    [
        (-1, 10, [45, 30, 15, 0]),
        (-1, 2, [45, 30]),
        (-1, 0, []),
        (-2, 10, [0]),
        (TIME_MS, 10, [45, 30, 15, 0]),
        (TIME_MS - 1, 10, [30, 15, 0]),
        (TIME_MS - 1000, 10, [30, 15, 0]),
        (TIME_MS - 1001, 1, [15]),
        (TIME_MS - 3001, 10, []),
        (-3, 10, []),
    ],
)
def test_offsets_before_a_time(
    aged: tuple[LogHarness, ClassicLog], time_ms: int, count: int, expected: list[int]
) -> None:
    assert aged[1].offsets_before(time_ms, count) == expected


def test_a_time_is_looked_up_by_segments(aged: tuple[LogHarness, ClassicLog]) -> None:
    _, log = aged
    for time_ms, offset in ((0, 0), (TIME_MS - 3000, 0), (TIME_MS - 2999, 15), (TIME_MS - 1000, 30)):
        found = log.find_timestamp(time_ms)
        assert found is not None
        assert found.offset == offset
        assert found.timestamp == TIME_MS - 3000 + offset // 15 * 1000
    assert log.find_timestamp(TIME_MS - 999) is None
    assert log.max_timestamp() is None


def test_retention_by_age_looks_at_files_and_may_take_the_active_segment(aged: tuple[LogHarness, ClassicLog]) -> None:
    harness, log = aged
    log.configure(LogHarness(harness.path.parent, message_format="classic", retention_ms=1500).config)
    assert segment_removal.apply_retention(log, TIME_MS) == 2
    assert (log.log_start_offset, log.log_end_offset) == (30, 45)
    with pytest.raises(OffsetOutOfRange):
        log.read_range(15, 10)
    assert segment_removal.apply_retention(log, TIME_MS + 10_000) == 1
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (45, 45, 45)
    assert [path.name for path in harness.files(".kafka")] == [f"{45:020d}.kafka"]
    assert segment_removal.apply_retention(log, TIME_MS + 20_000) == 0
    assert log.append_set(HELLO_1).base_offset == 45


def test_retention_by_size_keeps_at_least_the_limit(aged: tuple[LogHarness, ClassicLog]) -> None:
    harness, log = aged
    log.configure(LogHarness(harness.path.parent, message_format="classic", retention_bytes=16).config)
    assert segment_removal.apply_retention(log, TIME_MS) == 1
    assert log.log_start_offset == 15


def test_a_failed_sync_makes_nothing_visible(harness: LogHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(harness)
    log.append_set(HELLO_1)

    def fail(_segment: object) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(ClassicLog, "_sync_unless_deleted", lambda _self, segment: fail(segment))
    with pytest.raises(StorageError):
        log.flush()
    assert log.offline
    with pytest.raises(StorageError):
        log.read_range(0, 10)


# ---- a data directory -----------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "kafka-logs"
    path.mkdir()
    return path


def classic(manager: LogManager, topic: str, partition: int) -> ClassicLog:
    log = manager.topics[topic].partitions[partition]
    assert isinstance(log, ClassicLog)
    return log


def test_a_log_directory_of_kafka_0_7_is_taken_over(root: Path) -> None:
    gzipped = OracleMessage(gzip.compress(HELLO_1 * 5), attributes=1).encode()
    build(root / "clicks-0", HELLO_0 * 4)
    build(root / "web-logs-2", HELLO_1 * 3, gzipped + HELLO_1[:-2], start=4711)
    (root / "plain file").write_bytes(b"is skipped")
    (root / ".kafka_cleanshutdown").touch()
    manager = make_manager(root, num_partitions=2, topic_partition_count_map="web-logs:4,clicks:1")
    manager.open()
    try:
        assert {name: len(topic.partitions) for name, topic in manager.topics.items()} == {"clicks": 1, "web-logs": 4}
        assert everything(classic(manager, "clicks", 0)) == HELLO_0 * 4
        log = classic(manager, "web-logs", 2)
        assert (log.log_start_offset, log.log_end_offset) == (4711, 4711 + 45 + len(gzipped))
        assert [p for p, _ in read_deep(everything(log))] == [b"hello"] * 8
        assert classic(manager, "web-logs", 0).empty_forever
        assert not (root / "web-logs-0").exists()
    finally:
        manager.close()
    assert (root / ".kafka_cleanshutdown").exists()
    again = make_manager(root)
    again.open()
    try:
        assert everything(classic(again, "web-logs", 2)) == HELLO_1 * 3 + gzipped
    finally:
        again.close()


def test_a_directory_with_both_formats_is_refused(root: Path) -> None:
    from kafkalite.errors import StartupError

    build(root / "t-0", HELLO_1)
    (root / "t-0" / f"{0:020d}.log").write_bytes(b"")
    with pytest.raises(StartupError, match="classic and v2"):
        make_manager(root).open()


def test_maps_of_0_7_hold_for_classic_topics_only(root: Path) -> None:
    manager = make_manager(
        root,
        **{
            "log.flush.interval": "7",
            "topic.flush.intervals.ms": "a:70,broken,b:x",
            "log.default.flush.interval.ms": "90",
            "topic.log.file.size": "a:1000",
            "topic.log.roll.hours": "a:2",
            "topic.log.retention.hours": "a:3",
            "topic.log.retention.size": "a:5000",
            "max.message.size": "100",
        },
    )
    manager.open()
    try:
        for name in ("a", "b"):
            manager.create_topic(name, 1, {"message.format": "classic"})
        manager.create_topic("a2", 1, {})
        configs = [manager.topics[name].config for name in ("a", "b", "a2")]
        assert [c.flush_messages for c in configs] == [7, 7, (1 << 63) - 1]
        assert [c.flush_ms for c in configs] == [70, 90, (1 << 63) - 1]
        assert [c.segment_bytes for c in configs] == [1000, 1 << 30, 1 << 30]
        assert [c.segment_ms for c in configs] == [7_200_000, 604_800_000, 604_800_000]
        assert [c.retention_ms for c in configs] == [10_800_000, 604_800_000, 604_800_000]
        assert [c.retention_bytes for c in configs] == [5000, -1, -1]
        assert [c.max_message_bytes for c in configs] == [100, 100, (1 << 20) + 12]
        assert classic(manager, "a", 0).core.message_size_max == 100
    finally:
        manager.close()


def test_a_classic_topic_keeps_its_format_and_cannot_be_compacted(root: Path) -> None:
    from kafkalite.errors import InvalidConfig

    manager = make_manager(root)
    manager.open()
    try:
        manager.create_topic("c", 1, {"message.format": "classic"})
        with pytest.raises(InvalidConfig, match="cannot change"):
            manager.alter_topic("c", {"message.format": "v2"})
        with pytest.raises(InvalidConfig, match="compacted"):
            manager.alter_topic("c", {"message.format": "classic", "cleanup.policy": "compact"})
        with pytest.raises(InvalidConfig, match="compacted"):
            manager.create_topic("d", 1, {"message.format": "classic", "cleanup.policy": "compact,delete"})
    finally:
        manager.close()


def test_unflushed_messages_become_visible_by_age(root: Path) -> None:
    clock = FakeClock(TIME_MS)
    manager = make_manager(root, clock=clock)
    manager.open()
    try:
        manager.create_topic("c", 1, {"message.format": "classic"})
        log = classic(manager, "c", 0)
        log.append_set(HELLO_1)
        manager.housekeeper.flush_by_age()
        assert log.flushed_offset == 0
        clock.advance(3.0)
        manager.housekeeper.flush_by_age()
        done: list[int] = []
        log.flush_async(15, done.append)
        manager.flusher.stop()
        assert log.flushed_offset == 15
    finally:
        abandon(manager)


def test_modern_producers_and_readers_of_batches_are_refused(harness: LogHarness) -> None:
    from tests.kit.harness.log_harness import make_batch

    log = opened(harness)
    assert append_batch(log.core, make_batch())[1] == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert log.core.read_copy(0, 100) == (READ_REFUSED, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, b"")


def test_messages_of_any_attributes_are_kept(harness: LogHarness) -> None:
    log = opened(harness)
    data = message_set.encode([Message(b"x", attributes=0xFC)])
    log.append_set(data)
    log.flush()
    assert everything(log) == data
