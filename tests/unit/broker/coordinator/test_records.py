"""Records of `__consumer_offsets` byte by byte, and unknown records that may be found there."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite._native.wire.codec import CodecError
from kafkalite.broker.coordinator import consumer_records, records
from kafkalite.broker.coordinator.consumer_replay import ConsumerReplay
from kafkalite.broker.coordinator.members import subscribed_topics
from kafkalite.broker.coordinator.state_log import java_hash, partition_of
from kafkalite.model import ZERO_UUID

TOPIC_ID = bytes(range(16))


def test_offset_record_is_kafkas_byte_for_byte():
    value = records.OffsetCommitValue(
        offset=258, leader_epoch=3, metadata="m", commit_timestamp=0x0102030405060708, topic_id=TOPIC_ID
    )
    key, data = records.offset_record("grp", "top", 5, value)
    assert key == b"\x00\x01\x00\x03grp\x00\x03top\x00\x00\x00\x05"
    assert data == (
        b"\x00\x04"  # version
        b"\x00\x00\x00\x00\x00\x00\x01\x02"  # offset
        b"\x00\x00\x00\x03"  # leader epoch
        b"\x02m"  # metadata, compact
        b"\x01\x02\x03\x04\x05\x06\x07\x08"  # commit timestamp
        b"\x01\x00\x10" + TOPIC_ID  # one tag: number 0, 16 bytes
    )
    assert records.read_offset(data) == value


def test_offset_with_a_time_to_expire_is_version_1():
    value = records.OffsetCommitValue(offset=1, metadata="", commit_timestamp=2, expire_timestamp=3)
    _, data = records.offset_record("g", "t", 0, value)
    assert data == b"\x00\x01" + struct.pack(">q", 1) + b"\x00\x00" + struct.pack(">qq", 2, 3)
    assert records.read_offset(data).expire_timestamp == 3


def test_older_values_are_read():
    version_0 = b"\x00\x00" + struct.pack(">q", 7) + b"\x00\x01x" + struct.pack(">q", 9)
    assert records.read_offset(version_0) == records.OffsetCommitValue(offset=7, metadata="x", commit_timestamp=9)
    version_3 = b"\x00\x03" + struct.pack(">qi", 7, 4) + b"\x00\x00" + struct.pack(">q", 9)
    assert records.read_offset(version_3).leader_epoch == 4
    assert records.read_offset(version_3).topic_id == ZERO_UUID


def test_group_record_is_kafkas_byte_for_byte():
    member = records.MemberMetadata(
        member_id="m", group_instance_id="i", client_id="c", client_host="/h", rebalance_timeout=2, session_timeout=1,
        subscription=b"sub", assignment=b"as",
    )  # fmt: skip
    value = records.GroupMetadataValue(
        protocol_type="consumer",
        generation=6,
        protocol="range",
        leader="m",
        current_state_timestamp=8,
        members=[member],
    )
    key, data = records.group_record("grp", value)
    assert key == b"\x00\x02\x00\x03grp"
    assert data == (
        b"\x00\x03\x00\x08consumer\x00\x00\x00\x06\x00\x05range\x00\x01m" + struct.pack(">q", 8) + b"\x00\x00\x00\x01"
        b"\x00\x01m\x00\x01i\x00\x01c\x00\x02/h\x00\x00\x00\x02\x00\x00\x00\x01"
        b"\x00\x00\x00\x03sub\x00\x00\x00\x02as"
    )
    assert records.read_group(data) == value
    assert records.group_record("grp", None) == (key, None)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    for read in (records.read_key, records.read_offset, records.read_group):
        with contextlib.suppress(CodecError):
            read(data)


def test_keys_of_the_newer_protocol_are_left_alone():
    assert records.read_key(b"\x00\x03\x00\x01g") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("group", 98629247), ("polygenelubricants", -(1 << 31)), ("😀", 1772899)],
)
def test_java_hash(text, value):
    assert java_hash(text) == value


def _reference(text):
    value = 0
    for unit in struct.unpack(f">{len(text.encode('utf-16-be')) // 2}H", text.encode("utf-16-be")):
        value = (value * 31 + unit) % (1 << 32)
    return value - (1 << 32) if value >= 1 << 31 else value


CLASSIC = consumer_records.ClassicMemberMetadata(
    session_timeout_ms=9, supported_protocols=[consumer_records.ClassicProtocol(name="r", metadata=b"m")]
)
MEMBER = b"\x00\x00" + b"\x00\x00\x02c\x02h\x01\x01\xff\xff\xff\xff\x00"


@pytest.mark.parametrize(
    ("classic", "tag"),
    [(None, b"\x01\x00"), (CLASSIC, b"\x0c\x01\x00\x00\x00\x09\x02\x02r\x02m\x00\x00")],
    ids=["newer", "classic"],
)
def test_member_says_in_a_tag_which_protocol_it_speaks_as_kafka_writes_it(classic, tag):
    value = consumer_records.MemberValue(
        client_id="c", client_host="h", subscribed_topic_regex="", classic_member_metadata=classic
    )
    _, data = consumer_records.record("g", "m", value)
    assert data == MEMBER + b"\x01\x00" + tag
    assert consumer_records.read_value(consumer_records.MEMBER, data) == value


def test_member_that_says_nothing_of_its_protocol_speaks_the_newer_one():
    key, _ = consumer_records.record("g", "m", consumer_records.MemberValue())
    replay = ConsumerReplay()
    replay.take(consumer_records.MEMBER, key, MEMBER + b"\x00")
    member = replay.finish()["g"].members["m"]
    assert (member.client_id, member.classic) == ("c", None)


def test_partition_of_a_group_is_never_negative():
    assert partition_of("polygenelubricants", 50) == 0  # Java's abs of the smallest int, which Kafka takes for 0
    assert partition_of("console-consumer", 50) == abs(_reference("console-consumer")) % 50
    assert all(0 <= partition_of(f"group-{number}", 50) < 50 for number in range(1000))


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (b"\x00\x01\x00\x00\x00\x02\x00\x01a\x00\x02bc\xff\xff\xff\xff", {"a", "bc"}),
        (b"\x00\x00\x00\x00\x00\x00", set()),
        (b"", None),
        (b"\x00\x01\x7f\xff\xff\xff\x00\x01a", None),
        (b"\x00\x01\xff\xff\xff\xff", None),
        (b"\x00\x01\x00\x00\x00\x01\x00\x09a", None),
        (b"\x00\x01\x00\x00\x00\x01\x00\x01\xff", None),
    ],
)
def test_subscribed_topics(metadata, topics):
    assert subscribed_topics(metadata) == topics
