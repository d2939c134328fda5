"""Print the records of a topic.

  kafkalite consume -t logs                       from now on, until Ctrl-C
  kafkalite consume -t logs -o beginning -e       all there is
  kafkalite consume -t logs -p 0 -o -10 -e        the last ten of a partition
  kafkalite consume -t logs -o @1700000000000 -c 5
  kafkalite consume -t logs -o 100 -f '%p %o %k %s\\n'
  kafkalite consume -t logs -g readers            as a member of a group, from where it has committed

Offsets: beginning, end, N, -N (the last N of each partition), @MS (from the first record not older, in ms since 1970).

With -g the partitions are shared with the other members of the group. What was printed is committed, a portion at a
time, once it is out; a record may be printed again after a crash, none is left out. -o (beginning or end) and
--from-beginning are only for partitions in which the group has committed nothing.

Formats are kcat's: %s value, %S its size, %k key, %K its size, %o offset, %T timestamp, %h headers, %t topic,
%p partition, %% a percent sign; \\n \\t \\r \\0 \\\\ \\xHH. The default is the value and a line end.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from kafkalite.cli import STDOUT, UsageError
from kafkalite.cli.common import Progress, add_client_arguments, count, natural, open_client, unescape

if TYPE_CHECKING:
    import argparse

    from kafkalite.cli.formats import Format, JsonLines
    from kafkalite.client import Client
    from kafkalite.model import TopicPartition
    from kafkalite.record.columns import RecordColumns

OFFSET = re.compile(r"beginning|earliest|end|latest|-?[0-9]{1,19}|@[0-9]{1,19}")
INT64_MAX = 2**63 - 1
RESETS = {"beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}
"""Where a member of a group may begin, as GroupReader calls it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", required=True)
    parser.add_argument("-p", "--partition", type=natural, action="append", help="may be repeated; default: all")
    parser.add_argument("-g", "--group", help="read as a member of this consumer group, and commit")
    parser.add_argument("-o", "--offset", help="where to begin (default: end); see above")
    parser.add_argument("--from-beginning", action="store_true", help="the same as -o beginning")
    parser.add_argument("-e", "--exit", action="store_true", help="stop at the end there is now")
    parser.add_argument("-c", "--count", type=count, help="stop after so many records")
    parser.add_argument("-f", "--format", metavar="TEXT", help="see above")
    parser.add_argument("-D", "--delimiter", metavar="TEXT", help="what ends a record, in place of \\n")
    parser.add_argument("-Z", "--null", metavar="TEXT", default="", help="what a null is printed as (default: nothing)")
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        help="read_committed: without aborted and open transactions (default: read_uncommitted)",
    )
    parser.add_argument("--read-committed", action="store_true", help="the same as --isolation read_committed")
    parser.add_argument("--instance-id", metavar="ID", help="with -g: a static member, whose restart disturbs nobody")
    parser.add_argument(
        "--assignor", choices=("range", "cooperative-sticky"), help="with -g: default is what the group has, or range"
    )
    parser.add_argument("--reset", choices=("earliest", "latest"), help="where to go on when the offset is gone")
    parser.add_argument("-v", "--verbose", action="store_true", help="progress on stderr")
    add_client_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    new_only = arguments.offset is None and not arguments.from_beginning
    refuse_contradictions(arguments)
    writer = writer_of(arguments)
    isolation = 1 if arguments.read_committed or arguments.isolation == "read_committed" else 0
    if arguments.group is not None:
        return run_in_group(arguments, writer, isolation)
    with open_client(arguments) as client:
        keys = partitions_of(client, arguments)
        ends = end_offsets(client, keys, isolation)
        starts = start_offsets(client, keys, arguments.offset, ends)
        limits = ends if arguments.exit else {}
        if new_only and not arguments.exit and sys.stderr.isatty():
            print(f"waiting for new records of {arguments.topic} (-o beginning: all there are)", file=sys.stderr)
        printer = Printer(writer, arguments.count, Progress("read", shown=None if arguments.verbose else False))
        with client.reader(starts, ends=limits, isolation=isolation, reset=arguments.reset) as reader:
            for chunk in reader:
                printer.print(chunk.partition, chunk.columns)
                if printer.done:
                    break
        printer.finish()
    if new_only and arguments.exit:
        print("kafkalite: nothing is read: without -o it begins at the end, where -e ends", file=sys.stderr)
    return 0


