"""The doors of a broker that each client goes through: TLS, client certificates, and the mechanisms of SASL over TLS.

One broker has them all, and a plain listener through which a neutral reader checks the stored records. A program in
another language finds its door in the environment:

    DOOR_BOOTSTRAP  DOOR_CA     host:port, and the authority to trust (PEM), which replace the plain listener
    DOOR_CERTIFICATE  DOOR_KEY  the client's own, PEM files, where it presents one; DOOR_IDENTITY is both in one file
    DOOR_MECHANISM  DOOR_USER  DOOR_PASSWORD  DOOR_TOKEN

The broker may be closed: an authorizer checks ACLs, which allow USER everything and STRANGER, who has a password too,
nothing. Its plain listener then belongs to the operator, a super user.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkalite.client import Security
from kafkalite.model import ANONYMOUS
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from tests.compat.addresses import Address
from tests.compat.records import read_back
from tests.compat.transactions import check_committed
from tests.kit.harness.certificates import Authority
from tests.kit.processes.broker import BrokerProcess, free_port

USER, PASSWORD = "compat", 'correct horse, "battery"; staple='
STRANGER = "stranger"
"""A user without any permission on a closed broker; its password is the same."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
DOORS = ("TLS", "client certificates", *MECHANISMS)
SETTINGS = {"message.max.bytes": "4194304", "num.partitions": "1", "group.consumer.heartbeat.interval.ms": "300"}
"""Of every broker that clients are tested on."""
COLUMNS = {door: "SCRAM" if door.startswith("SCRAM") else door for door in DOORS}
"""Door → column of the matrix; both SCRAMs share one."""


PARAMETERS = [
    pytest.param(door, id=door.replace(" ", "-"), marks=pytest.mark.capability(COLUMNS[door])) for door in DOORS
]
each_door = pytest.mark.parametrize("door", PARAMETERS, indirect=True)
"""For tests that take the fixture `door`."""


@dataclass(frozen=True)
class Door:
    """How to come in."""

    name: str
    bootstrap: str
    ca: str
    certificate: str = ""
    key: str = ""
    identity: str = ""
    """Key and certificates in one file."""
    mechanism: str = ""
    user: str = USER

    @property
    def protocol(self) -> str:
        """Kafka's security.protocol."""
        return "SASL_SSL" if self.mechanism else "SSL"

    def environment(self) -> dict[str, str]:
        """For a program."""
        found = {"DOOR_BOOTSTRAP": self.bootstrap, "DOOR_CA": self.ca}
        if self.certificate:
            found |= {"DOOR_CERTIFICATE": self.certificate, "DOOR_KEY": self.key, "DOOR_IDENTITY": self.identity}
        if self.mechanism:
            found |= {"DOOR_MECHANISM": self.mechanism, "DOOR_USER": self.user, "DOOR_PASSWORD": PASSWORD}
        if self.mechanism == "OAUTHBEARER":
            found["DOOR_TOKEN"] = unsecured_token(self.user)
        return found

    def librdkafka(self) -> dict[str, str]:
        """Settings of librdkafka."""
        found = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "ssl.ca.location": self.ca,
        }
        if self.certificate:
            found |= {"ssl.certificate.location": self.certificate, "ssl.key.location": self.key}
        if self.mechanism == "OAUTHBEARER":
            claims = f"principal={self.user} lifeSeconds=3600"
            found |= {"sasl.mechanisms": self.mechanism, "enable.sasl.oauthbearer.unsecure.jwt": "true"}
            found["sasl.oauthbearer.config"] = claims
        elif self.mechanism:
            found |= {"sasl.mechanisms": self.mechanism, "sasl.username": self.user, "sasl.password": PASSWORD}
        return found

    def security(self) -> Security:
        """Of kafkalite.client."""
        found = {"security.protocol": self.protocol, "ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
        if self.identity:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.identity}
        if self.mechanism == "OAUTHBEARER":
            return Security(
                {**found, "sasl.mechanism": self.mechanism}, token=functools.partial(unsecured_token, self.user)
            )
        if self.mechanism:
            found |= {"sasl.mechanism": self.mechanism, "sasl.username": self.user, "sasl.password": PASSWORD}
        return Security(found)


