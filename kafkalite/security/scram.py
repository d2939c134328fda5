"""Authenticate with SCRAM (RFC 5802, RFC 7677), as Kafka does: stored credentials, and both sides of the exchange.

    client                                          server
    n,,n=alice,r=<nonce>                 ─▶
                                         ◀─         r=<nonce><more>,s=<salt>,i=<rounds>
    c=biws,r=<nonce><more>,p=<proof>     ─▶
                                         ◀─         v=<signature>

As in Kafka, SASLprep (RFC 4013) and channel binding are not supported. Clients cannot find out which users exist,
because an unknown user fails at the same step as a wrong password.

No I/O, no clock.

Thread rule: an object belongs to one thread at a time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING, Final

from kafkalite.model import ScramCredential
from kafkalite.security.sasl import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanism → its hash function."""
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
"""Kafka's upper limit for iterations."""
CLIENT_ITERATIONS_MAX: Final = 1_000_000
"""A client refuses more iterations: the server would only waste its CPU time."""
MESSAGE_SIZE_MAX: Final = 64 * 1024

_NAME: Final = rb"(?:[^\x00,=]|=2C|=3D)+"
_EXTENSIONS: Final = rb"(?P<extensions>(?:,[A-Za-z]=[^\x00,]+|,[A-Za-z]{2,}=[^\x00,]+)*)"
_CLIENT_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authzid>" + _NAME + rb"))?,(?P<bare>n=(?P<name>" + _NAME + rb"),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    + _EXTENSIONS + rb")"
)  # fmt: skip
_CLIENT_FINAL: Final = re.compile(
    rb"(?P<without_proof>c=(?P<channel>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    + _EXTENSIONS.replace(b"?P<extensions>", b"?:")
    + rb"),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_SERVER_FIRST: Final = re.compile(
    rb"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[1-9][0-9]{0,9})(?:,.*)?",
    re.DOTALL,
)
_SERVER_FINAL: Final = re.compile(rb"v=(?P<signature>[A-Za-z0-9+/=]+)(?:,.*)?", re.DOTALL)


