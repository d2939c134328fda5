"""What an append answers: offsets, times, and each error in Kafka's order of checks."""

import struct
from pathlib import Path

import pytest

from kafkalite._native.base.crc32c import crc32c
from kafkalite._native.log.log_append import APPEND_ASK, APPEND_DEFER, APPEND_DONE, APPEND_REFUSED, append_batch
from kafkalite.errors import ErrorCode
from kafkalite.wire.record.compression import Codec, compress
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness.log_harness import TIME_MS, LogHarness, PlainLog, make_batch, read_all
from tests.kit.oracles.record_oracle import decode_batch

HOUR_MS = 3_600_000


def patched(batch: bytes, at: int, data: bytes, *, crc: bool = True) -> bytes:
    """A batch with some bytes replaced, its CRC made right again unless told not to."""
    changed = bytearray(batch)
    changed[at : at + len(data)] = data
    if crc:
        changed[17:21] = struct.pack(">I", crc32c(bytes(changed[21:])))
    return bytes(changed)


def compressed(batch: bytes, codec: Codec) -> bytes:
    """A batch with its records in a codec."""
    body = compress(codec, batch[61:])
    whole = bytearray(batch[:61]) + body
    whole[8:12] = struct.pack(">i", len(whole) - 12)
    attributes = struct.unpack_from(">h", whole, 21)[0] | codec
    return patched(bytes(whole), 21, struct.pack(">h", attributes))


GOOD = make_batch(3, value_size=20)

ASKED = 0
"""Instead of an error code: the append asks for admission."""
REFUSED = [
    pytest.param(b"", ErrorCode.INVALID_RECORD, id="nothing"),
    pytest.param(GOOD[:16], ErrorCode.INVALID_RECORD, id="too short for a magic byte"),
    pytest.param(patched(GOOD, 16, b"\x01"), ErrorCode.INVALID_RECORD, id="magic 1"),
    pytest.param(GOOD + GOOD, ErrorCode.INVALID_RECORD, id="two batches"),
    pytest.param(GOOD + b"x", ErrorCode.INVALID_RECORD, id="a byte behind the batch"),
    pytest.param(patched(GOOD, 7, b"\x01"), ErrorCode.INVALID_RECORD, id="base offset 1"),
    pytest.param(
        patched(make_batch(1, value_size=3000), 30, b"\xff", crc=False),
        ErrorCode.MESSAGE_TOO_LARGE,
        id="too large, and damaged",
    ),
    pytest.param(GOOD[:-1], ErrorCode.CORRUPT_MESSAGE, id="cut off"),
    pytest.param(patched(GOOD, 8, struct.pack(">i", 48)), ErrorCode.CORRUPT_MESSAGE, id="length below the header's"),
    pytest.param(patched(GOOD, 8, struct.pack(">i", -1)), ErrorCode.CORRUPT_MESSAGE, id="negative length"),
    pytest.param(patched(GOOD, 70, b"\xff", crc=False), ErrorCode.CORRUPT_MESSAGE, id="wrong CRC"),
    pytest.param(patched(GOOD, 23, struct.pack(">i", 3)), ErrorCode.INVALID_RECORD, id="last offset delta"),
    pytest.param(patched(GOOD, 57, struct.pack(">i", 4)), ErrorCode.INVALID_RECORD, id="record count"),
    pytest.param(
        patched(GOOD, 23, struct.pack(">i", -1) + GOOD[27:57] + bytes(4)), ErrorCode.INVALID_RECORD, id="no records"
    ),
    pytest.param(make_batch(1, attributes=0x20), ErrorCode.INVALID_RECORD, id="control batch"),
    pytest.param(
        make_batch(1, producer_id=1, epoch=0, sequence=-1), ErrorCode.INVALID_RECORD, id="producer without sequence"
    ),
    pytest.param(make_batch(1, attributes=0x08), ErrorCode.INVALID_TIMESTAMP, id="append time set by the client"),
    pytest.param(make_batch(1, attributes=0x05), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="unknown codec"),
    pytest.param(
        make_batch(1, attributes=0x10, producer_id=1, epoch=0, sequence=0), ASKED, id="transaction that nobody admitted"
    ),
    pytest.param(make_batch(1, timestamp=TIME_MS + HOUR_MS + 1), ErrorCode.INVALID_TIMESTAMP, id="from the future"),
    pytest.param(patched(GOOD, 61, b"\x7e"), ErrorCode.INVALID_RECORD, id="records that do not parse"),
    pytest.param(
        compressed(patched(GOOD, 61, b"\x7e"), Codec.GZIP),
        ErrorCode.INVALID_RECORD,
        id="compressed records that do not parse",
    ),
    pytest.param(
        patched(compressed(GOOD, Codec.ZSTD), 61, b"\x00\x00\x00"), ErrorCode.INVALID_RECORD, id="not the codec's bytes"
    ),
]


