"""Export a topic's records to a file (NDJSON, CSV, or Parquet with pyarrow) that a job writes and the user downloads.

    records ─▶ masked ─▶ rows ─▶ a writer ─▶ the job's file, with a limited number of records and bytes

kafkalite.console.rows describes the rows.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import json
import re
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from kafkalite.base.times import TIME_MAX_MS
from kafkalite.client.cluster import READ_COMMITTED
from kafkalite.console.messages import begin_offsets, oldest, size_of, time_of
from kafkalite.console.requests import BadRequestError, BusyError, Done, NotFoundError
from kafkalite.console.rows import COLUMNS, rows_of
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from kafkalite.client import Client
    from kafkalite.console.action_context import ActionRequest
    from kafkalite.console.clients import PooledClients
    from kafkalite.console.jobs import Job
    from kafkalite.console.masks import Masks
    from kafkalite.wire.record.columns import Record

COUNT_DEFAULT, COUNT_MAX = 10_000, 200_000
SIZE_MAX: Final = 64 * 1024 * 1024
"""Size limit of an export, in bytes of records and of the file."""
PORTION: Final = 500
PORTION_SIZE: Final = 1024 * 1024
STARTS: Final = ("oldest", "offset", "time")
SAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
FORMULA: Final = re.compile(r"[=+\-@\t\r\n]")


def formats() -> tuple[str, ...]:
    """Return the available formats."""
    return ("ndjson", "csv", "parquet") if importlib.util.find_spec("pyarrow") is not None else ("ndjson", "csv")


def export_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the form for an export."""
    name = request.values[0]
    return {
        "name": name,
        "partitions": client.partitions(name),
        "formats": formats(),
        "starts": STARTS,
        "count": COUNT_DEFAULT,
        "count_max": COUNT_MAX,
        "error": "",
    }


def export_action(client: Client, request: ActionRequest) -> dict[str, Any] | Done:
    """Start the job that exports the records. If the form is invalid, return it with the error."""
    try:
        return started(client, request)
    except (BadRequestError, BusyError) as error:
        return {**export_page(client, request), "error": str(error)}


def started(client: Client, request: ActionRequest) -> Done:
    name = request.values[0]
    kind = request.choice("format", formats())
    count = request.number("count", COUNT_DEFAULT, 1, COUNT_MAX)
    ranges = ranges_of(client, request, name)
    window = window_of(request)
    masks = request.masks

    def work(seat: PooledClients, job: Job) -> dict[str, Any]:
        job.total = count
        size = written = 0
        ended = "all records"
        with writer_of(kind, job.path) as writer:
            for portion in portions(seat.client, ranges, masks, window):
                writer.write(rows_of(portion[: count - written], seat.documents))
                written = min(written + len(portion), count)
                size = max(size + sum(size_of(record) for _, record in portion), job.path.stat().st_size)
                job.go_on(written)
                if written >= count or size >= SIZE_MAX:
                    ended = f"{count} records" if written >= count else f"{SIZE_MAX // 2**20} MiB"
                    break
        job.file_name = f"{SAFE.sub('_', name)}.{kind}"
        return {"records": written, "bytes": job.path.stat().st_size, "ended by": ended}

    request.bench.deed.detail.update(format=kind, count=count)
    job = request.bench.desk.jobs.start("export", f"{name} as {kind}", request.bench.deed, work)
    return Done(f"/jobs/{job.id}", {"job": job.id})


def ranges_of(client: Client, request: ActionRequest, name: str) -> dict[TopicPartition, tuple[int, int]]:
    """Return partition → its current start and end offset, for the partitions to export."""
    topic = client.topic(name)
    keys = [TopicPartition(name, row.partition) for row in topic.partitions if row.leader >= 0]
    if request.text("partition"):
        number = request.number("partition", 0, 0, 2**31 - 1)
        keys = [key for key in keys if key.partition == number]
        if not keys:
            raise NotFoundError(f"{name} has no partition {number} with a leader")
    firsts = {key: row.offset for key, row in client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST)).items()}
    ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST), isolation=READ_COMMITTED)
    lasts = {key: row.offset for key, row in ends.items()}
    begins = begin_offsets(client, request, keys, request.choice("from", STARTS), firsts, lasts)
    return {key: (begins[key], lasts[key]) for key in keys}


