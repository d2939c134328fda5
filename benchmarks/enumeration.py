"""Test whether response times reveal which user names exist: `python -m benchmarks.enumeration [--tries 10000]`.

Half of the names belong to users, half do not; all have the same length, in random order. Each try is a SCRAM-SHA-256
exchange with a wrong password on a new connection, in plaintext and through TLS.

A classifier learns from the first half of the tries: for the time of each step and for their sum, the threshold and
direction that are right most often. It then classifies the second half. Its accuracy is printed next to the range that
guessing reaches in 95 of 100 runs. Responses of different size, or salts that change, are an error. After 10,000 tries
it was right about half of the time.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import shutil
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkalite.security import scram
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kafkalite.wire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkalite.wire.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.kit.harness.certificates import Authority
from tests.kit.harness.sasl_broker import answer, request
from tests.kit.harness.typed import TypedConnection
from tests.kit.processes.broker import BrokerProcess, free_port

MECHANISM = "SCRAM-SHA-256"
NAMES = 50
"""Of each kind."""
BAR = 0.52
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL")


class Try(NamedTuple):
    """One exchange: whether the user exists, and the seconds of its two steps."""

    exists: bool
    first: float
    last: float

    @property
    def both(self) -> float:
        return self.first + self.last


FEATURES: dict[str, Callable[[Try], float]] = {
    "first step": lambda one: one.first,
    "last step": lambda one: one.last,
    "both": lambda one: one.both,
}


class Stranger:
    """A client that tries names. Apart from times, all its responses must be alike."""

    def __init__(self, ports: dict[str, int], context: ssl.SSLContext) -> None:
        self._ports, self._context = ports, context
        self._salts: dict[str, bytes] = {}
        self._sizes: set[tuple[int, int]] = set()

    def attempt(self, listener: str, name: str, *, exists: bool) -> Try:
        sock: socket.socket = socket.create_connection(("127.0.0.1", self._ports[listener]))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if listener == "SASL_SSL":
            sock = self._context.wrap_socket(sock, server_hostname="localhost")
        with contextlib.closing(sock):
            _ask(sock, request(api.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=MECHANISM)))
            client = scram.ScramClient(MECHANISM, name, "wrong")
            began = time.perf_counter()
            raw = _ask(sock, _token(client.respond(b"")))
            first = time.perf_counter() - began
            challenge = bytes(answer(api.SASL_AUTHENTICATE, 2, raw).auth_bytes)
            proof = _token(client.respond(challenge))
            began = time.perf_counter()
            refusal = _ask(sock, proof)
            last = time.perf_counter() - began
        salt = challenge.split(b",")[1]
        if self._salts.setdefault(name, salt) != salt:
            raise RuntimeError(f"the salt of user {name} changed between requests")
        self._sizes.add((len(raw), len(refusal)))
        if len(self._sizes) > 1 + 1:  # a salt's number may have a digit less
            raise RuntimeError(f"responses differ in size: {self._sizes}")
        return Try(exists, first, last)


def _token(token: bytes) -> bytes:
    return request(api.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))


def _ask(sock: socket.socket, data: bytes) -> bytes:
    sock.sendall(data)
    received = b""
    while len(received) < 4 or len(received) < 4 + struct.unpack(">i", received[:4])[0]:
        piece = sock.recv(65536)
        if not piece:
            raise ConnectionError("closed")
        received += piece
    return received[4:]


def learn(tries: Sequence[Try], value: Callable[[Try], float]) -> tuple[float, bool, int]:
    """Return (threshold, whether users are above it, accuracy) of the best cut."""
    ordered = sorted(tries, key=value)
    users = sum(one.exists for one in ordered)
    best, users_below = (-math.inf, True, users), 0
    for number, one in enumerate(ordered, 1):
        users_below += one.exists
        nobodies_below = number - users_below
        above = users - users_below + nobodies_below
        for right, users_above in ((above, True), (len(ordered) - above, False)):
            if right > best[2]:
                best = (value(one), users_above, right)
    return best


def accuracy(tries: Sequence[Try]) -> tuple[str, float]:
    """Return (the time used, the accuracy on the half that was not used for learning)."""
    half = len(tries) // 2
    seen, unseen = tries[:half], tries[half:]
    learnt = {name: learn(seen, value) for name, value in FEATURES.items()}
    name = max(learnt, key=lambda each: learnt[each][2])
    threshold, users_above, _ = learnt[name]
    right = sum(((FEATURES[name](one) > threshold) == users_above) == one.exists for one in unseen)
    return name, right / len(unseen)


def add_users(port: int, names: Sequence[str]) -> None:
    upsertions = []
    for name in names:
        salt = scram.new_salt()
        salted = scram.salted_password(MECHANISM, b"right", salt, scram.ITERATIONS_MIN)
        upsertions.append(
            ScramCredentialUpsertion(
                name=name, mechanism=1, iterations=scram.ITERATIONS_MIN, salt=salt, salted_password=salted
            )
        )
    with TypedConnection(port) as connection:
        wanted = AlterUserScramCredentialsRequest(upsertions=upsertions)
        for result in connection.ask(api.ALTER_USER_SCRAM_CREDENTIALS, 0, wanted).results:
            assert result.error_code == 0, result


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.enumeration", description=__doc__.split("\n\n")[0])
    parser.add_argument("--tries", type=int, default=10_000, help="on each listener")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    folder = Path(tempfile.mkdtemp(prefix="kafkalite-enumeration-"))
    authority = Authority()
    context = ssl.create_default_context(cafile=str(authority.write_pem(folder / "authority.pem")))
    authority.issue("server").write_pem(folder / "server.pem")
    ports = {name: free_port() for name in ("PLAINTEXT", *LISTENERS)}
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "sasl.enabled.mechanisms": MECHANISM,
        "ssl.keystore.location": str(folder / "server.pem"),
        "connection.failed.authentication.delay.ms": "0",
    }
    names = [f"user-{number:08x}" for number in chance.sample(range(1 << 32), 2 * NAMES)]
    worst = 0.0
    try:
        with BrokerProcess(folder / "broker", settings, port=ports["PLAINTEXT"]):
            add_users(ports["PLAINTEXT"], names[:NAMES])
            stranger = Stranger(ports, context)
            for listener in LISTENERS:
                tries = []
                for _ in range(arguments.tries + 200):
                    number = chance.randrange(len(names))
                    tries.append(stranger.attempt(listener, names[number], exists=number < NAMES))
                what, right = accuracy(tries[200:])  # what comes first warms up
                luck = 0.5 + 1.96 * 0.5 / math.sqrt(arguments.tries / 2)
                print(f"{listener}: right about {right:.1%} by the {what} (guessing: up to {luck:.1%})", flush=True)
                worst = max(worst, right)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(worst > BAR)


if __name__ == "__main__":
    main()
