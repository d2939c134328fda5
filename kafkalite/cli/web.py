"""Manage the users of an HTTP service, such as `kafkalite registry --users FILE`.

  kafkalite web add-user users alice --role operator      # asks for the password, or reads a line of stdin
  kafkalite web add-user users ci --role operator --token # prints a token, which is stored nowhere
  kafkalite web add-user users 'CN=app,O=Example' --certificate
  kafkalite web list-users users
  kafkalite web remove-user users alice

A viewer can read, an operator can change data, an admin can change everything. A service reads the file when it starts.
The file contains password hashes, and only its owner can read it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.cli import Parser, UsageError
from kafkalite.cli.output import escaped, say, write_text
from kafkalite.web.users import Role, Users, certificate_line, name_of, password_line, token_line

if TYPE_CHECKING:
    import argparse

ROLES: Final = tuple(role.name.lower() for role in Role)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    adding = actions.add_parser("add-user", help="add a user, or change a password, token or role")
    adding.add_argument("file", metavar="FILE", type=Path)
    adding.add_argument("name", metavar="NAME")
    adding.add_argument("--role", choices=ROLES, default="viewer", help="role (default: viewer)")
    how = adding.add_mutually_exclusive_group()
    how.add_argument("--token", action="store_true", help="create a token instead of a password, for programs")
    how.add_argument("--certificate", action="store_true", help="NAME is the principal of a TLS client certificate")
    removing = actions.add_parser("remove-user", help="remove a user")
    removing.add_argument("file", metavar="FILE", type=Path)
    removing.add_argument("name", metavar="NAME")
    listing = actions.add_parser("list-users", help="list users and roles")
    listing.add_argument("file", metavar="FILE", type=Path)


def run(arguments: argparse.Namespace) -> int:
    action = globals()[arguments.action.replace("-", "_") + "_action"]
    try:
        action(arguments)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return 0


def add_user_action(arguments: argparse.Namespace) -> None:
    lines = _lines(arguments.file, missing_ok=True)
    role = Role[arguments.role.upper()]
    token = None
    if arguments.token:
        line, token = token_line(arguments.name, role)
    elif arguments.certificate:
        line = certificate_line(arguments.name, role)
    else:
        line = password_line(arguments.name, role, _password())
    kept = [old for old in lines if name_of(old) != arguments.name]
    _write(arguments.file, [*kept, line])
    if token is not None:
        say(token)


def remove_user_action(arguments: argparse.Namespace) -> None:
    lines = _lines(arguments.file)
    kept = [line for line in lines if name_of(line) != arguments.name]
    if len(kept) == len(lines):
        raise UsageError(f"{arguments.file} contains no user {arguments.name!r}")
    _write(arguments.file, kept)


def list_users_action(arguments: argparse.Namespace) -> None:
    for line in _lines(arguments.file):
        if name_of(line):
            name, role, secret = line.strip().rsplit(":", 2)
            kind = {"scrypt": "password", "sha256": "token"}.get(secret.partition("$")[0], "certificate")
            write_text(f"{escaped(name)}\t{escaped(role)}\t{kind}\n")


def _password() -> str:
    """Read a password from the terminal without an echo, or from the first line of stdin."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    import getpass

    first = getpass.getpass("password: ")
    if getpass.getpass("again: ") != first:
        raise UsageError("the passwords do not match")
    return first


def _lines(file: Path, *, missing_ok: bool = False) -> list[str]:
    """Return the lines of the users' file, before the command rewrites it. UsageError or StartupError if it is
    invalid."""
    if not file.exists():
        if missing_ok:
            return []
        raise UsageError(f"file {file} does not exist")
    Users.from_file(file)
    return file.read_text(encoding="utf-8").splitlines()


def _write(file: Path, lines: list[str]) -> None:
    """Replace the file atomically. Only its owner can read it."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in lines)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
