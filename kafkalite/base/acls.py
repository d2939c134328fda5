"""Define access control lists as in Kafka's protocol: which principals may perform which operations on which resources.

    Acl        one ACL: a resource pattern, a principal, a host, an operation, allow or deny
    AclFilter  selects the ACLs to list or delete

Enum values have the numbers of Kafka's protocol and the names of Kafka's tools. The broker, the client and the command
line use this module. `kafkalite.broker.security.acl_check` authorizes requests.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Self

from kafkalite.errors import InvalidRequest

ANY_NAME: Final = "*"
"""As a literal pattern it matches every resource of its type, as a host every host."""
ANY_USER: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of type CLUSTER."""


class _Number(IntEnum):
    """An enum of Kafka's protocol. Numbers that it does not define become UNKNOWN, as in Kafka."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls(0) if isinstance(value, int) else None


class ResourceType(_Number):
    """The type of resource to which an ACL applies (Kafka's ResourceType)."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Number):
    """The way in which an ACL's name matches resource names (Kafka's PatternType). Only filters use ANY and MATCH."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Number):
    """An operation on a resource (Kafka's AclOperation).

    In a bit field of authorized operations, the operation with number n has the bit 1 << n.
    """

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(_Number):
    """Whether an ACL allows or denies the operation (Kafka's AclPermissionType). Only filters use ANY."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS: Final[dict[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations that apply to each resource type (Kafka's AclEntry.supportedOperations)."""

OPERATIONS_NOT_ASKED: Final = -(1 << 31)
"""The value of a field of authorized operations that the client did not request."""


def operation_bits(operations: tuple[AclOperation, ...]) -> int:
    """Return operations as a bit field, as in the protocol's fields of authorized operations."""
    return sum(1 << operation for operation in operations)


class Acl(NamedTuple):
    """One ACL (Kafka's AclBinding). Two ACLs with equal fields are the same ACL."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    def check(self) -> None:
        """Raise InvalidRequest if this ACL is invalid, by the checks of Kafka's AclApis and AclControlManager."""
        if self.resource_type is ResourceType.CLUSTER and self.name != CLUSTER_NAME:
            raise InvalidRequest(f"resource type CLUSTER has only one resource, {CLUSTER_NAME!r}")
        if not self.name:
            raise InvalidRequest("the resource name is empty")
        if self.resource_type in {ResourceType.UNKNOWN, ResourceType.ANY}:
            raise InvalidRequest(
                f"resource type {self.resource_type.name} is not allowed in an ACL; name the type of one resource"
            )
        if self.pattern_type not in {PatternType.LITERAL, PatternType.PREFIXED}:
            raise InvalidRequest(
                f"pattern type {self.pattern_type.name} is not allowed in an ACL; use LITERAL or PREFIXED"
            )
        if self.operation in {AclOperation.UNKNOWN, AclOperation.ANY}:
            raise InvalidRequest(f"operation {self.operation.name} is not allowed in an ACL; name one operation or ALL")
        if self.permission not in {AclPermission.DENY, AclPermission.ALLOW}:
            raise InvalidRequest(f"permission type {self.permission.name} is not allowed in an ACL; use ALLOW or DENY")
        if ":" not in self.principal:
            raise InvalidRequest(f"principal {self.principal[:64]!r} is not of the form type:name, such as User:alice")

    def texts(self) -> list[str]:
        """Return the fields as a list of strings, which `from_texts` parses."""
        return [
            self.resource_type.name,
            self.name,
            self.pattern_type.name,
            self.principal,
            self.host,
            self.operation.name,
            self.permission.name,
        ]

    @classmethod
    def from_texts(cls, texts: object) -> Self:
        """Create an ACL from the strings that `Acl.texts` returned. ValueError if they are not a valid ACL."""
        if not isinstance(texts, list) or len(texts) != len(cls._fields) or {*map(type, texts)} != {str}:
            raise ValueError(f"{texts!r:.200} is not an ACL")
        kind, name, pattern, principal, host, operation, permission = texts
        try:
            acl = cls(
                ResourceType[kind],
                name,
                PatternType[pattern],
                principal,
                host,
                AclOperation[operation],
                AclPermission[permission],
            )
            acl.check()
        except KeyError as error:
            raise ValueError(f"{texts!r:.200} is not an ACL: unknown name {error}") from None
        except InvalidRequest as error:
            raise ValueError(f"{texts!r:.200} is not an ACL: {error}") from None
        return acl


class AclFilter(NamedTuple):
    """A filter that selects ACLs (Kafka's AclBindingFilter). A field that is None or ANY matches every value."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether any field of this filter is UNKNOWN."""
        return not (self.resource_type and self.pattern_type and self.operation and self.permission)

    def matches(self, acl: Acl) -> bool:
        """Return whether the filter selects this ACL."""
        return (
            self.resource_type in {ResourceType.ANY, acl.resource_type}
            and self.operation in {AclOperation.ANY, acl.operation}
            and self.permission in {AclPermission.ANY, acl.permission}
            and self.principal in {None, acl.principal}
            and self.host in {None, acl.host}
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in {PatternType.ANY, PatternType.MATCH, acl.pattern_type}:
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name == ANY_NAME
