"""Print the records of topics.

  kafkalite consume -t logs                       new records, until Ctrl-C
  kafkalite consume -t logs -o beginning -e       all records
  kafkalite consume -t logs -p 0 -o -10 -e        the last ten of a partition
  kafkalite consume -t logs --since -1h -e        records of the last hour
  kafkalite consume -t logs -t errors --since 2026-11-21 --until 2026-11-22
  kafkalite consume -t logs -o 100 -f '%p %o %k %s\\n'
  kafkalite consume -t orders --avro http://127.0.0.1:8081 --json
  kafkalite consume -t logs -g readers            as a member of a group, from its committed offsets

-o takes beginning, end, an offset, -N (the last N of each partition), or @TIME (start at the first record at or after
TIME).

--since and --until select records by their timestamps: from --since up to, but not including, --until. Timestamps do
not have to be in the order of the offsets. Records without a timestamp are left out. If --until is in the future, the
command waits until then, and reads each partition to its end. A TIME is an ISO 8601 time (UTC by default), a time
before now such as -1h or after now such as +5m (units: ms, s, m, h, d, w), or ms since 1970. A number of ten digits is
seconds since 1970.

By default, records of aborted and open transactions are printed, too. --isolation read_committed leaves them out. The
isolation level is reported on stderr.

--avro decodes each value with the schema that wrote it, from a schema registry, and prints JSON. A value that cannot be
decoded ends the command; with --avro-mode permissive it is printed unchanged.

With -g the command is a member of the group, and the members divide the partitions. With -e it ends when it has read
its own partitions to their end. Offsets are committed after the records are printed. So after a crash some records may
be printed again, but none is skipped. -o (beginning or end) and --from-beginning affect only partitions without a
committed offset.

Formats are kcat's: %s value, %S its size, %k key, %K its size, %o offset, %T timestamp, %h headers, %t topic, %p
partition, %% a percent sign; \\n \\t \\r \\0 \\\\ \\xHH. The default is the value and a line end.

On a terminal, control and bidirectional characters are escaped (\\x1b, \\u202e); values keep line ends and tabs. A pipe
or a file gets the bytes unchanged.
"""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.times import time_ms
from kafkalite.cli import CommandError, UsageError
from kafkalite.cli.common import (
    INT64_MAX,
    Progress,
    add_client_arguments,
    count,
    natural,
    open_client,
    say_isolation,
    unescape,
)
from kafkalite.cli.output import note, on_terminal, write_data
from kafkalite.cli.times import moment, now_ms

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kafkalite.cli.avro import AvroValues
    from kafkalite.cli.formats import Format, JsonLines
    from kafkalite.client import Client, GroupReader
    from kafkalite.client.read.reader import Chunk, Reader
    from kafkalite.model import TopicPartition
    from kafkalite.wire.record.columns import RecordColumns

NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
RESETS: Final = {"beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}
"""Start position → the value of GroupReader's `reset`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-t", "--topic", action="append", required=True, dest="topics", metavar="TOPIC", help="topic; can be repeated"
    )
    parser.add_argument(
        "-p",
        "--partition",
        type=natural,
        action="append",
        help="partition to read in each topic; can be repeated (default: all)",
    )
    parser.add_argument("-g", "--group", help="read as a member of this consumer group and commit offsets")
    parser.add_argument("-o", "--offset", help="where to start (default: end); see above")
    parser.add_argument("--from-beginning", action="store_true", help="the same as -o beginning")
    parser.add_argument("--since", metavar="TIME", type=moment, help="only records from this time on; see above")
    parser.add_argument("--until", metavar="TIME", type=moment, help="only records before this time; see above")
    parser.add_argument("-e", "--exit", action="store_true", help="stop after the records that exist at the start")
    parser.add_argument("-c", "--count", type=count, help="stop after this many records")
    parser.add_argument("-f", "--format", metavar="TEXT", help="output format; see above")
    parser.add_argument("-D", "--delimiter", metavar="TEXT", help="separator of records, instead of \\n")
    parser.add_argument("-Z", "--null", metavar="TEXT", default="", help="text printed for null (default: nothing)")
    parser.add_argument("--avro", metavar="URL", help="decode values with this schema registry; see above")
    parser.add_argument("--avro-keys", action="store_true", help="also decode keys")
    parser.add_argument(
        "--avro-mode",
        choices=("failfast", "permissive"),
        help="what to do with values that cannot be decoded (default: failfast)",
    )
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        help="read_committed omits records of aborted and open transactions (default: read_uncommitted)",
    )
    parser.add_argument("--read-committed", action="store_true", help="the same as --isolation read_committed")
    parser.add_argument(
        "--instance-id",
        metavar="ID",
        help="with -g: static member id (group.instance.id); avoids a rebalance at a restart",
    )
    parser.add_argument(
        "--assignor",
        choices=("range", "cooperative-sticky"),
        help="with -g: partition assignor (default: the group's assignor, or range in a new group)",
    )
    parser.add_argument(
        "--reset",
        choices=("earliest", "latest"),
        help="where to continue if the next offset was deleted, or the log was restored or truncated (default: stop)",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show progress on stderr")
    parser.add_argument(
        "--skip-damaged", action="store_true", help="report damaged batches and continue after them (default: stop)"
    )
    add_client_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    start = start_of(arguments)
    refuse_contradictions(arguments, start)
    with contextlib.ExitStack() as running:
        printer = Printer(
            writer_of(arguments),
            arguments.count,
            Progress("read", shown=None if arguments.verbose else False),
            avro_of(arguments, running),
        )
        client = running.enter_context(open_client(arguments))
        running.callback(printer.finish)
        if arguments.group is not None:
            print_as_member(client, arguments, start, printer)
        else:
            print_partitions(client, arguments, start, printer)
    if printer.failure is not None:
        raise printer.failure
    return 0


class Window(NamedTuple):
    """A range of timestamps in ms since 1970: from `since` up to, but not including, `until`. None is unbounded."""

    since: int | None
    until: int | None

    def parts(self, columns: RecordColumns) -> Iterator[RecordColumns]:
        """Yield the records within the range, as slices of adjacent records."""
        import numpy as np

        from kafkalite.wire.record.columns import slice_of

        if self.since is None and self.until is None:
            yield columns
            return
        stamps = columns.timestamps
        inside = stamps >= max(self.since or 0, 0)
        if self.until is not None:
            inside &= stamps < self.until
        edges = np.flatnonzero(np.diff(np.concatenate(([False], inside, [False])).astype(np.int8)))
        for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            yield slice_of(columns, first, end)


class Start(NamedTuple):
    """The start position. `where` is beginning, end, offset, last or time. `number` is an offset, a count or ms since
    1970."""

    where: str
    number: int = 0
    said: bool = True
    """Whether the command line says so; if not, the end is meant."""


def start_of(arguments: argparse.Namespace) -> Start:
    """Return the start that -o, --since or --from-beginning selects.

    UsageError for more than one of these flags, or for an invalid value.
    """
    given = [name for name in ("from_beginning", "offset", "since") if getattr(arguments, name) not in (None, False)]
    if len(given) > 1:
        flags = [f"--{name.replace('_', '-')}" for name in given]
        raise UsageError(f"{' and '.join(flags)} cannot be used together")
    if arguments.since is not None:
        return Start("time", arguments.since)
    if arguments.from_beginning:
        return Start("beginning")
    if arguments.offset is None:
        return Start("end", said=False)
    text = arguments.offset
    if text in RESETS:
        return Start("beginning" if RESETS[text] == "earliest" else "end")
    wanted = f"--offset {text[:40]}: expected beginning, end, N, -N or @TIME"
    if NUMBER.fullmatch(text):
        if abs(int(text)) > INT64_MAX:
            raise UsageError(wanted)
        return Start("last", -int(text)) if text[0] == "-" else Start("offset", int(text))
    try:
        return Start("time", time_ms(text.removeprefix("@"), now_ms()))
    except ValueError as error:
        raise UsageError(f"--offset {error}" if text[:1] == "@" else wanted) from None


def refuse_contradictions(arguments: argparse.Namespace, start: Start) -> None:
    """Raise UsageError for flags that conflict, or that require another flag."""
    if arguments.read_committed and arguments.isolation == "read_uncommitted":
        raise UsageError("--read-committed and --isolation read_uncommitted contradict each other")
    if arguments.json and (arguments.format is not None or arguments.delimiter is not None):
        raise UsageError("--json cannot be used with a format")
    if arguments.avro is None and (arguments.avro_keys or arguments.avro_mode is not None):
        raise UsageError(f"--avro-{'keys' if arguments.avro_keys else 'mode'} requires --avro")
    if arguments.group is None:
        for flag in ("instance_id", "assignor"):
            if getattr(arguments, flag) is not None:
                raise UsageError(f"--{flag.replace('_', '-')} requires --group")
        return
    if not arguments.group:
        raise UsageError("the group name must not be empty")
    if arguments.partition is not None or arguments.reset is not None or arguments.until is not None:
        raise UsageError("--group assigns partitions and offsets: omit --partition, --until and --reset")
    if start.where not in {"beginning", "end"}:
        raise UsageError(
            "--offset with --group must be beginning or end; it applies to partitions without a committed offset"
        )


def isolation_of(arguments: argparse.Namespace) -> int:
    return 1 if arguments.read_committed or arguments.isolation == "read_committed" else 0


# --- without a group --------------------------------------------------------------------------------------------------


def print_partitions(client: Client, arguments: argparse.Namespace, start: Start, printer: Printer) -> None:
    """Print records from the start position until --exit, --until or --count ends the command, or until interrupted."""
    isolation = isolation_of(arguments)
    window = Window(arguments.since, arguments.until)
    keys = partitions_of(client, arguments)
    ends = end_offsets(client, keys, isolation)
    starts = start_offsets(client, keys, start, ends)
    say_isolation(isolation)
    limits = ends if arguments.exit else {}
    until = arguments.until
    if until is not None and (until <= now_ms() or arguments.exit):
        limits = ends  # timestamps are unordered: an older record may follow a newer one
        until = None
    if not start.said and until is None and limits:
        note("kafkalite: nothing to read: without -o, reading starts at the end, where -e stops; add -o beginning")
    elif not start.said and sys.stderr.isatty():
        topics = ", ".join(dict.fromkeys(arguments.topics))
        note(f"waiting for new records of {topics} (use -o beginning for existing records)")
    again = arguments.skip_damaged or not arguments.exit  # another replica may have an undamaged copy
    with client.reader(starts, ends=limits, isolation=isolation, reset=arguments.reset, retry_damage=again) as reader:

        def chunks() -> Iterator[Chunk]:
            return iter(reader) if until is None else chunks_until(client, reader, until, isolation)

        for chunk in past_damage(client, reader, chunks, skips=arguments.skip_damaged):
            for columns in window.parts(chunk.columns):
                if not printer.done:
                    printer.print(chunk.partition, columns)
            if printer.done:
                break


def past_damage(
    client: Client, reader: Reader | GroupReader, chunks: Callable[[], Iterator[Chunk]], *, skips: bool
) -> Iterator[Chunk]:
    """Yield chunks. With `skips`, report damaged records on stderr and skip them.

    CommandError for damaged records without `skips`, and for a log that was truncated and has different records now.
    """
    from kafkalite.client.errors import LogTruncated
    from kafkalite.client.read.damage import next_readable
    from kafkalite.errors import CorruptMessage
    from kafkalite.model import TopicPartition

    while True:
        try:
            yield from chunks()
        except LogTruncated as error:
            raise CommandError(
                f"{error}; with --reset earliest, consume continues where the old and the new log diverge. "
                "If this offset is unknown, it starts at the beginning"
            ) from error
        except CorruptMessage as error:
            if error.partition is None:
                raise
            if not skips:
                raise CommandError(f"{error.message}; use --skip-damaged to continue after it") from error
            key = TopicPartition(*error.partition)
            following = next_readable(client, key, error.offset, client.end_offset(*key))
            note(f"kafkalite: {key}: skipped damaged offsets {error.offset} to {following - 1}")
            reader.seek(key, following)
        else:
            return


def chunks_until(client: Client, reader: Reader, until: int, isolation: int) -> Iterator[Chunk]:
    """Yield chunks until the time `until`, and then to the end offset that each partition has at that time."""
    while not reader.done and (left_ms := until - now_ms()) > 0:
        yield from reader.answers(left_ms / 1000)
    positions = {key: reader.position(key) for key in reader.partitions}
    reader.add(positions, end_offsets(client, positions, isolation))
    yield from reader


def partitions_of(client: Client, arguments: argparse.Namespace) -> list[TopicPartition]:
    from kafkalite.model import TopicPartition

    keys = []
    for topic in dict.fromkeys(arguments.topics):
        known = [part.partition for part in client.topic(topic).partitions]
        wanted = known if arguments.partition is None else arguments.partition
        for partition in wanted:
            if partition not in known:
                raise UsageError(f"topic {topic} has no partition {partition} (partition count: {len(known)})")
        keys += [TopicPartition(topic, partition) for partition in dict.fromkeys(wanted)]
    return keys


def end_offsets(client: Client, keys: Iterable[TopicPartition], isolation: int) -> dict[TopicPartition, int]:
    from kafkalite.model import OFFSET_LATEST

    found = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST), isolation=isolation)
    return {key: row.offset for key, row in found.items()}


def start_offsets(
    client: Client, keys: list[TopicPartition], start: Start, ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return partition → the offset of the start position."""
    from kafkalite.model import OFFSET_EARLIEST

    if start.where == "end":
        return dict(ends)
    if start.where == "time":
        found = client.list_offsets(dict.fromkeys(keys, start.number))
        return {key: found[key].offset if found[key].offset >= 0 else ends[key] for key in keys}
    if start.where == "offset":
        return dict.fromkeys(keys, start.number)
    begins = client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST))
    if start.where == "beginning":
        return {key: begins[key].offset for key in keys}
    return {key: max(begins[key].offset, ends[key] - start.number) for key in keys}


