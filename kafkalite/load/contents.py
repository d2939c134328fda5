"""List the files of a directory of loaded data, and the next offsets to load, from its manifests.

Needs neither Spark nor a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.load.manifest import DataFile, LoadState, Target
from kafkalite.load.places import storage_of
from kafkalite.load.storage import LoadError

if TYPE_CHECKING:
    import os

    from kafkalite.model import TopicPartition


def state_of(path: str | os.PathLike[str]) -> LoadState:
    """Return the current state of a directory. LoadError if nothing was loaded."""
    target = Target(path)
    target.require()
    return target.refresh()


def files(path: str | os.PathLike[str], topic: str | None = None) -> list[DataFile]:
    """Return the loaded files of one topic, or of all topics. Their paths are relative to `path`."""
    return [file for file in state_of(path).files.values() if topic in (None, file.topic)]


def positions(path: str | os.PathLike[str]) -> dict[TopicPartition, int]:
    """Return the next offset to load of each partition that was loaded."""
    return dict(state_of(path).positions)


def paths(path: str | os.PathLike[str], topic: str | None) -> list[str]:
    """Return the full paths of the loaded files, for Spark and pyarrow. LoadError if there are none."""
    storage = storage_of(path)
    found = [storage.place(file.path) for file in files(path, topic)]
    if not found:
        raise LoadError(
            f"no files have been loaded into {storage.location}{'' if topic is None else f' from topic {topic}'}"
        )
    return found
