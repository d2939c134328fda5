"""Write Arrow record batches into Parquet files, each with the records of one topic and folder.

    1. split     the batches of a task into parts of one topic and partition
    2. check     each part against the columns of its topic; dead letters go to a separate file
    3. split     the parts by folder
    4. convert   rows to the columns of the topic's files
    5. collect   rows in buffers of at most 64 MiB, which become row groups of a file
    6. return    rows as JSON: an entry for each file, the dead letters, and the columns

As in Hive, a column in the path of a file (kafkalite.load.layout) is not in the file.

If Spark repeats a task, the task writes its files again under other names. Only the files of one attempt are published.

Thread rule: functions; a FileSet belongs to one task.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kafkalite.load import columns as table_columns
from kafkalite.load.decoded import DECODED, misfits, without
from kafkalite.load.layout import (
    HOUR_MAX,
    HOUR_MIN,
    HOUR_US,
    OF_RECORDS,
    Layout,
    file_columns,
    flattened,
    keys_of,
    place_of,
    require_column,
    require_few,
)
from kafkalite.load.letters import BadRows
from kafkalite.load.manifest import DataFile, PartitionShare
from kafkalite.load.places import storage_of
from kafkalite.load.storage import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalite.load.columns import Columns
    from kafkalite.load.layout import Place
    from kafkalite.load.storage import Storage

    Reached = dict[tuple[str, int], tuple[int, int]]
    """(topic, partition) → the offset after its last bad row, and the number of bad rows."""

CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
FILE_SIZE: Final = 128 * 1024 * 1024
"""Maximum bytes of a file, unless one row group is larger."""
ROW_GROUP_SIZE: Final = 16 * 1024 * 1024
"""Approximate bytes of a row group before compression; at most a quarter of a file."""
BUFFER_SIZE: Final = 64 * 1024 * 1024
"""Bytes that a task buffers for row groups."""
OPEN_MAX: Final = 128
"""Open files of a task; the largest is closed when another one is needed."""
NEEDED: Final = ("topic", "partition", "offset", "timestamp")
BY_HOUR: Final = Layout()
RESULT: Final = "file string"
"""The schema of the tasks' results. Each row is one of: a DataFile as JSON, with the path at which it was written; the
place of a letter file, with the offset after the last letter and the number of letters by topic and partition; the
columns of the files by topic (kafkalite.load.columns)."""


class Writing(NamedTuple):
    """The settings that all tasks of a load share."""

    staging: str
    """The path of the folder that tasks write into."""
    prefix: str
    """Prefix of file names."""
    codec: str
    file_size: int
    loaded: Mapping[tuple[str, int], int]
    """(topic, partition) → the end of the loaded offsets, for partitions to check."""
    skips: bool
    """Whether records below the end in `loaded` are skipped; otherwise they are an error."""
    aside: Mapping[str, str] = {}
    """Column → exception: rows with a value in it are letters, not data (kafkalite.load.letters)."""
    tables: Mapping[str, Columns] = {}
    """Topic → the current columns of its files; none for a topic without files."""
    aliases: Mapping[str, Sequence[str]] = {}
    """Older names of these records' columns."""
    errors: str = ""
    """The column that gets the reason why a value does not fit into its table. Without it, such a value is an error."""
    drops_values: bool = False
    """Whether the column `value` is null in files, except in bad rows. Other columns have the decoded values."""
    layouts: Mapping[str, Layout] = {}
    """Topic → its layout; by hour for others."""


class FilePart(NamedTuple):
    """Rows of one topic and partition in order of their offsets. Later steps split them by folder."""

    topic: str
    partition: int
    place: Place
    """None until the rows are split by folder."""
    batch: Any
    columns: Columns = ()
    """Those of the batch, once they were compared with the table."""


def write(writing: Writing, batches: Iterator[Any]) -> Iterator[Any]:
    """Write batches to Parquet files. Yield a record batch that describes the files, for Spark's mapInArrow.

    LoadError if a record cannot be loaded or a file cannot be written.
    """
    import pyarrow as pa

    files = FileSet(writing)
    fit = TableFit(writing)
    bad = BadRows(storage_of(writing.staging))
    reached: Reached = {}
    try:
        for batch in batches:
            for part in parts_of(batch):
                good = set_aside(fit.checked(kept(part, writing)), writing, bad, reached)
                for placed in placed_parts(without_value(good, writing), fit.layout(part.topic)):
                    files.add(fit.part(placed))
        written = files.close()
        letters = bad.close()
    except OSError as error:
        files.abandon()
        bad.abandon()
        raise LoadError(f"cannot write {writing.staging}: {error.strerror or error}") from error
    except BaseException:
        files.abandon()
        bad.abandon()
        raise
    rows = [json.dumps(file.to_json()) for file in written]
    if letters is not None:
        ends = [[*key, end, count] for key, (end, count) in reached.items()]
        rows.append(json.dumps({"letters": letters, "ends": ends}))
    if fit.tables:
        found = {topic: table_columns.to_json(columns) for topic, columns in fit.tables.items()}
        rows.append(json.dumps({"schemas": found}))
    yield pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], names=["file"])


