"""The client side of SASL: the exchange in Kafka's requests, and the mechanisms PLAIN and OAUTHBEARER.

    ask(SaslHandshake) ─▶ respond(b"") ─▶ ask(SaslAuthenticate) ─▶ respond(challenge) ─▶ … ─▶ done

It is for clients, and for brokers that authenticate to controllers and other brokers. The client side of SCRAM is in
`kafkalite.security.scram`. A MechanismClient handles one exchange. One thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkalite.errors import ErrorCode
from kafkalite.security.sasl import Refused
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkalite.wire.protocol.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from collections.abc import Callable

HANDSHAKE_VERSION: Final = 1
"""The first version after which tokens are sent in SaslAuthenticate requests."""
AUTHENTICATE_VERSION: Final = 2

Token = str
"""A bearer token, as it goes over the wire."""


class MechanismClient(Protocol):
    """The client side of one exchange."""

    done: bool
    """Whether the server has proved what the mechanism requires."""

    def respond(self, challenge: bytes) -> bytes:
        """Return the next token; the first call has an empty challenge. Refused if the broker cannot be trusted."""


def sign_in(mechanism: str, client: MechanismClient, ask: Callable[[int, int, object], Any]) -> int:
    """Run the whole exchange; return the session lifetime in ms, 0 if it is unlimited. Refused.

    `ask` sends a request of (API key, newest version) and returns the response.
    """
    shaken = ask(api.SASL_HANDSHAKE, HANDSHAKE_VERSION, SaslHandshakeRequest(mechanism=mechanism))
    if shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise Refused("the broker's listener does not use SASL; check security.protocol")
    if shaken.error_code:
        raise Refused(f"the broker offers {', '.join(shaken.mechanisms) or 'no mechanism'}, not {mechanism}")
    token = client.respond(b"")
    while True:
        answer = ask(api.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, SaslAuthenticateRequest(auth_bytes=token))
        if answer.error_code:
            raise Refused(answer.error_message or f"error {answer.error_code}")
        token = client.respond(bytes(answer.auth_bytes))
        if client.done:
            return int(answer.session_lifetime_ms)


class PlainClient:
    """The client side of PLAIN (RFC 4616)."""

    def __init__(self, user: str, password: str) -> None:
        self.done = False
        self._token = f"\0{user}\0{password}".encode()

    def respond(self, challenge: bytes) -> bytes:
        """Return the token with the password first, then an empty one."""
        if self._token:
            token, self._token = self._token, b""
            return token
        if challenge:
            raise Refused("the broker sent a challenge, which PLAIN does not have")
        self.done = True
        return b""


class BearerClient:
    """The client side of OAUTHBEARER (RFC 7628)."""

    def __init__(self, token: Token) -> None:
        if not token or not token.isascii() or not token.isprintable():
            raise Refused("the bearer token is empty or has characters that are not printable ASCII")
        self.done = False
        self._first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()

    def respond(self, challenge: bytes) -> bytes:
        """Return the token first. If the broker reports an error, return the acknowledgement of RFC 7628."""
        if self._first:
            token, self._first = self._first, b""
            return token
        if challenge:
            return b"\x01"
        self.done = True
        return b""
