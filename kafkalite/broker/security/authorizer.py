"""Authorize clients by ACLs, like Kafka's StandardAuthorizer.

A standalone broker has its ACLs in the metadata journal. A broker in a cluster gets them from the controllers (`use`).

    check     super user ─▶ yes, else the ACLs (`kafkalite.broker.security.acl_check`), else the default
    change    line in the journal, durable ─▶ ACLs in memory ─▶ epoch raised ─▶ response

Produce and Fetch cache decisions (native AccessView). A cached decision is valid only in the epoch of its check.

Thread rule: any thread. `_lock` is a leaf. `_changing` makes check and change of a request atomic; it is taken before
the locks of the log manager.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

from kafkalite._native.serve.access import AccessControl
from kafkalite.base.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    AclFilter,
    AclOperation,
    AclPermission,
    ResourceType,
    operation_bits,
)
from kafkalite.base.logging import RepeatLogger, fields
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.broker.security.acl_check import Rules, host_key, is_network, network
from kafkalite.errors import InvalidRequest, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalite.base.acls import Acl

LOGGED_SIZE_MAX: Final = 256
"""Maximum length in the log of a name that a client chooses."""
DELETED_MAX: Final = 10_000
"""Maximum number of ACLs that one request may delete, as in Kafka."""
PROBED_NAME: Final = "hardcode"
"""A name that no ACL is expected to have: a client that may use this name may use any name. Kafka's Authorizer uses the
same name."""

audit = logging.getLogger("kafkalite.authorizer")
_denials: Final = RepeatLogger(audit)

_host_key = functools.lru_cache(4096)(host_key)


class Authorizer:
    """The ACLs of a broker, and its super users."""

    def __init__(
        self,
        acls: Iterable[Acl],
        record: Callable[[Sequence[Acl], Sequence[Acl]], None],
        *,
        super_users: frozenset[str] = frozenset(),
        allow_without_acl: bool = False,
    ) -> None:
        """Begin with these ACLs. `record` makes added and removed ACLs durable, all or none; it raises KafkaError if
        that fails.
        """
        self._rules = Rules(acls)
        self._record = record
        self._super_users = super_users
        self._default = allow_without_acl
        self._denied: Counter[tuple[AclOperation, ResourceType]] = Counter()
        self._lock = threading.Lock()
        self._changing = threading.Lock()
        self.control = AccessControl(
            allows_topic=self._allows_topic,
            allows_transactional_id=self._allows_transactional_id,
            allows_following=self._allows_following,
        )
        """The native part, through which Produce and Fetch check."""

    def __len__(self) -> int:
        return len(self._rules)

    def allows(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        kind: ResourceType,
        name: str,
        api: str,
        *,
        probe: bool = False,
    ) -> bool:
        """Return whether a principal may perform an operation. `api` is for the log.

        Denials are logged at INFO, once a minute for each principal, operation and resource type. At DEBUG every
        decision is logged. With `probe`, the client does not attempt the operation: a denial is not counted, and is
        logged only at DEBUG.
        """
        rule: Acl | None = None
        if principal in self._super_users:
            allowed = True
            why = "super user"
        else:
            with self._lock:
                decided, rule = self._rules.decide(principal, _host_key(host), operation, kind, name)
            allowed = self._default if decided is None else decided
            why = "default" if decided is None else "no matching ACL"
        if not allowed and not probe:
            with self._lock:
                self._denied[operation, kind] += 1
        denied_attempt = not allowed and not probe
        if audit.isEnabledFor(logging.INFO if denied_attempt else logging.DEBUG):
            asked = fields(
                principal=principal[:LOGGED_SIZE_MAX],
                operation=operation.name,
                host=host,
                resource=f"{kind.name}:{name[:LOGGED_SIZE_MAX]}",
                api=api,
                rule=why if rule is None else _text(rule),
            )
            if not denied_attempt:
                audit.debug("allowed" if allowed else "denied", extra=asked)
            elif audit.isEnabledFor(logging.DEBUG):
                audit.info("denied", extra=asked)
            else:
                _denials.info("denied", kind=(principal, operation, kind), extra=asked)
        return allowed

    def denied(self) -> dict[tuple[AclOperation, ResourceType], int]:
        """Return the number of denials since the start, by operation and resource type.

        Denials of Produce and Fetch are cached; a cached denial counts once per second.
        """
        with self._lock:
            return dict(self._denied)

    def allows_any(self, principal: str, host: str, operation: AclOperation, kind: ResourceType, api: str) -> bool:
        """Return whether a principal may perform the operation on at least one resource of a type (KIP-679)."""
        if self.allows(principal, host, operation, kind, PROBED_NAME, api, probe=True):
            return True
        with self._lock:
            return self._rules.allows_any(principal, _host_key(host), operation, kind)

    def operations(self, principal: str, host: str, kind: ResourceType, name: str, api: str) -> int:
        """Return the bit field of the operations on a resource for which a principal is authorized (KIP-430)."""
        return operation_bits(
            tuple(
                operation
                for operation in OPERATIONS[kind]
                if self.allows(principal, host, operation, kind, name, api, probe=True)
            )
        )

    def _allows_topic(self, principal: str, host: str, operation: int, name: str) -> bool:
        api = "Fetch" if operation == AclOperation.READ else "Produce"
        return self.allows(principal, host, AclOperation(operation), ResourceType.TOPIC, name, api)

    def _allows_transactional_id(self, principal: str, host: str, name: str) -> bool:
        return self.allows(principal, host, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name, "Produce")

    def _allows_following(self, principal: str, host: str) -> bool:
        return self.allows(principal, host, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, "Fetch")

    def acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """Return the ACLs that match a filter; without a filter, all ACLs."""
        wanted = wanted or AclFilter()
        with self._lock:
            present = list(self._rules)  # copied, since network threads wait for the lock
        return [acl for acl in checkpointed(present) if wanted.matches(acl)]

    def create(self, acls: Iterable[Acl]) -> list[KafkaError | None]:
        """Add ACLs; return None or an error for each. An ACL that exists is a success, and is not added again."""
        results: list[KafkaError | None] = []
        fresh: dict[Acl, None] = {}
        with self._changing:
            for acl in checkpointed(acls):
                try:
                    _check(acl)
                except InvalidRequest as error:
                    results.append(error)
                    continue
                results.append(None)
                if acl not in self._rules:
                    fresh[acl] = None
            try:
                self._change(list(fresh), [])
            except KafkaError as error:
                return [result or error for result in results]
        return results

    def delete(self, filters: Iterable[AclFilter]) -> list[list[Acl] | KafkaError]:
        """Remove the ACLs that match each filter; return for each filter the removed ACLs or an error.

        If more than DELETED_MAX ACLs match, none is removed.
        """
        results: list[list[Acl] | KafkaError] = []
        gone: dict[Acl, None] = {}
        with self._changing:
            for wanted in checkpointed(filters):
                if wanted.is_unknown:
                    results.append(
                        InvalidRequest(
                            "the filter has an unknown resource type, pattern type, operation or permission type"
                        )
                    )
                    continue
                found = self.acls(wanted)
                results.append(found)
                gone.update(dict.fromkeys(found))
            try:
                if len(gone) > DELETED_MAX:
                    raise InvalidRequest(
                        f"a request can delete at most {DELETED_MAX} ACLs, but this one matches {len(gone)}"
                    )
                self._change([], list(gone))
            except KafkaError as error:
                return [error for _ in results]
        return results

    def _change(self, added: Sequence[Acl], removed: Sequence[Acl]) -> None:
        if not added and not removed:
            return
        self._record(added, removed)
        self._apply(added, removed)
        for acl, what in [*((acl, "added") for acl in added), *((acl, "removed") for acl in removed)]:
            audit.info("ACL %s", what, extra=fields(rule=_text(acl)))

    def use(self, added: Iterable[Acl], removed: Iterable[Acl]) -> None:
        """Apply, all at once, the ACLs that a cluster's controllers have added and removed. Nothing is made durable.

        Adding an ACL that exists, or removing one that does not, has no effect.
        """
        with self._changing:
            self._apply(
                [acl for acl in dict.fromkeys(added) if acl not in self._rules],
                [acl for acl in dict.fromkeys(removed) if acl in self._rules],
            )

    def _apply(self, added: Sequence[Acl], removed: Sequence[Acl]) -> None:
        with self._lock:
            for acl in added:
                self._rules.add(acl)
            for acl in removed:
                self._rules.remove(acl)
        self.control.rules_changed()


def _check(acl: Acl) -> None:
    """Raise InvalidRequest unless this is a valid new ACL."""
    acl.check()
    if is_network(acl.host):
        try:
            network(acl.host)
        except ValueError as error:
            raise InvalidRequest(f"the host is not a valid network: {error}") from None


def _text(acl: Acl) -> str:
    """Return an ACL as text for the log."""
    verb = "DENY" if acl.permission is AclPermission.DENY else "ALLOW"
    return (
        f"{verb} {acl.principal[:LOGGED_SIZE_MAX]} from {acl.host[:LOGGED_SIZE_MAX]} {acl.operation.name}"
        f" {acl.resource_type.name}:{acl.pattern_type.name}:{acl.name[:LOGGED_SIZE_MAX]}"
    )
