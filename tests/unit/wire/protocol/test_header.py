"""Request and response headers: versions, limits, and every way a header can be broken."""

import pytest

from kafkalite.wire.protocol import DecodeError, EncodeError, api
from kafkalite.wire.protocol.header import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_body,
    request_header_version,
    response_header_version,
)


@pytest.mark.parametrize("client_id", [None, "", "kcat", "żółć", "x" * 32767])
@pytest.mark.parametrize(("key", "version"), [(api.METADATA, 8), (api.METADATA, 9), (api.API_VERSIONS, 3)])
def test_request_header_round_trip(key, version, client_id):
    data = encode_request_header(key, version, -5, client_id)
    header = decode_request_header(data + b"body")
    assert header == (key, version, -5, client_id, len(data))


@pytest.mark.parametrize(
    ("key", "version", "request_version", "response_version"),
    [
        pytest.param(api.API_VERSIONS, 2, 1, 0, id="api-versions-plain"),
        pytest.param(api.API_VERSIONS, 3, 2, 0, id="api-versions-flexible"),
        pytest.param(api.METADATA, 8, 1, 0, id="plain"),
        pytest.param(api.METADATA, 9, 2, 1, id="flexible"),
        pytest.param(api.SASL_HANDSHAKE, 1, 1, 0, id="never-flexible"),
        pytest.param(12345, 1, 1, 0, id="unknown-key"),
    ],
)
def test_header_versions(key, version, request_version, response_version):
    assert request_header_version(key, version) == request_version
    assert response_header_version(key, version) == response_version


def test_request_header_cut_at_each_byte_is_refused():
    data = encode_request_header(api.METADATA, 12, 1, "client")
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            decode_request_header(data[:size])


def test_request_header_with_each_bit_flipped_is_read_or_refused():
    data = encode_request_header(api.METADATA, 12, 1, "client")
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            try:
                decode_request_header(flipped)
            except DecodeError:
                continue


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param("0003 0001 00000001 fffe", "client id of -2 bytes", id="negative-client-id"),
        pytest.param("0003 0001 00000001 0001 ff", "UTF-8", id="client-id-not-utf8"),
        pytest.param("0003 000c 00000001 ffff ffffffffff", "longer than", id="overlong-tag-count"),
        pytest.param("0003 000c 00000001 ffff ffffffff7f", "longer than", id="tag-count-beyond-32-bits"),
        pytest.param("0003 000c 00000001 ffff 01 00 05 00", "header tag of 5 bytes", id="long-tag"),
        pytest.param("0003 000c 00000001 ffff ffffffff0f", "truncated", id="more-tags-than-bytes"),
    ],
)
def test_broken_request_header_says_why(data, reason):
    with pytest.raises(DecodeError, match=reason):
        decode_request_header(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("tags", "size"),
    [("00", 1), ("01 00 00", 3), ("02 05 01 ff 07 02 0102", 8), ("80 01" + "0000" * 128, 258)],
    ids=["none", "empty", "two", "many"],
)
def test_the_body_begins_behind_the_headers_tags(tags, size):
    data = bytes.fromhex(tags) + b"body"
    assert request_body(api.METADATA, 12, data) == b"body"
    assert request_body(api.METADATA, 0, data) == data, "this version has none"
    assert len(data) == size + 4


@pytest.mark.parametrize("tags", ["", "01", "01 00", "01 00 05 01", "ffffffff7f", "ffffffff0f"])
def test_header_tags_that_do_not_follow_their_schema(tags):
    with pytest.raises(DecodeError, match="header tags"):
        request_body(api.METADATA, 12, bytes.fromhex(tags))


def test_unknown_header_tags_are_skipped():
    data = bytes.fromhex("0003 000c 00000001 ffff 02 05 02 aabb 06 00")
    assert decode_request_header(data + b"body").body_position == len(data)


@pytest.mark.parametrize(("key", "version"), [(api.METADATA, 8), (api.METADATA, 9), (api.API_VERSIONS, 3)])
def test_response_header_round_trip(key, version):
    data = encode_response_header(key, version, 77)
    assert decode_response_header(key, version, data + b"body") == (77, len(data))
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            decode_response_header(key, version, data[:size])


def test_client_id_beyond_int16_is_refused():
    with pytest.raises(EncodeError, match="client id of 32768 bytes"):
        encode_request_header(api.METADATA, 1, 1, "x" * 32768)
