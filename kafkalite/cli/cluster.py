"""Describe a cluster, and move partitions between its brokers.

kafkalite cluster describe
kafkalite cluster move --replication-factor 3
kafkalite cluster move --drain 4 --throttle 50000000 --dry-run
kafkalite cluster move --spread --topic 'logs.*'
kafkalite cluster move --cancel
kafkalite cluster elect
kafkalite cluster retire 4
kafkalite cluster migrate --config server.properties --dry-run

`move` runs until all partitions have moved. After Ctrl-C the cluster completes the moves in progress; repeat the
command to move the other partitions. --cancel cancels moves in progress and removes the throttles.

`migrate` adds a stopped standalone kafkalite broker and its data to a cluster. --config is its configuration in the
cluster. If the command is interrupted, run it again.

These commands work with every KRaft cluster: docs/cluster-commands.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.numbers import whole_number
from kafkalite.cli import EXIT_INTERRUPTED, Parser, UsageError
from kafkalite.cli.common import (
    INT32_MAX,
    SET_HELP,
    add_client_arguments,
    assignments,
    count,
    natural,
    open_client,
    quantity,
)
from kafkalite.cli.output import note, overwrite, print_json, print_table, say
from kafkalite.errors import ErrorCode, error_for

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from kafkalite.client import Client
    from kafkalite.model import TopicPartition
    from kafkalite.placement.moving import Progress
    from kafkalite.placement.overview import Overview
    from kafkalite.placement.planner import Goal, Replicas

SHOWN_MAX: Final = 20
"""Partitions of a kind that are named; --json has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    describe = actions.add_parser("describe", help="show brokers, quorum, and partitions that need attention")

    move = actions.add_parser("move", help="move partitions to other brokers, or change their number of replicas")
    move.add_argument(
        "--drain",
        metavar="ID",
        type=natural,
        action="append",
        default=[],
        help="move all replicas off this broker; can be repeated",
    )
    move.add_argument("--spread", action="store_true", help="balance replicas and leaders across all brokers")
    move.add_argument("--replication-factor", metavar="N", type=count, help="new number of replicas per partition")
    move.add_argument("-t", "--topic", metavar="REGEX", help="move only these topics; REGEX must match the whole name")
    move.add_argument(
        "--brokers", metavar="IDS", help="ids of brokers that may get replicas, separated by commas (default: all)"
    )
    move.add_argument(
        "--throttle",
        metavar="B/S",
        type=count,
        help="replication limit per broker, in bytes per second (default: none)",
    )
    move.add_argument(
        "--at-once",
        metavar="N",
        type=count,
        default=20,
        help="maximum number of partitions that move at a time (default: 20)",
    )
    move.add_argument("--dry-run", action="store_true", help="only show the plan")
    move.add_argument("--cancel", action="store_true", help="cancel moves in progress")

    elect = actions.add_parser("elect", help="elect the preferred leaders")
    elect.add_argument(
        "-t", "--topic", metavar="REGEX", help="elect only for these topics; REGEX must match the whole name"
    )

    retire = actions.add_parser("retire", help="unregister a stopped broker that has no replicas")
    retire.add_argument("broker", metavar="ID", type=natural)
    for action in (describe, move, elect, retire):
        add_client_arguments(action)

    migrate = actions.add_parser("migrate", help="migrate a standalone broker into a cluster, with its data")
    migrate.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help=".properties file with the settings that the broker will have in the cluster",
    )
    migrate.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="settings", help=SET_HELP)
    migrate.add_argument("--dry-run", action="store_true", help="only check the data directory")
    migrate.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "migrate":
        return migrate_action(arguments)
    action = globals()[arguments.action + "_action"]
    with open_client(arguments) as client:
        status: int = action(client, arguments) or 0
    return status


# --- describe ---------------------------------------------------------------------------------------------------------


