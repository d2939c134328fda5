"""What follows from access control lists: may this principal, from this host, do that with this resource?

    any DENY that matches                    no
    any ALLOW that matches                   yes
    a rule about the resource, for whomever  no
    no rule about it                         the default: allow.everyone.if.no.acl.found

A rule is about a resource when its name is the resource's, is `*`, or, as a prefix, begins it. It matches when
principal (or `User:*`), host (or its network, or `*`) and operation (or ALL) are the asker's. An ALLOW of READ, WRITE,
DELETE or ALTER allows DESCRIBE too, one of ALTER_CONFIGS allows DESCRIBE_CONFIGS; a DENY implies nothing.

Source: org.apache.kafka.metadata.authorizer.StandardAuthorizerData of Kafka 4.1; `allows_any` is
`authorizeByResourceType` of its interface Authorizer. Hosts are compared as addresses, however they are written.
Networks (`10.0.0.0/8`) are those of Kafka 4.4, CidrUtils.

Thread rule: its owner sees to it that nobody asks while somebody changes it.
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
"""Operation of an ALLOW → what it allows, where that is more than itself."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Entries = dict["Acl", str | Network]
"""The rules of one principal about one name, each with its host as it is compared."""
Section = dict[str, dict[str, Entries]]
"""Name → principal → rules."""


def host_key(host: str) -> str:
    """An address in the one form in which hosts are compared; any other text is itself."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def is_network(host: str) -> bool:
    """Whether a rule's host is meant as a network, and not as one address."""
    return "/" in host


def network(host: str) -> Network:
    """ADDRESS/BITS; ValueError for anything else."""
    if not host.rpartition("/")[2].isdecimal():
        raise ValueError(f"network {host[:64]!r} has no numeric prefix length")
    return ipaddress.ip_network(host, strict=False)


def host_pattern(host: str) -> str | Network:
    """A rule's host as `is_from` takes it. One that cannot be a network is nobody's."""
    try:
        return network(host) if is_network(host) else host_key(host)
    except ValueError:
        return host


def is_from(pattern: str | Network, host: str) -> bool:
    """Whether a client at `host`, as `host_key` makes it, is one of a rule's."""
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
    """Whether a rule says something about an operation."""
    if acl.operation is operation or acl.operation is AclOperation.ALL:
        return True
    return acl.permission is AclPermission.ALLOW and operation in _IMPLIED.get(acl.operation, ())


class Rules:
    """A set of rules, kept so that a question looks only at those about its resource and its principal."""

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
        """Adds a rule that is not there."""
        section = self._section(acl)
        if acl.name not in section:
            section[acl.name] = {}
            if acl.pattern_type is PatternType.PREFIXED:
                lengths = self._lengths[acl.resource_type]
                lengths[len(acl.name)] = lengths.get(len(acl.name), 0) + 1
        section[acl.name].setdefault(acl.principal, {})[acl] = host_pattern(acl.host)
        self._count += 1

    def remove(self, acl: Acl) -> None:
        """Removes a rule that is there."""
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
        """Principal → rules, of every pattern that the resource is one of."""
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
        """(allowed, the rule that says so); None as answer where there is no rule about the resource.

        (False, None): there are rules about the resource, and none is for the asker. `host` is as host_key makes it.
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
        """Whether some rule allows an operation on a resource of a type, and no DENY has the whole of its pattern.

        Here no operation implies another. The default, and super users, are for the caller to know.
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
