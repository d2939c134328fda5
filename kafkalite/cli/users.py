"""Add, list, delete and copy SCRAM users.

kafkalite users add alice --data-dir data
kafkalite users add alice -b localhost:9093 --command-config admin.properties
kafkalite users list
kafkalite users delete alice
kafkalite users copy --from-dir /var/lib/kafka/data --data-dir data
kafkalite users copy --from-dir data --controller-dir /var/lib/kafka/metadata

Without --data-dir the command connects to a running broker. With --data-dir it works on the data directory of a stopped
broker instead. `add` and `copy` create this directory if it is missing, so you can add the first user before the first
start of the broker.

`add` asks for the password on the terminal. With --password-file it reads the first line of a file (- is stdin). A
change applies from the next authentication on.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from kafkalite.cli import Parser, UsageError
from kafkalite.cli.common import add_client_arguments, count, named_file, open_client
from kafkalite.cli.output import print_json, print_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from kafkalite.broker.cluster.foreign_users import Credentials

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS: Final = 4096
ITERATIONS_MAX: Final = 16384
PASSWORD_SIZE_MAX: Final = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    add = actions.add_parser("add", help="add a user or change a password")
    add.add_argument("user", metavar="USER")
    add.add_argument("--password-file", metavar="FILE", help="file with the password in its first line; - is stdin")
    add.add_argument(
        "--iterations",
        type=count,
        default=ITERATIONS,
        help=f"iterations of the password hash, {ITERATIONS} to {ITERATIONS_MAX}",
    )
    delete = actions.add_parser("delete", help="delete users, or one of their SCRAM mechanisms")
    delete.add_argument("user", metavar="USER")
    for action in (add, delete):
        action.add_argument(
            "--mechanism",
            choices=MECHANISMS,
            action="append",
            default=[],
            help="SCRAM mechanism; can be repeated (default: both)",
        )
    listing = actions.add_parser("list", help="list users and their mechanisms")
    copy = actions.add_parser("copy", help="copy users with their passwords from the files of another broker")
    copy.add_argument(
        "--from-dir",
        metavar="DIR",
        required=True,
        help="data directory of a kafkalite broker or a Kafka controller, or a backup of it",
    )
    target = copy.add_mutually_exclusive_group(required=True)
    target.add_argument("--data-dir", metavar="DIR", help="data directory of a stopped broker")
    target.add_argument(
        "--controller-dir",
        metavar="DIR",
        help="metadata.log.dir of an Apache Kafka controller that has been formatted but never started",
    )
    copy.add_argument("--json", action="store_true", help="print JSON")
    for action in (add, delete, listing):
        action.add_argument("--data-dir", metavar="DIR", help="data directory of a stopped broker, used instead of -b")
        add_client_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    mechanisms = list(dict.fromkeys(getattr(arguments, "mechanism", ()))) or list(MECHANISMS)
    if arguments.action == "list":
        show(arguments)
    elif arguments.action == "add":
        if not ITERATIONS <= arguments.iterations <= ITERATIONS_MAX:
            raise UsageError(f"--iterations {arguments.iterations}: expected {ITERATIONS} to {ITERATIONS_MAX}")
        if not arguments.user or "\0" in arguments.user:
            raise UsageError("the user name must not be empty")
        add_user(arguments, mechanisms, read_password(arguments.password_file))
    elif arguments.action == "copy":
        copy_users(arguments)
    else:
        delete_user(arguments, mechanisms)
    return 0


def add_user(arguments: argparse.Namespace, mechanisms: Sequence[str], password: str) -> None:
    if arguments.data_dir is None:
        with open_client(arguments) as client:
            for mechanism in mechanisms:
                client.users.set_password(arguments.user, password, mechanism, arguments.iterations)
        return
    from kafkalite.broker.log.journal import credential_change, credentials_change
    from kafkalite.broker.log.offline_journal import open_journal
    from kafkalite.security import scram

    changes = [
        credential_change(mechanism, arguments.user, scram.new_credential(mechanism, password, arguments.iterations))
        for mechanism in mechanisms
    ]
    with open_journal(arguments.data_dir, make=True) as journal:
        journal.record(credentials_change(changes))


def delete_user(arguments: argparse.Namespace, mechanisms: Sequence[str]) -> None:
    """Delete the user's credentials of these mechanisms. UsageError if the user has none."""
    if arguments.data_dir is None:
        with open_client(arguments) as client:
            for mechanism in having(client.users.list_all().get(arguments.user, ()), mechanisms, arguments.user):
                client.users.delete(arguments.user, mechanism)
        return
    from kafkalite.broker.log.journal import credential_deletion, credentials_change
    from kafkalite.broker.log.offline_journal import open_journal

    with open_journal(arguments.data_dir) as journal:
        present = [mechanism for mechanism, user in journal.state.credentials if user == arguments.user]
        found = having(present, mechanisms, arguments.user)
        journal.record(credentials_change([credential_deletion(mechanism, arguments.user) for mechanism in found]))


