"""Fetch bearer tokens from a token endpoint with client credentials (RFC 6749 section 4.4; KIP-768, KIP-1139).

    sasl.oauthbearer.token.endpoint.url=https://issuer/token
    sasl.oauthbearer.client.credentials.client.id=…        or clientId of the login configuration
    sasl.oauthbearer.client.credentials.client.secret=…    or clientSecret
    sasl.oauthbearer.scope=…                               or scope

A token is cached for most of its lifetime. Responses are limited in time and size. Redirects are not followed.

Thread rule: any thread. One thread fetches a token while the others wait.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.parse
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base import http_ask
from kafkalite.errors import ConfigError
from kafkalite.security.sasl import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

URL_KEY: Final = "sasl.oauthbearer.token.endpoint.url"
ID_KEY: Final = "sasl.oauthbearer.client.credentials.client.id"
SECRET_KEY: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105  # a setting's name
SCOPE_KEY: Final = "sasl.oauthbearer.scope"
ASK_S: Final = 10.0
"""Limit for one request as a whole, however slowly the response arrives."""
ANSWER_SIZE_MAX: Final = 1024 * 1024
KEPT_SHARE: Final = 0.8
"""Share of a token's lifetime after which a new one is fetched."""


class TokenEndpoint:
    """Fetches tokens from one token endpoint and caches the last one."""

    def __init__(
        self, settings: Mapping[str, str], options: Mapping[str, str], now: Callable[[], float] = time.monotonic
    ) -> None:
        """Read URL and credentials from the settings. Raises ConfigError if one is missing."""
        self._url = settings.get(URL_KEY, "").strip()
        if http_ask.split_url(self._url).scheme not in {"https", "http"}:
            raise ConfigError(URL_KEY, "must be an https:// URL; in Python you can pass a token function instead")
        identity = settings.get(ID_KEY) or options.get("clientId", "")
        secret = settings.get(SECRET_KEY) or options.get("clientSecret", "")
        if not identity or not secret:
            raise ConfigError(ID_KEY, f"and {SECRET_KEY} must be set to request tokens")
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
        """Return a valid token. Raises Refused if the endpoint does not issue one."""
        with self._lock:
            if not self._token or self._now() >= self._good_until:
                asked = self._now()
                self._token, lifetime_s = self._ask()
                self._good_until = asked + KEPT_SHARE * lifetime_s
            return self._token

    def _ask(self) -> tuple[str, float]:
        headers = {"Authorization": self._authorization, "Accept": "application/json"}
        try:
            data = http_ask.read(
                self._url, self._body, headers=headers, connect_s=ASK_S, whole_s=ASK_S, size_max=ANSWER_SIZE_MAX
            )
            found: Any = json.loads(data)
            return str(found["access_token"]), float(found.get("expires_in", 0))
        except urllib.error.HTTPError as error:
            raise Refused(f"the token endpoint responded with HTTP status {error.code}") from None
        except (OSError, HTTPException) as error:
            raise Refused(f"cannot reach the token endpoint: {getattr(error, 'reason', None) or error}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise Refused("the token endpoint's response has no valid access_token") from None
