"""Run `kafkalite load status` and `kafkalite load schema`: report on a target directory, without Spark or a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.cli import Parser, UsageError
from kafkalite.cli.common import natural, quantity
from kafkalite.cli.output import print_json, print_table, say
from kafkalite.cli.times import utc_text
from kafkalite.load.layout import NO_PLACE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from kafkalite.load.commits import ChangedHour, Commit
    from kafkalite.load.manifest import LoadState

SHOWN: Final = 10
"""Commits that the table of `status` shows; JSON has all."""
HOURS_SHOWN: Final = 3


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands `status` and `schema`. `kafkalite load` without a subcommand loads."""
    actions = parser.add_subparsers(dest="action", metavar="[status DIR | schema DIR]", parser_class=Parser)
    status = actions.add_parser("status", help="show topics, loaded offsets, and the hours that recent commits changed")
    status.add_argument("--since", metavar="N", type=natural, help="show only commits after commit N")
    schema = actions.add_parser("schema", help="show the columns of each topic")
    schema.add_argument(
        "--format",
        choices=("arrow", "spark"),
        default="arrow",
        help="print types of Arrow, or a schema that Spark can parse (default: arrow)",
    )
    for action in (status, schema):
        action.add_argument("target", metavar="DIR", help="directory of a load; for HDFS, webhdfs://NAMENODE:9870/DIR")
        action.add_argument("--json", action="store_true", help="print JSON")


def run_report(arguments: argparse.Namespace) -> int:
    """Print the report of the subcommand. LoadError if the directory is not the target of a load."""
    if arguments.action == "schema":
        return run_schema(arguments)
    from kafkalite.load.commits import commits
    from kafkalite.load.contents import state_of

    found = commits(arguments.target, arguments.since)
    state = state_of(arguments.target)
    if arguments.json:
        print_json(described(state, found))
        return 0
    topics = by_topic(state)
    titles = ("TOPIC", "RECORDS", "SIZE", "FILES", "FIRST HOUR", "LAST HOUR")
    print_table(titles, [(name, *row.values()) for name, row in topics.items()])
    say()
    titles = ("COMMIT", "TIME", "KIND", "RECORDS", "FILES", "HOURS")
    rows = [
        (one.number, utc_text(one.written_ms), one.kind, one.records, one.files, hours_of(one.hours))
        for one in found[-SHOWN:]
    ]
    print_table(titles, rows)
    return 0


def described(state: LoadState, found: Iterable[Commit]) -> dict[str, object]:
    """Return the status for --json."""
    from kafkalite.load.positions import to_json

    return {
        "commit": state.number,
        "records": sum(file.rows for file in state.files.values()),
        "bytes": sum(file.size for file in state.files.values()),
        "files": len(state.files),
        "positions": to_json(state.positions),
        "commits": [commit.to_json() for commit in found],
    }


def by_topic(state: LoadState) -> dict[str, dict[str, object]]:
    """Return the cells of the table with one row per topic."""
    found: dict[str, dict[str, object]] = {}
    for topic in sorted({key.topic for key in state.positions}):
        files = [file for file in state.files.values() if file.topic == topic]
        hours = sorted(
            file.date if file.hour is None else f"{file.date} {file.hour:02d}"
            for file in files
            if file.date is not None
        )
        found[topic] = {
            "records": sum(file.rows for file in files),
            "size": quantity(sum(file.size for file in files), "B"),
            "files": len(files),
            "first": hours[0] if hours else "-",
            "last": hours[-1] if hours else "-",
        }
    return found


def hours_of(hours: list[ChangedHour]) -> str:
    """Format the first few hours of a list for a table."""
    shown = [one.folder.replace(NO_PLACE, "-").replace("topic=", "", 1) for one in hours]
    shown = [name.replace("date=", "", 1).replace("hour=", "", 1) for name in shown]
    more = f" and {len(shown) - HOURS_SHOWN} more" if len(shown) > HOURS_SHOWN else ""
    return f"{', '.join(shown[:HOURS_SHOWN])}{more}" or "-"


def run_schema(arguments: argparse.Namespace) -> int:
    """Print the columns of each topic: the schema with which all of its files can be read."""
    from kafkalite.client.columns.arrow import pyarrow
    from kafkalite.load.table_schema import schemas, spark_schemas

    try:
        pyarrow()
    except ImportError as error:
        raise UsageError(str(error)) from error
    if arguments.format == "spark":
        texts = spark_schemas(arguments.target)
        if arguments.json:
            print_json(texts)
        else:
            for topic, text in texts.items():
                say(f"{topic}: {text}" if len(texts) > 1 else text)
        return 0
    found = schemas(arguments.target)
    if arguments.json:
        print_json(
            {
                topic: [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]
                for topic, schema in found.items()
            }
        )
        return 0
    rows = [(topic, field.name, str(field.type)) for topic, schema in found.items() for field in schema]
    print_table(("TOPIC", "COLUMN", "TYPE"), rows)
    return 0
