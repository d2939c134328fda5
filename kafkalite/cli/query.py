"""Query topics with SQL.

  kafkalite query 'select count(*) from clicks'
  kafkalite query "select value->>'$.user' as user, count(*) from clicks group by all order by 2 desc limit 10"
  kafkalite query --since -1h 'select * from "web-clicks" limit 5'
  kafkalite query --avro http://127.0.0.1:8081 'select value.item, sum(value.amount) from orders group by 1'
  kafkalite query --out rooms.parquet "from readings select key, avg(value::double) as mean group by key"
  kafkalite query "select r.name, c.value from clicks c join 'rooms.csv' r on r.id = c.key"

Each topic is a table with the columns key, value, topic, partition, offset, timestamp, timestampType and headers. It
contains the records that exist when the command begins, without those of aborted transactions. Put names that contain a
dash in double quotes. OFFSET is a keyword of SQL: write t.offset or "offset".

Keys and values are UTF-8 text. With --key bytes or --value bytes they are bytes. With --avro, values are decoded with
the latest schema of TOPIC-value. If a record cannot be decoded, the command fails, and the error names the record.

The SQL dialect is DuckDB's, with joins, windows, JSON (->>) and files. Sorting and grouping use memory and, if needed,
the disk. Only SELECT is accepted.

--since and --until select records by their timestamps. Timestamps do not have to be in the order of the offsets, so
with --until each topic is read to its end. A TIME is an ISO 8601 time (UTC by default), a time before now such as -1h
or after now such as +5m (units: ms, s, m, h, d, w), or ms since 1970. A number of ten digits is seconds since 1970.
"""

from __future__ import annotations

import base64
import csv
import datetime as dt
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalite.cli import EXIT_USAGE, CommandError, UsageError
from kafkalite.cli.common import add_client_arguments, open_client, say_isolation, security_from
from kafkalite.cli.output import cut, json_text, note, print_json, print_table, value_stream
from kafkalite.cli.times import moment

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from kafkalite.avro.client import RegistryClient
    from kafkalite.query import QueryResult

TABLE_ROWS_MAX: Final = 1000
CELL_WIDTH_MAX: Final = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sql", metavar="SQL", help="one SELECT statement; - reads it from standard input")
    parser.add_argument("--key", choices=("text", "bytes"), default="text", help="type of keys (default: text)")
    parser.add_argument("--value", choices=("text", "bytes"), default="text", help="type of values (default: text)")
    parser.add_argument("--avro", metavar="URL", help="decode values with this schema registry")
    parser.add_argument("--avro-keys", action="store_true", help="also decode keys")
    parser.add_argument("--since", metavar="TIME", type=moment, help="only records from this time on")
    parser.add_argument("--until", metavar="TIME", type=moment, help="only records before this time")
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_committed",
        help="isolation level (default: read_committed)",
    )
    parser.add_argument("--csv", action="store_true", help="print CSV (RFC 4180) with a header line")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the result to a Parquet file")
    add_client_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.avro.client import RegistryRefused, RegistryUnreachable
    from kafkalite.query import Queries, QueryError

    refuse_contradictions(arguments)
    security_from(arguments.command_config)  # checked here, because a statement without a topic opens no client
    statement = sys.stdin.read() if arguments.sql == "-" else arguments.sql
    try:
        with Queries(
            lambda: open_client(arguments),
            key="avro" if arguments.avro_keys else arguments.key,
            value=arguments.value if arguments.avro is None else "avro",
            open_registry=registry_of(arguments),
            since=arguments.since,
            until=arguments.until,
            isolation_level=arguments.isolation,
        ) as queries:
            write(queries.run(statement), arguments)
            say_isolation(arguments.isolation)
    except QueryError as error:
        raise UsageError(str(error)) from error
    except RegistryUnreachable as error:
        raise CommandError(f"cannot reach the schema registry: {error}", EXIT_USAGE) from error
    except RegistryRefused as error:
        raise CommandError(f"the schema registry rejected the request: {error}") from error
    return 0


def refuse_contradictions(arguments: argparse.Namespace) -> None:
    """Raise UsageError for flags that conflict, or that require another flag."""
    if arguments.avro is not None and arguments.value == "bytes":
        raise UsageError("--value bytes and --avro cannot be used together")
    if arguments.avro is None and arguments.avro_keys:
        raise UsageError("--avro-keys requires --avro")
    if arguments.avro_keys and arguments.key == "bytes":
        raise UsageError("--key bytes and --avro-keys cannot be used together")
    given = [flag for flag in ("json", "csv", "out") if getattr(arguments, flag)]
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} cannot be used together")


def registry_of(arguments: argparse.Namespace) -> Callable[[], RegistryClient] | None:
    """Return a function that connects to the schema registry of --avro; None without the flag. UsageError for a bad
    address."""
    if arguments.avro is None:
        return None
    from kafkalite.avro.client import RegistryClient

    def opened() -> RegistryClient:
        return RegistryClient(arguments.avro, timeout_s=min(arguments.timeout, 10.0), retry_timeout_s=arguments.timeout)

    try:
        opened().close()
    except ValueError as error:
        raise UsageError(f"--avro: {error}") from error
    return opened


# --- output -----------------------------------------------------------------------------------------------------------


def write(result: QueryResult, arguments: argparse.Namespace) -> None:
    """Write the whole result in the format that the flags select."""
    if arguments.out is not None:
        write_parquet(result, arguments.out)
    elif arguments.json:
        for batch in result:
            for row in batch.to_pylist():
                print_json(row, _plain)
    elif arguments.csv:
        lines = csv.writer(value_stream(), lineterminator="\n")
        lines.writerow(result.schema.names)
        for batch in result:
            lines.writerows(rows_of(batch))
    else:
        print_rows(result)


def print_rows(result: QueryResult) -> None:
    """Print a table of the first rows; note on stderr if there are more."""
    rows: list[list[str]] = []
    for batch in result:
        rows += rows_of(batch.slice(0, TABLE_ROWS_MAX + 1 - len(rows)))
        if len(rows) > TABLE_ROWS_MAX:
            break
    print_table(result.schema.names, [[shown(cell) for cell in row] for row in rows[:TABLE_ROWS_MAX]])
    if len(rows) > TABLE_ROWS_MAX:
        note(f"kafkalite: only the first {TABLE_ROWS_MAX} rows are shown; use --csv or --json for all")


def rows_of(batch: Any) -> list[list[str]]:
    """Return the cells of the result as text; a null is ""."""
    columns = [column.to_pylist() for column in batch.columns]
    return [[cell_text(value) for value in row] for row in zip(*columns, strict=True)]


def cell_text(value: object) -> str:
    """Return a value as text: a string unchanged, other values as JSON, without quotes around a JSON string."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    text = json_text(value, _plain)
    return text[1:-1] if text.startswith('"') else text


def shown(text: str) -> str:
    """Escape and shorten a cell of the printed table."""
    return cut(text[: CELL_WIDTH_MAX + 1], CELL_WIDTH_MAX)


def _plain(value: object) -> object:
    """Convert a value whose type JSON lacks: a time to ISO 8601, bytes to base64, others (such as a decimal) to
    text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    return str(value)


def write_parquet(result: QueryResult, path: Path) -> None:
    """Write the result to a temporary file, then rename it. UsageError if the file cannot be written."""
    from pyarrow import parquet

    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with parquet.ParquetWriter(temporary, result.schema, compression="zstd") as writer:
            for batch in result:
                writer.write_batch(batch)
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
