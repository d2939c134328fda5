"""List, describe and delete consumer groups, and reset their offsets.

kafkalite groups list
kafkalite groups describe my-app
kafkalite groups reset-offsets my-app --topic logs --to-earliest
kafkalite groups reset-offsets my-app --topic logs:0 --shift-by -100 --execute
kafkalite groups reset-offsets my-app --to-datetime -1h --execute
kafkalite groups reset-offsets my-app --from-file offsets.csv
kafkalite groups delete-offsets my-app --topic logs
kafkalite groups delete my-app

reset-offsets shows the new offsets. With --execute it also commits them, if the group has no members. --to-datetime
resets to the first record at or after a TIME. Records after it may have an older timestamp. A TIME is an ISO 8601 time
(UTC by default), a time before now such as -1h (units: ms, s, m, h, d, w), or ms since 1970. A number of ten digits is
seconds since 1970.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.numbers import whole_number
from kafkalite.cli import CommandError, Parser, UsageError, sentence
from kafkalite.cli.common import INT32_MAX, add_client_arguments, natural, open_client
from kafkalite.cli.output import print_json, print_table, say
from kafkalite.cli.times import moment
from kafkalite.client.admin.resets import (
    EARLIEST,
    LATEST,
    OFFSET,
    SHIFT,
    TIME,
    Target,
    parse_offsets,
    plan_offsets,
    plan_reset,
)
from kafkalite.errors import GroupIdNotFound
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    import argparse

    from kafkalite.client import Client, GroupDescription

STATES: Final = (
    *("Empty", "Stable", "PreparingRebalance", "CompletingRebalance"),
    *("Assigning", "Reconciling", "NotReady", "Dead"),
)
"""Kafka's state names, for all kinds of groups. For a state that it does not know, a broker returns an empty list."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)

    listing = actions.add_parser("list", help="list groups and their states")
    listing.add_argument(
        "--state", action="append", default=[], choices=STATES, help="only groups in this state, such as Empty"
    )

    describe = actions.add_parser("describe", help="show state, members, committed offsets and lag")
    describe.add_argument("groups", metavar="GROUP", nargs="*", help="group; can be repeated (default: all)")

    delete = actions.add_parser("delete", help="delete groups without members, and their offsets")
    delete.add_argument("groups", metavar="GROUP", nargs="+")
    delete.add_argument("--if-exists", action="store_true", help="do not fail if the group does not exist")

    reset = actions.add_parser("reset-offsets", help="reset the committed offsets of a group without members")
    reset.add_argument("group", metavar="GROUP")
    reset.add_argument(
        "-t",
        "--topic",
        metavar="TOPIC[:PARTITION]",
        action="append",
        default=[],
        dest="topics",
        help="TOPIC or TOPIC:PARTITION; can be repeated (default: all with a committed offset)",
    )
    target = reset.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", help="reset to the first record")
    target.add_argument("--to-latest", action="store_true", help="reset to the end, after the last record")
    target.add_argument(
        "--to-datetime", metavar="TIME", type=moment, help="reset to the first record at or after this time"
    )
    target.add_argument("--to-offset", metavar="OFFSET", type=natural)
    target.add_argument(
        "--from-file",
        metavar="FILE",
        type=Path,
        help="reset to the offsets in this file; its lines are topic,partition,offset",
    )
    target.add_argument("--shift-by", metavar="N", type=int, help="move by N offsets, forward or, if negative, back")
    reset.add_argument("--execute", action="store_true", help="commit the offsets; without it, only show them")

    forget = actions.add_parser("delete-offsets", help="delete the committed offsets of topics that no member consumes")
    forget.add_argument("group", metavar="GROUP")
    forget.add_argument(
        "-t",
        "--topic",
        metavar="TOPIC[:PARTITION]",
        action="append",
        required=True,
        dest="topics",
        help="TOPIC or TOPIC:PARTITION; can be repeated",
    )

    for action in (listing, describe, delete, reset, forget):
        add_client_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    action = globals()[arguments.action.replace("-", "_") + "_action"]
    with open_client(arguments) as client:
        action(client, arguments)
    return 0


def list_action(client: Client, arguments: argparse.Namespace) -> None:
    groups = client.groups.list(arguments.state)
    if arguments.json:
        print_json([row._asdict() for row in groups])
        return
    rows = [(row.group_id, row.state, row.protocol_type or "-", row.kind) for row in groups]
    print_table(("group", "state", "type", "protocol"), rows)


def describe_action(client: Client, arguments: argparse.Namespace) -> None:
    names = arguments.groups or [row.group_id for row in client.groups.list()]
    described = [description(client, client.groups.describe(name)) for name in names]
    if arguments.json:
        print_json(described)
        return
    for number, group in enumerate(described):
        if number:
            say()
        say(f"{group['group']}  {group['state']}  {len(group['members'])} members  {group['kind']} protocol")
        titles = ("topic", "partition", "committed", "end", "lag", "member", "host")
        print_table(titles, [row_of(row) for row in group["partitions"]])


