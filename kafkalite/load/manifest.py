"""What is loaded into a directory: files and offsets, changed together by one rename.

    target/
      _manifests/00000000000000000007.json            what the 8th change added, removed, and how far offsets are
      _manifests/00000000000000000049.snapshot.json   all changes up to it in one
      _manifests/pending-ID.json                      a change on its way: its files may be in their places already
      _manifests/lock                                 one writer at a time
      _staging/ID/...                                 files that are being written
      topic=clicks/date=2026-11-21/hour=19/part-00000007-....parquet

A change is: write pending-ID.json, move the files to their places, rename it to the next number. Whoever goes by
manifests sees all of it or nothing. After a crash the next writer takes what is pending, by giving it another ID,
undoes what it says, and empties _staging. One whose turn was lost without its knowing, as can be in HDFS, finds its
pending change gone, or the number taken: what it has written is nobody's.
Names that begin with "_" are left out by Spark, pyarrow and Hive, so they see data alone.

Where that is, `kafkalite.load.storage` says; an object store has no rename.

Thread rule: an object belongs to one thread at a time; several, in as many processes, take turns by the lock.
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
"""Changes between snapshots, which is also how many a reader has to look at, at most; twice as many are kept."""
READ_ATTEMPTS: Final = 20
"""Of a reader whose manifests were cleared away while it read them."""
OVERTAKEN: Final = "another load took over {}, so this one published nothing; run it again"
LOCK_TIMEOUT_S: Final = 600.0
"""How long a writer waits for another one."""


class PartitionShare(NamedTuple):
    """What a file has of a partition: how many records, and the first and last offset of them."""

    rows: int
    first: int
    last: int


class DataFile(NamedTuple):
    """A file of a topic and hour. `path` is relative to the target; times in us since 1970, None without a record's."""

    path: str
    topic: str
    date: str | None
    """YYYY-MM-DD; it and `hour` (UTC) are None for records without a time that a calendar knows."""
    hour: int | None
    rows: int
    size: int
    partitions: dict[int, PartitionShare]
    time_min: int | None
    time_max: int | None

    def to_json(self) -> dict[str, Any]:
        """As a manifest has it."""
        partitions = {str(number): list(share) for number, share in sorted(self.partitions.items())}
        return {**self._asdict(), "partitions": partitions}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DataFile:
        """What `to_json` made."""
        partitions = {int(number): PartitionShare(*share) for number, share in value["partitions"].items()}
        return cls(**{**value, "partitions": partitions})


@dataclass(frozen=True)
class Change:
    """What one manifest says. `positions` are the next offsets, of the partitions that moved."""

    kind: str
    """load or compaction."""
    added: Sequence[DataFile] = ()
    removed: Sequence[str] = ()
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[TopicPartition, Position] = field(default_factory=dict)
    """What was before positions when they were reached, as far as it is known (kafkalite.client.history)."""
    stream: tuple[str, int] | None = None
    """A streaming query's id and the number of its batch."""
    keep_until_ms: int = 0
    """Until then the removed files stay, for those who read them now."""
    letters: str = ""
    """The folder of letters about records that this change passes over (kafkalite.load.letters)."""
    schemas: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Topic → the columns of its files from now on (kafkalite.load.columns), of topics where they changed."""

    def to_json(self, number: int) -> dict[str, Any]:
        """The manifest of this number."""
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
        }


@dataclass
class LoadState:
    """Everything that the manifests say together. `number` is the last one's, -1 when there is none."""

    number: int = -1
    files: dict[str, DataFile] = field(default_factory=dict)
    """By path, as they came."""
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """The next offset of each partition."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)
    """Streaming query's id → its last batch here."""
    doomed: dict[str, int] = field(default_factory=dict)
    """Files that compaction replaced → when they may go, in ms since 1970."""
    marks: dict[TopicPartition, Position] = field(default_factory=dict)
    """As of Change, of each partition the last."""
    schemas: dict[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """As of Change; a topic that only older releases loaded has none."""
    outdated: set[str] = field(default_factory=set)
    """Files that were written before their topic's columns changed last."""

    def copy(self) -> LoadState:
        """One that changes by itself."""
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
        )

    def apply(self, value: Mapping[str, Any]) -> None:
        """A manifest on top of what is known."""
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
        self.positions |= from_json(value["positions"])
        self.topic_ids |= value["topic_ids"]
        self.marks |= marks_from_json(value.get("marks", {}))
        if value["stream"] is not None:
            query, batch = value["stream"]
            self.streams[query] = batch
        self.number = value["number"]

    def to_json(self) -> dict[str, Any]:
        """A snapshot."""
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
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LoadState:
        """What `to_json` made."""
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
        )