def refuse_contradictions(arguments: argparse.Namespace) -> None:
    """UsageError for flags that mean nothing together; settles where to begin."""
    if arguments.from_beginning and arguments.offset is not None:
        raise UsageError("--from-beginning and --offset exclude each other")
    if arguments.read_committed and arguments.isolation == "read_uncommitted":
        raise UsageError("--read-committed and --isolation read_uncommitted exclude each other")
    if arguments.json and (arguments.format is not None or arguments.delimiter is not None):
        raise UsageError("--json and a format exclude each other")
    arguments.offset = "beginning" if arguments.from_beginning else arguments.offset or "end"
    text = arguments.offset
    if not OFFSET.fullmatch(text) or abs(int(re.sub(r"\D", "", text) or 0)) > INT64_MAX:
        raise UsageError(f"--offset {text}: expected beginning, end, N, -N or @MS")
    if arguments.group is None:
        for flag in ("instance_id", "assignor"):
            if getattr(arguments, flag) is not None:
                raise UsageError(f"--{flag.replace('_', '-')} goes with --group")
        return
    if not arguments.group:
        raise UsageError("--group needs a name")
    if arguments.partition is not None or arguments.exit or arguments.reset is not None:
        raise UsageError(
            "--group deals out the partitions itself and has no end: leave --partition, --exit, --reset out"
        )
    if text not in RESETS:
        raise UsageError(f"--offset {text}: with --group only beginning and end, for what has no committed offset")


def run_in_group(arguments: argparse.Namespace, writer: Format | JsonLines, isolation: int) -> int:
    """Prints and commits until Ctrl-C, or enough; then leaves the group."""
    from kafkalite.record.columns import slice_of

    options = {} if arguments.assignor is None else {"assignors": (arguments.assignor,)}
    printer = Printer(writer, arguments.count, Progress("read", shown=None if arguments.verbose else False))
    with (
        open_client(arguments) as client,
        client.group_reader(
            arguments.group,
            arguments.topic,
            reset=RESETS[arguments.offset],
            isolation=isolation,
            instance_id=arguments.instance_id,
            **options,
        ) as reader,
    ):
        client.topic(arguments.topic)  # a name that is mistaken is an error, not a long wait
        try:
            for chunk in reader:
                columns = slice_of(chunk.columns, 0, printer.room(len(chunk.columns)))
                printer.print(chunk.partition, columns)
                whole = len(columns) == len(chunk.columns)
                following = chunk.next_offset if whole else int(columns.offsets[-1]) + 1
                reader.commit({chunk.partition: following})
                if printer.done:
                    break
        finally:
            printer.finish()
    return 0


def writer_of(arguments: argparse.Namespace) -> Format | JsonLines:
    from kafkalite.cli.formats import Format, JsonLines

    if arguments.json:
        return JsonLines()
    if arguments.format is not None and arguments.delimiter is not None:
        raise UsageError("--format says what ends a record; leave --delimiter out")
    if arguments.delimiter is not None:
        unescape(arguments.delimiter, "--delimiter")
        return Format(f"%s{arguments.delimiter.replace('%', '%%')}", arguments.null)
    return Format(arguments.format if arguments.format is not None else "%s\\n", arguments.null)


def partitions_of(client: Client, arguments: argparse.Namespace) -> list[TopicPartition]:
    from kafkalite.model import TopicPartition

    known = [part.partition for part in client.topic(arguments.topic).partitions]
    wanted = known if arguments.partition is None else arguments.partition
    for partition in wanted:
        if partition not in known:
            raise UsageError(f"topic {arguments.topic} has no partition {partition}, it has {len(known)}")
    return [TopicPartition(arguments.topic, partition) for partition in dict.fromkeys(wanted)]


def end_offsets(client: Client, keys: list[TopicPartition], isolation: int) -> dict[TopicPartition, int]:
    from kafkalite.model import OFFSET_LATEST

    found = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST), isolation=isolation)
    return {key: found[key].offset for key in keys}


def start_offsets(
    client: Client, keys: list[TopicPartition], text: str, ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The text of -o as an offset in each partition."""
    from kafkalite.model import OFFSET_EARLIEST

    if text in {"end", "latest"}:
        return dict(ends)
    if text[0] == "@":
        found = client.list_offsets(dict.fromkeys(keys, int(text[1:])))
        return {key: found[key].offset if found[key].offset >= 0 else ends[key] for key in keys}
    if text.isdigit():
        return dict.fromkeys(keys, int(text))
    begins = client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST))
    if text in {"beginning", "earliest"}:
        return {key: begins[key].offset for key in keys}
    return {key: max(begins[key].offset, ends[key] + int(text)) for key in keys}


class Printer:
    """Writes records to stdout, as many as asked for."""

    def __init__(self, writer: Format | JsonLines, limit: int | None, progress: Progress) -> None:
        self._writer = writer
        self._limit = limit
        self._progress = progress
        self._records = 0
        self._size = 0

    @property
    def done(self) -> bool:
        return self._limit is not None and self._records >= self._limit

    def room(self, count: int) -> int:
        """How many of so many records are still to be printed."""
        return count if self._limit is None else min(count, self._limit - self._records)

    def print(self, key: TopicPartition, columns: RecordColumns) -> None:
        from kafkalite.record.columns import slice_of

        columns = slice_of(columns, 0, self.room(len(columns)))
        if len(columns) == 0:
            return
        text = memoryview(self._writer.write(key, columns))
        self._records += len(columns)
        self._size += columns.size
        while text:
            text = text[os.write(STDOUT, text) :]
        self._progress.update(self._records, self._size)

    def finish(self) -> None:
        self._progress.finish(self._records, self._size)