@pytest.mark.parametrize(("batch", "code"), REFUSED)
def test_bad_batch_is_refused_and_leaves_nothing(tmp_path: Path, batch: bytes, code: int) -> None:
    log = LogHarness(tmp_path, max_message_bytes=2000).open()
    outcome, error, base_offset, append_time, log_start, _, _ = append_batch(log.core, batch)
    assert outcome == (APPEND_ASK if code == ASKED else APPEND_REFUSED)
    assert (error, base_offset, append_time, log_start) == (code, -1, -1, -1)
    assert log.log_end_offset == 0
    assert append_batch(log.core, GOOD)[1:3] == (0, 0)


def test_offsets_are_dense_and_the_rest_of_the_batch_is_kept(tmp_path: Path) -> None:
    log = LogHarness(tmp_path).open(epoch=4)
    model = PlainLog()
    for count in (1, 5, 2):
        batch = make_batch(count, key=None, value_size=count)
        info = log.append(batch)
        assert (info.base_offset, info.end_offset, info.append_time_ms) == (model.end, model.end + count, -1)
        model.append(info.base_offset, batch)
    assert read_all(log) == model.batches
    assert decode_batch(log.read(0, 1)).leader_epoch == 4


def test_first_append_defers_where_it_may_not_block(tmp_path: Path) -> None:
    log = LogHarness(tmp_path, segment_bytes=1000).open()
    assert append_batch(log.core, GOOD, may_block=False)[0] == APPEND_DEFER
    assert append_batch(log.core, GOOD)[1] == 0
    results = [append_batch(log.core, GOOD, may_block=False)[0] for _ in range(20)]
    assert 0 < results.index(APPEND_DEFER) < 10, "a roll must not happen on a thread that may not block"
    assert set(results[results.index(APPEND_DEFER) :]) == {APPEND_DEFER}
    assert log.log_end_offset == 3 * (1 + results.count(APPEND_DONE))


def test_compressed_batch_defers_only_where_records_are_looked_at(tmp_path: Path) -> None:
    for validation, expected in (("full", APPEND_DEFER), ("header", APPEND_DONE)):
        directory = tmp_path / validation
        directory.mkdir()
        log = LogHarness(directory, record_validation=validation).open()
        log.append(GOOD)
        assert append_batch(log.core, compressed(GOOD, Codec.LZ4), may_block=False)[0] == expected


def test_appends_waiting_elsewhere_make_later_ones_wait(tmp_path: Path) -> None:
    log = LogHarness(tmp_path).open()
    log.append(GOOD)
    log.core.deferred_appends += 1
    assert append_batch(log.core, GOOD, may_block=False)[0] == APPEND_DEFER
    assert append_batch(log.core, GOOD)[1] == 0
    log.core.deferred_appends -= 1
    assert append_batch(log.core, GOOD, may_block=False)[1] == 0


def test_log_append_time_stamps_header_and_crc(tmp_path: Path) -> None:
    clock = FakeClock(TIME_MS + 5)
    log = LogHarness(tmp_path, clock=clock, message_timestamp_type="LogAppendTime").open()
    info = log.append(make_batch(2, timestamp=TIME_MS - 10 * HOUR_MS, producer_id=9, epoch=0, sequence=0))
    assert info.append_time_ms == TIME_MS + 5
    stored = log.read(0, 1000)
    assert crc32c(stored[21:]) == struct.unpack_from(">I", stored, 17)[0]
    assert struct.unpack_from(">h", stored, 21)[0] & 0x08
    assert struct.unpack_from(">qq", stored, 27) == (TIME_MS - 10 * HOUR_MS, TIME_MS + 5)
    clock.advance(60)
    again = log.append(make_batch(2, timestamp=TIME_MS - 10 * HOUR_MS, producer_id=9, epoch=0, sequence=0))
    assert (again.base_offset, again.append_time_ms) == (0, TIME_MS + 5), "a duplicate has the original's time"


