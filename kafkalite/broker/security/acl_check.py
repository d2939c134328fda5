"""Decide by ACLs whether a principal, connected from a host, may perform an operation on a resource.

The first of these lines that applies decides:

    a matching DENY                          no
    a matching ALLOW                         yes
    an ACL on the resource, for any client   no
    no ACL on the resource                   the default: allow.everyone.if.no.acl.found

An ACL is on a resource if its name equals the resource's name, is `*`, or is a prefix (PREFIXED) of that name. It
matches a client if principal, host and operation match.

Source: org.apache.kafka.metadata.authorizer.StandardAuthorizerData of Kafka 4.1.

Thread rule: no thread may read during a change; the caller ensures that.
"""

from __future__ import annotations

import functools
import ipaddress
from typing import TYPE_CHECKING, Final

from kafkalite.base.acls import ANY_NAME, ANY_USER, AclOperation, AclPermission, PatternType, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalite.base.acls import Acl

ANY_HOST: Final = "*"

_IMPLIED: Final = {
    AclOperation.READ: frozenset({AclOperation.READ, AclOperation.DESCRIBE}),
    AclOperation.WRITE: frozenset({AclOperation.WRITE, AclOperation.DESCRIBE}),
    AclOperation.DELETE: frozenset({AclOperation.DELETE, AclOperation.DESCRIBE}),
    AclOperation.ALTER: frozenset({AclOperation.ALTER, AclOperation.DESCRIBE}),
    AclOperation.ALTER_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS}),
    AclOperation.ALL: frozenset(AclOperation),
}
"""Operation of an ALLOW → the operations that it allows, for each operation that allows more than itself."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Entries = dict["Acl", str | Network]
"""One principal's ACLs on one name, each with its host in the form in which hosts are compared."""
Section = dict[str, dict[str, Entries]]
"""Name → principal → ACLs."""


def host_key(host: str) -> str:
    """Return an address in the canonical form in which hosts are compared. Return any other text unchanged."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def is_network(host: str) -> bool:
    """Return whether an ACL's host is a network instead of a single address."""
    return "/" in host


def network(host: str) -> Network:
    """Return the network of ADDRESS/BITS; ValueError for any other text. Source: CidrUtils of Kafka 4.4."""
    if not host.rpartition("/")[2].isdecimal():
        raise ValueError(f"network {host[:64]!r} has no numeric prefix length")
    return ipaddress.ip_network(host, strict=False)


def host_pattern(host: str) -> str | Network:
    """Return an ACL's host in the form that `is_from` compares. An invalid network matches no client."""
    try:
        return network(host) if is_network(host) else host_key(host)
    except ValueError:
        return host


def is_from(pattern: str | Network, host: str) -> bool:
    """Return whether an ACL's host, as `host_pattern` returns it, matches a client's host, as `host_key` returns it."""
    if isinstance(pattern, str):
        return pattern in {ANY_HOST, host}
    address = _address(host)
    return address is not None and address in pattern


@functools.lru_cache(4096)
def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def covers(acl: Acl, operation: AclOperation) -> bool:
    """Return whether an ACL applies to an operation, directly or by implication. A DENY implies no other operation."""
    if acl.operation is operation or acl.operation is AclOperation.ALL:
        return True
    return acl.permission is AclPermission.ALLOW and operation in _IMPLIED.get(acl.operation, ())