def window_of(request: ActionRequest) -> range | None:
    """Return the time window in ms since 1970. None exports all records, also those without a timestamp."""
    since = time_of(request.text("value")) if request.text("from") == "time" else None
    until = time_of(request.text("until")) if request.text("until") else None
    return None if since is None and until is None else range(since or 0, TIME_MAX_MS + 1 if until is None else until)


def portions(
    client: Client, ranges: dict[TopicPartition, tuple[int, int]], masks: Masks, window: range | None
) -> Iterator[list[tuple[TopicPartition, Record]]]:
    """Yield masked records by partition, in portions of at most PORTION records or about PORTION_SIZE bytes."""
    for key, (start, end) in ranges.items():
        portion: list[tuple[TopicPartition, Record]] = []
        looked = size = 0
        for _, record in oldest(client, key, start, end, end - start):
            looked += 1
            size += size_of(record)
            if window is None or record.timestamp in window:
                portion.append((key, masks.masked(key.topic, record)))
            if looked >= PORTION or size >= PORTION_SIZE:
                yield portion  # also if empty: the reader checks for cancellation
                portion, looked, size = [], 0, 0
        if portion:
            yield portion


# --- writers ----------------------------------------------------------------------------------------------------------


class Writer(Protocol):
    """Writes rows in one file format."""

    def write(self, rows: list[dict[str, Any]]) -> None: ...


def writer_of(kind: str, path: Path) -> AbstractContextManager[Writer]:
    """Open a writer during a `with` block. The file is complete at the end of the block."""
    if kind == "parquet":
        return parquet_file(path)
    return csv_file(path) if kind == "csv" else ndjson_file(path)


class NdjsonWriter:
    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, rows: list[dict[str, Any]]) -> None:
        self._file.writelines(json.dumps(row, ensure_ascii=True) + "\n" for row in rows)


class CsvWriter:
    def __init__(self, file: IO[str]) -> None:
        self._writer = csv.writer(file)
        self._writer.writerow(COLUMNS)

    def write(self, rows: list[dict[str, Any]]) -> None:
        self._writer.writerows([cell_of(row[name]) for name in COLUMNS] for row in rows)


class ParquetFileWriter:
    def __init__(self, writer: Any, schema: Any) -> None:
        self._writer, self._schema = writer, schema

    def write(self, rows: list[dict[str, Any]]) -> None:
        import pyarrow as pa

        shaped = [
            {**row, "headers": [dict(zip(("name", "value", "is"), each, strict=True)) for each in row["headers"]]}
            for row in rows
        ]
        self._writer.write_table(pa.Table.from_pylist(shaped, schema=self._schema))


def cell_of(value: Any) -> Any:
    """Return the text of a CSV cell. An apostrophe before = + - @ keeps spreadsheets from treating it as a formula."""
    text = json.dumps(value) if isinstance(value, list) else value
    if isinstance(text, str) and FORMULA.match(text):
        return f"'{text}"
    return text


@contextlib.contextmanager
def ndjson_file(path: Path) -> Iterator[NdjsonWriter]:
    with path.open("w", encoding="utf-8") as file:
        yield NdjsonWriter(file)


@contextlib.contextmanager
def csv_file(path: Path) -> Iterator[CsvWriter]:
    with path.open("w", encoding="utf-8", newline="") as file:
        yield CsvWriter(file)


@contextlib.contextmanager
def parquet_file(path: Path) -> Iterator[ParquetFileWriter]:
    import pyarrow as pa
    from pyarrow import parquet

    header = pa.struct([("name", pa.string()), ("value", pa.string()), ("is", pa.string())])
    texts = [(name, pa.string()) for name in ("key", "key_is", "value", "value_is")]
    numbers = [("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.int64())]
    schema = pa.schema([("topic", pa.string()), *numbers, *texts, ("headers", pa.list_(header))])
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        yield ParquetFileWriter(writer, schema)
