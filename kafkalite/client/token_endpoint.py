"""Bearer tokens from a token endpoint, by a client's own credentials (RFC 6749 section 4.4; Kafka's KIP-768, KIP-1139).

    sasl.oauthbearer.token.endpoint.url=https://issuer/token
    sasl.oauthbearer.client.credentials.client.id=…        or clientId of the login configuration
    sasl.oauthbearer.client.credentials.client.secret=…    or clientSecret
    sasl.oauthbearer.scope=…                               or scope

A token is kept until most of its time is over. Answers are bounded in time and size; nothing is followed elsewhere.
Thread rule: any thread; one asks, others wait.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, Final

from kafkalite.errors import ConfigError
from kafkalite.security.sasl import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

URL_KEY: Final = "sasl.oauthbearer.token.endpoint.url"
ID_KEY: Final = "sasl.oauthbearer.client.credentials.client.id"
SECRET_KEY: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105  # a setting's name
SCOPE_KEY: Final = "sasl.oauthbearer.scope"
TIMEOUT_S: Final = 10.0
ANSWER_SIZE_MAX: Final = 1024 * 1024
KEPT_SHARE: Final = 0.8
"""Of a token's time, after which another one is asked for."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Whoever answers for an endpoint is the endpoint."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


class TokenEndpoint:
    """See the module."""

    def __init__(
        self, settings: Mapping[str, str], options: Mapping[str, str], now: Callable[[], float] = time.monotonic
    ) -> None:
        """ConfigError where address or credentials are missing."""
        self._url = settings.get(URL_KEY, "").strip()
        if urllib.parse.urlsplit(self._url).scheme not in {"https", "http"}:
            raise ConfigError(URL_KEY, "must be an address that begins with https://, or a function gives the tokens")
        identity = settings.get(ID_KEY) or options.get("clientId", "")
        secret = settings.get(SECRET_KEY) or options.get("clientSecret", "")
        if not identity or not secret:
            raise ConfigError(ID_KEY, "and the client's secret are needed to ask for tokens")
        pair = f"{urllib.parse.quote_plus(identity)}:{urllib.parse.quote_plus(secret)}"
        self._authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        fields = {"grant_type": "client_credentials"}
        scope = settings.get(SCOPE_KEY) or options.get("scope", "")
        if scope:
            fields["scope"] = scope
        self._body = urllib.parse.urlencode(fields).encode()
        self._now = now
        self._lock = threading.Lock()
        self._token = ""
        self._good_until = 0.0

    def token(self) -> str:
        """A token that is good for a while; Refused when the endpoint gives none."""
        with self._lock:
            if not self._token or self._now() >= self._good_until:
                asked = self._now()
                self._token, lifetime_s = self._ask()
                self._good_until = asked + KEPT_SHARE * lifetime_s
            return self._token

    def _ask(self) -> tuple[str, float]:
        headers = {"Authorization": self._authorization, "Accept": "application/json"}
        request = urllib.request.Request(self._url, self._body, headers)  # noqa: S310  # the scheme was checked
        opener = urllib.request.build_opener(NoRedirect)
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                data = answer.read(ANSWER_SIZE_MAX + 1)
        except urllib.error.HTTPError as error:
            error.close()
            raise Refused(f"the token endpoint answers {error.code}") from None
        except OSError as error:
            raise Refused(f"the token endpoint does not answer: {getattr(error, 'reason', None) or error}") from None
        try:
            found: Any = json.loads(data) if len(data) <= ANSWER_SIZE_MAX else None
            return str(found["access_token"]), float(found.get("expires_in", 0))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise Refused("the token endpoint's answer holds no token") from None
