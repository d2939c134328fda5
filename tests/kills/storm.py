"""Clients that change ACLs, users and quotas at full speed, and the changes that the broker has acknowledged.

Each client has its own names and several requests in flight, in order. A request changes two related things (two ACLs,
two users, quotas of a user and of a client id), so that half of one shows. A name's state is one value, another one
with each change; None: nothing.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from kafkalite.base.acls import AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.security import scram
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kafkalite.wire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkalite.wire.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kafkalite.wire.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.kit.harness.typed import TypedConnection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ASKER = "asker"
"""The user that may describe the topics of the ACLs."""
KINDS = ("acl", "user", "quota")
CLIENTS_PER_KIND = 2
NAMES_PER_CLIENT = 6
IN_FLIGHT = 4
TWIN = "-twin"
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
PASSWORDS = 40
RATE_MIN = 10**9
"""Bytes a second: enough that no client is throttled."""
QUOTA_KEY = "producer_byte_rate"
ENTITIES = ("user", "client-id")

Value = int | None


@dataclass
class Promises:
    """Of each name the values that it may have: the last one that was acknowledged, then those that were asked for."""

    names: dict[str, list[Value]] = field(default_factory=dict)
    acknowledged: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def in_doubt(self) -> int:
        """Changes that were asked for and not answered."""
        return sum(len(values) - 1 for values in self.names.values())

    def begin(self, name: str, value: Value) -> None:
        self.names[name].append(value)

    def acknowledge(self, name: str) -> None:
        del self.names[name][0]
        self.acknowledged += 1

    def judge(self, found: Mapping[str, Value]) -> Iterable[str]:
        """Yield a sentence for each value that no sequence of changes explains."""
        for name in sorted(found.keys() - self.names.keys()):
            yield f"{name} has {found[name]} and was never asked for"
        for name, values in self.names.items():
            if found.get(name) not in values:
                yield f"{name} has {found.get(name)}, not one of {values}"

    def settle(self, found: Mapping[str, Value]) -> int:
        """What was in doubt is known now; how many of these changes had happened."""
        kept = 0
        for name, values in self.names.items():
            value = found.get(name)
            if value in values:
                kept += len(values) - 1 - values[::-1].index(value) if value != values[0] else 0
            self.names[name] = [value]
        return kept


class Storm:
    """All clients, from `start` until the broker is gone (`join`)."""

    def __init__(self, port: int, promises: Promises, seed: int) -> None:
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._change, args=(port, promises, kind, number, seed), daemon=True)
            for kind in KINDS
            for number in range(CLIENTS_PER_KIND)
        ]
        self._numbers = iter(range(seed * 1_000_000, (seed + 1) * 1_000_000))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client of the storm hangs"

    def _change(self, port: int, promises: Promises, kind: str, client: int, seed: int) -> None:
        chance = random.Random(f"{seed} {kind} {client}")
        names = [f"{kind}-{client}-{number}" for number in range(NAMES_PER_CLIENT)]
        for name in names:
            promises.names.setdefault(name, [None])
        waiting: deque[tuple[str, int]] = deque()
        try:
            with TypedConnection(port) as connection:
                while not self._stopping.is_set():
                    while len(waiting) < IN_FLIGHT:
                        name = chance.choice(names)
                        key, version, message, value = self._draw(kind, name, promises.names[name][-1], chance)
                        promises.begin(name, value)
                        waiting.append((name, key))
                        connection.send_message(key, version, message)
                    name, key = waiting.popleft()
                    codes = error_codes(connection.receive_message(key, VERSIONS[key]))
                    if any(codes):
                        promises.problems.append(f"{name}: error codes {codes}")
                        return
                    promises.acknowledge(name)
        except (OSError, EOFError):
            pass  # the broker is gone: how what waits has ended stays unknown

    def _draw(self, kind: str, name: str, present: Value, chance: random.Random) -> tuple[int, int, object, Value]:
        """(API key, version, request, value afterwards)."""
        number = next(self._numbers)
        value: Value = number
        if kind == "acl":
            if present is None:
                return api.CREATE_ACLS, VERSIONS[api.CREATE_ACLS], rules_added(name, number), number
            return api.DELETE_ACLS, VERSIONS[api.DELETE_ACLS], rules_removed(name), None
        if present is not None and chance.random() < 0.4:
            value = None
        if kind == "user":
            value = None if value is None else value % PASSWORDS
            key = api.ALTER_USER_SCRAM_CREDENTIALS
            return key, VERSIONS[key], credentials(name, value), value
        return api.ALTER_CLIENT_QUOTAS, VERSIONS[api.ALTER_CLIENT_QUOTAS], quotas(name, value), value


VERSIONS = {
    api.CREATE_ACLS: 3,
    api.DELETE_ACLS: 3,
    api.ALTER_USER_SCRAM_CREDENTIALS: 0,
    api.ALTER_CLIENT_QUOTAS: 1,
}


def error_codes(answer: Any) -> list[int]:
    """Of every part of an answer to a change."""
    for part in ("results", "filter_results", "entries"):
        if hasattr(answer, part):
            return [row.error_code for row in getattr(answer, part)]
    raise AssertionError(f"an answer that is not known: {answer}")


def rules_added(name: str, value: int) -> CreateAclsRequest:
    """A rule about the topic, and one about the group of that name, whose principal tells the value."""

    def creation(kind: ResourceType, who: str, operation: AclOperation) -> AclCreation:
        return AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=PatternType.LITERAL,
            principal=f"User:{who}",
            host="*",
            operation=operation,
            permission_type=AclPermission.ALLOW,
        )

    topic = creation(ResourceType.TOPIC, ASKER, AclOperation.DESCRIBE)
    return CreateAclsRequest(creations=[topic, creation(ResourceType.GROUP, str(value), AclOperation.READ)])


def rules_removed(name: str) -> DeleteAclsRequest:
    """Both of them."""
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=kind,
                resource_name_filter=name,
                pattern_type_filter=PatternType.LITERAL,
                principal_filter=None,
                host_filter=None,
                operation=AclOperation.ANY,
                permission_type=AclPermission.ANY,
            )
            for kind in (ResourceType.TOPIC, ResourceType.GROUP)
        ]
    )


def password(value: int) -> str:
    """Of a user with this value."""
    return f"password-{value}"


@cache
def upsertion(mechanism: int, value: int) -> tuple[bytes, bytes, int]:
    """(salt, salted password, iterations): the latter tell the value."""
    salt, iterations = b"salt-%010d" % value, scram.ITERATIONS_MIN + value
    salted = scram.salted_password(MECHANISMS[mechanism], password(value).encode(), salt, iterations)
    return salt, salted, iterations


def twins(name: str) -> dict[int, str]:
    """Mechanism → the user who signs in by it: a request changes each user once."""
    return {mechanism: f"{name}{TWIN * (mechanism - 1)}" for mechanism in MECHANISMS}


def credentials(name: str, value: Value) -> AlterUserScramCredentialsRequest:
    """Both twins', given or taken away."""
    users = twins(name)
    if value is None:
        deletions = [ScramCredentialDeletion(name=user, mechanism=mechanism) for mechanism, user in users.items()]
        return AlterUserScramCredentialsRequest(deletions=deletions)
    upsertions = []
    for mechanism, user in users.items():
        salt, salted, iterations = upsertion(mechanism, value)
        upsertions.append(
            ScramCredentialUpsertion(
                name=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
            )
        )
    return AlterUserScramCredentialsRequest(upsertions=upsertions)


def quotas(name: str, value: Value) -> AlterClientQuotasRequest:
    """Of a user and of a client id of that name."""
    rate = float(RATE_MIN + (value or 0))
    return AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntryData(
                entity=[AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)],
                ops=[OpData(key=QUOTA_KEY, value=rate, remove=value is None)],
            )
            for kind in ENTITIES
        ]
    )
