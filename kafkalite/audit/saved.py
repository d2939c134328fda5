"""Save the state of a continuous audit in one file, with positions and counts from the same moment.

    FILE   a NumPy archive (.npz): `meta` is JSON; a stage's partial pages, unclaimed ranges and held marks are arrays

A page has one bit for each of 65,536 sequences (kafkalite.audit.counts). Marks can be unclaimed or held
(kafkalite.audit.lasting).

The state is written to another file, which then replaces FILE by a rename. So after a kill at any time, FILE has either
the old or the new state.

Thread rule: the functions belong to the thread of Follower.run.
"""

from __future__ import annotations

import json
import os
import zipfile
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalite.audit.following import WindowName
from kafkalite.audit.histories import Histories
from kafkalite.audit.taken import Spans
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from kafkalite.audit.following import Follower

VERSION: Final = 1


class StateError(ValueError):
    """Raised if the file is damaged or belongs to another audit. The message is one sentence."""


def save(follower: Follower, file: Path, about: dict[str, Any]) -> None:
    """Write the state durably. `about` identifies the audit. Raises OSError."""
    reported = follower.reported
    meta: dict[str, Any] = {
        "version": VERSION,
        "about": about,
        "horizon_ms": follower.horizon_ms,
        "first_ms": follower.first_ms,
        "positions": [[whose, *key, at] for whose, rows in follower.positions.items() for key, at in rows.items()],
        "histories": {whose: histories.saved() for whose, histories in follower.histories.items()},
        "reported": reported.saved(),
        "taken": [
            [stage, cluster, *key, spans.all()]
            for (stage, cluster), rows in follower.taken.spans.items()
            for key, spans in rows.items()
        ],
        "told": [[stage, *window, server, *found] for (stage, window, server), found in follower.told.items()],
        "closed": [[*window, complete] for window, complete in follower.closed.items()],
        "totals": follower.totals,
        "stages": {},
    }
    arrays: dict[str, NDArray[Any]] = {}
    for at, (name, stage) in enumerate(follower.stages.items()):
        counted, own = stage.count.saved()
        meta["stages"][name] = {"count": counted, "reader": stage.saved()}
        arrays |= {f"{at}/{array}": value for array, value in own.items()}
    arrays["meta"] = np.frombuffer(json.dumps(meta, separators=(",", ":")).encode(), np.uint8)
    temporary = file.with_name(f"{file.name}.tmp")
    with temporary.open("wb") as sink:
        np.savez(sink, **arrays)  # type: ignore[arg-type]  # no array is called allow_pickle
        sink.flush()
        os.fsync(sink.fileno())
    temporary.rename(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(follower: Follower, file: Path, about: dict[str, Any]) -> bool:
    """Load the state. Return False if there is no file. After StateError or OSError, the follower is unusable."""
    try:
        with file.open("rb") as source, np.load(source, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta = json.loads(arrays.pop("meta").tobytes())
        require(file, meta, about)
        restore(follower, meta, arrays)
    except FileNotFoundError:
        return False
    except StateError:
        raise
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise StateError(f"{file} is damaged ({error}); remove it to start over") from error
    return True


def require(file: Path, meta: dict[str, Any], about: dict[str, Any]) -> None:
    """Raise StateError if another version or another audit wrote the file."""
    if meta["version"] != VERSION:
        raise StateError(f"{file} has version {meta['version']}; this release supports version {VERSION}")
    for key, value in about.items():
        if meta["about"].get(key) != value:
            raise StateError(f"{file} belongs to another audit: its {key} is {meta['about'].get(key)}, not {value}")


def restore(follower: Follower, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Load the result of `save` into a follower."""
    follower.horizon_ms, follower.first_ms = meta["horizon_ms"], meta["first_ms"]
    for whose, topic, partition, at in meta["positions"]:
        follower.positions.setdefault(whose, {})[TopicPartition(topic, partition)] = at
    for whose, rows in meta.get("histories", {}).items():
        follower.histories.setdefault(whose, Histories()).restore(rows)
    follower.reported.restore(meta["reported"])
    for stage, cluster, topic, partition, rows in meta["taken"]:
        spans = Spans((first, end) for first, end in rows)
        follower.taken.spans.setdefault((stage, cluster), {})[TopicPartition(topic, partition)] = spans
    for name, topic, start, length, server, *found in meta["told"]:
        follower.told[name, WindowName(topic, start, length), server] = (found[0], found[1], found[2])
    for *window, complete in meta["closed"]:
        follower.closed[WindowName(*window)] = complete
    follower.totals.update(meta["totals"])
    for at, (name, value) in enumerate(meta["stages"].items()):
        stage = follower.stages[name]
        own = {key.removeprefix(f"{at}/"): array for key, array in arrays.items() if key.startswith(f"{at}/")}
        stage.count.restore(value["count"], own)
        stage.restore(value["reader"])
