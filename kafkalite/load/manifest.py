"""Publish the files and offsets of a load together, by renaming one file: the manifest.

    target/
      _manifests/00000000000000000007.json            the 8th change: files added and removed, and new offsets
      _manifests/00000000000000000049.snapshot.json   all changes up to this one
      _manifests/pending-ID.json                      a change in progress: its files may be in place already
      _manifests/lock                                 one writer at a time
      _staging/ID/...                                 files that are being written
      topic=clicks/date=2026-11-21/hour=19/part-00000007-....parquet

A commit writes pending-ID.json, moves the files to their folders, and renames pending-ID.json to the next number. So
readers of manifests see either the whole change or nothing. Spark, pyarrow and Hive see only data files, because they
ignore names that begin with "_".

After a crash, the next writer undoes the pending change, and empties _staging.

Thread rule: one thread at a time per object. A lock serializes the writers in all processes.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.dataclass import dataclass
from kafkalite.client.read.marks import Mark, Position
from kafkalite.load.layout import Layout, folder_of, layouts_from_json
from kafkalite.load.places import storage_of
from kafkalite.load.positions import from_json, to_json
from kafkalite.load.storage import LoadError, Storage
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence


FORMAT: Final = 1
MANIFESTS, STAGING, PENDING, LOCK = "_manifests", "_staging", "pending", "lock"
SNAPSHOT: Final = ".snapshot.json"
SNAPSHOT_EVERY: Final = 50
"""Changes between snapshots: the most that a reader reads. Twice as many are kept."""
READ_ATTEMPTS: Final = 20
"""Attempts of a reader whose manifests are deleted while it reads them."""
OVERTAKEN: Final = "another load has taken over {}, so this one published nothing; run it again"
LOCK_TIMEOUT_S: Final = 600.0
"""How long a writer waits for another one."""


class PartitionShare(NamedTuple):
    """The records of one partition in a file: their number, and the first and last offset."""

    rows: int
    first: int
    last: int


class DataFile(NamedTuple):
    """A file of one topic and folder.

    `path` is relative to the target. `time_min` and `time_max` are in microseconds since 1970, or None if no record has
    a valid timestamp.
    """

    path: str
    topic: str
    date: str | None
    """YYYY-MM-DD; None for records without a valid timestamp, or if the layout is by column."""
    hour: int | None
    """In UTC; None as for `date`, or if the layout is by day."""
    rows: int
    size: int
    partitions: dict[int, PartitionShare]
    time_min: int | None
    time_max: int | None
    place: str | None = None
    """The folder inside the topic's folder; None if it follows from `date` and `hour` (kafkalite.load.layout)."""

    @property
    def folder(self) -> str:
        """The folder of the file, relative to the target."""
        return f"topic={self.topic}/{self.place}" if self.place else folder_of(self.topic, self.date, self.hour)

    def to_json(self) -> dict[str, Any]:
        """Return the file as a manifest describes it."""
        partitions = {str(number): list(share) for number, share in sorted(self.partitions.items())}
        value = {**self._asdict(), "partitions": partitions}
        if self.place is None:
            del value["place"]
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DataFile:
        """Parse the JSON that `to_json` returns."""
        partitions = {int(number): PartitionShare(*share) for number, share in value["partitions"].items()}
        return cls(**{**value, "partitions": partitions})


