"""The files of a storage that is no local disk, for pyarrow's datasets: reading alone.

Thread rule: pyarrow reads from threads of its own; each open file belongs to one.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

if TYPE_CHECKING:
    from kafkalite.load.storage import Storage


class StorageHandler(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow ships no types
    """What pyarrow asks of a file system to read files that it is given by name."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageHandler) and other._storage.location == self._storage.location

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
        return pa.PythonFile(self._storage.open(path), mode="r")

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def _reads_alone(self, *_given: object, **_named: object) -> Any:
        raise io.UnsupportedOperation("these files are read-only")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _reads_alone
    delete_file = move = copy_file = open_output_stream = open_append_stream = _reads_alone


def filesystem_of(storage: Storage) -> Any:
    """A pyarrow.fs.FileSystem of the files of a storage."""
    return fs.PyFileSystem(StorageHandler(storage))
