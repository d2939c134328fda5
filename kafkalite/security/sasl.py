"""Define the server side of SASL mechanisms, and implement PLAIN (RFC 4616).

A MechanismServer handles one exchange. `respond` takes a token of the client and returns the server's token. The
exchange ends when the server sets `user` or raises Refused. If `quick` is false, the next `respond` is slow and must
not run on a network worker.

No I/O.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
TOKEN_SIZE_MAX: Final = 64 * 1024
REMEMBERED_MAX: Final = 1000
"""Number of correct passwords that are remembered, so that they are not hashed again."""


class Refused(Exception):
    """A failed exchange. The message is for the log; it is not sent to the other side."""


class MechanismServer(Protocol):
    """The server side of one exchange."""

    mechanism: str
    user: str | None
    """The authenticated user, None until the exchange succeeded."""
    expires_ms: int | None
    """When the client's credential expires, in ms since 1970; None for never."""

    @property
    def quick(self) -> bool:
        """Whether the next `respond` is fast enough for a network worker."""

    def respond(self, token: bytes) -> bytes:
        """Return the server's token for the client's token. Refused if the exchange fails."""


class PlainServer:
    """The server side of PLAIN: the client sends user and password in one token.

    `check` returns whether the password is correct.
    """

    mechanism = PLAIN

    def __init__(self, check: Callable[[str, str], bool], *, quick: bool) -> None:
        self.quick = quick
        self.user: str | None = None
        self.expires_ms: int | None = None
        self._check = check

    def respond(self, token: bytes) -> bytes:
        """Return an empty token if the password is correct. Refused otherwise."""
        if len(token) > TOKEN_SIZE_MAX:
            raise Refused("the PLAIN message is too long")
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise Refused("the PLAIN message is not UTF-8") from None
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise Refused("the PLAIN message lacks the user or the password")
        for_whom, user, password = parts
        if for_whom not in ("", user):
            raise Refused("the PLAIN authorization id differs from the user")
        if not self._check(user, password):
            raise Refused("wrong password or unknown user")
        self.user = user
        return b""


class GivenPasswords:
    """The users and passwords of a setting."""

    quick = True

    def __init__(self, passwords: Mapping[str, str]) -> None:
        # Digests have the same length, so the time of a comparison reveals nothing about a password.
        self._salt = secrets.token_bytes(32)
        self._digests = {user: self._digest(password) for user, password in passwords.items()}
        self._nobody = secrets.token_bytes(32)

    def check(self, user: str, password: str) -> bool:
        """Return whether the password is correct. The duration of the check does not depend on it."""
        return hmac.compare_digest(self._digests.get(user, self._nobody), self._digest(password))

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._salt, password.encode(), "sha256")


class Remembered:
    """A cache of correct passwords, which spares hashing them again. It contains keyed digests, not passwords.

    The oldest entries are dropped.

    Thread rule: any thread.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def digest(self, user: str, password: str, kept: bytes) -> bytes:
        """Return the cache's key for a user and password.

        It also depends on the stored hash `kept`, so that a change of the password invalidates the entry.
        """
        parts = (user.encode(), password.encode(), kept)
        sizes = b"".join(len(part).to_bytes(4, "big") for part in parts)
        return hashlib.blake2b(sizes + b"".join(parts), key=self._key, digest_size=32).digest()

    def __contains__(self, digest: bytes) -> bool:
        with self._lock:
            return digest in self._right

    def add(self, digest: bytes) -> None:
        with self._lock:
            self._right[digest] = None
            while len(self._right) > REMEMBERED_MAX:
                self._right.popitem(last=False)