def describe_action(client: Client, arguments: argparse.Namespace) -> None:
    from kafkalite.placement.overview import look

    found = look(client)
    if arguments.json:
        print_json(as_json(found))
        return
    level = "" if found.metadata_version is None else f"  metadata.version {found.metadata_version}"
    say(f"cluster {found.cluster_id}{level}")
    say()
    titles = ("broker", "address", "rack", "state", "replicas", "leads", "preferred", "behind", "size", "disk")
    print_table(titles, [broker_row(broker) for broker in found.brokers])
    print_quorum(found)
    say()
    say(f"{len(found.partitions)} partitions, {sum(broker.replicas for broker in found.brokers)} replicas")
    for title, keys in (
        ("without a leader", found.offline),
        ("with out-of-sync replicas", found.under_replicated),
        ("under min.insync.replicas", found.under_min_isr),
        ("at min.insync.replicas", found.at_min_isr),
        ("not led by the preferred leader", found.not_preferred),
        ("moving", sorted(found.moving)),
    ):
        if keys:
            say(f"  {title}: {len(keys)}: {named(keys)}")
    if found.healthy:
        say("  all partitions have a leader, and all replicas are in sync")
    for line in found.unknown:
        note(f"kafkalite: not available: {line}")


def broker_row(broker: Any) -> tuple[object, ...]:
    disks = broker.directories or ()
    free = [f"{quantity(disk.usable, 'B')} free" for disk in disks if disk.usable is not None and not disk.error_code]
    failed = [f"{disk.path} failed" for disk in disks if disk.error_code]
    return (
        broker.node_id,
        broker.address or "?",
        broker.rack or "-",
        "fenced" if broker.fenced else "in service",
        broker.replicas,
        broker.leads,
        broker.preferred,
        broker.behind,
        "?" if broker.size is None else quantity(broker.size, "B"),
        ", ".join(failed + free) or "?",
    )


def print_quorum(found: Overview) -> None:
    if found.quorum is None:
        return
    say()
    rows = [
        (each.node_id, role, each.end, each.lag, "leads" if each.node_id == found.quorum.leader else "")
        for role, replicas in (("voter", found.quorum.voters), ("observer", found.quorum.observers))
        for each in replicas
    ]
    print_table(("node", "metadata", "end", "lag", ""), rows)


def as_json(found: Overview) -> dict[str, Any]:
    """Return the description of the cluster for --json. The field names are stable."""
    quorum = found.quorum
    return {
        "cluster_id": found.cluster_id,
        "metadata_version": found.metadata_version,
        "controller": found.controller,
        "brokers": [
            {
                "id": broker.node_id,
                "address": broker.address or None,
                "rack": broker.rack,
                "fenced": broker.fenced,
                "replicas": broker.replicas,
                "leads": broker.leads,
                "preferred": broker.preferred,
                "behind": broker.behind,
                "size": broker.size,
                "directories": None
                if broker.directories is None
                else [
                    {"path": each.path, "failed": bool(each.error_code), "total": each.total, "usable": each.usable}
                    for each in broker.directories
                ],
            }
            for broker in found.brokers
        ],
        "quorum": None
        if quorum is None
        else {
            "leader": quorum.leader,
            "epoch": quorum.epoch,
            "high_watermark": quorum.high_watermark,
            "voters": [each._asdict() for each in quorum.voters],
            "observers": [each._asdict() for each in quorum.observers],
        },
        "partitions": len(found.partitions),
        "offline": texts(found.offline),
        "under_replicated": texts(found.under_replicated),
        "under_min_isr": texts(found.under_min_isr),
        "at_min_isr": texts(found.at_min_isr),
        "not_preferred": texts(found.not_preferred),
        "moving": {
            str(key): {"adding": list(each.adding), "removing": list(each.removing)}
            for key, each in sorted(found.moving.items())
        },
        "unknown": found.unknown,
    }


def texts(keys: Iterable[TopicPartition]) -> list[str]:
    return [str(key) for key in keys]


def named(keys: list[TopicPartition]) -> str:
    """Format a list of partitions: the names of the first few, then the number of the others."""
    more = f" and {len(keys) - SHOWN_MAX} more" if len(keys) > SHOWN_MAX else ""
    return ", ".join(texts(keys[:SHOWN_MAX])) + more


# --- move -------------------------------------------------------------------------------------------------------------


