"""Handle SaslHandshake 0-1 and SaslAuthenticate 0-2: authenticate the clients of a listener with SASL.

    START              ─▶ EXPECT_HANDSHAKE    ApiVersions
    START              ─▶ TOKENS              SaslHandshake
    EXPECT_HANDSHAKE   ─▶ TOKENS              SaslHandshake
    TOKENS             ─▶ OPEN                the mechanism has accepted the client's last token
    OPEN               ─▶ TOKENS              SaslHandshake, if the session has a limit

    state of a connection   accepted requests
    START                   ApiVersions and SaslHandshake.
    EXPECT_HANDSHAKE        SaslHandshake. A mechanism that is not enabled gets UNSUPPORTED_SASL_MECHANISM (33).
    TOKENS                  SaslAuthenticate. A refused client gets SASL_AUTHENTICATION_FAILED (58) after a delay; any
                            other request gets ILLEGAL_SASL_STATE (34).
    OPEN                    All requests. If the session has a limit (KIP-368), the client re-authenticates as the same
                            user with the same mechanism. After the session has expired, any request except
                            SaslHandshake closes the connection.

The connection is closed after each of these SASL errors. In START and EXPECT_HANDSHAKE, any other request closes it at
once.

Thread rule: the connection's worker. Slow authentication steps run on the I/O pool, a few at a time.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import Counter
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.broker.handlers import api_versions, error_answers, table
from kafkalite.errors import ErrorCode
from kafkalite.security.sasl import Refused
from kafkalite.wire.protocol import api, header
from kafkalite.wire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkalite.wire.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite._native.serve.sasl_connection import SaslConnection
    from kafkalite._native.serve.transfer import Answer
    from kafkalite.base.clock import Clock
    from kafkalite.base.pool import IoPool
    from kafkalite.broker.cluster.member import Member
    from kafkalite.broker.features import Features
    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.broker.security.sasl_listener import SaslListener
    from kafkalite.security.sasl import MechanismServer
    from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

AGAIN_S_MIN: Final = 1.0
"""Minimum number of seconds between two authentications on one connection."""
LONG_STEPS_MAX: Final = 2
"""Maximum number of authentication steps of one listener that run on the I/O pool at the same time."""
_HANDSHAKE_SINCE_TOKENS: Final = 1
_RAW: Final = -1


class Outcome(StrEnum):
    """The result of an authentication exchange."""

    SUCCESS = "success"
    CREDENTIALS = "credentials"
    """A wrong password, token or proof, or an unknown user; clients cannot tell which."""
    IDENTITY = "identity"
    """A re-authentication as another user or with another mechanism."""
    MECHANISM = "mechanism"
    """A mechanism that is not enabled."""
    PROTOCOL = "protocol"
    """Bytes that do not belong to an authentication exchange, or a step out of order."""


class SignInCount(NamedTuple):
    """The key of a counter of finished authentication exchanges."""

    mechanism: str
    """The mechanism's name; "" if the client has not chosen an enabled one."""
    outcome: Outcome
    again: bool
    """Whether the exchange was a re-authentication (KIP-368)."""


class State(Enum):
    START = 0
    EXPECT_HANDSHAKE = 1
    TOKENS = 2
    OPEN = 3


class SignIns:
    """The authentication state that all connections of one listener share."""

    def __init__(
        self,
        listener: SaslListener,
        pool: IoPool,
        clock: Clock,
        features: Callable[[], Features],
        identity: tuple[str, int],
        *,
        telemetry: bool = False,
    ) -> None:
        """`identity` is this broker's (cluster id, node id)."""
        self._features = features
        self._identity = identity
        self._telemetry = telemetry
        self._member: Member | None = None
        self.listener = listener
        self.pool = pool
        self.clock = clock
        self.receive_size_max = listener.receive_size_max
        self.expired_count = 0
        """Number of connections closed because their session expired without re-authentication."""
        self._counts: Counter[SignInCount] = Counter()
        self._lock = threading.Lock()
        self._lanes = itertools.cycle([(listener, number) for number in range(LONG_STEPS_MAX)])

    def use_cluster(self, member: Member) -> None:
        """Return the APIs of a broker in a cluster in ApiVersions responses from now on."""
        self._member = member

    def versions(self, version: int, request: ApiVersionsRequest) -> ApiVersionsResponse:
        """Return the ApiVersions response for clients that are not authenticated yet."""
        if self._member is None:
            features = self._features()
            return api_versions.answer(version, request, features, self._identity, telemetry=self._telemetry)
        from kafkalite.broker.handlers.in_cluster import versions_answer

        return versions_answer(self._member, version, request, self._identity, telemetry=self._telemetry)

    def start(self) -> None:
        """Start background work, such as fetching the keys of bearer tokens. ConfigError if the work cannot start."""
        self.listener.start()

    def stop(self) -> None:
        """Stop background work. Idempotent."""
        self.listener.stop()

    def begin(self, connection: SaslConnection) -> SignIn:
        """Return the new authentication state of a new connection."""
        return SignIn(self, connection)

    def counts(self) -> dict[SignInCount, int]:
        """Return the number of finished exchanges since the start, by SignInCount. Any thread."""
        with self._lock:
            return dict(self._counts)

    def count(self, ended: SignInCount) -> None:
        """Count a finished exchange. Any thread."""
        with self._lock:
            self._counts[ended] += 1

    def count_expired(self) -> None:
        """Count a connection whose session expired. Any thread."""
        with self._lock:
            self.expired_count += 1

    def next_lane(self) -> object:
        """Return the keys of LONG_STEPS_MAX queues in turn. The I/O pool runs the steps of one queue one after
        another."""
        return next(self._lanes)