def parts_of(batch: Any) -> Iterator[FilePart]:
    """Split a batch by topic and partition. LoadError if a row has no topic, partition or offset."""
    if not batch.num_rows:
        return
    for name in NEEDED[:3]:
        if batch.column(name).null_count:
            raise LoadError(f"a row has no {name}, which an exactly-once load needs")
    topics = batch.column("topic").dictionary_encode()
    for _, rows in runs_of(batch, topics.indices.to_numpy(), batch.column("partition").to_numpy()):
        yield FilePart(rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py(), None, rows)


def placed_parts(part: FilePart, layout: Layout) -> Iterator[FilePart]:
    """Split a part by the folders of its rows."""
    if not part.batch.num_rows:
        return
    keys, values = keys_of(layout, part.topic, part.batch)
    for key, rows in runs_of(part.batch, keys):
        yield part._replace(place=key if values is None else values[key], batch=rows)


def runs_of(batch: Any, *keys: Any) -> Iterator[tuple[int, Any]]:
    """Group the rows of a batch by `keys`.

    For each group, yield its value of the first key, and its rows in their original order.
    """
    changes = np.logical_or.reduce([np.diff(each) != 0 for each in keys])
    if changes.any():
        order = np.lexsort(keys[::-1])  # stable: offsets stay in order
        keys = tuple(each[order] for each in keys)
        batch = batch.take(order)
        changes = np.logical_or.reduce([np.diff(each) != 0 for each in keys])
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
    for first, last in itertools.pairwise(cuts):
        yield int(keys[0][first]), batch.slice(first, last - first)


def kept(part: FilePart, writing: Writing) -> FilePart:
    """Remove records that are loaded already. LoadError if there are such records and `writing.skips` is not set."""
    loaded = writing.loaded.get((part.topic, part.partition))
    if loaded is None:
        return part
    offsets = part.batch.column("offset").to_numpy()
    old = offsets < loaded
    if not old.any():
        return part
    if not writing.skips:
        raise LoadError(
            f"offset {int(offsets[old][0])} of {part.topic}-{part.partition} arrived again (loaded up to {loaded}): "
            "the checkpoint was lost, the topic was recreated, or its log was restored "
            '(on_overlap="load" loads such records too, "skip" leaves them out)'
        )
    return part._replace(batch=part.batch.take(np.flatnonzero(~old)))


def set_aside(
    part: FilePart, writing: Writing, bad: BadRows, reached: dict[tuple[str, int], tuple[int, int]]
) -> FilePart:
    """Move the bad rows of a part to `bad`. Return the other rows.

    `reached` is updated with the offset after the last bad row of the partition, and the number of its bad rows.
    """
    import pyarrow.compute as pc

    for column, exception in writing.aside.items():
        wrong = pc.is_valid(part.batch.column(column))
        rows = part.batch.filter(wrong)
        if rows.num_rows:
            bad.add(rows, exception, column)
            last = int(rows.column("offset").to_numpy().max()) + 1
            key = (part.topic, part.partition)
            end, count = reached.get(key, (0, 0))
            reached[key] = (max(end, last), count + rows.num_rows)
            part = part._replace(batch=part.batch.filter(pc.invert(wrong)))
    return part