def move_action(client: Client, arguments: argparse.Namespace) -> int:
    from kafkalite.placement.moving import Mover, cancel
    from kafkalite.placement.overview import look
    from kafkalite.placement.planner import PlanError, plan

    wants = arguments.drain or arguments.spread or arguments.replication_factor is not None
    if arguments.cancel:
        if wants or arguments.dry_run:
            raise UsageError(
                "--cancel cancels moves in progress; of the options for moves, only --topic can be used with it"
            )
        taken_back = cancel(client, None if arguments.topic is None else matching(client, arguments.topic))
        tell(arguments, "taken back", taken_back)
        return 0
    if not wants:
        raise UsageError("nothing to move: give --drain, --spread or --replication-factor, or --cancel")
    found = look(client, to_move=True)
    topics = matching(client, arguments.topic)
    present = {key: tuple(each.replicas) for key, each in found.partitions.items()}
    present.update((key, each.target) for key, each in found.moving.items() if key in present)
    movable = {key for key in present if key.topic in topics}
    sizes = found.sizes()
    try:
        wanted = plan(
            present,
            movable,
            {broker.node_id: broker.rack for broker in found.brokers},
            goal_of(arguments, found),
            sizes,
        )
    except PlanError as error:
        raise UsageError(str(error)) from error
    show_plan(arguments, present, wanted, sizes)
    if arguments.dry_run:
        return 0
    under_way = {key: each for key, each in found.moving.items() if key in movable}
    mover = Mover(
        client,
        {key: present[key] for key in movable},
        wanted,
        under_way=under_way,
        at_once=arguments.at_once,
        throttle=arguments.throttle,
        told=Shown(),
    )
    try:
        not_elected = mover.run()
    except KeyboardInterrupt:
        note(
            "\nkafkalite: moves in progress continue; run the same command for the rest, or"
            " `kafkalite cluster move --cancel` to cancel them"
        )
        return EXIT_INTERRUPTED
    for key, why in sorted(not_elected.items()):
        note(f"kafkalite: {key} is not led by its preferred leader: {why}")
    tell(arguments, "moved", sorted(wanted.keys() | under_way.keys()))
    return 0


def matching(client: Client, pattern: str | None) -> set[str]:
    """Return the topics whose whole name matches. UsageError if the pattern is invalid or matches no topic."""
    import re

    topics = set(client.topics())
    if pattern is None:
        return topics
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--topic {pattern}: {error}") from error
    found = {name for name in topics if compiled.fullmatch(name)}
    if not found:
        raise UsageError(f"--topic {pattern}: no topic matches")
    return found


def goal_of(arguments: argparse.Namespace, found: Overview) -> Goal:
    from kafkalite.placement.planner import Goal

    known = {broker.node_id for broker in found.brokers}
    in_service = {broker.node_id for broker in found.brokers if not broker.fenced}
    drained = set(arguments.drain)
    allowed = known if arguments.brokers is None else {*ids_of("--brokers", arguments.brokers)}
    for unknown in sorted((drained | allowed) - known):
        raise error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {unknown} does not exist")
    allowed -= drained
    return Goal(
        brokers=frozenset(allowed & in_service),
        away=frozenset(allowed - in_service),
        replication_factor=arguments.replication_factor,
        spread=arguments.spread,
    )


def ids_of(flag: str, text: str) -> list[int]:
    found = [whole_number(part.strip(), 0, INT32_MAX) for part in text.split(",")]
    ids = [each for each in found if each is not None]
    if len(ids) < len(found):
        raise UsageError(f"{flag} {text}: expected comma-separated broker ids")
    return ids