def description(client: Client, group: GroupDescription) -> dict[str, Any]:
    """Return the description of one group for --json."""
    partitions = [
        {
            "topic": row.partition.topic,
            "partition": row.partition.partition,
            "committed": row.committed,
            "end": row.end,
            "lag": row.lag,
            "member": None if row.member is None else row.member.member_id,
            "host": None if row.member is None else row.member.host,
        }
        for row in client.groups.partitions(group)
    ]
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "kind": group.kind,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
            }
            for member in group.members
        ],
        "partitions": partitions,
    }


def row_of(row: dict[str, Any]) -> list[object]:
    return ["-" if value is None else value for value in row.values()]


def delete_action(client: Client, arguments: argparse.Namespace) -> None:
    deleted = []
    for name in arguments.groups:
        try:
            client.groups.delete(name)
        except GroupIdNotFound:
            if not arguments.if_exists:
                raise
            continue
        deleted.append(name)
    if arguments.json:
        print_json({"deleted": deleted})
        return
    for name in arguments.groups:
        say(f"deleted {name}" if name in deleted else f"group {name} does not exist")


def reset_offsets_action(client: Client, arguments: argparse.Namespace) -> None:
    committed = client.groups.committed(arguments.group)
    present = {key: row.offset for key, row in committed.items()}
    if arguments.from_file is not None:
        plan = plan_offsets(client, offsets_in(arguments), present)
    else:
        keys = wanted(client, arguments.topics) if arguments.topics else sorted(present)
        if not keys:
            raise UsageError(f"group {arguments.group} has no committed offsets; name its topics with --topic")
        try:
            plan = plan_reset(client, keys, present, target_of(arguments))
        except ValueError as error:
            raise UsageError(f"--shift-by: {error}") from error
    keys, targets = [row.partition for row in plan], {row.partition: row.after for row in plan}
    if arguments.execute:
        client.groups.commit(arguments.group, targets)
    if arguments.json:
        rows = [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "from": row.before,
                "to": row.after,
                "asked": row.asked,
            }
            for row in plan
        ]
        print_json({"group": arguments.group, "executed": arguments.execute, "partitions": rows})
        return
    titles = ("topic", "partition", "from", "to")
    print_table(titles, [(key.topic, key.partition, present.get(key, "-"), targets[key]) for key in keys])
    for row in plan:
        if row.asked != row.after:
            say(f"{row.partition}: offset {row.asked} is outside the log ({row.start} to {row.end}); using {row.after}")
    moved = sum(present.get(key) != targets[key] for key in keys)
    if not moved:
        say("nothing to change: all offsets already have the requested value")
    elif arguments.execute:
        say(f"done: {moved} of {len(keys)} offsets moved")
    else:
        say("nothing was changed; add --execute to commit these offsets")


def delete_offsets_action(client: Client, arguments: argparse.Namespace) -> None:
    committed = sorted(client.groups.committed(arguments.group))
    keys: list[TopicPartition] = []
    for text in arguments.topics:
        name, number = topic_and_partition(text)
        found = [key for key in committed if key.topic == name and number in {None, key.partition}]
        if not found:
            raise CommandError(f"group {arguments.group} has no committed offset for {text}")
        keys += found
    deleted = sorted(set(keys))
    client.groups.delete_offsets(arguments.group, deleted)
    if arguments.json:
        print_json({"group": arguments.group, "deleted": [key._asdict() for key in deleted]})
        return
    for key in deleted:
        say(f"deleted the offset of {key}")


def offsets_in(arguments: argparse.Namespace) -> dict[TopicPartition, int]:
    """Return the offsets in the file of --from-file. UsageError if it cannot be read or parsed."""
    if arguments.topics:
        raise UsageError("--topic cannot be used with --from-file, which names the topics")
    try:
        return parse_offsets(arguments.from_file.read_text(encoding="utf-8"), arguments.group)
    except OSError as error:
        raise UsageError(f"--from-file: {sentence(error)}") from error
    except ValueError as error:
        raise UsageError(f"--from-file {arguments.from_file}: {error}") from error


def wanted(client: Client, texts: list[str]) -> list[TopicPartition]:
    """Return the partitions that the TOPIC and TOPIC:PARTITION arguments name."""
    keys = []
    for text in texts:
        name, number = topic_and_partition(text)
        numbers = client.partitions(name) if number is None else [number]
        keys += [TopicPartition(name, partition) for partition in numbers]
    return sorted(set(keys))


def topic_and_partition(text: str) -> tuple[str, int | None]:
    """Return the parts of TOPIC or TOPIC:PARTITION. UsageError if it is invalid."""
    name, separator, number = text.partition(":")
    if not separator:
        return name, None
    partition = whole_number(number, 0, INT32_MAX)
    if partition is None:
        raise UsageError(f"--topic {text}: expected TOPIC or TOPIC:PARTITION")
    return name, partition


def target_of(arguments: argparse.Namespace) -> Target:
    """Return the target of the reset, as the flags select it."""
    if arguments.to_earliest:
        return Target(EARLIEST)
    if arguments.to_latest:
        return Target(LATEST)
    if arguments.to_datetime is not None:
        return Target(TIME, arguments.to_datetime)
    if arguments.to_offset is not None:
        return Target(OFFSET, arguments.to_offset)
    return Target(SHIFT, arguments.shift_by)
