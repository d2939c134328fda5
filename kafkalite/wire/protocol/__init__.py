"""Encode and decode Kafka's requests and responses.

    kafkalite.wire.protocol.messages.<api>   one module per API: generated data classes with tables of their fields
    kafkalite._native.wire.codec             compiles a table into a Program, which decodes and encodes one version
    kafkalite.wire.protocol.header           request and response headers
    this module                              compiles and caches the Program of each (API key, version, direction)

One message class serves all versions of a message. If a version lacks a field, decoding sets the field's default.
Encoding omits the field, or raises EncodeError if a request needs it.

Pure: no I/O, no clock.

Thread rule: any thread.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafkalite._native.wire.codec import OBJECTS_MAX, CodecError, DecodeError, EncodeError, Program
from kafkalite.wire.protocol import header
from kafkalite.wire.protocol.api import APIS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "OBJECTS_MAX",
    "CodecError",
    "DecodeError",
    "EncodeError",
    "UnknownMessageError",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_request_frame",
    "encode_response",
    "encode_response_frame",
    "request_program",
    "response_program",
]

Buffer = bytes | bytearray | memoryview

_requests: dict[tuple[int, int], Program] = {}
_responses: dict[tuple[int, int], Program] = {}


class UnknownMessageError(CodecError):
    """An API key and version without a schema."""


def request_program(api_key: int, version: int) -> Program:
    program = _requests.get((api_key, version))
    if program is None:
        program = _requests[api_key, version] = _compile(api_key, version, "Request", strict=True)
    return program


def response_program(api_key: int, version: int) -> Program:
    program = _responses.get((api_key, version))
    if program is None:
        program = _responses[api_key, version] = _compile(api_key, version, "Response", strict=False)
    return program


def _compile(api_key: int, version: int, direction: str, *, strict: bool) -> Program:
    api = APIS.get(api_key)
    if api is None or not api.oldest <= version <= api.newest:
        raise UnknownMessageError(f"no schema for API key {api_key} version {version}")
    namespace = vars(import_module(f"kafkalite.wire.protocol.messages.{api.module}"))
    return Program(namespace[api.name + direction], version, api.is_flexible(version), namespace, strict)


def decode_request(
    api_key: int,
    version: int,
    data: Buffer,
    *,
    objects_max: int = OBJECTS_MAX,
    pace: Callable[[], object] | None = None,
) -> Any:
    """Decode the body of a request, without its header. DecodeError if it is invalid.

    `objects_max` limits the total number of structs and array items, because a request can claim any array length.

    Trailing bytes are ignored, as in Kafka. librdkafka 2.16 sends three of them: to request all topics in Metadata v13,
    it writes a null array of four bytes instead of one.
    """
    return request_program(api_key, version).decode(data, objects_max=objects_max, exact=False, pace=pace)


def decode_response(
    api_key: int, version: int, data: Buffer, *, objects_max: int = 50 * OBJECTS_MAX, views: bool = False
) -> Any:
    """Decode the body of a response. DecodeError if it is invalid.

    `views`: return records as memoryviews into `data` instead of copies. `objects_max` limits the total number of
    structs and array items. It is larger than for requests, because Metadata may list millions of partitions.
    """
    return response_program(api_key, version).decode(data, objects_max=objects_max, views=views)


def encode_request(api_key: int, version: int, message: object) -> bytes:
    """Encode the body of a request. EncodeError if the version lacks a field that the message needs."""
    return request_program(api_key, version).encode(message)


def encode_response(api_key: int, version: int, message: object) -> bytes:
    """Encode the body of a response. Fields that the version lacks are omitted."""
    return response_program(api_key, version).encode(message)


def encode_request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: object
) -> bytes:
    """Encode a complete request: its length, its header and its body."""
    program = request_program(api_key, version)
    return program.encode_frame(message, header.encode_request_header(api_key, version, correlation_id, client_id))


def encode_response_frame(
    api_key: int, version: int, correlation_id: int, message: object, pace: Callable[[int], object] | None = None
) -> bytes:
    """Encode a complete response: its length, its header and its body. `pace` is passed to `Program.encode_frame`."""
    program = response_program(api_key, version)
    return program.encode_frame(message, header.encode_response_header(api_key, version, correlation_id), pace)
