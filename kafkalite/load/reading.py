"""Read loaded data as a pyarrow dataset, with one schema for all files of a topic.

    manifests ─▶ files, columns ─▶ pyarrow.dataset

Columns that an older file lacks are read as null, and narrower types are widened. pyarrow cannot follow a rename, or a
change from int64 to double. A file with such a column is rewritten in memory when it is opened.

Needs pyarrow, but neither Spark nor a broker.

Thread rule: functions; a dataset may be read from any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.load.columns import Columns, arrow_fields, fits_by_cast, merged
from kafkalite.load.contents import state_of
from kafkalite.load.layout import file_columns
from kafkalite.load.places import storage_of
from kafkalite.load.storage import LoadError
from kafkalite.load.table_schema import DATE_COLUMN, HOUR_COLUMN, footer_of, tables

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from kafkalite.load.storage import Storage


def dataset(path: str | os.PathLike[str], topic: str | None = None) -> Any:
    """Return the loaded data of one topic, or of all topics, as a pyarrow.dataset.

    It also has the columns topic, date and hour. Date and hour are null for topics that are not laid out by them.
    LoadError if nothing is loaded, or if columns of the same name have no common type.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    from kafkalite.load.arrow_files import filesystem_of

    storage = storage_of(path)
    state = state_of(path)
    files = [file for file in state.files.values() if topic in (None, file.topic)]
    if not files:
        raise LoadError(nothing_loaded(storage, topic))
    columns = tables(storage, state)
    chosen = {file.topic: columns[file.topic] for file in files}
    everything = of_all(chosen)
    in_paths = {layout.column for topic, layout in state.layouts.items() if topic in chosen}
    in_files = {topic: file_columns(found, state.layouts.get(topic)) for topic, found in chosen.items()}
    places = pa.schema(
        [
            pa.field("topic", pa.string()),
            *arrow_fields((DATE_COLUMN, HOUR_COLUMN)),
            *arrow_fields(column for column in everything if column.name in in_paths),
        ]
    )
    rewritten = {
        storage.place(file.path): in_files[file.topic]
        for file in files
        if file.path in state.outdated and not fits_by_cast(footer_of(storage, file.path), in_files[file.topic])
    }
    own = [field for field in arrow_fields(everything) if field.name not in in_paths]
    return ds.dataset(
        [storage.place(file.path) for file in files],
        schema=pa.schema([*own, *places]),
        format="parquet",
        filesystem=filesystem_of(storage, rewritten) if rewritten else storage.filesystem(),
        partitioning=ds.partitioning(places, flavor="hive"),
        partition_base_dir=storage.place(""),
    )


def read(
    path: str | os.PathLike[str],
    topic: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    filter: Any = None,  # noqa: A002  # pyarrow's name
) -> Any:
    """Return the loaded data of one topic, or of all topics, as a pyarrow.Table.

    `columns` selects columns. `filter` is a pyarrow.dataset expression that selects rows. LoadError as for `dataset`.
    """
    return dataset(path, topic).to_table(columns=None if columns is None else list(columns), filter=filter)


def is_rewritten(loaded: Any) -> bool:
    """Return whether any file of a dataset is rewritten in memory when it is opened."""
    handler = getattr(loaded.filesystem, "handler", None)
    return bool(getattr(handler, "rewritten", None))


def of_all(tables: Mapping[str, Columns]) -> Columns:
    """Merge the columns of all topics. LoadError if they conflict."""
    found: Columns = ()
    for topic, columns in tables.items():
        found, conflicts = merged(found, columns)
        if conflicts:
            raise LoadError(f"topic {topic} has other columns than those before it: {conflicts[0]}; read one topic")
    return found


def nothing_loaded(storage: Storage, topic: str | None) -> str:
    """Return the error message for a directory, or a topic, without files."""
    return f"no files have been loaded into {storage.location}{'' if topic is None else f' from topic {topic}'}"
