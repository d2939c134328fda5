"""Authenticate to a broker with SASL: the exchange in Kafka's requests, and the mechanisms PLAIN and OAUTHBEARER.

    ask(SaslHandshake) ─▶ respond(b"") ─▶ ask(SaslAuthenticate) ─▶ respond(challenge) ─▶ … ─▶ done

Clients use this module. So do brokers, to authenticate to controllers and other brokers. The client side of SCRAM is in
`kafkalite.security.scram`.

Thread rule: a MechanismClient handles one exchange, on one thread at a time.
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
        """Return the client's next token. Refused if the broker cannot be trusted.

        `challenge` is the broker's token; it is empty in the first call.
        """


def sign_in(mechanism: str, client: MechanismClient, ask: Callable[[int, int, object], Any]) -> int:
    """Run a whole exchange. Return the lifetime of the session in ms, or 0 if it is unlimited. Refused if it fails.

    `ask` sends a request, given the API key, the version and the message. It returns the response.
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
        """Return the token with the password in the first call, and an empty token in the second."""
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
        """Return the bearer token in the first call.

        Then return an empty token, or confirm the broker's error report.
        """
        if self._first:
            token, self._first = self._first, b""
            return token
        if challenge:
            return b"\x01"
        self.done = True
        return b""
