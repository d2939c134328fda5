"""Make a data directory of a backup, to start a broker on.

kafkalite restore /backups/monday --data-dir /var/lib/kafkalite
kafkalite start --data-dir /var/lib/kafkalite

The backup stays as it is. The directory must not be there yet, or be empty. What clients have that the backup does not
is gone: they notice by the leader epoch, which the first start raises. Start it with the node.id that the backup is of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.cli import CommandError
from kafkalite.cli.backup import add_data_arguments, add_report_arguments, data_directory, tell
from kafkalite.cli.start import directory

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backup", metavar="BACKUP", type=directory, help="what `kafkalite backup` has made")
    add_data_arguments(parser)
    add_report_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.backup import BackupFailed, restore

    target = data_directory(arguments)
    try:
        report = restore(str(arguments.backup), target, check=not arguments.no_check)
    except BackupFailed as error:
        raise CommandError(str(error)) from error
    return tell(report, target, as_json=arguments.json)
