"""Describe and change settings of topics and brokers while they run.

  kafkalite configs describe topic logs
  kafkalite configs describe broker 1 --all
  kafkalite configs alter topic logs --set retention.ms=3600000
  kafkalite configs alter broker 1 --unset log.retention.ms

Without --all, only values that were set explicitly are shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.numbers import whole_number
from kafkalite.cli import Parser, UsageError
from kafkalite.cli.common import INT32_MAX, add_client_arguments, assignments, open_client
from kafkalite.cli.output import note, print_json, print_table, say
from kafkalite.errors import KafkaError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from kafkalite.client import Admin, Client, ConfigEntry

DEFAULT_SOURCE: Final = "default"
UNKNOWN_TYPE: Final = "unknown"
LISTENER_PREFIX: Final = "listener.name."
"""Prefix of the settings of one listener, which DescribeConfigs does not list."""
SECRET: Final = "(hidden)"  # noqa: S105  # shown in place of a sensitive value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    describe = actions.add_parser("describe", help="show settings")
    describe.add_argument("--all", action="store_true", help="include settings that have their default")
    describe.add_argument("--docs", action="store_true", help="describe each setting")
    alter = actions.add_parser("alter", help="change settings")
    alter.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="set one setting; can be repeated. All users of this machine can see the value in `ps`",
    )
    alter.add_argument(
        "--unset", metavar="KEY", action="append", default=[], help="reset a setting to its default; can be repeated"
    )
    alter.add_argument("--dry-run", action="store_true", help="validate the values without changing them")
    for action in (describe, alter):
        action.add_argument("kind", choices=("topic", "broker"))
        action.add_argument("name", metavar="NAME", nargs="?", help="topic, or broker id (default: the only broker)")
        add_client_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    if arguments.kind == "topic" and arguments.name is None:
        raise UsageError("the topic name is missing")
    if arguments.kind == "broker" and arguments.name is not None:
        broker = whole_number(arguments.name, 0, INT32_MAX)
        if broker is None:
            raise UsageError(f"{arguments.name!r} is not a broker id")
        arguments.name = str(broker)
    with open_client(arguments) as client:
        if arguments.kind == "broker" and arguments.name is None:
            arguments.name = only_broker(client)
        if arguments.action == "describe":
            describe(client, arguments)
        else:
            alter(client, arguments)
    return 0


def only_broker(client: Client) -> str:
    """Return the id of the cluster's only broker. UsageError if there are several brokers."""
    brokers = client.brokers()
    if len(brokers) != 1:
        raise UsageError(f"which broker? Give one of the ids {', '.join(str(broker.node_id) for broker in brokers)}")
    return str(brokers[0].node_id)


def describe(client: Client, arguments: argparse.Namespace) -> None:
    admin = client.admin
    if arguments.kind == "topic":
        entries = admin.describe_topic_configs(arguments.name)
    else:
        entries = admin.describe_broker_configs(int(arguments.name))
    shown = [entry for entry in entries if arguments.all or entry.source != DEFAULT_SOURCE]
    if arguments.json:
        print_json([entry._asdict() for entry in shown])
    elif arguments.docs:
        print_table(("setting", "value", "from", "description"), [(*row_of(e), e.documentation or "") for e in shown])
    else:
        print_table(("setting", "value", "from"), map(row_of, shown))


def row_of(entry: ConfigEntry) -> tuple[str, str, str]:
    value = SECRET if entry.sensitive else "" if entry.value is None else entry.value
    return entry.name, value, entry.source


def unknown_to_broker(admin: Admin, node_id: int, values: Mapping[str, str | None]) -> list[str]:
    """Return the names to be set that the broker does not know. It stores their values without effect, as Kafka does.

    DescribeConfigs reports an unknown type for such names, even if they were set before. Brokers before Kafka 2.6
    report no types: there, a name that was set before counts as known. Return [] if the broker denies DescribeConfigs.
    """
    wanted = [name for name, value in values.items() if value is not None and not name.startswith(LISTENER_PREFIX)]
    if not wanted:
        return []
    try:
        entries = admin.describe_broker_configs(node_id)
    except KafkaError:
        return []
    typed = {entry.name for entry in entries if entry.type != UNKNOWN_TYPE}
    return sorted(set(wanted) - (typed or {entry.name for entry in entries}))


def alter(client: Client, arguments: argparse.Namespace) -> None:
    values: dict[str, str | None] = {**assignments("--set", arguments.settings), **dict.fromkeys(arguments.unset)}
    if not values:
        raise UsageError("nothing to change: give --set or --unset")
    admin = client.admin
    if arguments.kind == "topic":
        admin.alter_topic_configs(arguments.name, values, validate_only=arguments.dry_run)
    else:
        unknown = unknown_to_broker(admin, int(arguments.name), values)
        admin.alter_broker_configs(int(arguments.name), values, validate_only=arguments.dry_run)
        if unknown:
            kept = "would be stored" if arguments.dry_run else "are stored"
            names = ", ".join(unknown)
            note(f"kafkalite: broker {arguments.name} does not know {names}: the values {kept} but have no effect")
    done = "would be altered" if arguments.dry_run else "altered"
    if arguments.json:
        print_json({done: f"{arguments.kind} {arguments.name}"})
    else:
        say(f"{done}: {arguments.kind} {arguments.name}")