# --- as a member of a group -------------------------------------------------------------------------------------------


def print_as_member(client: Client, arguments: argparse.Namespace, start: Start, printer: Printer) -> None:
    """Join the group, print records and commit their offsets. At the end leave the group.

    The end is Ctrl-C, --count, or with --exit the end of the member's partitions.
    """
    options = {} if arguments.assignor is None else {"assignors": (arguments.assignor,)}
    topics = list(dict.fromkeys(arguments.topics))
    with client.group_reader(
        arguments.group,
        topics,
        reset=RESETS[start.where],
        isolation=isolation_of(arguments),
        instance_id=arguments.instance_id,
        **options,
    ) as reader:
        keys = partitions_of(client, arguments)  # reports a wrong name as an error before joining the group
        say_isolation(isolation_of(arguments))
        ends = end_offsets(client, keys, isolation_of(arguments)) if arguments.exit else None

        def chunks() -> Iterator[Chunk]:
            return iter(reader) if ends is None else chunks_to(reader, ends)

        for chunk in past_damage(client, reader, chunks, skips=arguments.skip_damaged):
            taken = printer.print(chunk.partition, chunk.columns)
            if taken:
                whole = taken == len(chunk.columns)
                following = chunk.next_offset if whole else int(chunk.columns.offsets[taken - 1]) + 1
                reader.commit({chunk.partition: following})
            if printer.done:
                break
        else:
            reader.commit()  # includes the transaction markers after the last record