def without_value(part: FilePart, writing: Writing) -> FilePart:
    """Set the column `value` to null, except in bad rows. Does nothing unless `writing.drops_values` is set.

    The other columns have the decoded values.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not writing.drops_values:
        return part
    batch = part.batch
    kept = pa.nulls(batch.num_rows, pa.binary())
    if writing.errors:
        bad = batch.column(writing.errors)
        if bad.null_count < batch.num_rows:
            kept = pc.if_else(bad.is_valid(), batch.column("value"), kept)
    return part._replace(batch=batch.set_column(batch.schema.get_field_index("value"), "value", kept))


class TableFit:
    """The current columns of the topics, to which records are converted. New columns of records are added."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._planned: dict[tuple[str, Any], Columns | None] = {}
        """Topic and schema of a batch → the columns to convert to; None if it has them."""
        self._conflicts: dict[tuple[str, Any], tuple[Columns, list[table_columns.Conflict]]] = {}
        """Topic and schema of a batch → its columns, and those that do not fit into the table."""
        self.tables: dict[str, Columns] = {}

    def checked(self, part: FilePart) -> FilePart:
        """Flatten the decoded values of a part if its layout says so. Check that they fit into the topic's columns.

        A value that does not fit becomes null, and the reason is in the column of errors. LoadError if there is no such
        column.
        """
        import pyarrow.compute as pc

        batch = part.batch
        if not batch.num_rows:
            return part
        layout = self.layout(part.topic)
        columns = None
        if layout.flatten and DECODED in batch.schema.names:
            columns = table_columns.of_arrow(batch.schema, self._writing.aliases)
            batch, columns = flattened(batch, columns, layout.flatten)
            part = part._replace(batch=batch)
        key = (part.topic, batch.schema)
        if key not in self._conflicts:
            if columns is None:
                columns = table_columns.of_arrow(batch.schema, self._writing.aliases)
            table, conflicts = table_columns.merged(self._known(part.topic), columns)
            require_column(layout, part.topic, table)
            self._conflicts[key] = columns, conflicts
        found, conflicts = self._conflicts[key]
        if not conflicts:
            return part._replace(columns=found)
        batch, reasons = misfits(batch, found, conflicts)
        part = part._replace(columns=without(found, {conflict.path for conflict in conflicts}))
        if reasons.null_count == len(reasons):
            return part._replace(batch=batch)
        errors = self._writing.errors
        if not errors:
            row = reasons.is_valid().index(True).as_py()
            place = f"offset {batch.column('offset')[row]} of {part.topic}-{part.partition}"
            raise LoadError(f"{place} does not fit: {reasons[row]}")
        for number, name in enumerate(batch.schema.names):
            if name == errors:
                batch = batch.set_column(number, name, pc.coalesce(batch.column(number), reasons))
            elif name not in OF_RECORDS | {"schema_id"}:
                batch = batch.set_column(number, name, pc.if_else(reasons.is_null(), batch.column(number), None))
        return part._replace(batch=batch)

    def layout(self, topic: str) -> Layout:
        """Return the layout of a topic."""
        return self._writing.layouts.get(topic, BY_HOUR)

    def _known(self, topic: str) -> Columns:
        return self.tables.get(topic, self._writing.tables.get(topic, ()))

    def part(self, part: FilePart) -> FilePart:
        """Convert a checked part to the columns of the topic's files. New columns are added to the topic."""
        names = [name for name in part.batch.schema.names if name != "topic"]
        batch = part.batch.select(names)
        key = (part.topic, batch.schema)
        if key not in self._planned:
            self._planned[key] = self._plan(part, batch)
        wanted = self._planned[key]
        return part._replace(batch=batch if wanted is None else table_columns.fitted(batch, wanted))

    def _plan(self, part: FilePart, batch: Any) -> Columns | None:
        found = tuple(column for column in part.columns if column.name != "topic")
        columns, conflicts = table_columns.merged(self._known(part.topic), found)
        assert not conflicts, "a checked part fits"
        if columns != self.tables.get(part.topic):
            self.tables[part.topic] = columns
            self._planned = {key: plan for key, plan in self._planned.items() if key[0] != part.topic}
            self._conflicts = {key: plan for key, plan in self._conflicts.items() if key[0] != part.topic}
        columns = file_columns(columns, self.layout(part.topic))
        fields = [(field.name, field.type) for field in table_columns.arrow_fields(columns)]
        return None if [(field.name, field.type) for field in batch.schema] == fields else columns


