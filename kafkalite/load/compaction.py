"""Merge the small files of each folder (by default, a topic and hour) into larger ones, without Spark.

    small files of a folder ─▶ groups of at most `file_size` bytes ─▶ one file per group ─▶ a commit per group

A commit adds the new file and removes the old ones.

If the columns of a topic have changed, its large files are also rewritten, with the current columns. Then any reader of
the directory finds one schema.

Readers of manifests see either the old files or the new file.

Thread rule: functions. They lock the directory for one group of files at a time, so a load can run in between.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.load.columns import Columns, arrow_fields, fitted, from_json, plain, to_json
from kafkalite.load.layout import file_columns
from kafkalite.load.manifest import Change, DataFile, PartitionShare, Target, now_ms
from kafkalite.load.parquet import FILE_SIZE, ROW_GROUP_SIZE
from kafkalite.load.storage import LoadError
from kafkalite.load.table_schema import footer_of, tables

if TYPE_CHECKING:
    import os
    from collections.abc import Container, Iterable, Sequence

    from kafkalite.load.manifest import LoadState
    from kafkalite.load.storage import Storage

SMALL: Final = 0.5
"""A file below this share of `file_size` is small."""


@dataclass
class Compacted:
    """The result of a compaction: the number of files before and after, and the records and bytes of the new files."""

    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    size: int = 0
    seconds: float = 0.0


def compact(
    path: str | os.PathLike[str] | Storage, *, file_size: int = FILE_SIZE, grace_s: float = 0.0, codec: str = "zstd"
) -> Compacted:
    """Merge the small files of a directory of loaded data.

    `file_size` is the maximum size of a new file in bytes; files of less than half of it are merged. Replaced files are
    kept for at least `grace_s` seconds. Until they are deleted, a reader that lists the directory sees their records
    twice.

    LoadError if nothing was loaded, or if another writer keeps the lock too long.
    """
    began = time.monotonic()
    target = Target(path)
    target.require()
    done = Compacted()
    publish_schemas(target)
    state = target.state
    wanted = {topic: plain(file_columns_of(state, topic)) for topic in state.schemas}
    try:
        old = {path for path in state.outdated if footer_of(target.storage, path) != wanted[state.files[path].topic]}
    except FileNotFoundError as error:
        raise LoadError(f"another compaction of {target.location} has replaced files; run the command again") from error
    for group in groups(state.files.values(), file_size, old):
        compact_group(target, group, done, grace_s, codec)
    done.seconds = time.monotonic() - began
    return done


def file_columns_of(state: LoadState, topic: str) -> Columns:
    """Return the current columns of a topic's files."""
    return file_columns(from_json(state.schemas[topic]), state.layouts.get(topic))


def publish_schemas(target: Target) -> None:
    """Add the columns of topics that an older release loaded without columns, in one commit."""
    state = target.refresh()
    if not {file.topic for file in state.files.values()} - state.schemas.keys():
        return
    with target.writing():
        found = {topic: to_json(columns) for topic, columns in tables(target.storage, target.state).items()}
        found = {topic: rows for topic, rows in found.items() if topic not in target.state.schemas}
        target.commit(Change("compaction", schemas=found), {})


def compact_group(target: Target, group: Sequence[DataFile], done: Compacted, grace_s: float, codec: str) -> None:
    """Merge a group of files into one. Do nothing if another compaction has already replaced one of them."""
    with target.writing() as staging:
        if not all(file.path in target.state.files for file in group):
            return
        new = f"compact-{target.state.number + 1:08d}-{uuid.uuid4().hex[:16]}.parquet"
        merged = f"{staging}/{new}"
        columns = file_columns_of(target.state, group[0].topic)
        size = merge(target.storage, [file.path for file in group], merged, columns, codec)
        name = f"{group[0].folder}/{new}"
        file = joined(group, name, size)
        keep_until_ms = now_ms() + round(grace_s * 1000)
        change = Change("compaction", [file], [file.path for file in group], keep_until_ms=keep_until_ms)
        target.commit(change, {name: merged})
    done.files_before += len(group)
    done.files_after += 1
    done.rows += file.rows
    done.size += size


def groups(files: Iterable[DataFile], file_size: int, old: Container[str] = ()) -> list[list[DataFile]]:
    """Group the small files of each folder, so that each group has at least two files and at most `file_size` bytes.

    Files whose paths are in `old` are always included, even if they are large or the only file.
    """
    places: dict[str, list[DataFile]] = {}
    for file in files:
        if file.size < file_size * SMALL or file.path in old:
            places.setdefault(file.folder, []).append(file)
    found = []
    for rows in places.values():
        group: list[DataFile] = []
        size = 0
        for file in rows:  # in load order, so offsets stay in order
            if group and size + file.size > file_size:
                found.append(group)
                group, size = [], 0
            group.append(file)
            size += file.size
        found.append(group)
    return [group for group in found if len(group) > 1 or group[0].path in old]


def merge(storage: Storage, sources: Sequence[str], merged: str, columns: Columns, codec: str) -> int:
    """Copy the records of files into one file with these columns.

    Return its size in bytes. The file is synced to disk.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(arrow_fields(columns))
    sink = storage.create(merged)
    with pq.ParquetWriter(sink, schema, compression=codec) as writer:
        waiting: list[pa.RecordBatch] = []
        for source in sources:
            with storage.open(source) as opened, pq.ParquetFile(opened) as file:
                for batch in file.iter_batches():
                    try:
                        waiting.append(fitted(batch, columns))
                    except pa.ArrowException as error:
                        raise LoadError(f"{source} does not fit into the columns of its table: {error}") from error
                    if sum(batch.nbytes for batch in waiting) >= ROW_GROUP_SIZE:
                        writer.write_table(pa.Table.from_batches(waiting, schema))
                        waiting = []
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, schema))
    size = sink.tell()
    storage.finish(sink)
    return size


def joined(files: Sequence[DataFile], path: str, size: int) -> DataFile:
    """Return the manifest's entry for a file that replaces these files."""
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
