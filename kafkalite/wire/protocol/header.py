"""Encode and decode the headers of requests and responses, and choose their versions.

    request  v1   api_key i16 · api_version i16 · correlation_id i32 · client_id nullable string (int16 length)
             v2   v1, then a tag buffer, in flexible API versions
    response v0   correlation_id i32
             v1   v0, then a tag buffer, in flexible API versions, except for ApiVersions

A response to ApiVersions always has header v0, because the client does not know the broker's versions yet (KIP-511).

The broker itself decodes request headers in native code (`_native.serve.connection`), and then finds the body with
`request_body`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from kafkalite._native.wire.codec import DecodeError, EncodeError, tags_size
from kafkalite.wire.protocol.api import API_VERSIONS, APIS

_REQUEST: Final = struct.Struct(">hhih")
_CORRELATION_ID: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\0"
_STRING_SIZE_MAX: Final = 0x7FFF
_UVARINT_SIZE_MAX: Final = 5


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    """Position of the body in the bytes that the header was read from."""


def request_header_version(api_key: int, api_version: int) -> int:
    api = APIS.get(api_key)
    return 2 if api is not None and api.is_flexible(api_version) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    api = APIS.get(api_key)
    return 1 if api is not None and api_key != API_VERSIONS and api.is_flexible(api_version) else 0


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    name = b"" if client_id is None else client_id.encode()
    if len(name) > _STRING_SIZE_MAX:
        raise EncodeError(f"client id of {len(name)} bytes; at most {_STRING_SIZE_MAX} are allowed")
    head = _REQUEST.pack(api_key, api_version, correlation_id, -1 if client_id is None else len(name))
    return head + name + _NO_TAGS * (request_header_version(api_key, api_version) == 2)


def decode_request_header(data: bytes | bytearray | memoryview) -> RequestHeader:
    """Decode the header of a request. `data` begins after the length of the request. DecodeError if it is invalid."""
    view = memoryview(data)
    if len(view) < _REQUEST.size:
        raise DecodeError(f"request header: {_REQUEST.size} bytes needed, {len(view)} left", 0)
    api_key, api_version, correlation_id, size = _REQUEST.unpack_from(view)
    position = _REQUEST.size + max(size, 0)
    if size < -1 or position > len(view):
        raise DecodeError(f"request header: client id of {size} bytes, {len(view) - _REQUEST.size} left", 8)
    try:
        client_id = None if size == -1 else str(view[_REQUEST.size : position], "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("request header: client id is not UTF-8", _REQUEST.size) from error
    if request_header_version(api_key, api_version) == 2:
        position = _skip_tags(view, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def request_body(api_key: int, api_version: int, data: bytes) -> bytes | memoryview:
    """Return the body of a request. `data` begins after the client id in its header.

    Skips the tag buffer that the header has in flexible API versions.
    """
    api = APIS.get(api_key)
    if api is None or not api.is_flexible(api_version):
        return data
    return memoryview(data)[tags_size(data) :]


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    return _CORRELATION_ID.pack(correlation_id) + _NO_TAGS * response_header_version(api_key, api_version)


def decode_response_header(api_key: int, api_version: int, data: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Decode the header of a response. Return the correlation id and the position of the body."""
    view = memoryview(data)
    if len(view) < _CORRELATION_ID.size:
        raise DecodeError(f"response header: {_CORRELATION_ID.size} bytes needed, {len(view)} left", 0)
    position = _CORRELATION_ID.size
    if response_header_version(api_key, api_version) == 1:
        position = _skip_tags(view, position)
    return _CORRELATION_ID.unpack_from(view)[0], position


def _skip_tags(view: memoryview, position: int) -> int:
    count, position = _read_uvarint(view, position)
    for _ in range(count):
        _, position = _read_uvarint(view, position)
        size, position = _read_uvarint(view, position)
        if size > len(view) - position:
            raise DecodeError(f"header tag of {size} bytes, {len(view) - position} left", position)
        position += size
    return position


def _read_uvarint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_UVARINT_SIZE_MAX):
        if position + index >= len(view):
            raise DecodeError("header: truncated varint", position)
        byte = view[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position + index + 1
    raise DecodeError("header: varint longer than 5 bytes", position)
