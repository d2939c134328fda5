"""Read and write the users file of an HTTP server. Each line has a user's name, role and credential.

    # name : role : credential
    alice:admin:scrypt$15$8$1$<salt>$<hash>       a password (RFC 7914); salt and hash in base64
    ci:operator:sha256$<hash>                     a random token, for which a plain hash is secure
    CN=web-1,O=Example:viewer:certificate         a client certificate; the mapping rules produce the name

A `viewer` may read, an `operator` may also change data, and an `admin` may change everything.

Thread rule: any thread. The table of users does not change; a lock guards the cache of passwords.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import threading
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.errors import ConfigError, StartupError
from kafkalite.security.sasl import Remembered

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

KEY: Final = "--users"
COST: Final = (15, 8, 1)
"""log2 N, r and p of scrypt: 32 MiB and about 60 ms per password."""
COST_MAX: Final = (20, 32, 16)
SALT_SIZE: Final = 16
HASH_SIZE: Final = 32
PASSWORD_SIZE_MAX: Final = 1024
HASHES_AT_A_TIME: Final = 2
"""Concurrent scrypt computations: a flood of wrong passwords leaves workers and memory for other requests."""
TOKEN_BYTES: Final = 32
COUNT_MAX: Final = 10_000
FILE_SIZE_MAX: Final = 4 * 1024 * 1024


class Role(IntEnum):
    """The permissions of a user. Each role includes the permissions of the roles before it."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


class User(NamedTuple):
    """An authenticated person or program."""

    name: str
    role: Role


class _Password(NamedTuple):
    user: User
    cost: tuple[int, int, int]
    salt: bytes
    hash: bytes

    def fits(self, password: bytes) -> bool:
        return hmac.compare_digest(_scrypt(password, self.cost, self.salt), self.hash)


class Users:
    """The users of a users file."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Parse the lines of a users file. A ConfigError has the number of the invalid line."""
        self._passwords: dict[str, _Password] = {}
        self._tokens: dict[bytes, User] = {}
        self._certificates: dict[str, User] = {}
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if text and not text.startswith("#"):
                self._add(number, text)
        self._hashing = threading.BoundedSemaphore(HASHES_AT_A_TIME)
        self._remembered = Remembered()
        unknown = User("", Role.VIEWER)
        self._stranger = _Password(unknown, COST, secrets.token_bytes(SALT_SIZE), secrets.token_bytes(HASH_SIZE))

    @classmethod
    def from_file(cls, path: Path) -> Users:
        """Read a users file.

        StartupError if it cannot be read. ConfigError if a line is invalid, or if others than the owner may write the
        file.
        """
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o022:
                    raise ConfigError(KEY, f"{path} is writable by others than its owner; run chmod 600 {path}")
                raw = file.read(FILE_SIZE_MAX + 1)
        except OSError as error:
            raise StartupError(f"{KEY} {path}: {error.strerror}") from error
        if len(raw) > FILE_SIZE_MAX:
            raise ConfigError(KEY, f"{path} is larger than {FILE_SIZE_MAX} bytes")
        try:
            return cls(raw.decode("utf-8").splitlines())
        except UnicodeDecodeError as error:
            raise ConfigError(KEY, f"{path} is not UTF-8") from error

    def by_password(self, name: str, password: str) -> User | None:
        """Return the user with this name if the password is correct, else None.

        A wrong password and an unknown name both take about 60 ms of CPU time, because scrypt is slow on purpose. A
        correct password is cached as a digest, and then takes almost none.
        """
        raw = password.encode()
        if len(raw) > PASSWORD_SIZE_MAX:
            return None
        found = self._passwords.get(name, self._stranger)
        digest = self._remembered.digest(name, password, found.hash)
        if digest in self._remembered:
            return found.user
        with self._hashing:
            fits = found.fits(raw)
        if not fits or found is self._stranger:
            return None
        self._remembered.add(digest)
        return found.user

    def by_token(self, token: str) -> User | None:
        return self._tokens.get(hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest())

    def by_certificate(self, name: str) -> User | None:
        """Return the user with this name; None without such a user.

        The mapping rules have produced the name from a client certificate.
        """
        return self._certificates.get(name)

    def _add(self, number: int, text: str) -> None:
        parts = text.rsplit(":", 2)
        if len(parts) != 3 or not parts[0]:
            raise ConfigError(KEY, f"line {number}: expected name:role:secret")
        name, role_name, how = parts
        try:
            role = Role[role_name.upper()]
        except KeyError:
            raise ConfigError(KEY, f"line {number}: the role must be viewer, operator or admin") from None
        user = User(name, role)
        kind, _, rest = how.partition("$")
        if len(self._passwords) + len(self._tokens) + len(self._certificates) >= COUNT_MAX:
            raise ConfigError(KEY, f"line {number}: more than {COUNT_MAX} users")
        try:
            self._keep(user, kind, rest)
        except ValueError as error:
            raise ConfigError(KEY, f"line {number}: {error}") from None

    def _keep(self, user: User, kind: str, rest: str) -> None:
        """Add a user with the credential in a line. ValueError if it is invalid.

        `kind` is "scrypt", "sha256" or "certificate". `rest` is the credential after it.
        """
        if kind == "certificate" and not rest:
            self._certificates[user.name] = user
        elif kind == "sha256":
            self._tokens[_decoded(rest, HASH_SIZE)] = user
        elif kind == "scrypt":
            self._passwords[user.name] = _password(user, rest)
        else:
            raise ValueError("the secret must be scrypt$…, sha256$… or certificate")


