"""List, set and delete the quotas of users, client ids and addresses.

kafkalite quotas set --user alice --producer-byte-rate 10000000 --consumer-byte-rate 20000000
kafkalite quotas set --user-default --client-id-default --request-percentage 50
kafkalite quotas set --ip 10.0.0.7 --connection-creation-rate 20
kafkalite quotas list
kafkalite quotas delete --user alice --consumer-byte-rate
kafkalite quotas delete --user alice --data-dir data

--user with --client-id sets a quota for clients of this user with this id. A default quota applies to each name without
its own quota. Rates are per second. --request-percentage is a percentage of one thread. `delete` without a kind of
quota deletes all kinds. For each kind of quota, the first match applies:

  1. this user           with this client id, with the default client id, without a client id
  2. the default user    in the same order
  3. no user             this client id, the default client id

A change applies from the next request on. With --data-dir the command reads or changes the data directory of a stopped
broker instead of a running broker. `set` creates the directory if it is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.quota_entities import (
    ADDRESS_KEYS,
    CLIENT_ID,
    CLIENT_KEYS,
    IP,
    USER,
    Change,
    Entity,
    check_entity,
    check_value,
    entity_of,
    entity_text,
)
from kafkalite.cli import Parser, UsageError
from kafkalite.cli.common import add_client_arguments, open_client
from kafkalite.cli.output import print_json, print_table
from kafkalite.errors import InvalidRequest

if TYPE_CHECKING:
    import argparse

TYPES: Final = (USER, CLIENT_ID, IP)
KEYS: Final = (*CLIENT_KEYS, *ADDRESS_KEYS)
DEFAULT: Final = "<default>"
"""How the default is shown, as Kafka's tools write it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    listing = actions.add_parser("list", help="list all quotas")
    setting = actions.add_parser("set", help="set quotas")
    delete = actions.add_parser("delete", help="delete quotas")
    for action in (setting, delete):
        for kind in TYPES:
            who = action.add_mutually_exclusive_group()
            who.add_argument(f"--{kind}", metavar="NAME", help=f"apply to this {kind}")
            who.add_argument(
                f"--{kind}-default", action="store_true", help=f"apply to every {kind} without its own quota"
            )
    for key in KEYS:
        flag = f"--{key.replace('_', '-')}"
        setting.add_argument(flag, dest=key, type=float, metavar="NUMBER", help="limit per second")
        delete.add_argument(flag, dest=key, action="store_true")
    for action in (listing, setting, delete):
        action.add_argument("--data-dir", metavar="DIR", help="data directory of a stopped broker, used instead of -b")
        add_client_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "list":
        show(arguments, present(arguments))
        return 0
    entity = entity_named(arguments)
    if arguments.action == "set":
        values: dict[str, float | None] = {
            key: getattr(arguments, key) for key in KEYS if getattr(arguments, key) is not None
        }
        if not values:
            raise UsageError(f"nothing to set: use {', '.join('--' + key.replace('_', '-') for key in KEYS)}")
    else:
        there = present(arguments).get(entity, {})
        values = dict.fromkeys([key for key in KEYS if getattr(arguments, key)] or there)
        if missing := [key for key in values if key not in there] or (not values and ["quota"]):
            raise UsageError(f"{entity_text(entity)} has no {', '.join(missing)} to delete")
    alter(arguments, entity, values)
    return 0


def entity_named(arguments: argparse.Namespace) -> Entity:
    """Return the entity that the flags name. UsageError if they name none, or an entity that cannot have quotas."""
    parts: list[tuple[str, str | None]] = []
    for kind in TYPES:
        attribute = kind.replace("-", "_")
        name = getattr(arguments, attribute)
        if name is not None or getattr(arguments, f"{attribute}_default"):
            parts.append((kind, name))
    entity = entity_of(parts)
    try:
        check_entity(entity)
    except InvalidRequest as error:
        raise UsageError(str(error)) from None
    return entity


def alter(arguments: argparse.Namespace, entity: Entity, values: dict[str, float | None]) -> None:
    changes = [Change(entity, key, value) for key, value in values.items()]
    try:
        for change in changes:
            check_value(change)
    except InvalidRequest as error:
        raise UsageError(str(error)) from None
    if arguments.data_dir is None:
        with open_client(arguments) as client:
            client.quotas.alter(entity, values)
        return
    from kafkalite.broker.log.journal import quotas_change
    from kafkalite.broker.log.offline_journal import open_journal

    with open_journal(arguments.data_dir, make=True) as journal:
        journal.record(quotas_change(changes))


def present(arguments: argparse.Namespace) -> dict[Entity, dict[str, float]]:
    if arguments.data_dir is None:
        with open_client(arguments) as client:
            return client.quotas.list_all()
    from kafkalite.broker.log.offline_journal import open_journal

    with open_journal(arguments.data_dir) as journal:
        return journal.state.quotas


def show(arguments: argparse.Namespace, quotas: dict[Entity, dict[str, float]]) -> None:
    found = sorted(quotas.items(), key=lambda item: [(kind, name or "") for kind, name in item[0]])
    if arguments.json:
        print_json([{"entity": dict(entity), "values": values} for entity, values in found])
        return
    rows = []
    for entity, values in found:
        names = [DEFAULT if kind in dict(entity) and name is None else name or "" for kind, name in _named(entity)]
        rows += [(*names, key, f"{value:.15g}") for key, value in sorted(values.items())]
    print_table((*TYPES, "quota", "value"), rows)


def _named(entity: Entity) -> list[tuple[str, str | None]]:
    names = dict(entity)
    return [(kind, names.get(kind, "")) for kind in TYPES]
