"""Forward requests to the cluster's controller, each unchanged (KIP-590).

The broker decodes a request before it forwards it, so a malformed request never reaches the controller. The client gets
the controller's response, with the client's correlation id. If there is no response, the client gets an error:

    REQUEST_TIMED_OUT      no controller was found in time, too many requests wait, or the broker stops
    UNSUPPORTED_VERSION    the controller does not serve Envelopes, or not this version of the request
    UNKNOWN_SERVER_ERROR   the controller did not accept the request from this broker, or the broker has failed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.broker.handlers.error_answers import error_answer
from kafkalite.broker.handlers.table import PARTITIONS_MAX, SHORT_SIZE, Row
from kafkalite.wire import protocol
from kafkalite.wire.protocol import header

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.cluster.forwarding import Outcome
    from kafkalite.broker.handlers.context import RequestContext


class Forwarded(NamedTuple):
    """A request to forward: the decoded message, and the bytes of its body."""

    message: Any
    body: bytes


class ControllerAnswer(NamedTuple):
    """The bytes of the controller's response: header and body."""

    data: bytes


class ForwardRow(Row):
    """The row of an API that is forwarded to the controller."""

    __slots__ = ()

    @property
    def gated(self) -> bool:
        return False  # the controller checks permissions

    def decode(
        self,
        version: int,
        body: bytes | bytearray | memoryview,
        partitions_max: int = PARTITIONS_MAX,
        pace: Callable[[], object] | None = None,
    ) -> Any:
        return Forwarded(super().decode(version, body, partitions_max, pace), bytes(body))

    def cost_us(self, context: RequestContext, request: Forwarded) -> float:
        return super().cost_us(context, request.message)

    def quick_cost_us(self, context: RequestContext, request: Forwarded, size: int) -> float:
        if size > SHORT_SIZE:
            return self.cost_us(context, request)
        return super().quick_cost_us(context, request.message, size)

    def message(self, version: int, response: object) -> object:
        if not isinstance(response, ControllerAnswer):
            return response
        _, position = header.decode_response_header(self.key, version, response.data)
        return protocol.decode_response(self.key, version, memoryview(response.data)[position:])

    def encode(
        self, version: int, correlation_id: int, response: object, pace: Callable[[int], object] | None = None
    ) -> bytes:
        if not isinstance(response, ControllerAnswer):
            return super().encode(version, correlation_id, response, pace)
        data = response.data
        return len(data).to_bytes(4, "big") + correlation_id.to_bytes(4, "big", signed=True) + data[4:]

    def release(self, version: int, request: Any, response: object, pace: Callable[[], object]) -> None:
        super().release(version, request.message, response, pace)


def handle(context: RequestContext, request: Forwarded) -> Deferred[Any]:
    member = context.broker.member
    assert member is not None, "served in a cluster alone"
    key, version = context.api_key, context.api_version
    head = header.encode_request_header(key, version, 0, context.client_id)

    def answer(outcome: Outcome) -> Any:
        if outcome.answer is not None:
            return ControllerAnswer(outcome.answer)
        return error_answer(key, version, request.message, outcome.code, outcome.code.text)

    return member.forward(head + request.body, context.principal, context.client_host).map(answer)
