"""What SASL mechanisms have in common, and PLAIN (RFC 4616).

A mechanism's server is made for one exchange: tokens in, tokens out, until it says who the client is or raises Refused.
Where `quick` is false the next `respond` takes long, and does not belong on a network worker. Bytes in, bytes out.
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
"""Passwords that were right, remembered so that they are not hashed again."""


class Refused(Exception):
    """The exchange ends without a user. The text is for the log of whoever refuses; the peer is told no reason."""


class MechanismServer(Protocol):
    """One exchange on the server's side."""

    mechanism: str
    user: str | None
    """Who the client is, once the exchange has come to its end."""
    expires_ms: int | None
    """When what the client has shown loses its force, milliseconds since 1970; None never."""

    @property
    def quick(self) -> bool:
        """Whether the next `respond` may run on a network worker."""

    def respond(self, token: bytes) -> bytes:
        """The answer to a client's token; Refused."""


class PlainServer:
    """PLAIN: the password itself, in one token. `check` says whether it is the user's."""

    mechanism = PLAIN

    def __init__(self, check: Callable[[str, str], bool], *, quick: bool) -> None:
        self.quick = quick
        self.user: str | None = None
        self.expires_ms: int | None = None
        self._check = check

    def respond(self, token: bytes) -> bytes:
        """Nothing, or Refused."""
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
    """Users and passwords of a settings file."""

    quick = True

    def __init__(self, passwords: Mapping[str, str]) -> None:
        # Digests of one length: comparing them tells nothing, not even how long a password is.
        self._salt = secrets.token_bytes(32)
        self._digests = {user: self._digest(password) for user, password in passwords.items()}
        self._nobody = secrets.token_bytes(32)

    def check(self, user: str, password: str) -> bool:
        """Whether it is this user's."""
        return hmac.compare_digest(self._digests.get(user, self._nobody), self._digest(password))

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._salt, password.encode(), "sha256")


class Remembered:
    """Passwords that were right for what was kept of them, as keyed digests; the oldest go. Any thread."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def digest(self, user: str, password: str, kept: bytes) -> bytes:
        """Of a password beside what is kept of it: another one is kept after a change."""
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
