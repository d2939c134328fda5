"""Send lines to a topic, from files or stdin.

  kafkalite produce -t logs < access.log
  kafkalite produce -t users -K : -Z '' --codec zstd users.txt
  kafkalite produce -t logs -p 0 --acks 1 -H source=web -H "host=$(hostname)" part-1.log part-2.log

Each line is a record. With -K the text before the first separator is the key. Records with a key go to the partition
that the Java client would choose. Batches of records without a key go to the partitions in turn. With -p, all records
go to one partition. With the default acks=all, order is kept within a partition even if requests fail.

With --transactional-id the input is one transaction: readers of committed data see all of it, or nothing if the command
fails or is stopped.

--timestamp sets the timestamp of all records. A TIME is an ISO 8601 time (UTC by default), a time before now such as
-1h (units: ms, s, m, h, d, w), or ms since 1970. A number of ten digits is seconds since 1970.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from kafkalite.cli import CommandError, UsageError
from kafkalite.cli.common import (
    Progress,
    add_client_arguments,
    assignments,
    count,
    natural,
    open_client,
    seconds,
    unescape,
)
from kafkalite.cli.output import print_json
from kafkalite.cli.times import moment

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from kafkalite.client import Client, Producer
    from kafkalite.wire.record.columns import BytesColumn, HeaderColumns, RecordColumns

STDIN: Final = 0
ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
READ_SIZE: Final = 4 * 1024 * 1024
"""Bytes read at once; whole lines of them become records together."""
LINE_SIZE_MAX: Final = 256 * 1024 * 1024
"""A line longer than this ends the command; brokers refuse far shorter ones."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from argparse import BooleanOptionalAction

    parser.add_argument("files", metavar="FILE", nargs="*", help="files to send; - is standard input (default: -)")
    parser.add_argument("-t", "--topic", required=True)
    parser.add_argument("-p", "--partition", type=natural, help="partition (default: by key, otherwise round robin)")
    parser.add_argument("-K", "--key-separator", metavar="TEXT", help="separator of key and value")
    parser.add_argument("-D", "--delimiter", metavar="TEXT", default="\\n", help="separator of records (default: \\n)")
    parser.add_argument("-Z", "--null", metavar="TEXT", help="text to send as null, in keys and values")
    parser.add_argument(
        "-H",
        "--header",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="header for every record; can be repeated",
    )
    parser.add_argument("-z", "--codec", choices=CODECS, default="none", help="compression codec (default: none)")
    parser.add_argument("--level", type=int, help="compression level of the codec")
    parser.add_argument(
        "-a", "--acks", choices=tuple(ACKS), default="all", help="acknowledgements to wait for (default: all)"
    )
    parser.add_argument("--timestamp", metavar="TIME", type=moment, help="timestamp of every record (default: now)")
    parser.add_argument(
        "--batch-size", metavar="BYTES", type=count, default=1024 * 1024 - 1024, help="maximum size of a batch in bytes"
    )
    parser.add_argument(
        "--transactional-id",
        metavar="ID",
        help="send all records in one transaction; fences an older producer with this id",
    )
    parser.add_argument(
        "--transaction-timeout",
        metavar="S",
        type=seconds,
        help="seconds after which the broker aborts the transaction (default: 60)",
    )
    parser.add_argument(
        "--create",
        action=BooleanOptionalAction,
        default=True,
        help="let the broker create the topic if auto.create.topics.enable is set (default: yes)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress and no summary")
    add_client_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    separator = None if arguments.key_separator is None else unescape(arguments.key_separator, "--key-separator")
    delimiter = unescape(arguments.delimiter, "--delimiter")
    refuse_level(arguments)
    refuse_half_transactions(arguments)
    inputs = [open_input(name) for name in arguments.files or ["-"]]
    from kafkalite.client.write.producer import TRANSACTION_TIMEOUT_S
    from kafkalite.wire.record.compression import Codec

    with open_client(arguments) as client:
        partitions = partitions_of(client, arguments)
        with (
            client.producer(
                acks=ACKS[arguments.acks],
                codec=Codec.named(arguments.codec),
                level=arguments.level,
                batch_size=arguments.batch_size,
                delivery_timeout_s=max(arguments.timeout, 1.0) * 4,
                transactional_id=arguments.transactional_id,
                transaction_timeout_s=arguments.transaction_timeout or TRANSACTION_TIMEOUT_S,
            ) as producer,
            transaction_of(producer, arguments),
        ):
            shaper = Shaper(separator, arguments.null, assignments("--header", arguments.header))
            sender = Sender(producer, arguments.topic, partitions, arguments.timestamp)
            progress = Progress("sent", shown=False if arguments.quiet else None)
            for descriptor in inputs:
                for lines in read_lines(descriptor, delimiter):
                    sender.send(shaper.shape(lines))
                    progress.update(sender.records, sender.size)
            producer.flush()
        progress.finish(sender.records, sender.size)
        if arguments.json:
            print_json(summary(producer))
    return 0