def password_line(name: str, role: Role, password: str) -> str:
    """Return the line of the users file for a user with a password. ValueError for an invalid name or password."""
    _check_name(name)
    raw = password.encode("utf-8")
    if not 0 < len(raw) <= PASSWORD_SIZE_MAX:
        raise ValueError(f"the password must have 1 to {PASSWORD_SIZE_MAX} bytes")
    salt = secrets.token_bytes(SALT_SIZE)
    cost = "$".join(map(str, COST))
    return f"{name}:{role.name.lower()}:scrypt${cost}${_encoded(salt)}${_encoded(_scrypt(raw, COST, salt))}"


def token_line(name: str, role: Role) -> tuple[str, str]:
    """Create a token for a user. Return the line of the users file, and the token, which is not stored anywhere.

    ValueError for an invalid name.
    """
    _check_name(name)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    return f"{name}:{role.name.lower()}:sha256${_encoded(hashlib.sha256(token.encode()).digest())}", token


def certificate_line(name: str, role: Role) -> str:
    """Return the line of the users file for a user with a client certificate. ValueError for an invalid name."""
    _check_name(name)
    return f"{name}:{role.name.lower()}:certificate"


def name_of(line: str) -> str:
    """Return the user name in a line of the users file; "" for a comment or an empty line."""
    text = line.strip()
    return "" if text.startswith("#") else text.rsplit(":", 2)[0]


def _check_name(name: str) -> None:
    if not name or name.startswith("#") or name != name.strip() or not name.isprintable() or ":" in name:
        raise ValueError(
            "the name must be printable, without a colon, without # at its start and without spaces around it"
        )


def _password(user: User, text: str) -> _Password:
    parts = text.split("$")
    if len(parts) != 5 or not all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts[:3]):
        raise ValueError("expected scrypt$log2 N$r$p$salt$hash")
    log_n, r, p = (int(part) for part in parts[:3])
    cost = (log_n, r, p)
    if not all(0 < value <= most for value, most in zip(cost, COST_MAX, strict=True)):
        raise ValueError(f"the cost of scrypt is above {COST_MAX}")
    return _Password(user, cost, _decoded(parts[3], None), _decoded(parts[4], HASH_SIZE))


def _scrypt(password: bytes, cost: tuple[int, int, int], salt: bytes) -> bytes:
    log_n, r, p = cost
    memory = 128 * r * ((1 << log_n) + p + 2) + 65536
    return hashlib.scrypt(password, salt=salt, n=1 << log_n, r=r, p=p, maxmem=memory, dklen=HASH_SIZE)


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _decoded(text: str, size: int | None) -> bytes:
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("not base64") from None
    if size is not None and len(raw) != size:
        raise ValueError(f"the hash has {len(raw)} bytes")
    return raw
