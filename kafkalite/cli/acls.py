"""List, add and remove ACLs. The flags are those of Kafka's kafka-acls.

kafkalite acls add --allow-principal User:alice --topic orders --producer
kafkalite acls add --allow-principal User:bob --topic orders --group billing --consumer
kafkalite acls add --deny-principal User:eve --topic team- --resource-pattern-type prefixed --operation read
kafkalite acls list --topic orders --resource-pattern-type match
kafkalite acls remove --allow-principal User:bob --topic orders --group billing --consumer
kafkalite acls add --allow-principal User:admin --cluster --data-dir data

--producer covers write, describe and create on the topics. With --transactional-id it also covers write and describe on
that id, and with --idempotent it covers idempotent-write on the cluster. --consumer covers read and describe on the
topics, and read on the groups. Without these flags and without --operation, an ACL covers every operation.

By default, an operation that no ACL allows is denied. A deny ACL takes precedence over an allow ACL. super.users may do
everything. A standalone broker applies a change before the command ends.

With --data-dir, the command works on the data directory of a stopped broker; `add` creates a missing directory.
`remove` takes the flags of `add`. Without principals, it removes all ACLs of the resources.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import TYPE_CHECKING, Final

from kafkalite.base.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from kafkalite.cli import Parser, UsageError
from kafkalite.cli.common import add_client_arguments, open_client
from kafkalite.cli.output import print_json, print_table
from kafkalite.errors import InvalidRequest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

Resource = tuple[ResourceType, str]

ANY_HOST: Final = "*"
KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
OPERATION_NAMES: Final = {
    operation.name.lower().replace("_", "-"): operation for operation in AclOperation if operation > AclOperation.ANY
}
FOR_PRODUCERS: Final = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
FOR_TRANSACTIONS: Final = (AclOperation.WRITE, AclOperation.DESCRIBE)
FOR_CONSUMERS: Final = (AclOperation.READ, AclOperation.DESCRIBE)
FIELDS: Final = ("resource", "name", "pattern", "principal", "host", "operation", "permission")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    add = actions.add_parser("add", help="add ACLs that allow or deny operations")
    remove = actions.add_parser("remove", help="remove ACLs")
    listing = actions.add_parser("list", help="list the ACLs of some or all resources")
    for action in (add, remove):
        for verb in ("allow", "deny"):
            action.add_argument(
                f"--{verb}-principal",
                metavar="TYPE:NAME",
                action="append",
                default=[],
                help=f"principal to {verb}: User:alice, or User:* for all; can be repeated",
            )
            action.add_argument(
                f"--{verb}-host",
                metavar="ADDRESS",
                action="append",
                default=[],
                help=f"client address to {verb}; can be repeated (default: *)",
            )
        action.add_argument(
            "--operation",
            choices=sorted(OPERATION_NAMES),
            metavar="NAME",
            type=operation_name,
            action="append",
            default=[],
            help=f"operation of the ACL; can be repeated (default: all): {', '.join(sorted(OPERATION_NAMES))}",
        )
        action.add_argument("--producer", action="store_true", help="set the operations that a producer needs")
        action.add_argument("--consumer", action="store_true", help="set the operations that a consumer needs")
        action.add_argument(
            "--idempotent",
            action="store_true",
            help="with --producer: also allow idempotent-write on the cluster, for older clients",
        )
    listing.add_argument(
        "--principal",
        action="append",
        default=[],
        metavar="TYPE:NAME",
        help="only list ACLs of this principal",
    )
    for action, patterns in ((add, ("literal", "prefixed")), (remove, PATTERNS), (listing, PATTERNS)):
        for name in KINDS:
            flag = f"--{name.replace('_', '-')}"
            action.add_argument(
                flag,
                action="append",
                default=[],
                metavar="NAME",
                help=f"{name.replace('_', ' ')} with this name, or * for all; can be repeated",
            )
        action.add_argument("--cluster", action="store_true", help="the cluster itself as the resource")
        action.add_argument(
            "--resource-pattern-type",
            choices=patterns,
            default="literal",
            type=str.lower,
            help="how the given names are compared with resource names (default: literal)",
        )
        action.add_argument("--data-dir", metavar="DIR", help="data directory of a stopped broker, used instead of -b")
        add_client_arguments(action)
    remove.add_argument("--force", action="store_true", help="do not ask for confirmation")


def operation_name(text: str) -> str:
    """Parse the name of an operation, for argparse: describe-configs, DescribeConfigs or DESCRIBE_CONFIGS."""
    plain = text.lower().replace("-", "").replace("_", "")
    return next((name for name in OPERATION_NAMES if name.replace("-", "") == plain), text)


PATTERNS: Final = ("literal", "prefixed", "any", "match")


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "list":
        show(arguments, find(arguments, list(filters(arguments))))
    elif arguments.action == "add":
        added = list(dict.fromkeys(rules(arguments)))
        if not added:
            raise UsageError("no principal given; use --allow-principal or --deny-principal")
        create(arguments, added)
        show(arguments, added)
    else:
        wanted = [exactly(acl) for acl in rules(arguments)] or list(filters(arguments))
        if not arguments.force and sys.stdin.isatty():
            show(arguments, find(arguments, wanted))
            if input("Remove these ACLs? (y/n) ").strip().lower() != "y":
                return 0
        show(arguments, delete(arguments, wanted))
    return 0


def resources(arguments: argparse.Namespace) -> list[Resource]:
    """Return the resources that the flags name. UsageError if they name none."""
    found = [(kind, name) for attribute, kind in KINDS.items() for name in getattr(arguments, attribute)]
    if arguments.cluster:
        found.append((ResourceType.CLUSTER, CLUSTER_NAME))
    if not found and arguments.action != "list":
        raise UsageError("no resource given; use --topic, --group, --cluster, --transactional-id, ...")
    if any(not name for _, name in found):
        raise UsageError("the resource name must not be empty")
    return found


def operations(arguments: argparse.Namespace) -> Iterator[tuple[Resource, AclOperation]]:
    """Yield (resource, operation) for each ACL that the flags describe."""
    named = resources(arguments)
    producer, consumer = arguments.producer, arguments.consumer
    if producer or consumer:
        yield from _for_clients(named, arguments)
        return
    asked = [OPERATION_NAMES[name] for name in arguments.operation] or [AclOperation.ALL]
    for (kind, name), operation in product(named, asked):
        if operation is not AclOperation.ALL and operation not in OPERATIONS[kind]:
            known = ", ".join(each.name.lower().replace("_", "-") for each in OPERATIONS[kind])
            raise UsageError(
                f"--operation {operation.name.lower()} does not apply to a {kind.name.lower()}; expected {known} or all"
            )
        yield (kind, name), operation


def _for_clients(named: Sequence[Resource], arguments: argparse.Namespace) -> Iterator[tuple[Resource, AclOperation]]:
    topics = [resource for resource in named if resource[0] is ResourceType.TOPIC]
    groups = [resource for resource in named if resource[0] is ResourceType.GROUP]
    if arguments.operation:
        raise UsageError("--operation cannot be used with --producer or --consumer, which set the operations")
    if not topics:
        raise UsageError("--producer and --consumer require --topic")
    if arguments.consumer != bool(groups):
        raise UsageError(
            "--consumer requires --group"
            if arguments.consumer
            else "--group requires --consumer; --producer sets no ACLs of groups"
        )
    if arguments.producer:
        yield from product(topics, FOR_PRODUCERS)
        ids = [resource for resource in named if resource[0] is ResourceType.TRANSACTIONAL_ID]
        yield from product(ids, FOR_TRANSACTIONS)
        if arguments.idempotent:
            yield (ResourceType.CLUSTER, CLUSTER_NAME), AclOperation.IDEMPOTENT_WRITE
    if arguments.consumer:
        yield from product(topics, FOR_CONSUMERS)
        yield from product(groups, (AclOperation.READ,))


def rules(arguments: argparse.Namespace) -> Iterator[Acl]:
    """Yield the ACLs that the flags describe. Yield none if the flags name no principal. UsageError for an
    invalid ACL."""
    who = [
        (permission, principal, host)
        for permission, principals, hosts in (
            (AclPermission.ALLOW, arguments.allow_principal, arguments.allow_host),
            (AclPermission.DENY, arguments.deny_principal, arguments.deny_host),
        )
        for principal, host in product(principals, hosts or [ANY_HOST])
    ]
    for flag in ("allow", "deny"):
        if getattr(arguments, f"{flag}_host") and not getattr(arguments, f"{flag}_principal"):
            raise UsageError(f"--{flag}-host requires --{flag}-principal")
    pattern = PatternType[arguments.resource_pattern_type.upper()]
    if who and pattern in {PatternType.ANY, PatternType.MATCH}:
        raise UsageError(f"--resource-pattern-type {pattern.name.lower()} cannot be used with principals")
    for ((kind, name), operation), (permission, principal, host) in product(list(operations(arguments)), who):
        way = PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern
        acl = Acl(kind, name, way, principal, host, operation, permission)
        try:
            acl.check()
        except InvalidRequest as error:
            raise UsageError(str(error)) from None
        yield acl


def filters(arguments: argparse.Namespace) -> Iterator[AclFilter]:
    """Yield the ACL filters for `list`, and for `remove` without principals."""
    pattern = PatternType[arguments.resource_pattern_type.upper()]
    named: list[tuple[ResourceType, str | None, PatternType]] = [
        (kind, name, PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern)
        for kind, name in resources(arguments)
    ]
    whole = (ResourceType.ANY, None, PatternType.ANY)
    for (kind, name, way), principal in product(named or [whole], getattr(arguments, "principal", None) or [None]):
        yield AclFilter(kind, name, way, principal)


def exactly(acl: Acl) -> AclFilter:
    return AclFilter(*acl)


def find(arguments: argparse.Namespace, wanted: Sequence[AclFilter]) -> list[Acl]:
    if arguments.data_dir is None:
        with open_client(arguments) as client:
            return sorted({acl for each in wanted for acl in client.acls.find(each)})
    from kafkalite.broker.log.offline_journal import open_journal

    with open_journal(arguments.data_dir) as journal:
        return sorted(acl for acl in journal.state.acls if any(each.matches(acl) for each in wanted))


def create(arguments: argparse.Namespace, acls: Sequence[Acl]) -> None:
    if arguments.data_dir is None:
        with open_client(arguments) as client:
            client.acls.create(acls)
        return
    from kafkalite.broker.log.journal import acls_change
    from kafkalite.broker.log.offline_journal import open_journal

    with open_journal(arguments.data_dir, make=True) as journal:
        fresh = [acl for acl in acls if acl not in journal.state.acls]
        if fresh:
            journal.record(acls_change(fresh, []))


def delete(arguments: argparse.Namespace, wanted: Sequence[AclFilter]) -> list[Acl]:
    if arguments.data_dir is None:
        with open_client(arguments) as client:
            return client.acls.delete(wanted)
    from kafkalite.broker.log.journal import acls_change
    from kafkalite.broker.log.offline_journal import open_journal

    with open_journal(arguments.data_dir) as journal:
        gone = sorted(acl for acl in journal.state.acls if any(each.matches(acl) for each in wanted))
        if gone:
            journal.record(acls_change([], gone))
        return gone


def show(arguments: argparse.Namespace, acls: Sequence[Acl]) -> None:
    rows = [acl.texts() for acl in acls]
    if arguments.json:
        print_json([dict(zip(FIELDS, row, strict=True)) for row in rows])
    else:
        print_table(FIELDS, rows)