def chunks_to(reader: GroupReader, ends: Mapping[TopicPartition, int]) -> Iterator[Chunk]:
    """Yield chunks until this member has read its partitions up to the offsets `ends`."""
    while not reader.has_read_to(ends):
        yield from reader.poll()


# --- output -----------------------------------------------------------------------------------------------------------


def writer_of(arguments: argparse.Namespace) -> Format | JsonLines:
    from kafkalite.cli.formats import Format, JsonLines

    if arguments.json:
        return JsonLines()
    if arguments.format is not None and arguments.delimiter is not None:
        raise UsageError("--delimiter cannot be used with --format; put the delimiter into the format")
    if arguments.delimiter is not None:
        unescape(arguments.delimiter, "--delimiter")
        return Format(f"%s{arguments.delimiter.replace('%', '%%')}", arguments.null, terminal=on_terminal())
    return Format(arguments.format if arguments.format is not None else "%s\\n", arguments.null, terminal=on_terminal())


def avro_of(arguments: argparse.Namespace, running: contextlib.ExitStack) -> AvroValues | None:
    """Return the decoder for --avro; None without the flag. `running` closes it."""
    if arguments.avro is None:
        return None
    from kafkalite.cli.avro import open_values

    values = open_values(
        arguments.avro,
        keys=arguments.avro_keys,
        permissive=arguments.avro_mode == "permissive",
        timeout_s=arguments.timeout,
    )
    return running.enter_context(values)


class Printer:
    """Writes records to stdout, up to the limit of --count."""

    def __init__(
        self, writer: Format | JsonLines, limit: int | None, progress: Progress, avro: AvroValues | None
    ) -> None:
        self._writer = writer
        self._limit = limit
        self._progress = progress
        self._avro = avro
        self._records = 0
        self._size = 0
        self.failure: CommandError | None = None
        """Why nothing more can be printed."""

    @property
    def done(self) -> bool:
        return self.failure is not None or (self._limit is not None and self._records >= self._limit)

    def print(self, key: TopicPartition, columns: RecordColumns) -> int:
        """Write records, up to the limit or the first record that cannot be decoded. Return the number of records
        written."""
        from kafkalite.wire.record.columns import slice_of

        if self._limit is not None:
            columns = slice_of(columns, 0, min(len(columns), self._limit - self._records))
        documents = None
        if self._avro is not None and len(columns):
            columns, documents, self.failure = self._avro.decode(key, columns)
        if len(columns) == 0:
            return 0
        text = self._writer.write(key, columns, documents)
        self._records += len(columns)
        self._size += columns.size
        write_data(text)
        self._progress.update(self._records, self._size)
        return len(columns)

    def finish(self) -> None:
        self._progress.finish(self._records, self._size)
