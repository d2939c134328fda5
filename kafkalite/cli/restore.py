"""Restore a data directory from a backup.

kafkalite restore /backups/monday --data-dir /var/lib/kafkalite
kafkalite start --data-dir /var/lib/kafkalite

The directory must be empty or not exist. The backup is not changed. Start the broker with the node.id of the backup.

Records that are not in the backup are lost. Clients detect this by the leader epoch, which the broker raises at its
first start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.cli import CommandError
from kafkalite.cli.backup import add_data_arguments, add_report_arguments, data_directory, tell
from kafkalite.cli.start import directory

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "backup", metavar="BACKUP", type=directory, help="directory of a backup made by `kafkalite backup`"
    )
    add_data_arguments(parser)
    add_report_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.broker.backup import BackupFailed, restore

    target = data_directory(arguments)
    try:
        report = restore(str(arguments.backup), target, check=not arguments.no_check)
    except BackupFailed as error:
        raise CommandError(str(error)) from error
    return tell(report, target, as_json=arguments.json)