def show_plan(
    arguments: argparse.Namespace,
    present: Mapping[TopicPartition, Replicas],
    wanted: Mapping[TopicPartition, Replicas],
    sizes: Mapping[TopicPartition, int],
) -> None:
    from kafkalite.placement.planner import copies

    new = {key: copies(present[key], replicas) for key, replicas in wanted.items()}
    size = sum(sizes.get(key, 0) * len(brokers) for key, brokers in new.items())
    if arguments.json:
        if arguments.dry_run:
            rows = [
                {"topic": key.topic, "partition": key.partition, "replicas": list(replicas), "from": list(present[key])}
                for key, replicas in wanted.items()
            ]
            print_json({"plan": rows, "copies": sum(map(len, new.values())), "size": size})
        return
    if arguments.dry_run and wanted:
        cells = [(key, ",".join(map(str, present[key])), ",".join(map(str, to))) for key, to in wanted.items()]
        print_table(("partition", "replicas", "planned"), cells)
    copied = sum(map(len, new.values()))
    say(f"{len(wanted)} partitions change, {copied} replicas are copied, {quantity(size, 'B')}")


class Shown:
    """Shows progress on stderr, on one line that each update overwrites. Shows nothing if stderr is not a terminal."""

    def __call__(self, progress: Progress) -> None:
        if sys.stderr.isatty():
            text = f"{progress.done} of {progress.total} partitions moved, {progress.under_way} in progress"
            overwrite(text, last=progress.done == progress.total)


# --- elect, retire ----------------------------------------------------------------------------------------------------


def elect_action(client: Client, arguments: argparse.Namespace) -> int:
    from kafkalite.model import TopicPartition

    topics = matching(client, arguments.topic)
    wanted = [
        TopicPartition(topic.name, each.partition)
        for topic in client.topics().values()
        for each in topic.partitions
        if topic.name in topics and each.leader != each.replicas[0]
    ]
    refused = client.reassignments.elect_preferred(wanted) if wanted else {}
    for key, why in sorted(refused.items()):
        note(f"kafkalite: {key}: {why}")
    tell(arguments, "elected", [key for key in wanted if key not in refused])
    return 1 if refused else 0


def retire_action(client: Client, arguments: argparse.Namespace) -> None:
    from kafkalite.placement.overview import look

    broker = next((each for each in look(client).brokers if each.node_id == arguments.broker), None)
    if broker is None:
        raise error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {arguments.broker} does not exist")
    if broker.replicas:
        raise UsageError(
            f"broker {broker.node_id} has {broker.replicas} replicas; move them with: kafkalite cluster move "
            f"--drain {broker.node_id}"
        )
    if not broker.fenced:
        raise UsageError(f"broker {broker.node_id} is running; stop it first")
    client.reassignments.unregister(broker.node_id)
    if arguments.json:
        print_json({"retired": broker.node_id})
    else:
        say(f"retired broker {broker.node_id}")


# --- migrate ----------------------------------------------------------------------------------------------------------


def migrate_action(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from kafkalite.base.clock import SystemClock
    from kafkalite.broker.migration import migrate
    from kafkalite.settings.broker import BrokerConfig

    config = BrokerConfig.load(arguments.config, assignments("--set", arguments.settings))
    done = migrate(
        config,
        SystemClock(),
        lambda step: note(f"kafkalite: {step}"),
        dry_run=arguments.dry_run,
    )
    if arguments.json:
        print_json({"migrated": not arguments.dry_run, **asdict(done)})
        return 0
    for what, number in (
        ("topics", done.topics),
        ("partitions", done.partitions),
        ("records", done.records),
        ("size", quantity(done.size, "B")),
        ("groups", done.groups),
        ("committed offsets", done.positions),
        ("transactional ids", done.transactional_ids),
        ("users' passwords", done.users),
        ("ACLs", done.rules),
        ("quotas", done.quotas),
        ("settings", done.settings),
    ):
        say(f"{what:<20}  {number}")
    for what in done.not_taken:
        say(f"not migrated          {what}")
    if not arguments.dry_run:
        say(f"{config.data_directory} now belongs to broker {config.node_id} of the cluster; start the broker")
    return 0


def tell(arguments: argparse.Namespace, done: str, keys: list[TopicPartition]) -> None:
    """Print a result and its partitions: all of them with --json, otherwise their number and the first few names."""
    if arguments.json:
        print_json({done.replace(" ", "_"): texts(keys)})
    elif keys:
        say(f"{done}: {len(keys)}: {named(keys)}")
    else:
        say(f"{done}: none")
