"""Authenticate each HTTP request by client certificate, token or password, without sessions and cookies.

    certificate of the connection ─▶ the user with the certificate's name
    Authorization: Bearer <token> ─▶ the user with the token's hash
    Authorization: Basic <name:password> ─▶ the user with this name, if the password is correct

After too many failures from an address, requests with a password or token from there are refused for a while.

Thread rule: any thread.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from kafkalite._native.base import native_time as time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite.web.users import User, Users

CERTIFICATE: Final = "kafkalite.client_certificate"
"""The key of the client certificate's DER in the WSGI environ; absent without a certificate."""
FAILURES_MAX: Final = 10
FAILURES_WITHIN_S: Final = 60.0
ADDRESSES_MAX: Final = 10_000
HEADER_SIZE_MAX: Final = 8192


class TooManyFailuresError(Exception):
    """Too many wrong passwords or tokens from one address. The response has status 429."""


class SignIn:
    """Authenticates requests by the users file."""

    def __init__(
        self,
        users: Users,
        *,
        certificate_name: Callable[[bytes], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an authenticator for these users.

        `certificate_name` maps a client certificate (DER) to a user name; it is `Tls.name_of`. `clock` returns
        monotonic seconds.
        """
        self._users = users
        self._certificate_name = certificate_name
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def user_of(self, environ: Mapping[str, Any]) -> User | None:
        """Return the user of a request; None if it is not authenticated. TooManyFailuresError."""
        certificate = environ.get(CERTIFICATE)
        if certificate is not None and self._certificate_name is not None:
            try:
                found = self._users.by_certificate(self._certificate_name(certificate))
            except ValueError:
                found = None
            if found is not None:
                return found
        header = environ.get("HTTP_AUTHORIZATION", "")
        scheme, _, rest = header.partition(" ")
        if not rest or len(header) > HEADER_SIZE_MAX:
            return None
        address = str(environ.get("REMOTE_ADDR", ""))
        self._refuse_guesser(address)
        found = self._by_secret(scheme.lower(), rest.strip())
        if found is None:
            self._note_failure(address)
        return found

    def _by_secret(self, scheme: str, text: str) -> User | None:
        if scheme == "bearer":
            return self._users.by_token(text)
        if scheme != "basic":
            return None
        try:
            name, colon, password = base64.b64decode(text, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return None
        return self._users.by_password(name, password) if colon else None

    def _refuse_guesser(self, address: str) -> None:
        since = self._clock() - FAILURES_WITHIN_S
        with self._lock:
            recent = [at for at in self._failures.get(address, ()) if at > since]
            if len(recent) >= FAILURES_MAX:
                raise TooManyFailuresError

    def _note_failure(self, address: str) -> None:
        with self._lock:
            recent = self._failures.setdefault(address, [])
            recent.append(self._clock())
            del recent[:-FAILURES_MAX]
            self._failures.move_to_end(address)
            while len(self._failures) > ADDRESSES_MAX:
                self._failures.popitem(last=False)
