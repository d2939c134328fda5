"""Back up the data directory of a running or stopped broker.

kafkalite backup /backups/monday --data-dir /var/lib/kafkalite
kafkalite backup /backups/monday --config server.properties --copy

The backup has the state of one moment: topics and their settings, records, committed offsets, transactions, users and
ACLs. Run the command on the broker's machine, as the broker's user or as root. To use a backup, start a broker with the
same node.id on it. To keep the backup unchanged, run `kafkalite restore` first, and start the broker on the new
directory.

If the backup is on the broker's file system, full segments become hard links and use no space. With --copy they are
copied, so that the backup shares no files with the broker. At the end the command verifies the backup, unless you give
--no-check. Exit status 1: it failed, or found damage. The backup contains passwords as the broker stores them, so only
its owner can read it (0700, 0600).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.cli import EXIT_FAILURE, CommandError
from kafkalite.cli.common import quantity
from kafkalite.cli.output import note, print_json, say
from kafkalite.cli.start import directory

if TYPE_CHECKING:
    import argparse

    from kafkalite.broker.backup import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="DIR", type=directory, help="directory for the backup; created by the command"
    )
    add_data_arguments(parser)
    parser.add_argument("--copy", action="store_true", help="copy files instead of hard-linking them")
    add_report_arguments(parser)


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --data-dir and --config, for commands that work on a data directory instead of a broker."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--data-dir", metavar="DATA", type=directory, help="data directory of the broker (log.dirs)")
    where.add_argument("--config", metavar="FILE", type=Path, help="the broker's .properties file, which sets log.dirs")


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --no-check and --json."""
    parser.add_argument("--no-check", action="store_true", help="do not verify the backup")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def data_directory(arguments: argparse.Namespace) -> str:
    """Return the data directory that --data-dir, --config or the default names."""
    from kafkalite.settings.broker import BrokerConfig

    overrides = {} if arguments.data_dir is None else {"log.dirs": str(arguments.data_dir)}
    return str(BrokerConfig.load(arguments.config, overrides).data_directory)


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.broker.backup import BackupFailed, back_up

    source = data_directory(arguments)
    try:
        report = back_up(source, str(arguments.target), link=not arguments.copy, check=not arguments.no_check)
    except BackupFailed as error:
        raise CommandError(str(error)) from error
    return tell(report, str(arguments.target), as_json=arguments.json)


def tell(report: Report, target: str, *, as_json: bool) -> int:
    """Print the report of a backup or restore. Return the exit status."""
    if as_json:
        print_json(
            {
                "directory": target,
                "node_id": report.node_id,
                "partitions": report.partition_count,
                "files": report.file_count,
                "bytes": report.size,
                "linked_bytes": report.linked_size,
                "checked": report.checked,
                "findings": report.findings,
            }
        )
    else:
        linked = f" ({quantity(report.linked_size, 'B')} of it hard-linked)" if report.linked_size else ""
        checked = ", verified" if report.checked and not report.findings else "" if report.checked else ", not verified"
        size = quantity(report.size, "B")
        say(f"{target}: {report.partition_count} partitions, {size}{linked}{checked}, for node.id={report.node_id}")
        for finding in report.findings:
            note(finding)
    return EXIT_FAILURE if report.findings else 0
