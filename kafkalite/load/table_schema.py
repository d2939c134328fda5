"""The columns of a topic's files, merged over all files. Needs pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.load.contents import state_of
from kafkalite.load.places import storage_of
from kafkalite.load.storage import LoadError

if TYPE_CHECKING:
    import os


def schemas(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a pyarrow.Schema for each topic: every column of its files, then date and hour from their paths.

    Numbers get the widest type of all files. LoadError if the files of a topic disagree in another way.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    storage = storage_of(path)
    found: dict[str, list[Any]] = {}
    for file in state_of(path).files.values():
        with storage.open(file.path) as opened:
            schema = pq.read_schema(opened).remove_metadata()
        known = found.setdefault(file.topic, [])
        if schema not in known:
            known.append(schema)
    places = pa.schema([pa.field("date", pa.date32()), pa.field("hour", pa.int32())])
    merged = {}
    for topic, several in sorted(found.items()):
        try:
            merged[topic] = pa.unify_schemas([*several, places], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise LoadError(f"the files of {topic} have columns of different types: {error}") from error
    return merged