class OpenFile:
    """An unfinished file of one topic and folder. `place` is (date, hour, folder), as in a DataFile."""

    def __init__(
        self,
        storage: Storage,
        name: str,
        topic: str,
        place: tuple[str | None, int | None, str | None],
        codec: str,
        schema: Any,
    ) -> None:
        import pyarrow.parquet as pq

        self._place = place
        self._storage = storage
        self._name = name
        self._sink = storage.create(name)
        self.schema = schema
        self._writer = pq.ParquetWriter(self._sink, schema, compression=codec)
        self._waiting: list[Any] = []
        self._topic = topic
        self._rows = 0
        self._partitions: dict[int, PartitionShare] = {}
        self._times: tuple[int, int] | None = None
        self.waiting_size = 0

    @property
    def size(self) -> int:
        """An upper bound of the file's size in bytes: buffered rows count uncompressed."""
        return self._sink.tell() + self.waiting_size

    def add(self, part: FilePart, batch: Any, size: int) -> None:
        """Buffer rows of a part.

        `batch` has the columns of the file. `part.batch` has the same rows with their offsets and timestamps. `size` is
        the size of `batch` in bytes.
        """
        self._waiting.append(batch)
        self.waiting_size += size
        self._rows += batch.num_rows
        offsets = part.batch.column("offset").to_numpy()
        share = self._partitions.get(part.partition, PartitionShare(0, int(offsets.min()), -1))
        self._partitions[part.partition] = PartitionShare(
            share.rows + len(offsets), min(share.first, int(offsets.min())), max(share.last, int(offsets.max()))
        )
        times = part.batch.column("timestamp").cast("int64").drop_null().to_numpy()
        times = times[(times >= HOUR_MIN * HOUR_US) & (times < (HOUR_MAX + 1) * HOUR_US)]
        if len(times):
            first, last = self._times or (int(times[0]), int(times[0]))
            self._times = min(first, int(times.min())), max(last, int(times.max()))

    def flush(self) -> None:
        """Write the buffered rows as one row group."""
        import pyarrow as pa

        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._waiting, self.waiting_size = [], 0

    def close(self) -> DataFile:
        """Finish the file and sync it to disk. Return its description for a manifest."""
        self.flush()
        self._writer.close()
        size = self._sink.tell()
        self._storage.finish(self._sink)
        first, last = self._times or (None, None)
        place = self._storage.place(self._name)
        date, hour, folder = self._place
        return DataFile(place, self._topic, date, hour, self._rows, size, self._partitions, first, last, folder)

    def abandon(self) -> None:
        """Remove the file, because the task failed."""
        with contextlib.suppress(Exception):  # the disk may be full; the writer must not retry when it is collected
            self._writer.close()
        with contextlib.suppress(OSError):
            self._sink.close()
        self._storage.remove(self._name)


class FileSet:
    """The files that a task writes. Their number and their buffered bytes are limited."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._storage = storage_of(writing.staging)
        self._group_size = max(1, min(ROW_GROUP_SIZE, writing.file_size // 4))
        self._open: dict[tuple[str, Place], OpenFile] = {}
        self._places: dict[str, set[Place]] = {}
        """By topic, of all its files."""
        self._done: list[DataFile] = []
        self._waiting_size = 0

    def add(self, part: FilePart) -> None:
        """Add the rows of a part to the file of its topic and folder."""
        whole = part.batch
        if not whole.num_rows:
            return
        rows_each = max(1, whole.num_rows * self._group_size // max(whole.nbytes, 1))
        for first in range(0, whole.num_rows, rows_each):
            batch = whole.slice(first, rows_each)
            size = batch.nbytes
            file = self._file_for(part.topic, part.place, size, whole.schema)
            file.add(part._replace(batch=part.batch.slice(first, rows_each)), batch, size)
            self._waiting_size += size
            if file.waiting_size >= self._group_size:
                self._flush(file)
        while self._waiting_size > BUFFER_SIZE:
            self._flush(max(self._open.values(), key=lambda file: file.waiting_size))

    def _flush(self, file: OpenFile) -> None:
        self._waiting_size -= file.waiting_size
        file.flush()

    def _file_for(self, topic: str, place: Place, size: int, schema: Any) -> OpenFile:
        """Return the open file of a topic and folder for `size` more bytes.

        A new file is opened if the current one would become too large, or has other columns.
        """
        found = self._open.get((topic, place))
        if found is not None and found.schema != schema:
            self._close((topic, place))
            found = None
        if found is not None and found.size + size > self._writing.file_size:
            self._flush(found)  # compression may leave room
            if found.size + size > self._writing.file_size:
                self._close((topic, place))
                found = None
        if found is None:
            layout = self._writing.layouts.get(topic, BY_HOUR)
            places = self._places.setdefault(topic, set())
            places.add(place)
            require_few(layout, topic, len(places))
            where = place_of(layout, place)
            if len(self._open) >= OPEN_MAX:
                self._close(max(self._open, key=lambda key: self._open[key].size))
            codec = self._writing.codec
            name = f"{self._writing.prefix}-{uuid.uuid4().hex[:16]}.parquet"
            found = self._open[topic, place] = OpenFile(self._storage, name, topic, where, codec, schema)
        return found

    def _close(self, key: tuple[str, Place]) -> None:
        file = self._open[key]
        self._waiting_size -= file.waiting_size
        self._done.append(file.close())
        del self._open[key]

    def close(self) -> list[DataFile]:
        """Close all files and return their descriptions."""
        for key in list(self._open):
            self._close(key)
        return self._done

    def abandon(self) -> None:
        """Remove the open files. Closed files are removed with the staging folder."""
        for file in self._open.values():
            file.abandon()