class SignIn:
    """The authentication state of one connection, as listed at the top of the module."""

    def __init__(self, shared: SignIns, connection: SaslConnection) -> None:
        self._shared = shared
        self._connection = connection
        self._state = State.START
        self._server: MechanismServer | None = None
        self._mechanism = ""
        self._other_mechanism = False
        self._signed_in = False
        self._session_ends = False
        self._began = -math.inf

    def may_begin_again(self) -> bool:
        """Return whether an authenticated client may re-authenticate now: its session has a limit, and its last
        authentication began at least AGAIN_S_MIN seconds ago."""
        return self._session_ends and self._shared.clock.monotonic() - self._began >= AGAIN_S_MIN

    def request(self, key: int, version: int, correlation_id: int, body: bytes) -> bytes | None:
        """Handle a request of a client that is not authenticated, or that re-authenticates.

        Return the response frame. None: there is no response, or it follows later.
        """
        connection = self._connection
        if self._state is State.OPEN:
            if key != api.SASL_HANDSHAKE or not self.may_begin_again():
                self._shared.count_expired()
                connection.close("its SASL session expired before it re-authenticated")
                return None
            connection.shut()
            self._state = State.EXPECT_HANDSHAKE
        row = table.find(key)
        try:
            if self._state is State.TOKENS:
                if key != api.SASL_AUTHENTICATE:
                    self._refuse_early(row, version, correlation_id, body)
                    return None
                if row is not None and row.serves(version):
                    return self._authenticate(row, version, correlation_id, body)
            elif key == api.API_VERSIONS and self._state is State.START:
                return self._api_versions(version, correlation_id, body)
            elif key == api.SASL_HANDSHAKE and row is not None and row.serves(version):
                return self._handshake(row, version, correlation_id, body)
        except ValueError as error:
            connection.fail_sign_in(f"API {key} version {version}: the request does not match its schema: {error}")
            return None
        connection.close("it sent API %d version %d before authenticating", key, version)
        return None

    def token(self, raw: bytes) -> bytes | None:
        """Handle a token without a request header, which a client sends after SaslHandshake 0."""
        return self._step(raw, None, _RAW, 0)

    def close(self) -> None:
        """Note that the connection is closed."""
        self._server = None

    def count_failure(self, outcome: str) -> None:
        """Count a failed exchange; `outcome` is the value of an Outcome."""
        self._count(Outcome(outcome))

    def _count(self, outcome: Outcome) -> None:
        mechanism = "" if self._server is None else self._server.mechanism
        self._shared.count(SignInCount(mechanism, outcome, self._signed_in))

    def _api_versions(self, version: int, correlation_id: int, body: bytes) -> bytes:
        """Handle ApiVersions. After an error (unknown version, bad client name) the state is still START, and the
        client may try again."""
        row = table.find(api.API_VERSIONS)
        assert row is not None, "ApiVersions is served"
        if not row.serves(version):
            return table.unsupported_api_versions(correlation_id)
        request = row.decode(version, header.request_body(row.key, version, body))
        response = self._shared.versions(version, request)
        if response.error_code == ErrorCode.NONE:
            self._state = State.EXPECT_HANDSHAKE
            self._connection.software_name = request.client_software_name
            self._connection.software_version = request.client_software_version
        return row.encode(version, correlation_id, response)

    def _handshake(self, row: table.Row, version: int, correlation_id: int, body: bytes) -> bytes | None:
        request: SaslHandshakeRequest = row.decode(version, header.request_body(row.key, version, body))
        offered = self._shared.listener.mechanisms
        self._server = self._shared.listener.server(request.mechanism)
        if self._server is None:
            response = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered)
            self._connection.fail_sign_in(
                f"unsupported SASL mechanism {request.mechanism[:64]!r}",
                row.encode(version, correlation_id, response),
                Outcome.MECHANISM,
            )
            return None
        self._began = self._shared.clock.monotonic()
        self._other_mechanism = self._signed_in and request.mechanism != self._mechanism
        self._mechanism = request.mechanism
        self._state = State.TOKENS
        if version < _HANDSHAKE_SINCE_TOKENS:
            self._connection.expect_tokens()
        return row.encode(version, correlation_id, SaslHandshakeResponse(mechanisms=offered))

    def _authenticate(self, row: table.Row, version: int, correlation_id: int, body: bytes) -> bytes | None:
        request: SaslAuthenticateRequest = row.decode(version, header.request_body(row.key, version, body))
        return self._step(bytes(request.auth_bytes), row, version, correlation_id)

    def _step(self, token: bytes, row: table.Row | None, version: int, correlation_id: int) -> bytes | None:
        server = self._server
        assert server is not None, "a mechanism was chosen"
        if server.quick:
            return self._conclude(_respond(server, token), row, version, correlation_id)
        answer = self._connection.hold()
        self._shared.pool.submit_ordered(
            self._shared.next_lane(), self._step_there, server, token, row, version, correlation_id, answer
        )
        return None

    def _step_there(
        self,
        server: MechanismServer,
        token: bytes,
        row: table.Row | None,
        version: int,
        correlation_id: int,
        answer: Answer,
    ) -> None:
        """Run a slow authentication step on the I/O pool, and post its outcome to the connection's worker."""
        outcome = _respond(server, token)
        self._connection.post(lambda: self._go_on(outcome, row, version, correlation_id, answer))

    def _go_on(
        self, outcome: bytes | Refused, row: table.Row | None, version: int, correlation_id: int, answer: Answer
    ) -> None:
        if self._connection.closed:
            return
        frame = self._conclude(outcome, row, version, correlation_id)
        if frame is not None:
            answer.complete(frame)
            self._connection.go_on()

    def _conclude(
        self, outcome: bytes | Refused, row: table.Row | None, version: int, correlation_id: int
    ) -> bytes | None:
        server = self._server
        assert server is not None, "the exchange continues"
        if isinstance(outcome, Refused):
            self._refuse(str(outcome), row, version, correlation_id, Outcome.CREDENTIALS)
            return None
        lifetime_ms = 0
        if server.user is not None:
            principal = f"User:{server.user}"
            if self._other_mechanism or (self._signed_in and principal != self._connection.principal):
                reason = "re-authentication must use the same user and mechanism"
                self._refuse(reason, row, version, correlation_id, Outcome.IDENTITY)
                return None
            lifetime_ms = self._lifetime_ms(server)
            self._connection.principal = principal
            self._count(Outcome.SUCCESS)
            self._signed_in = True
            self._server = None
            self._state = State.OPEN
            self._connection.open(lifetime_ms / 1000 if self._session_ends else math.inf)
        if row is None:
            return len(outcome).to_bytes(4, "big") + outcome
        return row.encode(
            version, correlation_id, SaslAuthenticateResponse(auth_bytes=outcome, session_lifetime_ms=lifetime_ms)
        )

    def _lifetime_ms(self, server: MechanismServer) -> int:
        """Return the session lifetime in ms as Kafka's brokers compute it, 0 without a limit.

        Set `_session_ends` to whether the session has a limit.
        """
        limit = self._shared.listener.session_ms_max(server.mechanism)
        ends = [] if limit == 0 else [limit]
        if server.expires_ms is not None:
            ends.append(server.expires_ms - self._shared.clock.time_ms())
        self._session_ends = bool(ends)
        return max(0, min(ends)) if ends else 0

    def _refuse(self, reason: str, row: table.Row | None, version: int, correlation_id: int, outcome: Outcome) -> None:
        """Refuse the client. The error 58 has the same text for every reason; only the broker's log has the reason."""
        farewell = None
        if row is not None:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=f"Authentication failed: invalid credentials ({self._mechanism})",
            )
            farewell = row.encode(version, correlation_id, response)
        self._connection.fail_sign_in(f"{self._mechanism}: {reason}", farewell, outcome)

    def _refuse_early(self, row: table.Row | None, version: int, correlation_id: int, body: bytes) -> None:
        farewell = None
        if row is not None and row.serves(version):
            request = row.decode(version, header.request_body(row.key, version, body))
            code = ErrorCode.ILLEGAL_SASL_STATE
            response = error_answers.error_answer(row.key, version, request, code, code.text)
            farewell = None if response is None else row.encode(version, correlation_id, response)
        name = "an unknown request" if row is None else row.name
        self._connection.fail_sign_in(f"{name} is not allowed during the SASL exchange", farewell)


def _respond(server: MechanismServer, token: bytes) -> bytes | Refused:
    try:
        return server.respond(token)
    except Refused as refused:
        return refused


def handshake(_context: RequestContext, _request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse SaslHandshake outside an authentication: the listener has no SASL, or the client is already
    authenticated."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def authenticate(_context: RequestContext, _request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Refuse SaslAuthenticate outside an authentication: the listener has no SASL, or the client is already
    authenticated."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="unexpected SaslAuthenticate: the listener has no SASL, or the client is already authenticated",
    )
