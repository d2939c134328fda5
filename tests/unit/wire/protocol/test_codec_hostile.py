"""The codec against bytes that are not a message: a value or our error, and memory bounded by what was sent."""

import concurrent.futures
import multiprocessing
import random
import tracemalloc

import pytest

from kafkalite.wire import protocol
from kafkalite.wire.protocol import DecodeError, EncodeError, api
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsResponse
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.kit.harness.named_case import named_case
from tests.kit.harness.random_messages import EVERY_MESSAGE, REQUEST, MessageMaker, message_id, program

FLIP_SEED = 20261121
FLIPS = 60
COUNTS = (0x7FFFFFFF, 0x7FFFFFFE, 0x01000000, 65536)


def decoded_or_refused(case, data):
    """The invariant of a decoder. Returns the message, or None when it was refused."""
    try:
        return program(*case).decode(data)
    except DecodeError:
        return None


def test_frame_cut_at_each_byte_is_refused():
    for case in EVERY_MESSAGE:
        with named_case(message_id(case)):
            for seed in range(3):
                whole = program(*case).encode(MessageMaker(seed, items_max=2).make(*case))
                for size in range(len(whole)):
                    assert decoded_or_refused(case, whole[:size]) is None, f"seed {seed}, {size} of {len(whole)} bytes"


def test_bytes_after_the_last_field_are_refused():
    for case in EVERY_MESSAGE:
        with named_case(message_id(case)):
            whole = program(*case).encode(MessageMaker(0).make(*case))
            with pytest.raises(DecodeError, match="after the last field"):
                program(*case).decode(whole + b"\0")


def test_all_topics_as_librdkafka_2_16_asks_for_them():
    """Its null array takes four bytes in place of one; Kafka reads what it expects and ignores the rest."""
    request = protocol.decode_request(api.METADATA, 13, bytes.fromhex("00000000 01 00 00"))
    assert request == MetadataRequest(topics=None, allow_auto_topic_creation=False)


def test_flipped_bytes_give_a_message_or_our_error():
    for case in EVERY_MESSAGE:
        with named_case(message_id(case)):
            rng = random.Random(FLIP_SEED)
            whole = program(*case).encode(MessageMaker(FLIP_SEED).make(*case))
            for _ in range(FLIPS if whole else 0):
                data = bytearray(whole)
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                message = decoded_or_refused(case, data)
                if message is not None:
                    assert decoded_or_refused(case, program(*case).encode(message)) is not None


def memory_for_hostile_counts(number: int) -> int:
    """The most bytes that decoding one of EVERY_MESSAGE took, with lies at each place; tracemalloc traces already."""
    case = EVERY_MESSAGE[number]
    whole = program(*case).encode(MessageMaker(5, items_max=1).make(*case))
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    for position in range(len(whole)):
        for count in COUNTS:
            decoded_or_refused(case, whole[:position] + count.to_bytes(4, "big") + whole[position + 4 :])
            decoded_or_refused(case, whole[:position] + b"\xff\xff\xff\xff\x0f" + whole[position + 1 :])
    return tracemalloc.get_traced_memory()[1] - before


