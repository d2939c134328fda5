"""Authenticate clients by bearer tokens (the SASL mechanism OAUTHBEARER), and fetch the keys that verify the tokens.

    client                                       server
    n,,^Aauth=Bearer <token>^A^A          ─▶     signature, times, issuer, audience
                                          ◀─     an empty token if authenticated; else {"status":"invalid_token"}
    ^A                                    ─▶     refused

Keys come only from a document that the operator configures, at an https address or in a file. Key locations in a token
are ignored. Needs PyJWT and cryptography (the extra `oauth`).

Thread rule: tokens are checked in the I/O pool. The thread `kafkalite-jwks` fetches keys.

Sources: RFC 7628, KIP-255, KIP-768. Tokens are JSON Web Tokens.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import threading
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite._native.base import native_time as time
from kafkalite.base import http_ask
from kafkalite.base.extras import needs_extra
from kafkalite.errors import ConfigError, StartupError
from kafkalite.security.sasl import OAUTHBEARER, TOKEN_SIZE_MAX, Refused
from kafkalite.security.ssl_contexts import context_of_client
from kafkalite.settings.areas.tls import NAME_CHECK_KEY, TLS_SETTINGS
from kafkalite.settings.rows import near_miss

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from kafkalite.settings.areas.sasl import SaslSettings

logger = logging.getLogger("kafkalite.security")

KEYS_KEY: Final = "sasl.oauthbearer.jwks.endpoint.url"
UNSECURED_KEY: Final = "sasl.oauthbearer.allow.unsecured.tokens"
ALGORITHMS: Final = {
    "RSA": frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    "EC": frozenset({"ES256", "ES384", "ES512"}),
    "OKP": frozenset({"EdDSA"}),
}
"""Key type → its algorithms. Shared secrets are not supported."""
FETCH_INTERVAL_S_MIN: Final = 10.0
"""The minimum interval between fetches for unknown keys."""
FETCH_WAIT_S: Final = 5.0
"""How long a token with an unknown key waits for a fetch."""
FETCH_S_MAX: Final = 10.0
"""The time limit of a whole fetch."""
DOCUMENT_SIZE_MAX: Final = 1024 * 1024
KEYS_MAX: Final = 1000
TIME_S_MAX: Final = 2**43
"""Seconds since 1970 that fit into 64-bit milliseconds with a margin."""
INVALID: Final = b'{"status":"invalid_token"}'

_NAME: Final = rb"(?:[^\x00,=]|=2C|=3D)+"
_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authzid>" + _NAME + rb"))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)


class BearerServer:
    """The server side of one OAUTHBEARER exchange."""

    mechanism = OAUTHBEARER

    def __init__(self, check: Callable[[str], Mapping[str, Any]], user_claim: str) -> None:
        self.user: str | None = None
        self.expires_ms: int | None = None
        self._check = check
        self._user_claim = user_claim
        self._refusal: Refused | None = None

    @property
    def quick(self) -> bool:
        """Whether the next `respond` is fast. Checking the token is not; the response after a failed check is."""
        return self._refusal is not None

    def respond(self, token: bytes) -> bytes:
        """Check the client's token. Return b"" if it is valid, else an error report.

        After an error report, the next call raises Refused, as RFC 7628 requires.
        """
        if self._refusal is not None:
            raise self._refusal
        try:
            claims = self._claims(token)
        except Refused as refusal:
            self._refusal = refusal
            return INVALID
        self.expires_ms = int(claims["exp"] * 1000)
        self.user = claims[self._user_claim]
        return b""

    def _claims(self, token: bytes) -> Mapping[str, Any]:
        if len(token) > TOKEN_SIZE_MAX:
            raise Refused("the bearer token is too long")
        match = _FIRST.fullmatch(token)
        if match is None:
            raise Refused("the OAUTHBEARER message is malformed")
        pairs = dict(pair.split(b"=", 1) for pair in match["pairs"].split(b"\x01") if pair)
        scheme, _, text = pairs.get(b"auth", b"").decode("ascii").partition(" ")
        if scheme.lower() != "bearer" or not text.strip():
            raise Refused("the OAUTHBEARER message holds no bearer token")
        claims = self._check(text.strip())
        for_whom = match["authzid"]
        if for_whom is not None and for_whom.replace(b"=2C", b",").replace(b"=3D", b"=").decode(
            errors="replace"
        ) != claims.get(self._user_claim):
            raise Refused("the authorization id differs from the token's user")
        return claims


class VerificationKey(NamedTuple):
    """A public key, its key id (or None), and the algorithms for which it may be used."""

    key_id: str | None
    key: Any
    algorithms: frozenset[str]


class KeySet:
    """The keys of the configured document, which a thread fetches periodically.

    `read` returns the content of the document; it raises OSError or ValueError.
    """

    def __init__(
        self,
        settings: SaslSettings,
        read: Callable[[str], bytes] | None = None,
        *,
        tls: Mapping[str, str] | None = None,
    ) -> None:
        """Create the key set without fetching. ConfigError if the address or `tls` is invalid.

        `tls` has a client's TLS settings for an https address.
        """
        self._url = settings.sasl_oauthbearer_jwks_endpoint_url or ""
        if not http_ask.split_url(self._url).scheme:
            raise ConfigError(KEYS_KEY, "is not a valid URL")
        self._shown_url = _without_secrets(self._url)
        self._refresh_s = settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
        self._retry_s = settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / 1000
        self._retry_s_max = settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / 1000
        self._read = read or functools.partial(read_document, context=_context(tls or {}))
        self._keys: list[VerificationKey] = []
        self._changed = threading.Condition(threading.Lock())
        self._wanted = True
        self._fetching = False
        self._stopping = False
        self._fetched_at = -FETCH_INTERVAL_S_MIN
        self.fetch_count = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to fetch the keys, now and periodically. ConfigError if a key file is invalid."""
        if http_ask.split_url(self._url).scheme == "file":
            try:
                self._keys = _parse_keys(self._read(self._url))
            except (OSError, ValueError) as error:
                raise ConfigError(KEYS_KEY, f"{self._shown_url}: {error}") from None
        self._thread = threading.Thread(target=self._run, name="kafkalite-jwks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop fetching. Idempotent."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(FETCH_S_MAX + 1.0)
            self._thread = None

    def find(self, key_id: str | None, algorithm: str) -> list[Any]:
        """Return the keys for a token's key id and algorithm, in the order of the document.

        As in Kafka's BrokerJwtValidator, a token with a key id is verified with that key only. A token without a key id
        is verified with each key that fits its algorithm.

        `key_id` is None for a token without key id. If no key is found, the document is fetched again, at most once in
        FETCH_INTERVAL_S_MIN.
        """
        found = self._fitting(key_id, algorithm)
        if found:
            return found
        with self._changed:
            if time.monotonic() - self._fetched_at >= FETCH_INTERVAL_S_MIN:
                self._wanted = True
                self._changed.notify_all()
            if self._wanted or self._fetching:
                count = self.fetch_count
                self._changed.wait_for(lambda: self.fetch_count > count or self._stopping, FETCH_WAIT_S)
        return self._fitting(key_id, algorithm)

    def _fitting(self, key_id: str | None, algorithm: str) -> list[Any]:
        return [row.key for row in self._keys if algorithm in row.algorithms and key_id in {None, row.key_id}]

    def _run(self) -> None:
        pause_s = 0.0
        failed_s = self._retry_s
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._stopping, pause_s)
                if self._stopping:
                    return
                self._wanted = False
                self._fetching = True
                self._fetched_at = time.monotonic()
            keys = self._fetch()
            with self._changed:
                if keys is None:
                    pause_s, failed_s = failed_s, min(2 * failed_s, self._retry_s_max)
                else:
                    pause_s, failed_s = self._refresh_s, self._retry_s
                    self._keys = keys
                self.fetch_count += 1
                self._fetching = False
                self._changed.notify_all()

    def _fetch(self) -> list[VerificationKey] | None:
        try:
            return _parse_keys(self._read(self._url))
        except (OSError, ValueError) as error:
            logger.warning(
                "could not refresh the JWKS keys; the present keys stay in use: %s: %s", self._shown_url, error
            )
        except Exception:
            logger.exception("could not refresh the JWKS keys; the present keys stay in use")
        return None