@dataclass(frozen=True)
class Change:
    """The content of one manifest. `positions` has the next offset to load of each partition whose offset changed."""

    kind: str
    """load or compaction."""
    added: Sequence[DataFile] = ()
    removed: Sequence[str] = ()
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[TopicPartition, Position] = field(default_factory=dict)
    """Leader epochs and batches before the positions, if known (kafkalite.client.history)."""
    stream: tuple[str, int] | None = None
    """A streaming query's id and batch number."""
    keep_until_ms: int = 0
    """The time until which removed files are kept for current readers, in ms since 1970."""
    letters: str = ""
    """The folder of letters for records that this change skips (kafkalite.load.letters)."""
    schemas: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Topic → new columns of its files (kafkalite.load.columns), for topics whose columns changed."""
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    """Topic → its layout, for topics that are loaded first and not laid out by hour."""

    def to_json(self, number: int) -> dict[str, Any]:
        """Return the content of the manifest with this number."""
        return {
            "format": FORMAT,
            "number": number,
            "kind": self.kind,
            "written_ms": now_ms(),
            "add": [file.to_json() for file in self.added],
            "remove": list(self.removed),
            "positions": to_json(self.positions),
            "topic_ids": dict(sorted(self.topic_ids.items())),
            "marks": marks_to_json(self.marks),
            "stream": None if self.stream is None else list(self.stream),
            "keep_until_ms": self.keep_until_ms,
            "letters": self.letters,
            "schemas": dict(sorted(self.schemas.items())),
            "layouts": {topic: layout.to_json() for topic, layout in sorted(self.layouts.items())},
        }


@dataclass
class LoadState:
    """The combined state of all manifests. `number` is that of the last manifest, or -1 if there is none."""

    number: int = -1
    files: dict[str, DataFile] = field(default_factory=dict)
    """Files by path, in load order."""
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """The next offset of each partition."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)
    """Streaming query's id → its last published batch."""
    doomed: dict[str, int] = field(default_factory=dict)
    """Files that a compaction replaced → when they may be deleted, in ms since 1970."""
    marks: dict[TopicPartition, Position] = field(default_factory=dict)
    """The last mark of each partition, as in Change."""
    schemas: dict[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Columns by topic, as in Change; none for a topic that only older releases loaded."""
    outdated: set[str] = field(default_factory=set)
    """Files written before the last change of their topic's columns."""
    layouts: dict[str, Layout] = field(default_factory=dict)
    """Layouts by topic, as in Change."""

    def copy(self) -> LoadState:
        """Return an independent copy."""
        return LoadState(
            self.number,
            dict(self.files),
            dict(self.positions),
            dict(self.topic_ids),
            dict(self.streams),
            dict(self.doomed),
            dict(self.marks),
            dict(self.schemas),
            set(self.outdated),
            dict(self.layouts),
        )

    def apply(self, value: Mapping[str, Any]) -> None:
        """Update the state with the content of the next manifest."""
        added = [DataFile.from_json(row) for row in value["add"]]
        for path in value["remove"]:
            del self.files[path]
            self.doomed[path] = value["keep_until_ms"]
            self.outdated.discard(path)
        for topic, columns in value.get("schemas", {}).items():
            self.schemas[topic] = columns
            self.outdated |= {path for path, file in self.files.items() if file.topic == topic}
        self.files |= {file.path: file for file in added}
        if "schemas" not in value:  # an older release wrote it
            self.outdated |= {file.path for file in added}
        self.layouts |= layouts_from_json(value.get("layouts", {}))
        self.positions |= from_json(value["positions"])
        self.topic_ids |= value["topic_ids"]
        self.marks |= marks_from_json(value.get("marks", {}))
        if value["stream"] is not None:
            query, batch = value["stream"]
            self.streams[query] = batch
        self.number = value["number"]

    def to_json(self) -> dict[str, Any]:
        """Return the content of a snapshot."""
        return {
            "format": FORMAT,
            "number": self.number,
            "files": [file.to_json() for file in self.files.values()],
            "positions": to_json(self.positions),
            "topic_ids": self.topic_ids,
            "marks": marks_to_json(self.marks),
            "streams": self.streams,
            "doomed": self.doomed,
            "schemas": self.schemas,
            "outdated": sorted(self.outdated),
            "layouts": {topic: layout.to_json() for topic, layout in sorted(self.layouts.items())},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LoadState:
        """Parse the content of a snapshot."""
        files = [DataFile.from_json(row) for row in value["files"]]
        return cls(
            value["number"],
            {file.path: file for file in files},
            from_json(value["positions"]),
            dict(value["topic_ids"]),
            dict(value["streams"]),
            dict(value["doomed"]),
            marks_from_json(value.get("marks", {})),
            dict(value.get("schemas", {})),
            {*value.get("outdated", (file.path for file in files))},
            layouts_from_json(value.get("layouts", {})),
        )


def marks_to_json(marks: Mapping[TopicPartition, Position]) -> dict[str, dict[str, list[int]]]:
    """Return marks as JSON: {"topic": {"0": [offset, leader epoch, first offset of the batch, its CRC]}}."""
    found: dict[str, dict[str, list[int]]] = {}
    for key in sorted(marks):
        found.setdefault(key.topic, {})[str(key.partition)] = [marks[key].offset, *marks[key].mark]
    return found


def marks_from_json(value: Mapping[str, Mapping[str, Sequence[int]]]) -> dict[TopicPartition, Position]:
    """Parse the JSON that `marks_to_json` returns."""
    return {
        TopicPartition(topic, int(partition)): Position(numbers[0], Mark(*numbers[1:]))
        for topic, rows in value.items()
        for partition, numbers in rows.items()
    }


class Target:
    """A directory of loaded data. `state` is the state at the last `refresh` or `commit`."""

    def __init__(self, path: str | os.PathLike[str] | Storage, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self.storage = storage_of(path)
        self.location = self.storage.location
        self.state = LoadState()
        self._lock_timeout_s = lock_timeout_s

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether a load into the target was ever attempted."""
        return self.storage.exists(MANIFESTS)

    def require(self) -> None:
        """Raise LoadError if no load into the target was ever attempted."""
        if not self.exists:
            raise LoadError(f"nothing has been loaded into {self.location} yet")

    def refresh(self) -> LoadState:
        """Read new manifests and return the current state. LoadError if manifests are damaged or missing."""
        for attempt in range(READ_ATTEMPTS):
            try:
                self.state = self._newer(self.state.copy() if attempt == 0 else LoadState())
            except FileNotFoundError:
                continue  # deleted between listing and reading, after a new snapshot
            return self.state
        raise LoadError(f"{self._shown()}: manifests are missing")

    def _shown(self, name: str = "") -> str:
        """Return the full path of a manifest for error messages."""
        return f"{self.location}/{MANIFESTS}/{name}".rstrip("/")

    def _newer(self, state: LoadState) -> LoadState:
        names = self.storage.names(MANIFESTS)
        snapshots = [name for name in names if name.endswith(SNAPSHOT)]
        newest = int(snapshots[-1].removesuffix(SNAPSHOT)) if snapshots else -1
        if newest > state.number:
            state = LoadState.from_json(self._read(snapshots[-1]))
        changes = [name for name in names if is_change(name) and int(name.removesuffix(".json")) > state.number]
        for name in changes:
            value = self._read(name)
            if value["number"] != state.number + 1:
                raise FileNotFoundError(name)
            try:
                state.apply(value)
            except (ValueError, KeyError, TypeError) as error:
                raise LoadError(f"{self._shown(name)} is damaged ({error!r})") from error
        return state

    def changes(self, after: int = -1) -> list[dict[str, Any]]:
        """Return the content of all kept manifests with a number above `after`, in order.

        LoadError if one is damaged.
        """
        for _ in range(READ_ATTEMPTS):
            names = [name for name in self.storage.names(MANIFESTS) if is_change(name)]
            with contextlib.suppress(FileNotFoundError):  # deleted between listing and reading
                return [self._read(name) for name in names if int(name.removesuffix(".json")) > after]
        raise LoadError(f"{self._shown()}: manifests are missing")

    def _read(self, name: str) -> dict[str, Any]:
        text = self.storage.read(f"{MANIFESTS}/{name}")
        try:
            value: dict[str, Any] = json.loads(text)
            if value["format"] != FORMAT:
                raise LoadError(f"{self._shown(name)} has format {value['format']!r}; this version reads {FORMAT}")
        except (ValueError, KeyError, TypeError) as error:
            raise LoadError(f"{self._shown(name)} is damaged ({error!r})") from error
        return value

    # --- writing ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def writing(self) -> Iterator[str]:
        """Return a context that holds the target's lock. Its value is a new folder for files to write.

        At its start, an incomplete change of a crashed writer is undone, and `state` is refreshed. LoadError if another
        writer keeps the lock too long.
        """
        self.storage.make_folder(MANIFESTS)
        with self.storage.turn(f"{MANIFESTS}/{LOCK}", self._lock_timeout_s):
            self._recover()
            staging = f"{STAGING}/{uuid.uuid4().hex}"
            self.storage.make_folder(staging)
            try:
                yield self.storage.place(staging)
            finally:
                self.storage.remove_folder(staging)

    def _recover(self) -> None:
        """Undo an incomplete change, and delete files that are no longer needed. The caller has the lock."""
        names = self.storage.names(MANIFESTS)
        taken = [self._take(name) for name in names if is_pending(name)]
        self.storage.remove_folder(STAGING)
        state = self.refresh()
        for name in filter(None, taken):
            value = self._read(name)
            for row in value["add"]:
                assert row["path"] not in state.files, "a change that is complete is not pending"
                self.storage.remove(row["path"])
            if value.get("letters"):
                self.storage.remove_folder(value["letters"])
            self.storage.remove(f"{MANIFESTS}/{name}")
        for name in names:
            if name.endswith(".tmp"):
                self.storage.remove(f"{MANIFESTS}/{name}")
        self._remove_doomed()

    def _take(self, name: str) -> str | None:
        """Rename another writer's pending file, so that it can no longer publish its change.

        In HDFS, that writer may still run. Return the new name; None if the other writer has renamed the file first.
        """
        mine = f"{PENDING}-{uuid.uuid4().hex}.json"
        try:
            self.storage.move(f"{MANIFESTS}/{name}", f"{MANIFESTS}/{mine}")
        except FileNotFoundError:
            return None
        return mine

    def commit(self, change: Change, staged: Mapping[str, str], letters: Mapping[str, str] | None = None) -> int:
        """Publish a change and return its number. The caller has the lock.

        `staged` maps the path of each new file to its current path. `letters` does the same for files of dead letters.
        LoadError if another writer has taken over.
        """
        number = self.state.number + 1
        pending = f"{PENDING}-{uuid.uuid4().hex}.json"
        value = {**change.to_json(number), "pending": pending}
        self._put(pending, value)
        try:
            folders = set()
            for file in change.added:
                folders |= self.storage.make_folder(file.path.rpartition("/")[0])
                self.storage.move(staged[file.path], file.path)
            for name, written in (letters or {}).items():
                self.storage.move(written, name)
            self.storage.sync({*folders, change.letters} if letters else folders)
            self.storage.move(f"{MANIFESTS}/{pending}", f"{MANIFESTS}/{number:020d}.json")
        except (FileExistsError, FileNotFoundError) as error:
            if self.storage.keeps_turns:
                raise
            raise LoadError(OVERTAKEN.format(self.location)) from error
        if not self.storage.keeps_turns and self._read(f"{number:020d}.json").get("pending") != pending:
            raise LoadError(OVERTAKEN.format(self.location))  # a retried rename, after its first response was lost
        self.storage.sync([MANIFESTS])
        self.state.apply(value)
        self._remove_doomed()
        if (number + 1) % SNAPSHOT_EVERY == 0:
            self._snapshot()
        return number

    def _put(self, name: str, value: object) -> None:
        self.storage.put(f"{MANIFESTS}/{name}", json.dumps(value, separators=(",", ":")).encode())

    def _remove_doomed(self) -> None:
        now = now_ms()
        due = [path for path, until in self.state.doomed.items() if until <= now]
        for path in due:
            self.storage.remove(path)
            del self.state.doomed[path]

    def _snapshot(self) -> None:
        """Write a snapshot of the state. Delete manifests that neither this nor the previous snapshot needs."""
        self._put(f"{self.state.number:020d}{SNAPSHOT}", self.state.to_json())
        before = self.state.number - SNAPSHOT_EVERY
        for name in self.storage.names(MANIFESTS):
            if is_change(name) or name.endswith(SNAPSHOT):
                number = int(name.partition(".")[0])
                if number < before or (number == before and is_change(name)):
                    self.storage.remove(f"{MANIFESTS}/{name}")


def is_change(name: str) -> bool:
    """Return whether a file in the folder `_manifests` is a published manifest."""
    return name.endswith(".json") and name.removesuffix(".json").isdigit()


def is_pending(name: str) -> bool:
    """Return whether a file in the folder `_manifests` is a change in progress."""
    return name.startswith(PENDING) and name.endswith(".json")


def now_ms() -> int:
    """Return the current time in ms since 1970."""
    return time.time_ns() // 1_000_000