@pytest.fixture(scope="module")
def traced_process():
    """One thread, traced all its life: starting and stopping that beside other threads may crash (gh-128679)."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn, initializer=tracemalloc.start) as pool:
        yield pool


def test_hostile_counts_allocate_nothing_for_the_claim(traced_process):
    """Every place of a frame takes a huge int32 and a huge varint in turn: some of them are counts and lengths."""
    for number, case in enumerate(EVERY_MESSAGE):
        with named_case(message_id(case)):
            assert traced_process.submit(memory_for_hostile_counts, number).result() < 1_000_000


def test_unknown_tags_are_skipped():
    """A newer peer adds tagged fields to versions that exist: the last byte of a frame without tags is the count 0."""
    for case in [case for case in EVERY_MESSAGE if program(*case).flexible]:
        with named_case(message_id(case)):
            message = MessageMaker(3).make(*case)
            for row in type(message).FIELDS:
                if len(row) > 4 and row[4]:
                    setattr(message, row[0], getattr(type(message)(), row[0]))
            whole = program(*case).encode(message)
            assert whole[-1] == 0
            tagged = whole[:-1] + bytes.fromhex("02 50 03 aabbcc ffffffff0f 00")
            assert program(*case).decode(tagged) == message


def list_offsets(count):
    partitions = [ListOffsetsPartition(partition_index=index) for index in range(count)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])


def test_total_of_items_is_bounded():
    data = protocol.encode_request(api.LIST_OFFSETS, 7, list_offsets(1000))
    assert len(protocol.decode_request(api.LIST_OFFSETS, 7, data, objects_max=1002).topics[0].partitions) == 1000
    with pytest.raises(DecodeError, match="too many items"):
        protocol.decode_request(api.LIST_OFFSETS, 7, data, objects_max=1001)


def test_items_are_counted_over_all_arrays():
    topics = [CreatableTopic(name="t", assignments=[]) for _ in range(100)]
    data = protocol.encode_request(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics))
    with pytest.raises(DecodeError, match="too many items"):
        protocol.decode_request(api.CREATE_TOPICS, 7, data, objects_max=50)


@pytest.mark.parametrize(
    ("version", "data", "reason"),
    [
        pytest.param(9, "02 03 ff 61 00 00 00 00 00", "UTF-8", id="invalid-utf8"),
        pytest.param(9, "02 00 00 01 00 00 00", "not allowed by the schema", id="null-name-before-v10"),
        pytest.param(9, "02 8180 8080 10 00", "varint", id="overlong-varint"),
        pytest.param(1, "fffffffe", "negative", id="negative-count"),
        pytest.param(0, "ffffffff", "not allowed by the schema", id="null-array-in-v0"),
        pytest.param(1, "00000001 fffe", "negative", id="negative-length"),
        pytest.param(9, "02 8180 02" + "61" * 32768, "not allowed by the schema", id="compact-string-beyond-int16"),
        pytest.param(9, "01 00 00 00 01 05 7f", "truncated", id="tag-longer-than-the-frame"),
    ],
)
def test_refusal_says_why(version, data, reason):
    with pytest.raises(DecodeError, match=f"MetadataRequest v{version}.*{reason}"):
        protocol.decode_request(api.METADATA, version, bytes.fromhex(data))


def test_known_tag_must_be_filled_exactly():
    with pytest.raises(DecodeError, match=r"finalized_features_epoch.*after"):
        protocol.decode_response(api.API_VERSIONS, 3, bytes.fromhex("0000 01 00000000 01 01 09" + "00" * 9))
    with pytest.raises(DecodeError, match=r"finalized_features_epoch.*truncated"):
        protocol.decode_response(api.API_VERSIONS, 3, bytes.fromhex("0000 01 00000000 01 01 07" + "00" * 7))


def test_same_tag_twice_keeps_the_last():
    data = bytes.fromhex("0000 01 00000000 02 01 08" + "00" * 7 + "01" + "01 08" + "00" * 7 + "02")
    assert protocol.decode_response(api.API_VERSIONS, 3, data).finalized_features_epoch == 2


def test_decoding_leaks_nothing():
    case = (api.METADATA, 12, REQUEST)
    whole = program(*case).encode(MetadataRequest(topics=[MetadataRequestTopic(name="x" * 100) for _ in range(50)]))
    decoded_or_refused(case, whole)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for size in range(0, len(whole), 7):
            decoded_or_refused(case, whole[:size])
            decoded_or_refused(case, whole)
        assert tracemalloc.get_traced_memory()[0] - before < 20_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        pytest.param(MetadataResponse(controller_id=1 << 31), "controller_id: 2147483648 is out of range", id="int32"),
        pytest.param(MetadataResponse(throttle_time_ms=1 << 80), "throttle_time_ms.*not a number", id="huge"),
        pytest.param(MetadataResponse(controller_id="1"), "controller_id.*not a number", id="text-for-number"),
        pytest.param(MetadataResponse(cluster_id=b"c"), "cluster_id.*not a string", id="bytes-for-text"),
        pytest.param(MetadataResponse(cluster_id="x" * 32768), "cluster_id.*too long", id="long-text"),
        pytest.param(MetadataResponse(cluster_id="\ud800"), "cluster_id.*surrogates", id="surrogate"),
        pytest.param(MetadataResponse(brokers=None), "brokers: null is not allowed", id="null-array"),
        pytest.param(MetadataResponse(brokers={}), "brokers.*list or tuple", id="not-a-list"),
        pytest.param(MetadataResponse(brokers=[1]), "MetadataResponseBroker expected", id="wrong-item"),
        pytest.param(MetadataResponse(topics=[MetadataResponseTopic(topic_id=b"short")]), "16 bytes", id="short-uuid"),
        pytest.param(MetadataRequest(), "MetadataResponse expected", id="wrong-message"),
    ],
)
def test_what_cannot_be_written_is_named(message, reason):
    with pytest.raises(EncodeError, match=reason):
        protocol.encode_response(api.METADATA, 12, message)


def test_request_that_a_version_cannot_carry_is_refused():
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    with pytest.raises(EncodeError, match="allow_auto_topic_creation: this version of the message has no such field"):
        protocol.encode_request(api.METADATA, 3, request)
    assert protocol.encode_request(api.METADATA, 4, request)


def test_response_fields_that_a_version_lacks_are_dropped():
    message = MetadataResponse(controller_id=1, cluster_id="c", throttle_time_ms=5)
    assert protocol.encode_response(api.METADATA, 0, message) == bytes(8)


def test_unset_attribute_is_named():
    message = ApiVersionsResponse()
    del message.api_keys
    with pytest.raises(EncodeError, match="api_keys: not set"):
        protocol.encode_response(api.API_VERSIONS, 0, message)


def test_records_can_be_views():
    message = MessageMaker(1).make(api.FETCH, 11, "response")
    data = protocol.encode_response(api.FETCH, 11, message)
    viewed = protocol.decode_response(api.FETCH, 11, data, views=True)
    records = [partition.records for topic in viewed.responses for partition in topic.partitions]
    assert any(isinstance(item, memoryview) for item in records)
    assert viewed == message


def test_an_unknown_api_or_version_has_its_own_error():
    for key, version in ((api.METADATA, 99), (api.METADATA, -1), (9999, 0)):
        with pytest.raises(protocol.UnknownMessageError):
            protocol.decode_request(key, version, b"")