def refuse_half_transactions(arguments: argparse.Namespace) -> None:
    """Raise UsageError for flags that conflict with --transactional-id, or that require it."""
    if arguments.transactional_id is None:
        if arguments.transaction_timeout is not None:
            raise UsageError("--transaction-timeout requires --transactional-id")
    elif not arguments.transactional_id or ACKS[arguments.acks] != -1:
        raise UsageError("--transactional-id must not be empty and requires --acks all")


def transaction_of(producer: Producer, arguments: argparse.Namespace) -> AbstractContextManager[object]:
    """Return a context manager around all records: a transaction with --transactional-id, or one without effect."""
    return nullcontext() if arguments.transactional_id is None else producer.transaction()


def refuse_level(arguments: argparse.Namespace) -> None:
    """Raise UsageError for a compression level that the codec lacks."""
    from kafkalite.wire.record.compression import Codec, check_level

    try:
        if arguments.level is not None:
            check_level(Codec.named(arguments.codec), arguments.level)
    except ValueError as error:
        raise UsageError(f"--level {arguments.level}: {error}") from error


def open_input(name: str) -> int:
    """Open a file or stdin, and return its descriptor. UsageError if it cannot be read."""
    import errno
    import os

    if name == "-":
        return STDIN
    try:
        if os.path.isdir(name):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from error


def partitions_of(client: Client, arguments: argparse.Namespace) -> list[int]:
    """Return the partitions to write to. UsageError if the topic does not have the partition of -p."""
    topic = client.topic(arguments.topic, create=arguments.create)
    partitions = [part.partition for part in topic.partitions]
    if arguments.partition is None:
        return partitions
    if arguments.partition not in partitions:
        raise UsageError(
            f"topic {arguments.topic} has no partition {arguments.partition} (partition count: {len(partitions)})"
        )
    return [arguments.partition]


def read_lines(descriptor: int, delimiter: bytes) -> Iterator[BytesColumn]:
    """Yield columns of lines, each with all lines that have arrived. The last column is an incomplete last line, if
    any.

    A column shares its buffer with the next column, which overwrites it.
    """
    import select

    from kafkalite._native.wire.lines import split_lines
    from kafkalite.wire.record.columns import BytesColumn

    buffer = bytearray(READ_SIZE)
    filled = 0
    at_end = False
    while not at_end:
        while filled < len(buffer):
            size = read_into(descriptor, memoryview(buffer)[filled:])
            filled += size
            at_end = size == 0
            # Send lines from a slow writer at once; wait for more from a fast pipe, which delivers 64 KiB at a time.
            if at_end or not select.select([descriptor], [], [], 0)[0]:
                break
        view = memoryview(buffer)[:filled]
        starts, ends, consumed = split_lines(view, delimiter)
        if len(starts):
            yield BytesColumn(view, starts, ends)
        filled -= consumed
        if consumed:
            buffer[:filled] = buffer[consumed : consumed + filled]
        elif filled == len(buffer):
            if filled >= LINE_SIZE_MAX:
                raise CommandError(f"a line is longer than {LINE_SIZE_MAX} bytes")
            buffer = bytearray(buffer) + bytearray(len(buffer))
    if filled:
        yield one_line(memoryview(buffer)[:filled])


def read_into(descriptor: int, view: memoryview) -> int:
    """Read into a buffer. Return the number of bytes, 0 at the end of the file."""
    import os

    return os.readv(descriptor, [view])