@dataclass(frozen=True)
class House:
    """The broker: `plain` is the listener that needs nothing."""

    plain: str
    doors: dict[str, Door]

    def __getitem__(self, name: str) -> Door:
        return self.doors[name]

    def address(self, name: str) -> Address:
        """For tests of clients that know nothing of doors."""
        return Address(self[name], self.plain)


def unsecured_token(name: str, lifetime_s: float = 3600) -> str:
    """Return an unsigned token (RFC 7519, `alg` none), which a broker accepts only where it is configured to."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": name, "iat": now, "exp": now + int(lifetime_s)})
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


def python_sasl(door: Door, tokens: Callable[[str], object]) -> dict[str, object]:
    """How aiokafka and kafka-python, whose settings have the same names, sign in; `tokens` makes of a user what gives
    the library tokens."""
    if door.mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": door.mechanism, "sasl_oauth_token_provider": tokens(door.user)}
    if door.mechanism:
        return {
            "sasl_mechanism": door.mechanism,
            "sasl_plain_username": door.user,
            "sasl_plain_password": PASSWORD,
        }
    return {}


class DoorChecks:
    """For a client with a program: its module has the fixture `check`, whose programs find their door themselves."""

    @each_door
    def test_writes_once_in_transactions_and_reads_in_a_group(
        self, check: Callable[..., None], house: House, door: Door, topic: str
    ) -> None:
        check("idempotent", topic)
        assert len(read_back(house.plain, topic, 500)) == 500
        check("transaction", f"{topic}-transaction")
        check_committed(house.plain, f"{topic}-transaction")
        check("group", f"{topic}-group")


@contextmanager
def open_house(directory: Path, *, closed: bool = False) -> Iterator[House]:
    """A broker with every door, for a with statement; `closed`: with an authoriser."""
    authority = Authority()
    ca = str(authority.write_pem(directory / "ca.pem"))
    server = authority.issue("broker").write_pem(directory / "server.pem")
    own = authority.issue("compat", client=True)
    certificate, key = directory / "client.pem", directory / "client.key"
    certificate.write_bytes(own.chain_pem)
    key.write_bytes(own.key_pem)
    identity = own.write_pem(directory / "identity.pem")
    ports = {name: free_port() for name in ("PLAINTEXT", "TLS", "MUTUAL", "SASL")}
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,MUTUAL:SSL,SASL:SASL_SSL",
        "ssl.keystore.location": str(server),
        "ssl.truststore.location": ca,
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl.plain.sasl.jaas.config": f'{plain} user_{USER}="{quoted}" user_{STRANGER}="{quoted}";',
        "sasl.oauthbearer.allow.unsecured.tokens": "true",
        **SETTINGS,
    }
    if closed:
        settings |= {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": ANONYMOUS}
    broker = BrokerProcess(directory, settings, port=ports["PLAINTEXT"])
    broker.start()
    try:
        _add_users(broker.bootstrap)
        if closed:
            _allow_everything(broker.bootstrap, f"User:{USER}")
        where = {name: f"localhost:{port}" for name, port in ports.items()}
        doors = [
            Door("TLS", where["TLS"], ca),
            Door("client certificates", where["MUTUAL"], ca, str(certificate), str(key), str(identity)),
            *(Door(mechanism, where["SASL"], ca, mechanism=mechanism) for mechanism in MECHANISMS),
        ]
        yield House(broker.bootstrap, {door.name: door for door in doors})
    finally:
        broker.stop()


def _add_users(bootstrap: str) -> None:
    """By librdkafka's admin, as users are added to Apache Kafka."""
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    kinds = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    infos = [ScramCredentialInfo(kind, 4096) for kind in kinds]
    wanted = [
        UserScramCredentialUpsertion(user, info, PASSWORD.encode()) for user in (USER, STRANGER) for info in infos
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for one in wanted:
        for future in admin.alter_user_scram_credentials([one]).values():
            future.result(60)


def _allow_everything(bootstrap: str, principal: str) -> None:
    """By rules about every resource of each type, as an operator adds them."""
    resources = ["--topic=*", "--group=*", "--transactional-id=*", "--delegation-token=*", "--cluster"]
    flags = ["--allow-principal", principal, "--operation", "all", *resources, "-b", bootstrap]
    subprocess.run([sys.executable, "-m", "kafkalite", "acls", "add", *flags], check=True, timeout=60)