def salted_password(mechanism: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return the salted password: Hi() of RFC 5802. This takes milliseconds for thousands of iterations."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)


def credential(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Derive the credential that a server stores from a salted password."""
    hash_name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    return ScramCredential(
        salt, hashlib.new(hash_name, client_key).digest(), hmac.digest(salted, b"Server Key", hash_name), iterations
    )


def new_credential(mechanism: str, password: str, iterations: int = ITERATIONS_MIN) -> ScramCredential:
    """Derive the credential that a server stores from a password, with a new salt. As slow as `salted_password`."""
    salt = new_salt()
    return credential(mechanism, salted_password(mechanism, password.encode(), salt, iterations), salt, iterations)


def new_salt() -> bytes:
    """Return a random salt in the form of Kafka's tools: 130 bits as digits and lower-case letters."""
    return _salt(secrets.randbits(130))


def decoy(mechanism: str, secret: bytes, name: str) -> ScramCredential:
    """Return a credential for an unknown user, which no password matches. The same name always gets the same salt."""
    hash_name = HASHES[mechanism]
    seed = hmac.digest(secret, mechanism.encode() + b"\0" + name.encode(), "sha512")
    keys = hmac.digest(seed, b"keys", "sha512")
    size = hashlib.new(hash_name).digest_size
    return ScramCredential(_salt(int.from_bytes(seed, "big") >> (512 - 130)), keys[:size], keys[-size:], ITERATIONS_MIN)


def _salt(number: int) -> bytes:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + text
    return text.encode()


class ScramServer:
    """The server side of one SCRAM exchange.

    `find` returns the credential of a user, or a decoy if the user is unknown.
    """

    quick = True

    def __init__(self, mechanism: str, find: Callable[[str], ScramCredential], nonce: str | None = None) -> None:
        self.mechanism = mechanism
        self.user: str | None = None
        self.expires_ms: int | None = None
        self._find = find
        self._nonce = (nonce or secrets.token_urlsafe(32)).encode()
        self._doubled = b""
        """librdkafka before 2.6.1 sends the client's nonce twice: the proof covers that, and the check accepts it."""
        self._name = ""
        self._credential: ScramCredential | None = None
        self._first = b""

    def respond(self, token: bytes) -> bytes:
        """Return the server's next message. The last one also sets `user`. Refused if the exchange fails."""
        if len(token) > MESSAGE_SIZE_MAX:
            raise Refused("the SCRAM message is too long")
        return self._begin(token) if self._credential is None else self._finish(token)

    def _begin(self, token: bytes) -> bytes:
        match = _CLIENT_FIRST.fullmatch(token)
        if match is None:
            raise Refused("the client's first SCRAM message is malformed")
        self._name = _unescape(match["name"])
        if match["authzid"] is not None and match["authzid"] != match["name"]:
            raise Refused("the SCRAM authorization id differs from the user")
        # Delegation tokens (tokenauth=true) are not supported, and such a name is no user's.
        of_token = b",tokenauth=true" in (match["extensions"] or b"").lower()
        self._credential = found = self._find("" if of_token else self._name)
        self._nonce = match["nonce"] + self._nonce
        self._doubled = match["nonce"] + self._nonce
        salt = base64.b64encode(found.salt)
        answer = b"r=%s,s=%s,i=%d" % (self._nonce, salt, found.iterations)
        self._first = match["bare"] + b"," + answer
        return answer

    def _finish(self, token: bytes) -> bytes:
        assert self._credential is not None, "the first message was answered"
        match = _CLIENT_FINAL.fullmatch(token)
        if match is None or _decoded(match["channel"]) not in (b"n,,", b"n,a=" + _escape(self._name) + b",,"):
            raise Refused("the client's final SCRAM message is malformed")
        if not any(hmac.compare_digest(match["nonce"], known) for known in (self._nonce, self._doubled)):
            raise Refused("the SCRAM nonce does not belong to this exchange")
        hash_name = HASHES[self.mechanism]
        stored = self._credential.stored_key
        proof = _decoded(match["proof"])
        said = self._first + b"," + match["without_proof"]
        signature = hmac.digest(stored, said, hash_name)
        if proof is None or len(proof) != len(signature):
            raise Refused("the SCRAM proof has the wrong size")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(hash_name, client_key).digest(), stored):
            raise Refused("wrong password or unknown user")
        self.user = self._name
        return b"v=" + base64.b64encode(hmac.digest(self._credential.server_key, said, hash_name))


class ScramClient:
    """The client side of one SCRAM exchange. It also verifies that the server knows the credential."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str | None = None) -> None:
        self.mechanism = mechanism
        self._password = password.encode()
        self._nonce = (nonce or secrets.token_urlsafe(32)).encode()
        self._bare = b"n=" + _escape(user) + b",r=" + self._nonce
        self._steps = 0
        self._expected = b""
        self.done = False

    def respond(self, challenge: bytes) -> bytes:
        """Return the client's next message. Refused if the server cannot be trusted."""
        self._steps += 1
        if self._steps == 1:
            return b"n,," + self._bare
        if self._steps == 2:
            return self._prove(challenge)
        match = _SERVER_FINAL.fullmatch(challenge)
        if match is None or not hmac.compare_digest(_decoded(match["signature"]) or b"", self._expected):
            raise Refused("the broker's SCRAM signature is wrong: it does not know this user's password")
        self.done = True
        return b""

    def _prove(self, challenge: bytes) -> bytes:
        match = _SERVER_FIRST.fullmatch(challenge)
        if match is None:
            raise Refused("the broker's SCRAM message is malformed")
        nonce, salt, iterations = match["nonce"], _decoded(match["salt"]), int(match["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce or salt is None:
            raise Refused("the broker's SCRAM message does not match the client's")
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            raise Refused(
                f"the broker asks for {iterations} SCRAM iterations; {ITERATIONS_MIN} to {CLIENT_ITERATIONS_MAX} "
                "are accepted"
            )
        salted = salted_password(self.mechanism, self._password, salt, iterations)
        found = credential(self.mechanism, salted, salt, iterations)
        hash_name = HASHES[self.mechanism]
        without_proof = b"c=biws,r=" + nonce
        said = b",".join((self._bare, challenge, without_proof))
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        signature = hmac.digest(found.stored_key, said, hash_name)
        self._expected = hmac.digest(found.server_key, said, hash_name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return without_proof + b",p=" + base64.b64encode(proof)


def _escape(name: str) -> bytes:
    return name.replace("=", "=3D").replace(",", "=2C").encode()


def _unescape(name: bytes) -> str:
    try:
        return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode()
    except UnicodeDecodeError:
        raise Refused("the SCRAM user name is not UTF-8") from None


def _decoded(text: bytes) -> bytes | None:
    """Decode base64. Return None if it is invalid."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
