"""Authenticate a client by SASL, with Kafka's client settings.

    sasl.mechanism=SCRAM-SHA-512          or SCRAM-SHA-256, PLAIN, OAUTHBEARER
    sasl.jaas.config=…ScramLoginModule required username="alice" password="secret";
    sasl.username=alice                   instead of sasl.jaas.config
    sasl.password=secret

An OAUTHBEARER token comes from a function of the caller or, with client credentials, from a token endpoint
(sasl.oauthbearer.token.endpoint.url, RFC 6749 section 4.4).

Thread rule: any thread. The objects are immutable, except for a cached token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.errors import SignInRefused
from kafkalite.errors import ConfigError
from kafkalite.security import jaas
from kafkalite.security.sasl import OAUTHBEARER, PLAIN, Refused
from kafkalite.security.sasl_client import BearerClient, PlainClient, sign_in
from kafkalite.security.scram import HASHES, ScramClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite.security.sasl_client import MechanismClient, Token

MECHANISM_KEY: Final = "sasl.mechanism"
USER_KEY: Final = "sasl.username"
PASSWORD_KEY: Final = "sasl.password"  # noqa: S105  # a setting's name
MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER)


class ClientSasl:
    """A client's SASL mechanism and credentials."""

    def __init__(self, settings: Mapping[str, str], token: Callable[[], Token] | None = None) -> None:
        """Read mechanism and credentials from the settings. Raises ConfigError if they are incomplete."""
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
                jaas.KEY,
                f"{self.mechanism} needs a username and a password: set them here or in {USER_KEY} and {PASSWORD_KEY}",
            )

    def sign_in(self, ask: Callable[[int, int, object], Any]) -> int:
        """Run the SASL exchange; return the session lifetime in ms (0: unlimited). Raises SignInRefused.

        `ask(api_key, version_max, request)` sends a request and returns its response.
        """
        try:
            return sign_in(self.mechanism, self.begin(), ask)
        except Refused as refused:
            raise SignInRefused(str(refused)) from None

    def begin(self) -> MechanismClient:
        """Return the client's side of one SASL exchange. Raises Refused if no token is available."""
        if self.mechanism == OAUTHBEARER:
            return BearerClient(self._token())
        if self.mechanism == PLAIN:
            return PlainClient(self._user, self._password)
        return ScramClient(self.mechanism, self._user, self._password)


def _options(settings: Mapping[str, str], kind: str) -> Mapping[str, str]:
    text = settings.get(jaas.KEY, "")
    if not text.strip():
        return {}
    module = jaas.parse(text)
    if module.kind != kind:
        raise ConfigError(jaas.KEY, f"the login module is for {module.kind}, but {MECHANISM_KEY} needs one for {kind}")
    return module.options