def test_header_that_claims_a_wrong_largest_timestamp_is_corrected(tmp_path: Path) -> None:
    log = LogHarness(tmp_path).open()
    for claim in (TIME_MS - 50_000, TIME_MS + HOUR_MS + 1):
        batch = patched(make_batch(3, step_ms=10), 35, struct.pack(">q", claim))
        base_offset = log.append(batch).base_offset
        stored = log.read(base_offset, 1)
        assert struct.unpack_from(">q", stored, 35)[0] == TIME_MS + 20
        assert crc32c(stored[21:]) == struct.unpack_from(">I", stored, 17)[0]


def test_time_bounds_name_the_record(tmp_path: Path) -> None:
    settings = {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 1000}
    log = LogHarness(tmp_path, **settings).open()
    assert append_batch(log.core, make_batch(4, timestamp=TIME_MS, step_ms=1000))[1::5] == (
        ErrorCode.INVALID_TIMESTAMP,
        2,
    )
    assert append_batch(log.core, make_batch(4, timestamp=TIME_MS - 1001, step_ms=1))[1::5] == (
        ErrorCode.INVALID_TIMESTAMP,
        0,
    )
    late = compressed(make_batch(4, timestamp=TIME_MS, step_ms=1000), Codec.GZIP)
    assert append_batch(log.core, late)[1::5] == (ErrorCode.INVALID_TIMESTAMP, 2)
    assert append_batch(log.core, make_batch(3, timestamp=TIME_MS - 1000, step_ms=1000))[1] == 0
    assert append_batch(log.core, make_batch(1, timestamp=-1))[1] == 0, "no timestamp is no lie about time"


def test_compacted_topic_requires_keys(tmp_path: Path) -> None:
    log = LogHarness(tmp_path, cleanup_policy="compact", record_validation="header").open()
    assert append_batch(log.core, make_batch(3, key=None))[1::5] == (ErrorCode.INVALID_RECORD, 0)
    assert append_batch(log.core, compressed(make_batch(3, key=None), Codec.SNAPPY))[1::5] == (
        ErrorCode.INVALID_RECORD,
        0,
    )
    assert append_batch(log.core, make_batch(3, key=b""))[1] == 0


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compressed_batches_are_kept_as_they_came(tmp_path: Path, codec: Codec) -> None:
    log = LogHarness(tmp_path).open()
    batch = compressed(make_batch(50, value_size=100), codec)
    model = PlainLog()
    model.append(log.append(batch).base_offset, batch)
    assert read_all(log) == model.batches


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_topic_codec_is_applied(tmp_path: Path, name: str) -> None:
    from kafkalite.wire.record.batches import decode

    log = LogHarness(tmp_path, compression_type=name).open()
    plain = make_batch(20, value_size=50, step_ms=3)
    for batch in (plain, compressed(plain, Codec.ZSTD), compressed(plain, Codec.GZIP)):
        base_offset = log.append(batch).base_offset
        stored = log.read(base_offset, 1)
        wanted = 0 if name == "uncompressed" else Codec.named(name)
        assert struct.unpack_from(">h", stored, 21)[0] & 7 == wanted
        records = list(decode(stored).records())
        assert [record.offset for record in records] == list(range(base_offset, base_offset + 20))
        assert [record.timestamp for record in records] == [TIME_MS + 3 * i for i in range(20)]


def test_bomb_is_refused(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    harness.services.decompressed_size_max = 100_000
    log = harness.open()
    assert (
        append_batch(log.core, compressed(make_batch(1, value=bytes(200_000)), Codec.ZSTD))[1]
        == ErrorCode.INVALID_RECORD
    )
    assert append_batch(log.core, compressed(make_batch(1, value=bytes(90_000)), Codec.ZSTD))[1] == 0


def test_settings_hold_from_the_next_append_on(tmp_path: Path) -> None:
    from tests.kit.harness.log_harness import topic_config

    log = LogHarness(tmp_path).open()
    large = make_batch(1, value_size=5000)
    log.append(large)
    log.configure(topic_config({"max_message_bytes": 1000}))
    assert append_batch(log.core, large)[1] == ErrorCode.MESSAGE_TOO_LARGE
    log.configure(topic_config({}))
    assert append_batch(log.core, large)[1] == 0


def test_offline_and_deleted_logs_say_so(tmp_path: Path) -> None:
    log = LogHarness(tmp_path).open()
    log.append(GOOD)
    log.go_offline("a test says so")
    assert append_batch(log.core, GOOD)[1] == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.core.read_copy(0, 10)[1] == ErrorCode.KAFKA_STORAGE_ERROR
    log.mark_deleted()
    assert append_batch(log.core, GOOD)[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert log.core.read_copy(0, 10)[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
