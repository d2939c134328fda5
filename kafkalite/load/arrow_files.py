"""Give pyarrow's datasets access to loaded files that pyarrow cannot read itself.

    files in a storage other than a local disk        are read through the storage
    files whose columns pyarrow cannot convert        are rewritten in memory, with the topic's columns

Thread rule: pyarrow reads on its own threads; each open file belongs to one of them.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kafkalite.load.columns import Columns, arrow_fields, fitted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.load.storage import Storage


class StorageHandler(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow ships no types
    """A read-only pyarrow file system over a storage. Files in `rewritten` are returned with other columns."""

    def __init__(self, storage: Storage, rewritten: Mapping[str, Columns]) -> None:
        self._storage = storage
        self.rewritten = rewritten

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StorageHandler)
            and other._storage.location == self._storage.location
            and other.rewritten == self.rewritten
        )

    def __hash__(self) -> int:
        return hash(self._storage.location)

    def get_type_name(self) -> str:
        return "kafkalite"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[Any]:
        kinds = {True: fs.FileType.File, False: fs.FileType.NotFound}
        return [fs.FileInfo(path, kinds[self._storage.exists(path)]) for path in paths]

    def open_input_file(self, path: str) -> Any:
        columns = self.rewritten.get(path)
        if columns is not None:
            return with_columns(self._storage.open(path), columns)
        local = self._storage.filesystem() is None
        return pa.OSFile(path) if local else pa.PythonFile(self._storage.open(path), mode="r")

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def _reads_alone(self, *_given: object, **_named: object) -> Any:
        raise io.UnsupportedOperation("these files are read-only")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _reads_alone
    delete_file = move = copy_file = open_output_stream = open_append_stream = _reads_alone


def with_columns(file: Any, columns: Columns) -> Any:
    """Rewrite a Parquet file in memory, uncompressed, with these columns."""
    sink = pa.BufferOutputStream()
    with (
        file,
        pq.ParquetFile(file) as source,
        pq.ParquetWriter(sink, pa.schema(arrow_fields(columns)), compression="none") as writer,
    ):
        for batch in source.iter_batches():
            writer.write_batch(fitted(batch, columns))
    return pa.BufferReader(sink.getvalue())


def filesystem_of(storage: Storage, rewritten: Mapping[str, Columns] | None = None) -> Any:
    """Return a pyarrow.fs.FileSystem for the files of a storage.

    `rewritten` maps the full path of a file to the columns with which it is returned.
    """
    return fs.PyFileSystem(StorageHandler(storage, rewritten or {}))
