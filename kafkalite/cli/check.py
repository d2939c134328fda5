"""Check whether this machine suits a broker: file system, fsync, free space, limits, memory, clock.

kafkalite check --data-dir /var/lib/kafkalite
kafkalite check --config server.properties --json

A line with `look` is a risk for data or availability, and sets exit status 1. A line with `note` is about speed or
space. The command changes nothing, except for a temporary file next to the data. The directory need not exist yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.cli import EXIT_FAILURE, UsageError, sentence
from kafkalite.cli.backup import add_data_arguments, data_directory
from kafkalite.cli.output import print_json, print_table

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.broker.host_check import LOOK, look

    directory = data_directory(arguments)
    try:
        rows = look(directory)
    except OSError as error:
        raise UsageError(f"cannot measure {directory}: {sentence(error)}") from error
    if arguments.json:
        for row in rows:
            print_json({"what": row.what, "found": row.found, "verdict": row.verdict, "why": row.why})
    else:
        print_table(("WHAT", "FOUND", "", "WHY"), [(row.what, row.found, row.verdict, row.why) for row in rows])
    return EXIT_FAILURE if any(row.verdict == LOOK for row in rows) else 0
