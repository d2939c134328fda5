"""Forward clients' requests to the controller in Envelopes (KIP-590), and send the broker's own requests (`ask`).

    forward(request) ─▶ queue ─▶ kafkalite-forwarder ─▶ Envelope to the quorum's leader ─▶ Deferred

One request is in flight at a time, on the forwarder's own connection. If the leader changes, the request is sent again
to the new leader. The controller decides whether the client's request is allowed.

Source: ForwardingManager and NodeToControllerChannelManager of Kafka 4.1. Any thread may call `forward` and
`ask`.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.deferred import Deferred, completed
from kafkalite.base.logging import RepeatLogger, fields
from kafkalite.broker.cluster.connection import ConnectionFailed, ControllerConnection, NotServed
from kafkalite.broker.cluster.lifecycle import LOOK_AGAIN_S
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.envelope import EnvelopeRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.base.clock import Clock
    from kafkalite.base.executors import Executors
    from kafkalite.broker.cluster.quorum import Address

logger = RepeatLogger(logging.getLogger("kafkalite.broker.cluster"))

RETRY_S_MAX: Final = 60.0
"""Maximum time in seconds for which a request waits for a controller."""
REQUEST_TIMEOUT_S: Final = 30.0
WAITING_BYTES_MAX: Final = 64 << 20
"""The most bytes of waiting requests; a further request fails at once with REQUEST_TIMED_OUT, so that its client
retries."""
_PRINCIPAL_VERSION: Final = b"\0\0"
_CORRELATION_ID_SIZE: Final = 4


class Outcome(NamedTuple):
    """The result of a forwarded request: the controller's `answer` (header and body), or None and an error code."""

    answer: bytes | None
    code: ErrorCode = ErrorCode.NONE


class _Waiting(NamedTuple):
    key: int
    message: object
    size: int
    give_up_at: float
    ended: Callable[[Any], object]
    """Called with the controller's response, or with an ErrorCode if no response came."""