class Rules:
    """A set of ACLs with an index, so that a decision reads only the ACLs on its resource and for its principal."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self._count = 0
        self._literal: dict[ResourceType, Section] = {kind: {} for kind in ResourceType}
        self._prefixed: dict[ResourceType, Section] = {kind: {} for kind in ResourceType}
        self._lengths: dict[ResourceType, dict[int, int]] = {kind: {} for kind in ResourceType}
        for acl in acls:
            self.add(acl)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Acl]:
        for sections in (self._literal, self._prefixed):
            for section in sections.values():
                for principals in section.values():
                    for entries in principals.values():
                        yield from entries

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._section(acl).get(acl.name, {}).get(acl.principal, ())

    def _section(self, acl: Acl) -> Section:
        sections = self._prefixed if acl.pattern_type is PatternType.PREFIXED else self._literal
        return sections[acl.resource_type]

    def add(self, acl: Acl) -> None:
        """Add an ACL that is not in the set."""
        section = self._section(acl)
        if acl.name not in section:
            section[acl.name] = {}
            if acl.pattern_type is PatternType.PREFIXED:
                lengths = self._lengths[acl.resource_type]
                lengths[len(acl.name)] = lengths.get(len(acl.name), 0) + 1
        section[acl.name].setdefault(acl.principal, {})[acl] = host_pattern(acl.host)
        self._count += 1

    def remove(self, acl: Acl) -> None:
        """Remove an ACL that is in the set."""
        section = self._section(acl)
        principals = section[acl.name]
        entries = principals[acl.principal]
        del entries[acl]
        self._count -= 1
        if not entries:
            del principals[acl.principal]
        if not principals:
            del section[acl.name]
            if acl.pattern_type is PatternType.PREFIXED:
                lengths = self._lengths[acl.resource_type]
                lengths[len(acl.name)] -= 1
                if not lengths[len(acl.name)]:
                    del lengths[len(acl.name)]

    def _about(self, kind: ResourceType, name: str) -> Iterator[dict[str, Entries]]:
        """Yield principal → ACLs for each pattern that matches the resource's name."""
        literal = self._literal[kind]
        found = literal.get(name)
        if found is not None:
            yield found
        if name != ANY_NAME:
            found = literal.get(ANY_NAME)
            if found is not None:
                yield found
        prefixed = self._prefixed[kind]
        for length in self._lengths[kind]:
            if length <= len(name):
                found = prefixed.get(name[:length])
                if found is not None:
                    yield found

    def decide(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str
    ) -> tuple[bool | None, Acl | None]:
        """Return (allowed, the deciding ACL). `host` is in the form that host_key returns.

        If there are ACLs on the resource and none matches, return (False, None). If there is none on the resource,
        return (None, None).
        """
        allowing: Acl | None = None
        known = False
        for principals in self._about(kind, name):
            known = True
            for asker in (principal, ANY_USER):
                for acl, acl_host in principals.get(asker, {}).items():
                    if not covers(acl, operation) or not is_from(acl_host, host):
                        continue
                    if acl.permission is AclPermission.DENY:
                        return False, acl
                    allowing = acl
                if principal == ANY_USER:
                    break
        if allowing is not None:
            return True, allowing
        return (False if known else None), None

    def allows_any(self, principal: str, host: str, operation: AclOperation, kind: ResourceType) -> bool:
        """Return whether an ACL allows an operation on some resource of a type.

        An ALLOW does not count if a DENY covers its whole pattern. Unlike in `decide`, no operation except ALL implies
        another. The caller handles super users and the default. Source: authorizeByResourceType of Kafka's interface
        Authorizer.
        """

        def patterns(section: Section, permission: AclPermission) -> Iterator[str]:
            for name, principals in section.items():
                for asker in (principal, ANY_USER):
                    for acl, acl_host in principals.get(asker, {}).items():
                        if (
                            acl.permission is permission
                            and acl.operation in {operation, AclOperation.ALL}
                            and is_from(acl_host, host)
                        ):
                            yield name

        literal, prefixed = self._literal[kind], self._prefixed[kind]
        denied = set(patterns(literal, AclPermission.DENY))
        if ANY_NAME in denied:
            return False
        denied_prefixes = set(patterns(prefixed, AclPermission.DENY))

        def is_dominated(name: str) -> bool:
            return any(name[:length] in denied_prefixes for length in range(1, len(name) + 1))

        return any(
            name == ANY_NAME or (name not in denied and not is_dominated(name))
            for name in patterns(literal, AclPermission.ALLOW)
        ) or any(not is_dominated(name) for name in patterns(prefixed, AclPermission.ALLOW))
