"""Bytes to messages and back: no I/O, no clock, no thread of its own.

    kafkalite.wire.protocol.messages.<api>   one module per API: generated dataclasses with field tables
    kafkalite._native.wire.codec        compiles a table into a Program, which reads and writes
    kafkalite.wire.protocol.header           request and response headers
    here                                finds the Program of (API key, version, direction), making it when first asked

A message class covers all versions of its message: fields that a version lacks have their default after decoding and
are left out when encoding (an EncodeError, for requests, if that would change their meaning).

Threads: any. Two that meet at the first use both compile; one result stays.
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
    """No message is known for this API key and version."""


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
    """The request whose body (without its header) is `data`; DecodeError if it is not one.

    Bytes after it are ignored, as Kafka does: librdkafka 2.16 asks for all topics in Metadata v13 with a null array of
    four bytes in place of one, so that three are left over.

    `objects_max` bounds structs and array items together, whatever the peer claims.
    """
    return request_program(api_key, version).decode(data, objects_max=objects_max, exact=False, pace=pace)


def decode_response(
    api_key: int, version: int, data: Buffer, *, objects_max: int = 50 * OBJECTS_MAX, views: bool = False
) -> Any:
    """The response in `data`; with `views`, records are memoryviews into it rather than copies.

    A broker that was chosen is trusted further than a client that came: its Metadata may name millions of partitions.
    """
    return response_program(api_key, version).decode(data, objects_max=objects_max, views=views)


def encode_request(api_key: int, version: int, message: object) -> bytes:
    """The body only. EncodeError if the version cannot carry what the message says."""
    return request_program(api_key, version).encode(message)


def encode_response(api_key: int, version: int, message: object) -> bytes:
    """The body only; fields that the version lacks are dropped."""
    return response_program(api_key, version).encode(message)


def encode_request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: object
) -> bytes:
    """Length, header and body in one piece."""
    program = request_program(api_key, version)
    return program.encode_frame(message, header.encode_request_header(api_key, version, correlation_id, client_id))


def encode_response_frame(
    api_key: int, version: int, correlation_id: int, message: object, pace: Callable[[int], object] | None = None
) -> bytes:
    """Length, header and body in one piece; `pace` as in `Program.encode_frame`."""
    program = response_program(api_key, version)
    return program.encode_frame(message, header.encode_response_header(api_key, version, correlation_id), pace)