def _without_secrets(url: str) -> str:
    """Return a URL for messages: without user, password and query."""
    parts = http_ask.split_url(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()[:256]


def _context(settings: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the TLS context for fetching keys; None to trust the system's CAs. ConfigError."""
    if not settings:
        return None
    known = {*TLS_SETTINGS, NAME_CHECK_KEY}
    for key in settings:
        if key not in known:
            raise ConfigError(key, f"unknown login module option{near_miss(key, known)}")
    return context_of_client(settings)


def read_document(url: str, *, context: ssl.SSLContext | None = None) -> bytes:
    """Read the document with keys from an https or file URL. OSError or ValueError.

    Its size and the time of a fetch are limited. Redirects are not followed.
    """
    parts = http_ask.split_url(url)
    match parts.scheme:
        case "file":
            path = Path(urllib.request.url2pathname(parts.path))
            if path.exists() and not path.is_file():
                raise ValueError("it is not a regular file")  # reading a pipe would block
            with urllib.request.urlopen(url) as file:  # noqa: S310  # a file's
                data: bytes = file.read(DOCUMENT_SIZE_MAX + 1)
            if len(data) > DOCUMENT_SIZE_MAX:
                raise ValueError(f"the file is larger than {DOCUMENT_SIZE_MAX >> 20} MiB")
            return data
        case "https":
            try:
                return http_ask.read(
                    url,
                    headers={},
                    connect_s=FETCH_S_MAX,
                    whole_s=FETCH_S_MAX,
                    size_max=DOCUMENT_SIZE_MAX,
                    context=context,
                )
            except urllib.error.HTTPError as error:
                raise ValueError(f"answers {error.code}") from None
            except HTTPException as error:
                raise OSError(f"the response is incomplete: {error!r}") from None
        case _:
            raise ValueError("the URL must begin with https:// or file://")


def _parse_keys(data: bytes) -> list[VerificationKey]:
    """Return the usable keys of a JSON Web Key Set (RFC 7517). ValueError if it has none."""
    import jwt

    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    if not isinstance(found, dict) or not isinstance(found.get("keys"), list):
        raise ValueError("it is not a JSON Web Key Set")  # noqa: TRY004  # a fault of the document, like the others
    keys: list[VerificationKey] = []
    for item in found["keys"][:KEYS_MAX]:
        usable = isinstance(item, dict) and isinstance(item.get("kid", ""), str) and item.get("use", "sig") == "sig"
        algorithms = ALGORITHMS.get(str(item.get("kty")), frozenset()) if usable else frozenset()
        if isinstance(item, dict) and "alg" in item:
            algorithms &= {str(item["alg"])}
        for algorithm in sorted(algorithms):
            try:
                key = jwt.PyJWK(item, algorithm).key
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                continue
            keys.append(VerificationKey(item.get("kid"), key, algorithms))
            break
    if not keys:
        raise ValueError("it has no key that can verify a signature (kty RSA, EC or OKP)")
    return keys


class TokenChecker:
    """A checker of bearer tokens.

    A token's algorithm must be in ALGORITHMS and fit the key's type. The algorithm `none` is rejected, unless a
    development setting allows it.
    """

    def __init__(self, settings: SaslSettings, keys: KeySet | None) -> None:
        """Create a checker. StartupError if PyJWT is not installed."""
        try:
            import jwt
        except ImportError:
            raise StartupError(needs_extra("OAUTHBEARER needs PyJWT", "oauth")) from None
        self._jwt = jwt
        self._keys = keys
        self._unsecured = settings.sasl_oauthbearer_allow_unsecured_tokens
        self._audience = list(settings.sasl_oauthbearer_expected_audience) or None
        self._issuer = settings.sasl_oauthbearer_expected_issuer
        self._skew_s = settings.sasl_oauthbearer_clock_skew_seconds
        self._user_claim = settings.sasl_oauthbearer_sub_claim_name
        self._scope_claim = settings.sasl_oauthbearer_scope_claim_name

    def check(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token. Refused if the token is invalid."""
        try:
            claims = self._decode(token)
            if not 0 < claims["exp"] < TIME_S_MAX:
                raise Refused("the token's exp claim is out of range")
        except (self._jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError) as error:
            raise Refused(f"the token was refused: {str(error)[:200]}") from None
        user = claims.get(self._user_claim)
        if not isinstance(user, str) or not user.strip():
            raise Refused(f"the token has no claim {self._user_claim}")
        scope = claims.get(self._scope_claim, [])
        scopes = scope.split() if isinstance(scope, str) else scope
        if not isinstance(scopes, list) or len({str(one).strip() for one in scopes}) < len(scopes):
            raise Refused(f"the token's claim {self._scope_claim} is not a list of distinct scopes")
        return claims

    def _decode(self, token: str) -> dict[str, Any]:
        header = self._jwt.get_unverified_header(token)
        algorithm = str(header.get("alg"))
        if "crit" in header:
            raise Refused("the token has critical extensions (crit), which are not supported")
        options: dict[str, Any] = {"require": ["exp", "iat"], "verify_aud": self._audience is not None}
        if algorithm == "none" and self._unsecured and token.endswith("."):
            options["verify_signature"] = False
            options |= dict.fromkeys(("verify_exp", "verify_iat", "verify_nbf", "verify_iss"), True)
            keys: list[Any] = [None]
        else:
            keys = [] if self._keys is None else self._keys.find(header.get("kid"), algorithm)
            if not keys:
                raise Refused(f"the JWKS has no key {str(header.get('kid'))[:64]!r} for algorithm {algorithm[:16]!r}")
        for number, key in enumerate(keys, 1):
            try:
                claims: dict[str, Any] = self._jwt.decode(
                    token,
                    key,
                    algorithms=[algorithm],
                    audience=self._audience,
                    issuer=self._issuer,
                    leeway=self._skew_s,
                    options=options,  # type: ignore[arg-type]  # by the names that its own type has
                )
            except self._jwt.InvalidSignatureError:
                if number == len(keys):
                    raise
            else:
                return claims
        raise AssertionError("a token without a key to check it is refused above")