class Forwarder:
    """Sends requests to the controller, one at a time.

    `leader` returns the address of the quorum's leader. `open_to` returns a connection to an address; it reuses the
    given connection if that has this address.
    """

    def __init__(
        self,
        leader: Callable[[], Address | None],
        open_to: Callable[[ControllerConnection | None, Address], ControllerConnection],
        clock: Clock,
        executors: Executors,
        name: str = "kafkalite-forwarder",
    ) -> None:
        self._leader = leader
        self._open_to = open_to
        self._clock = clock
        self._worker = executors.worker(name, self._turn)
        self._waiting: deque[_Waiting] = deque()  # guarded by the worker's lock, as the next two
        self._waiting_bytes = 0
        self._stopping = False
        self._connection: ControllerConnection | None = None

    def start(self) -> None:
        """Start sending. Requests that were queued before are sent first."""
        self._worker.start()

    def forward(self, request: bytes, principal: str, host: str) -> Deferred[Outcome]:
        """Forward a client's whole request, header and body. `principal` has the form `User:name`."""
        envelope = EnvelopeRequest(
            request_data=request, request_principal=encode_principal(principal), client_host_address=packed(host)
        )
        outcome: Deferred[Outcome] = Deferred()
        if not self._enqueue(api.ENVELOPE, envelope, len(request), lambda found: outcome.complete(_outcome(found))):
            return completed(Outcome(None, ErrorCode.REQUEST_TIMED_OUT))
        return outcome

    def ask(self, key: int, message: object) -> Deferred[Any]:
        """Send one of the broker's own requests. The Deferred gets the controller's response, or None if there is
        none.

        A response with the top-level `error_code` NOT_CONTROLLER is dropped, and the request goes to the next leader.
        """
        answer: Deferred[Any] = Deferred()
        if not self._enqueue(key, message, 0, lambda found: answer.complete(_response(found))):
            return completed(None)
        return answer

    def _enqueue(self, key: int, message: object, size: int, ended: Callable[[Any], object]) -> bool:
        with self._worker.lock:
            full = self._waiting and self._waiting_bytes + size > WAITING_BYTES_MAX
            if full or self._stopping:
                return False
            give_up_at = self._clock.monotonic() + RETRY_S_MAX
            self._waiting.append(_Waiting(key, message, size, give_up_at, ended))
            self._waiting_bytes += size
            self._worker.call_locked()
        return True

    def stop(self) -> None:
        """Stop. Waiting requests fail with REQUEST_TIMED_OUT."""
        with self._worker.lock:
            self._stopping = True
        if self._connection is not None:
            self._connection.abort()
        self._worker.stop()
        if self._connection is not None:
            self._connection.close()
        while self._waiting:
            self._waiting.popleft().ended(ErrorCode.REQUEST_TIMED_OUT)

    def _turn(self) -> float | None:
        """Send the first waiting request; return the seconds until the next run."""
        with self._worker.lock:
            if self._stopping or not self._waiting:
                return None
            first = self._waiting[0]
        try:
            found = self._ask_leader(first.key, first.message)
        except Exception:
            logger.exception("could not forward a request to the controller")
            found = ErrorCode.UNKNOWN_SERVER_ERROR
        if found is None and self._clock.monotonic() < first.give_up_at:
            return LOOK_AGAIN_S
        with self._worker.lock:
            self._waiting.popleft()
            self._waiting_bytes -= first.size
        first.ended(ErrorCode.REQUEST_TIMED_OUT if found is None else found)
        return 0.0

    def _ask_leader(self, key: int, message: object) -> Any:
        """Return the leader's response, or the code of a final error.

        None if the leader is unknown or gave no answer, so that the caller has to try again.
        """
        leader = self._leader()
        if leader is None:
            return None
        try:
            connection = self._connection = self._open_to(self._connection, leader)
            version = connection.version(key)
            answer = connection.request(key, version, message, REQUEST_TIMEOUT_S)
        except NotServed as error:  # later requests do not wait for it
            logger.debug("%s", error)
            return ErrorCode.UNSUPPORTED_VERSION
        except ConnectionFailed as error:
            logger.debug("%s", error)
            return None
        if getattr(answer, "error_code", 0) == ErrorCode.NOT_CONTROLLER:  # CreateTopics has no top-level code
            connection.close()
            return None
        return answer


def _response(found: Any) -> Any:
    return None if isinstance(found, ErrorCode) else found


def _outcome(found: Any) -> Outcome:
    """Return the result of the forwarded request, from the response to its Envelope or from an error code."""
    if isinstance(found, ErrorCode):
        return Outcome(None, found)
    if found.error_code == ErrorCode.UNSUPPORTED_VERSION:
        return Outcome(None, ErrorCode.UNSUPPORTED_VERSION)
    if found.error_code or found.response_data is None or len(found.response_data) < _CORRELATION_ID_SIZE:
        code = fields(code=found.error_code)
        logger.warning("the controller refused a forwarded request", extra=code)
        return Outcome(None, ErrorCode.UNKNOWN_SERVER_ERROR)
    return Outcome(bytes(found.response_data))


def encode_principal(principal: str) -> bytes:
    """Encode a principal in version 0 of Kafka's DefaultPrincipalData, as not authenticated by a token."""
    kind, _, name = principal.partition(":")
    return _PRINCIPAL_VERSION + _compact(kind) + _compact(name) + b"\0\0"


def packed(host: str) -> bytes:
    """Encode an IP address as 4 or 16 bytes. An IPv4-mapped IPv6 address has 4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).packed


def _compact(text: str) -> bytes:
    data = text.encode()
    size, left = bytearray(), len(data) + 1
    while left >= 0x80:
        size.append(left & 0x7F | 0x80)
        left >>= 7
    size.append(left)
    return bytes(size) + data
