"""A broker in this process with listeners with SASL, users, and sockets that go through the exchange step by step."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kafkalite.broker import Broker
from kafkalite.broker.handlers.sign_in import Outcome
from kafkalite.broker.log.journal import credential_change
from kafkalite.security import scram
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api, header
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest
from kafkalite.wire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkalite.wire.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.kit.harness.certificates import Authority

if TYPE_CHECKING:
    from kafkalite.base.clock import Clock

TIMEOUT_S = 60
PASSWORD = "correct horse"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="unused" password="unused" user_alice="{PASSWORD}" user_bob="{PASSWORD}";'
)


class SaslBroker:
    """Listeners SASL (PLAIN with separate users, both SCRAMs), STORED (PLAIN with the users of SCRAM) and PLAINTEXT.

    Users alice, bob (SCRAM-SHA-256) and carol (SCRAM-SHA-512), all with PASSWORD.
    """

    def __init__(self, directory: Path, clock: Clock | None = None, **settings: Any) -> None:
        self.directory = directory
        self.settings: dict[str, Any] = {
            "listeners": "SASL://127.0.0.1:0,STORED://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,STORED:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(directory / "data"),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl.plain.sasl.jaas.config": JAAS,
            "connection.failed.authentication.delay.ms": "0",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.broker = Broker(self.settings, clock=clock)

    def __enter__(self) -> Self:
        self.broker.start()
        for user, mechanism in (("alice", "SCRAM-SHA-256"), ("bob", "SCRAM-SHA-256"), ("carol", "SCRAM-SHA-512")):
            self.add_user(user, PASSWORD, mechanism)
        return self

    def __exit__(self, *exc: object) -> None:
        self.broker.stop()

    def add_user(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
        kept = scram.new_credential(mechanism, password)
        self.broker.logs.metadata.alter_credentials(lambda: [credential_change(mechanism, user, kept)])

    def address(self, listener: str = "SASL") -> str:
        return str(self.broker.endpoints[listener])

    def connect(self, listener: str = "SASL", source: str | None = None) -> RawClient:
        return RawClient(self.broker.endpoints[listener].port, source)

    def sign_in_count(self) -> int:
        """How many exchanges have come to a good end."""
        return sum(
            count
            for listener in self.broker._parts.sign_ins.values()
            for ended, count in listener.counts().items()
            if ended.outcome == Outcome.SUCCESS
        )

    def principals(self) -> set[str]:
        """Of the connections that are open."""
        return {c.principal for worker in self.broker._parts.workers for c in worker._connections.values()}


class SaslTlsBroker(SaslBroker):
    """One more listener, SASL_SSL, with both."""

    def __init__(self, directory: Path, clock: Clock | None = None, **settings: Any) -> None:
        self.authority = Authority()
        self.authority_file = self.authority.write_pem(directory / "authority.pem")
        self.alice_file = self.authority.issue("alice", client=True).write_pem(directory / "alice.pem")
        server = self.authority.issue("server").write_pem(directory / "server.pem")
        more = {
            "listeners": "SASL://127.0.0.1:0,STORED://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
            "listener.security.protocol.map": (
                "SASL:SASL_PLAINTEXT,STORED:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL"
            ),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
            "ssl.keystore.location": str(server),
            "ssl.truststore.location": str(self.authority_file),
            "ssl.client.auth": "required",
        }
        super().__init__(directory, clock, **more, **settings)


class Authenticated(NamedTuple):
    """A SaslAuthenticate answer."""

    error_code: int
    token: bytes
    lifetime_ms: int


class RawClient:
    """A socket that says one thing at a time."""

    def __init__(self, port: int, source: str | None = None) -> None:
        """`source` is the address that the broker sees."""
        own = None if source is None else (source, 0)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S, source_address=own)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> bytes:
        """The next answer without its length; ConnectionError when there is none to come."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("closed")
            data += piece
        return data

    def ask(self, key: int, version: int, message: object) -> Any:
        """A request's answer."""
        self.send(request(key, version, message))
        return answer(key, version, self.frame())

    def is_closed(self, *, past_answers: bool = False) -> bool:
        """Waits for the end; what comes before it must be nothing, or answers."""
        try:
            while past_answers and self.socket.recv(65536):
                pass
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def api_versions(self, version: int = 3, name: str = "test") -> Any:
        message = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
        return self.ask(api.API_VERSIONS, version, message)

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        return self.ask(api.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism))

    def authenticate(self, token: bytes, version: int = 2) -> Authenticated:
        found = self.ask(api.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token))
        return Authenticated(found.error_code, bytes(found.auth_bytes), found.session_lifetime_ms)

    def metadata(self) -> Any:
        return self.ask(api.METADATA, 12, MetadataRequest(topics=[]))

    def plain(self, user: str = "alice", password: str = PASSWORD) -> Authenticated:
        """The whole exchange."""
        assert self.handshake("PLAIN").error_code == 0
        return self.authenticate(plain_token(user, password))

    def scram(
        self, user: str = "bob", password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256"
    ) -> tuple[Authenticated, scram.ScramClient]:
        """The whole exchange, the server being checked."""
        assert self.handshake(mechanism).error_code == 0
        client = scram.ScramClient(mechanism, user, password)
        found = self.authenticate(client.respond(b""))
        if found.error_code == 0:
            found = self.authenticate(client.respond(found.token))
            if found.error_code == 0:
                client.respond(found.token)
        return found, client


def plain_token(user: str, password: str, for_whom: str = "") -> bytes:
    return f"{for_whom}\0{user}\0{password}".encode()


def request(key: int, version: int, message: object, correlation_id: int = 7) -> bytes:
    return protocol.encode_request_frame(key, version, correlation_id, "test", message)


def answer(key: int, version: int, frame: bytes) -> Any:
    _, at = header.decode_response_header(key, version, frame)
    return protocol.decode_response(key, version, frame[at:])