def copy_users(arguments: argparse.Namespace) -> None:
    """Copy the users that the target lacks. Users that exist in the target are not changed."""
    from kafkalite.broker.cluster.foreign_users import credentials_of
    from kafkalite.broker.log.journal import credential_change
    from kafkalite.broker.log.offline_journal import open_journal

    found = credentials_of(arguments.from_dir)
    if arguments.controller_dir is not None:
        from kafkalite.base.clock import SystemClock
        from kafkalite.broker.cluster.bootstrap_users import add_users

        tell_copied(arguments, found, add_users(arguments.controller_dir, found, SystemClock().time_ms()))
        return
    with open_journal(arguments.data_dir, make=True) as journal:
        there = journal.state.credentials
        taken = {key: kept for key, kept in sorted(found.items()) if key not in there and key[0] in MECHANISMS}
        journal.record(*(credential_change(*key, kept) for key, kept in taken.items()))
    tell_copied(arguments, found, taken)


def tell_copied(arguments: argparse.Namespace, found: Credentials, taken: Credentials) -> None:
    left = sorted(found.keys() - taken.keys())
    if arguments.json:
        named = [[{"user": user, "mechanism": mechanism} for mechanism, user in keys] for keys in (taken, left)]
        print_json({"copied": named[0], "kept": named[1]})
        return
    rows = [(user, mechanism, "copied") for mechanism, user in taken]
    rows += [(user, mechanism, "left unchanged") for mechanism, user in left]
    print_table(("user", "mechanism", ""), sorted(rows))


def having(present: Sequence[str] | dict[str, int], mechanisms: Sequence[str], user: str) -> list[str]:
    found = [mechanism for mechanism in mechanisms if mechanism in present]
    if not found:
        raise UsageError(f"user {user!r} has no password for {' or '.join(mechanisms)}")
    return found


def show(arguments: argparse.Namespace) -> None:
    users: dict[str, dict[str, int]] = {}
    if arguments.data_dir is None:
        with open_client(arguments) as client:
            users = client.users.list_all()
    else:
        from kafkalite.broker.log.offline_journal import open_journal

        with open_journal(arguments.data_dir) as journal:
            for (mechanism, user), kept in sorted(journal.state.credentials.items(), key=lambda item: item[0][::-1]):
                users.setdefault(user, {})[mechanism] = kept.iterations
    if arguments.json:
        print_json(users)
        return
    rows = [(user, mechanism, rounds) for user, found in users.items() for mechanism, rounds in found.items()]
    print_table(("user", "mechanism", "iterations"), rows)


def read_password(path: str | None) -> str:
    """Read a password from the terminal or from the first line of a file.

    The command line is no source, since other users of the machine could see it there.
    """
    if path is None:
        if not sys.stdin.isatty():
            raise UsageError("no terminal to ask for the password; use --password-file")
        from getpass import getpass

        password = getpass("Password: ")
        if password != getpass("Again: "):
            raise UsageError("the passwords do not match")
    elif path == "-":
        password = sys.stdin.readline(PASSWORD_SIZE_MAX + 1).rstrip("\r\n")
    else:
        with named_file("--password-file", path), open(path, encoding="utf-8") as file:
            password = file.readline(PASSWORD_SIZE_MAX + 1).rstrip("\r\n")
    if not password or len(password) > PASSWORD_SIZE_MAX:
        raise UsageError(f"the password must have 1 to {PASSWORD_SIZE_MAX} characters")
    return password
