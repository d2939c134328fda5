"""SASL of a client: how it shows who it is, by Kafka's settings.

    sasl.mechanism=SCRAM-SHA-512          or SCRAM-SHA-256, PLAIN, OAUTHBEARER
    sasl.jaas.config=…ScramLoginModule required username="alice" password="secret";
    sasl.username=alice                   in place of a login configuration
    sasl.password=secret

OAUTHBEARER takes a token from a function, or from a token endpoint as a client with credentials of its own
(sasl.oauthbearer.token.endpoint.url, RFC 6749 section 4.4).

Immutable once made, but for the token that is kept while it is good; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkalite.client.errors import SignInRefused
from kafkalite.errors import ConfigError, ErrorCode
from kafkalite.security import jaas
from kafkalite.security.sasl import OAUTHBEARER, PLAIN, Refused
from kafkalite.security.scram import HASHES, ScramClient
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkalite.wire.protocol.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MECHANISM_KEY: Final = "sasl.mechanism"
USER_KEY: Final = "sasl.username"
PASSWORD_KEY: Final = "sasl.password"  # noqa: S105  # a setting's name
MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER)

Token = str
"""A bearer token, as it goes over the wire."""


class MechanismClient(Protocol):
    """One exchange on the client's side."""

    done: bool
    """Whether the broker has shown what it had to."""

    def respond(self, challenge: bytes) -> bytes:
        """The next token; the first answers an empty challenge. Refused: the broker cannot be trusted."""


class ClientSasl:
    """Who a client is, and how it shows it."""

    def __init__(self, settings: Mapping[str, str], token: Callable[[], Token] | None = None) -> None:
        """ConfigError for settings that do not say it."""
        self.mechanism = settings.get(MECHANISM_KEY, "").strip()
        if self.mechanism not in MECHANISMS:
            raise ConfigError(MECHANISM_KEY, f"must be one of {', '.join(MECHANISMS)}, not {self.mechanism[:64]!r}")
        options = _options(settings, "SCRAM" if self.mechanism in HASHES else self.mechanism)
        if self.mechanism == OAUTHBEARER:
            if token is None:
                from kafkalite.client.token_endpoint import TokenEndpoint

                token = TokenEndpoint(settings, options).token
            self._token = token
            return
        self._user = settings.get(USER_KEY) or options.get("username") or ""
        self._password = settings.get(PASSWORD_KEY) or options.get("password") or ""
        if not self._user or not self._password:
            raise ConfigError(
                jaas.KEY, f"{self.mechanism} needs username and password, here or as {USER_KEY} and {PASSWORD_KEY}"
            )

    def sign_in(self, ask: Callable[[int, int, object], Any]) -> int:
        """The whole exchange; how long the session lasts in ms, 0 for ever. SignInRefused.

        `ask` sends a request of (API key, highest version) and gives its answer.
        """
        try:
            return self._sign_in(ask)
        except Refused as refused:
            raise SignInRefused(str(refused)) from None

    def _sign_in(self, ask: Callable[[int, int, object], Any]) -> int:
        client = self.begin()
        shaken = ask(api.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=self.mechanism))
        if shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise Refused("nobody signs in there (security.protocol?)")
        if shaken.error_code:
            raise Refused(f"{', '.join(shaken.mechanisms) or 'no mechanism'} is offered, not {self.mechanism}")
        token = client.respond(b"")
        while True:
            answer = ask(api.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))
            if answer.error_code:
                raise Refused(answer.error_message or f"error {answer.error_code}")
            token = client.respond(bytes(answer.auth_bytes))
            if client.done:
                return int(answer.session_lifetime_ms)

    def begin(self) -> MechanismClient:
        """For one exchange; Refused when there is no token to show."""
        if self.mechanism == OAUTHBEARER:
            return BearerClient(self._token())
        if self.mechanism == PLAIN:
            return PlainClient(self._user, self._password)
        return ScramClient(self.mechanism, self._user, self._password)


class PlainClient:
    """PLAIN (RFC 4616)."""

    def __init__(self, user: str, password: str) -> None:
        self.done = False
        self._token = f"\0{user}\0{password}".encode()

    def respond(self, challenge: bytes) -> bytes:
        """The password, then nothing."""
        if self._token:
            token, self._token = self._token, b""
            return token
        if challenge:
            raise Refused("the broker asks for more than PLAIN has")
        self.done = True
        return b""


class BearerClient:
    """OAUTHBEARER (RFC 7628)."""

    def __init__(self, token: Token) -> None:
        if not token or not token.isascii() or not token.isprintable():
            raise Refused("a bearer token that is none")
        self.done = False
        self._first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()

    def respond(self, challenge: bytes) -> bytes:
        """The token; where the broker says what is wrong with it, that this was understood."""
        if self._first:
            token, self._first = self._first, b""
            return token
        if challenge:
            return b"\x01"
        self.done = True
        return b""


def _options(settings: Mapping[str, str], kind: str) -> Mapping[str, str]:
    text = settings.get(jaas.KEY, "")
    if not text.strip():
        return {}
    module = jaas.parse(text)
    if module.kind != kind:
        raise ConfigError(jaas.KEY, f"names a login module of {module.kind}, and {MECHANISM_KEY} is of {kind}")
    return module.options