def marks_to_json(marks: Mapping[TopicPartition, Position]) -> dict[str, dict[str, list[int]]]:
    """{"topic": {"0": [offset, leader epoch, first offset of the batch, its CRC]}}."""
    found: dict[str, dict[str, list[int]]] = {}
    for key in sorted(marks):
        found.setdefault(key.topic, {})[str(key.partition)] = [marks[key].offset, *marks[key].mark]
    return found


def marks_from_json(value: Mapping[str, Mapping[str, Sequence[int]]]) -> dict[TopicPartition, Position]:
    """What `marks_to_json` made; releases before it wrote none."""
    return {
        TopicPartition(topic, int(partition)): Position(numbers[0], Mark(*numbers[1:]))
        for topic, rows in value.items()
        for partition, numbers in rows.items()
    }


class Target:
    """See the module. `state` is as of the last `refresh`."""

    def __init__(self, path: str | os.PathLike[str] | Storage, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self.storage = storage_of(path)
        self.location = self.storage.location
        self.state = LoadState()
        self._lock_timeout_s = lock_timeout_s

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether anything was ever loaded, or tried to."""
        return self.storage.exists(MANIFESTS)

    def require(self) -> None:
        """LoadError where nothing was ever loaded."""
        if not self.exists:
            raise LoadError(f"nothing has been loaded into {self.location} yet")

    def refresh(self) -> LoadState:
        """The state as it is now. LoadError for manifests that cannot be understood."""
        for attempt in range(READ_ATTEMPTS):
            try:
                self.state = self._newer(self.state.copy() if attempt == 0 else LoadState())
            except FileNotFoundError:
                continue  # cleared away between listing and reading, after a snapshot was written
            return self.state
        raise LoadError(f"{self._shown()}: manifests are missing")

    def _shown(self, name: str = "") -> str:
        """A file of the manifests, for people."""
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
        """Return the manifests that are kept of changes after this number, in order. LoadError for a damaged one."""
        for _ in range(READ_ATTEMPTS):
            names = [name for name in self.storage.names(MANIFESTS) if is_change(name)]
            with contextlib.suppress(FileNotFoundError):  # cleared away between listing and reading
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
        """The turn to change the target: what a crash left is gone, `state` is fresh, and the value is the place
        of a new folder for files that are being written. LoadError when another writer does not end.
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
        """Undoes a change that was not completed, and removes what nobody needs. Under the lock."""
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
        """Somebody's pending change, under a name that he does not know; None when he was faster."""
        mine = f"{PENDING}-{uuid.uuid4().hex}.json"
        try:
            self.storage.move(f"{MANIFESTS}/{name}", f"{MANIFESTS}/{mine}")
        except FileNotFoundError:
            return None
        return mine

    def commit(self, change: Change, staged: Mapping[str, str], letters: Mapping[str, str] | None = None) -> int:
        """Publishes a change, whose files are at these places by their paths; returns its number. Under the lock.

        `letters` are the places of files by their names in the change's folder of letters.
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
            raise LoadError(OVERTAKEN.format(self.location))  # the rename was asked for again, its answer being lost
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
        """All up to now in one file; manifests that neither it nor the one before needs are cleared away."""
        self._put(f"{self.state.number:020d}{SNAPSHOT}", self.state.to_json())
        before = self.state.number - SNAPSHOT_EVERY
        for name in self.storage.names(MANIFESTS):
            if is_change(name) or name.endswith(SNAPSHOT):
                number = int(name.partition(".")[0])
                if number < before or (number == before and is_change(name)):
                    self.storage.remove(f"{MANIFESTS}/{name}")


def is_change(name: str) -> bool:
    """Whether a file of _manifests is a manifest."""
    return name.endswith(".json") and name.removesuffix(".json").isdigit()


def is_pending(name: str) -> bool:
    """Whether a file of _manifests is a change on its way."""
    return name.startswith(PENDING) and name.endswith(".json")


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