def one_line(view: memoryview) -> BytesColumn:
    import numpy as np

    from kafkalite.wire.record.columns import BytesColumn

    return BytesColumn(view, np.zeros(1, np.int64), np.full(1, len(view), np.int64))


class Shaper:
    """Converts lines to records: splits off the keys, and adds the headers of --header to every record."""

    def __init__(self, separator: bytes | None, null: str | None, headers: dict[str, str]) -> None:
        self._separator = separator
        self._null = None if null is None else null.encode(errors="surrogateescape")
        self._headers = [(key, value.encode(errors="surrogateescape")) for key, value in headers.items()]

    def shape(self, lines: BytesColumn) -> RecordColumns:
        import numpy as np

        from kafkalite._native.wire.lines import equals, split_keys
        from kafkalite.wire.record.batches import no_items
        from kafkalite.wire.record.columns import BytesColumn, RecordColumns

        none = np.empty(0, np.int64)
        keys, values = no_items(), lines
        if self._separator is not None:
            key_ends, value_starts, no_key = split_keys(lines, self._separator)
            keys = BytesColumn(lines.data, lines.starts, key_ends, no_key)
            values = BytesColumn(lines.data, value_starts, lines.ends)
        if self._null is not None:
            values = BytesColumn(values.data, values.starts, values.ends, equals(values, self._null))
            if keys.nulls is not None and len(keys):
                nulls = keys.nulls | equals(keys, self._null)
                keys = BytesColumn(keys.data, keys.starts, keys.ends, nulls)
        return RecordColumns(none, none, keys, values, self._header_columns(len(lines)))

    def _header_columns(self, rows: int) -> HeaderColumns | None:
        """Return the headers of `rows` records. All records have the same headers."""
        if not self._headers:
            return None
        import numpy as np

        from kafkalite.wire.record.columns import BytesColumn, HeaderColumns

        return HeaderColumns(
            np.zeros(rows, np.int64),
            np.full(rows, len(self._headers), np.int64),
            BytesColumn.from_items(key.encode(errors="surrogateescape") for key, _ in self._headers),
            BytesColumn.from_items(value for _, value in self._headers),
        )


class Sender:
    """Sends records to partitions: by key, or if they have no keys, each portion to the next partition."""

    def __init__(self, producer: Producer, topic: str, partitions: list[int], timestamp: int | None) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._timestamp = timestamp
        self._next = 0
        self.records = 0
        self.size = 0

    def send(self, columns: RecordColumns) -> None:
        if len(self._partitions) == 1:
            self._send(0, columns)
        elif len(columns.keys) == 0:
            self._send(self._next, columns)
            self._next = (self._next + 1) % len(self._partitions)
        else:
            self._spread(columns)

    def _spread(self, columns: RecordColumns) -> None:
        """Send each record to the partition of its key, in order. Records without a key go to the next partition in
        turn."""
        import numpy as np

        from kafkalite._native.wire.lines import partitions_of as partitions_by_key

        targets = partitions_by_key(columns.keys, len(self._partitions))
        targets[targets < 0] = self._next
        self._next = (self._next + 1) % len(self._partitions)
        order = np.argsort(targets, kind="stable")
        bounds = np.searchsorted(targets[order], np.arange(len(self._partitions) + 1))
        for index in range(len(self._partitions)):
            picked = order[bounds[index] : bounds[index + 1]]
            if len(picked):
                self._send(index, columns.chosen(picked))

    def _send(self, index: int, columns: RecordColumns) -> None:
        stamp = int(time.time() * 1000) if self._timestamp is None else self._timestamp
        self._producer.send(self._topic, self._partitions[index], columns, timestamp=stamp)
        self.records += len(columns)
        self.size += columns.size


def summary(producer: Producer) -> dict[str, object]:
    """Return the summary that --json prints at the end."""
    return {
        "records": producer.record_count,
        "partitions": [
            {
                "topic": delivery.partition.topic,
                "partition": delivery.partition.partition,
                "records": delivery.record_count,
                "batches": delivery.batch_count,
                "first_offset": delivery.first_offset,
                "end_offset": delivery.end_offset,
            }
            for delivery in sorted(producer.deliveries.values(), key=lambda delivery: delivery.partition)
        ],
    }
