"""Puts the small files of each topic and hour together, by manifest: without Spark.

    small files of an hour, in order ─▶ up to `file_size` bytes of them ─▶ one file ─▶ a change: adds it, removes them

Records are copied as they are. Those who go by manifests see the old files or the new one. The old ones are removed
`grace_s` after the change; while they are there, a reader that lists directories has their records twice.

Thread rule: functions; they take turns with loads of the same directory, a file at a time.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.load.manifest import Change, DataFile, PartitionShare, Target, now_ms
from kafkalite.load.parquet import FILE_SIZE, ROW_GROUP_SIZE, folder_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from kafkalite.load.storage import Storage

SMALL: Final = 0.5
"""A file below this part of `file_size` is small."""


@dataclass
class Compacted:
    """What was put together: files there were and are, records and bytes of them now."""

    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    size: int = 0
    seconds: float = 0.0


def compact(
    path: str | os.PathLike[str] | Storage, *, file_size: int = FILE_SIZE, grace_s: float = 0.0, codec: str = "zstd"
) -> Compacted:
    """See the module. LoadError where nothing was loaded, and when another writer does not end."""
    began = time.monotonic()
    target = Target(path)
    target.require()
    done = Compacted()
    for group in groups(target.refresh().files.values(), file_size):
        compact_group(target, group, done, grace_s, codec)
    done.seconds = time.monotonic() - began
    return done


def compact_group(target: Target, group: Sequence[DataFile], done: Compacted, grace_s: float, codec: str) -> None:
    """One change; none, when another compaction was here first."""
    with target.writing() as staging:
        if not all(file.path in target.state.files for file in group):
            return
        new = f"compact-{target.state.number + 1:08d}-{uuid.uuid4().hex[:16]}.parquet"
        merged = f"{staging}/{new}"
        size = merge(target.storage, [file.path for file in group], merged, codec)
        name = f"{folder_of(group[0].topic, group[0].date, group[0].hour)}/{new}"
        file = joined(group, name, size)
        keep_until_ms = now_ms() + round(grace_s * 1000)
        change = Change("compaction", [file], [file.path for file in group], keep_until_ms=keep_until_ms)
        target.commit(change, {name: merged})
    done.files_before += len(group)
    done.files_after += 1
    done.rows += file.rows
    done.size += size


def groups(files: Iterable[DataFile], file_size: int) -> list[list[DataFile]]:
    """Files that become one each: of one topic and hour, small, two or more, `file_size` bytes together at most."""
    places: dict[tuple[str, str | None, int | None], list[DataFile]] = {}
    for file in files:
        if file.size < file_size * SMALL:
            places.setdefault((file.topic, file.date, file.hour), []).append(file)
    found = []
    for rows in places.values():
        group: list[DataFile] = []
        size = 0
        for file in rows:  # as they were loaded, so offsets stay in order
            if group and size + file.size > file_size:
                found.append(group)
                group, size = [], 0
            group.append(file)
            size += file.size
        found.append(group)
    return [group for group in found if len(group) > 1]


def merge(storage: Storage, sources: Sequence[str], merged: str, codec: str) -> int:
    """Copies all records; returns the bytes of the new file, which lasts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = []
    for source in sources:
        with storage.open(source) as file:
            schemas.append(pq.read_schema(file))
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    sink = storage.create(merged)
    with pq.ParquetWriter(sink, schema, compression=codec) as writer:
        waiting: list[pa.RecordBatch] = []
        for source in sources:
            with storage.open(source) as opened, pq.ParquetFile(opened) as file:
                for batch in file.iter_batches():
                    waiting.append(conform(batch, schema))
                    if sum(batch.nbytes for batch in waiting) >= ROW_GROUP_SIZE:
                        writer.write_table(pa.Table.from_batches(waiting, schema))
                        waiting = []
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, schema))
    size = sink.tell()
    storage.finish(sink)
    return size


def conform(batch: object, schema: object) -> object:
    """A batch with the columns of a schema: null where it has none."""
    import pyarrow as pa

    assert isinstance(batch, pa.RecordBatch)
    assert isinstance(schema, pa.Schema)
    have = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in have else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def joined(files: Sequence[DataFile], path: str, size: int) -> DataFile:
    """What all the files together are, as one."""
    shares: dict[int, PartitionShare] = {}
    for file in files:
        for number, share in file.partitions.items():
            known = shares.get(number, PartitionShare(0, share.first, share.last))
            shares[number] = PartitionShare(
                known.rows + share.rows, min(known.first, share.first), max(known.last, share.last)
            )
    return files[0]._replace(
        path=path,
        size=size,
        rows=sum(file.rows for file in files),
        partitions=shares,
        time_min=min((file.time_min for file in files if file.time_min is not None), default=None),
        time_max=max((file.time_max for file in files if file.time_max is not None), default=None),
    )
