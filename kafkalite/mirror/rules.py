"""Copy ACLs and quotas from the source to the target, and report users that the target lacks.

The target's other ACLs and quotas are kept. If an ACL or quota is deleted in the source while the mirror runs, it is
also deleted in the target. Users without a password in the target are only reported.

Thread rule: one thread at a time, that of the Clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.acls import AclFilter
from kafkalite.base.quota_entities import entity_text
from kafkalite.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.base.acls import Acl
    from kafkalite.base.quota_entities import Entity
    from kafkalite.client import Client

OUT_OF_REACH: Final = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.SECURITY_DISABLED})
"""Errors that would be the same for all other ACLs or quotas."""


class RulesCopy:
    """Copies ACLs.

    All ACLs are copied unchanged, because a target may replace the source. MirrorMaker 2, whose targets are only
    copies, copies only topic ACLs, without WRITE.
    """

    def __init__(self, source: Client, target: Client, note: Callable[[str], object]) -> None:
        self._source = source
        self._target = target
        self._note = note
        self.carried: set[Acl] = set()

    def sync(self) -> None:
        """Synchronize ACLs. Raises KafkaError if a cluster has no authorizer or the mirror lacks the permission."""
        wanted = set(self._source.acls.find())
        there = set(self._target.acls.find())
        missing = sorted(wanted - there)
        try:
            if missing:
                self._target.acls.create(missing)
            self.carried |= wanted
        except KafkaError as error:
            if error.code in OUT_OF_REACH:
                raise
            self._one_by_one(missing)
            self.carried |= wanted & there
        gone = sorted(self.carried - wanted)
        if gone:
            self._target.acls.delete([filter_of(acl) for acl in gone])
            self.carried -= set(gone)

    def _one_by_one(self, missing: list[Acl]) -> None:
        for acl in missing:
            try:
                self._target.acls.create([acl])
                self.carried.add(acl)
            except KafkaError as error:
                self._note(f"ACL not copied: {error}")


def filter_of(acl: Acl) -> AclFilter:
    """Return the filter that matches only this ACL."""
    return AclFilter(
        acl.resource_type, acl.name, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission
    )


class QuotasCopy:
    """Copies quotas of users, client ids and addresses (KIP-546)."""

    def __init__(self, source: Client, target: Client, note: Callable[[str], object]) -> None:
        self._source = source
        self._target = target
        self._note = note
        self.carried: set[tuple[Entity, str]] = set()

    def sync(self) -> None:
        """Synchronize quotas. Raises KafkaError if the mirror lacks the permission."""
        wanted, there = self._source.quotas.list_all(), self._target.quotas.list_all()
        changes: dict[Entity, dict[str, float | None]] = {}
        for entity, values in wanted.items():
            have = there.get(entity, {})
            changed = {key: value for key, value in values.items() if have.get(key) != value}
            if changed:
                changes.setdefault(entity, {}).update(changed)
        for entity, key in self.carried:
            if key not in wanted.get(entity, {}) and key in there.get(entity, {}):
                changes.setdefault(entity, {})[key] = None
        refused = set()
        for entity, values_changed in changes.items():
            try:
                self._target.quotas.alter(entity, values_changed)
            except KafkaError as error:
                if error.code in OUT_OF_REACH:
                    raise
                refused.add(entity)
                self._note(f"quotas of {entity_text(entity)} not copied: {error}")
        self.carried = {(entity, key) for entity, values in wanted.items() if entity not in refused for key in values}


class UsersMissing:
    """Finds users that can authenticate by SCRAM in the source but not in the target.

    Passwords cannot be copied, because no cluster returns them, not even as hashes (KIP-554).
    """

    def __init__(self, source: Client, target: Client, note: Callable[[str], object]) -> None:
        self._source = source
        self._target = target
        self._note = note
        self.missing: dict[str, list[str]] = {}
        """User → mechanisms."""

    def sync(self) -> None:
        """Update the missing users. Raises KafkaError if the mirror lacks the permission."""
        wanted, there = self._source.users.list_all(), self._target.users.list_all()
        self.missing = {
            user: missing
            for user, mechanisms in wanted.items()
            if (missing := [name for name in sorted(mechanisms) if name not in there.get(user, {})])
        }
        for user, mechanisms in self.missing.items():
            self._note(
                f"user {user} ({', '.join(mechanisms)}) is missing in the target and cannot be mirrored, because"
                " passwords cannot be read; create it (kafkalite users add, or users copy)"
            )
