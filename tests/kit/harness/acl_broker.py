"""A broker in this process with an authorizer, and clients with a certificate each.

The client `admin` is a super user; on the listener PLAINTEXT every client is User:ANONYMOUS.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any, Self

from kafkalite.base.acls import CLUSTER_NAME, Acl, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api, header
from kafkalite.wire.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafkalite.wire.protocol.messages.describe_acls import DescribeAclsRequest
from tests.kit.harness.tls_broker import TlsBroker

if TYPE_CHECKING:
    from pathlib import Path

ADMIN = "admin"
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def principal_of(name: str) -> str:
    """Return the principal of a client with this name's certificate."""
    return f"User:CN={name},O=Tests"


def rule(
    name: str,
    operation: AclOperation,
    kind: ResourceType = TOPIC,
    resource: str = CLUSTER_NAME,
    *,
    pattern: PatternType = LITERAL,
    permission: AclPermission = ALLOW,
    host: str = "*",
) -> Acl:
    """A rule about a client of this name; `*` is everybody, and a name with a colon is a principal."""
    principal = "User:*" if name == "*" else name if ":" in name else principal_of(name)
    return Acl(kind, resource, pattern, principal, host, operation, permission)


class Asker:
    """One connection; requests are asked one at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._correlation_id = 0

    def send(self, key: int, version: int, request: object) -> None:
        self._correlation_id += 1
        self._connection.sendall(protocol.encode_request_frame(key, version, self._correlation_id, "test", request))

    def receive(self, key: int, version: int) -> Any:
        """The next answer; ConnectionError where the connection is closed."""
        answer = self._exactly(int.from_bytes(self._exactly(4), "big"))
        _, position = header.decode_response_header(key, version, answer)
        return protocol.decode_response(key, version, answer[position:])

    def ask(self, key: int, version: int, request: object) -> Any:
        self.send(key, version, request)
        return self.receive(key, version)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._connection.recv(size - len(data))
            if not piece:
                raise ConnectionError("closed")
            data += piece
        return data

    def close(self) -> None:
        self._connection.close()


class AclBroker(TlsBroker):
    """As TlsBroker, with an authoriser."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        texts = {
            "authorizer_class_name": STANDARD_AUTHORIZER,
            "super_users": principal_of(ADMIN),
            **settings,
        }
        super().__init__(directory, **texts)
        self._askers: dict[str, Asker] = {}
        self._opened: list[Asker] = []
        self._contexts: dict[str, ssl.SSLContext] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        for asker in self._opened:
            asker.close()
        super().__exit__(*exc)

    def asker(self, name: str = "") -> Asker:
        """Return a new connection as this client, or an anonymous one on the plaintext listener without a name."""
        if not name:
            connection: socket.socket = self.connect("PLAINTEXT")
        else:
            if name not in self._contexts:
                identity = self.authority.issue(name, client=True)
                self._contexts[name] = self.context(identity.write_pem(self.directory / f"{name}.pem"))
            connection = self.secure(self._contexts[name])
        asker = Asker(connection)
        self._opened.append(asker)
        return asker

    def ask(self, name: str, key: int, version: int, request: object) -> Any:
        """One request of somebody, over his connection."""
        if name not in self._askers:
            self._askers[name] = self.asker(name)
        return self._askers[name].ask(key, version, request)

    def allow(self, *rules: Acl) -> None:
        """Adds rules."""
        answer = self.ask(ADMIN, api.CREATE_ACLS, 3, CreateAclsRequest(creations=[creation(acl) for acl in rules]))
        assert [result.error_code for result in answer.results] == [0] * len(rules)

    def forbid(self, *rules: Acl) -> None:
        """Removes rules."""
        answer = self.ask(ADMIN, api.DELETE_ACLS, 3, DeleteAclsRequest(filters=[deletion(acl) for acl in rules]))
        assert [len(found.matching_acls) for found in answer.filter_results] == [1] * len(rules)

    def rules(self) -> set[Acl]:
        """Those that there are."""
        wanted = DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        answer = self.ask(ADMIN, api.DESCRIBE_ACLS, 3, wanted)
        assert answer.error_code == 0
        return {
            Acl(
                ResourceType(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
                item.principal,
                item.host,
                AclOperation(item.operation),
                AclPermission(item.permission_type),
            )
            for resource in answer.resources
            for item in resource.acls
        }

    def make_topic(self, name: str, partitions: int = 1) -> bytes:
        """Makes a topic; its id."""
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = self.ask(ADMIN, api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[wanted]))
        assert answer.topics[0].error_code == 0, answer
        topic_id: bytes = answer.topics[0].topic_id
        return topic_id


def creation(acl: Acl) -> AclCreation:
    """A rule as CreateAcls has it."""
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def deletion(acl: Acl) -> DeleteAclsFilter:
    """A filter that means one rule."""
    return DeleteAclsFilter(
        resource_type_filter=acl.resource_type,
        resource_name_filter=acl.name,
        pattern_type_filter=acl.pattern_type,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
