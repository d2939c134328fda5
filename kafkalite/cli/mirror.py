"""Copy topics from one cluster to another, exactly once, from where the last run of the same name ended.

  kafkalite mirror --from live:9092 --to offline:9092 --name nightly -e
  kafkalite mirror --from live:9092 --to offline:9092 --name all --topics 'logs[.].*' --exclude '.*[.]debug'

Partition, key, value, headers and timestamp of each record stay, offsets do not. What the target lacks is created:
topics with their settings, partitions. Topics of Kafka 0.7 on a kafkalite broker are copied too, as ordinary ones.

Each transaction in the target holds records and the progress that they mean, so that a mirror that is killed at any
moment, and started again under its name, has neither lost nor doubled a record for those who read committed data. A
second mirror of the same name stops the first. Without -e it goes on until Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final

from kafkalite.cli import EXIT_USAGE, CommandError, UsageError
from kafkalite.cli.common import (
    Progress,
    add_config_argument,
    count,
    open_client,
    print_json,
    print_table,
    quantity,
    seconds,
)
from kafkalite.cli.ending import on_ending

if TYPE_CHECKING:
    import argparse

    from kafkalite.mirror import Copied

CLIENT_ID: Final = "kafkalite-mirror"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="source", metavar="HOST:PORT", required=True, help="brokers to copy from")
    parser.add_argument("--to", dest="target", metavar="HOST:PORT", required=True, help="brokers to copy to")
    add_config_argument(parser, "--from-config", " for the source")
    add_config_argument(parser, "--to-config", " for the target")
    parser.add_argument("--name", required=True, help="of this mirror: its progress is kept under it in the target")
    parser.add_argument(
        "--topics", metavar="REGEX", default=".*", help="what a topic's whole name matches (default: all)"
    )
    parser.add_argument("--exclude", metavar="REGEX", help="topics to leave out of these")
    parser.add_argument("-e", "--exit", action="store_true", help="stop at the end that there is now")
    parser.add_argument(
        "--commit-interval", metavar="S", type=seconds, default=1.0, help="age of a transaction (default: 1)"
    )
    parser.add_argument(
        "--commit-size", metavar="BYTES", type=count, default=64 * 1024 * 1024, help="size of one (default: 64 MiB)"
    )
    parser.add_argument(
        "--refresh", metavar="S", type=seconds, default=30.0, help="how often to look for new topics (default: 30)"
    )
    parser.add_argument("--timeout", metavar="S", type=seconds, default=30.0, help="for one answer (default: 30)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.mirror import Mirror, TopicFilter

    try:
        topics = TopicFilter(arguments.topics, arguments.exclude)
    except ValueError as error:
        raise UsageError(str(error)) from error
    stop = threading.Event()
    progress = Progress("copied", shown=False if arguments.quiet else None)
    with (
        open_client(arguments, "--from", arguments.source, config=arguments.from_config, client_id=CLIENT_ID) as source,
        open_client(arguments, "--to", arguments.target, config=arguments.to_config, client_id=CLIENT_ID) as target,
    ):
        try:
            mirror = Mirror(
                source,
                target,
                name=arguments.name,
                topics=topics,
                commit_interval_s=arguments.commit_interval,
                commit_size=arguments.commit_size,
                refresh_s=arguments.refresh,
                on_commit=lambda copied: progress.update(copied.record_count, copied.size),
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
        try:
            with on_ending(stop.set):
                mirror.run(stop, to_end=arguments.exit)
        finally:
            progress.finish(mirror.copied.record_count, mirror.copied.size)
            report(mirror.copied, as_json=arguments.json)
            mirror.close()
    if not mirror.copied.topics:
        # Without -e they may come as long as it runs, so it is no mistake that there were none.
        none = f"no topic matches {arguments.topics}" + (f" and not {arguments.exclude}" if arguments.exclude else "")
        if arguments.exit:
            raise CommandError(f"{none}: nothing is copied", status=EXIT_USAGE)
        print(f"kafkalite: {none}: nothing was copied", file=sys.stderr)
    return 0


def report(copied: Copied, *, as_json: bool) -> None:
    """What this run has copied, and what an operator should know."""
    for note in copied.notes:
        print(f"kafkalite: {note}", file=sys.stderr)
    if as_json:
        rows = [
            {"topic": topic, "records": records, "bytes": copied.sizes[topic]}
            for topic, records in sorted(copied.records.items())
        ]
        print_json({"records": copied.record_count, "transactions": copied.transactions, "topics": rows})
        return
    print_table(
        ("TOPIC", "RECORDS", "SIZE"),
        [(topic, records, quantity(copied.sizes[topic], "B")) for topic, records in sorted(copied.records.items())],
    )
    print(f"{copied.record_count} records in {copied.transactions} transactions")
