"""Read the stages of a continuous audit. Each stage stores its positions, and continues there in the next round.

    BrokerStage     a broker's committed records
    MirrorStage     the live broker's records, up to the mirror's progress
    ConsumerStage   the records in newly reported ranges, which may be below ranges that were already counted
    LoadedStage     newly published files; if a file replaces counted files (compaction), only its new rows

A position advances together with the counts, one chunk at a time. So a round may end after any chunk.

Thread rule: one thread at a time.
"""

from __future__ import annotations

import abc
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkalite.audit.histories import Histories
from kafkalite.audit.lasting import LastingCount
from kafkalite.audit.stages import (
    CHUNK_COUNT,
    NothingToCompare,
    View,
    add_chunk,
    by_columns,
    committed,
    count_file,
    everything,
    loaded_files,
    mirror_progress,
    present,
    taken_in,
)
from kafkalite.audit.taken import Spans
from kafkalite.client.errors import LogTruncated
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from threading import Event

    from numpy.typing import NDArray

    from kafkalite.audit.fields import MarkFields
    from kafkalite.audit.lasting import LastingReported
    from kafkalite.audit.taken import Taken
    from kafkalite.client import Client
    from kafkalite.load.manifest import DataFile


logger = logging.getLogger(__name__)


class Stage(abc.ABC):
    """The base class of all stages; see the module. `read` counts new records of some topics, or raises."""

    def __init__(
        self,
        name: str,
        *,
        reported: LastingReported,
        horizon_ms: int,
        beat: Callable[[], object],
        fields: MarkFields | None = None,
        recounts: bool = False,
    ) -> None:
        self.name = name
        self._recounts = recounts
        self._histories = Histories()
        self.count = LastingCount(reported, horizon_ms)
        self.read_at_ms = 0
        """All records that existed at this time were read."""
        self._horizon_ms = horizon_ms
        self._beat = beat
        self._fields = fields

    @abc.abstractmethod
    def read(self, topics: list[str], stop: Event) -> None:
        """Count new records. Raises KafkaError, ClientError, OSError and NothingToCompare; earlier counts are kept."""

    def _is_other_history(self, client: Client, positions: Mapping[TopicPartition, int]) -> bool:
        """Return whether a log was restored, truncated or recreated after the stage has counted its records.

        If so, the stage counts again all windows that are still kept. Without `recounts`, raise LogTruncated instead.
        """
        parted = self._histories.parted(client, positions)
        if not parted:
            return False
        if not self._recounts:
            raise LogTruncated(
                f"stage {self.name}: {parted[0]}: the log was restored from a backup, truncated or recreated; use "
                "--on-data-loss recount to count the stage again",
                *parted[0],
            )
        logger.warning("stage %s: %s; counting it again", self.name, parted[0])
        self._horizon_ms = self.count.since_ms
        self.count = self.count.emptied()
        self._histories.clear()
        return True

    @abc.abstractmethod
    def saved(self) -> dict[str, Any]:
        """Return the stage's positions as JSON."""

    @abc.abstractmethod
    def restore(self, value: dict[str, Any]) -> None:
        """Load the result of `saved`."""


class BrokerStage(Stage):
    """Reads a broker's committed records."""

    def __init__(self, name: str, client: Client, **options: Any) -> None:
        super().__init__(name, **options)
        self.client = client
        self.positions: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str] = {}

    def limits(self) -> Mapping[TopicPartition, int] | None:
        """Return the offset up to which to read each partition; None for all committed records."""
        return None

    def read(self, topics: list[str], stop: Event) -> None:
        limits = self.limits()
        there = present(self.client, topics)
        self._forget_recreated(there)
        keys = [TopicPartition(name, partition) for name in there for partition in self.client.partitions(name)]
        fresh = dict.fromkeys((key for key in keys if key not in self.positions), self._horizon_ms)
        starts = self.client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST) | fresh, isolation=1)
        ends = self.client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST), isolation=1)
        moved = {key: self.positions[key] for key in keys if self.positions.get(key, 0) not in {0, ends[key].offset}}
        if self._is_other_history(self.client, moved):
            self.positions.clear()
            self.read(topics, stop)
            return
        ranges = {}
        for key in keys:
            end = ends[key].offset if limits is None else min(ends[key].offset, limits.get(key, 0))
            first = starts[key].offset if starts[key].offset >= 0 else end  # no record is that new
            start = max(first, self.positions.get(key, 0))
            if start < end:
                self.positions[key] = start
                ranges[key] = (start, end)
        for part, columns in by_columns(ranges, self._fields):
            with committed(self.client, part, columns, chunk_count=CHUNK_COUNT) as reader:
                for chunk in reader:
                    self._beat()
                    add_chunk([View(self.count, everything)], chunk, self._fields)
                    self.positions[chunk.partition] = chunk.next_offset
                    self._histories.note(reader, chunk)
                    if stop.is_set():
                        return

    def _forget_recreated(self, topics: Sequence[str]) -> None:
        """Reset the positions of topics that were recreated under the same name."""
        for name in topics:
            topic_id = bytes(self.client.topic(name).topic_id).hex()
            if self._topic_ids.setdefault(name, topic_id) != topic_id:
                self._topic_ids[name] = topic_id
                for key in [key for key in self.positions if key.topic == name]:
                    self.positions[key] = 0

    def saved(self) -> dict[str, Any]:
        return {
            "positions": [[*key, at] for key, at in self.positions.items()],
            "topic_ids": self._topic_ids,
            "histories": self._histories.saved(),
        }

    def restore(self, value: dict[str, Any]) -> None:
        self.positions = {TopicPartition(topic, partition): at for topic, partition, at in value["positions"]}
        self._topic_ids = dict(value["topic_ids"])
        self._histories.restore(value.get("histories", []))


class MirrorStage(BrokerStage):
    """Reads the live broker's records up to the mirror's progress."""

    def __init__(self, name: str, live: Client, offline: Client, mirror: str, **options: Any) -> None:
        super().__init__(name, live, **options)
        self._offline = offline
        self._mirror = mirror

    def limits(self) -> Mapping[TopicPartition, int]:
        return mirror_progress(self.client, self._offline, self._mirror)


class ConsumerStage(Stage):
    """Reads the records that consumers reported, from the first of `clients` whose cluster has reports."""

    def __init__(self, name: str, clients: list[Client], taken: Taken, **options: Any) -> None:
        super().__init__(name, **options)
        self._clients = clients
        self._taken = taken
        self._counted: dict[TopicPartition, Spans] = {}

    def read(self, topics: list[str], stop: Event) -> None:
        found = [(client, spans) for client in self._clients if (spans := self._taken.of(self.name, client.cluster_id))]
        if not found:
            raise NothingToCompare(f"no consumer of stage {self.name} has reported anything yet")
        client, reported = found[0]
        self.count.topics = frozenset(key.topic for key in reported)
        there = set(present(client, [name for name in topics if name in self.count.topics]))
        keys = [key for key in reported if key.topic in there]
        if self._is_other_history(client, {key: self._histories.offset(key) for key in keys}):
            self._counted.clear()
            self.count.topics = frozenset(key.topic for key in reported)
        starts = client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST))
        for key in keys:
            counted = self._counted.setdefault(key, Spans())
            for known in (reported[key], counted):
                known.drop_below(starts[key].offset)
            fresh = without(reported[key].all(), counted.all())
            if fresh:
                self._read_partition(client, key, Spans(fresh), counted, stop)
            if stop.is_set():
                return

    def _read_partition(self, client: Client, key: TopicPartition, fresh: Spans, counted: Spans, stop: Event) -> None:
        first, end = fresh.all()[0][0], fresh.all()[-1][1]
        view = View(self.count, taken_in({key: fresh}))
        for part, columns in by_columns({key: (first, end)}, self._fields):
            with committed(client, part, columns, chunk_count=CHUNK_COUNT) as reader:
                for chunk in reader:
                    self._beat()
                    add_chunk([view], chunk, self._fields)
                    if chunk.next_offset >= self._histories.offset(key):
                        self._histories.note(reader, chunk)
                    for span in fresh.below(chunk.next_offset):
                        counted.add(*span)
                    if stop.is_set():
                        return
        for span in fresh.all():
            counted.add(*span)

    def saved(self) -> dict[str, Any]:
        counted = [[*key, spans.all()] for key, spans in self._counted.items()]
        return {"counted": counted, "histories": self._histories.saved()}

    def restore(self, value: dict[str, Any]) -> None:
        self._counted = {
            TopicPartition(topic, partition): Spans((first, end) for first, end in rows)
            for topic, partition, rows in value["counted"]
        }
        self._histories.restore(value.get("histories", []))


Place = tuple[str, str | None, int | None]
"""The topic, date and hour of loaded files; compaction replaces files by others of the same place."""


class CountedFile(NamedTuple):
    """A file that was counted: its topic and hour, and the first and last offset of each partition in it."""

    place: Place
    shares: dict[int, tuple[int, int]]
    rows: int | None = None
    """The number of its first rows that were counted; None for all."""


class LoadedStage(Stage):
    """Reads the files that `kafkalite load` publishes."""

    def __init__(self, name: str, folder: str, **options: Any) -> None:
        super().__init__(name, **options)
        self._folder = folder
        self._counted: dict[str, CountedFile] = {}
        self._begun: dict[str, CountedFile] = {}
        """Files that could not be read to their end."""

    def read(self, topics: list[str], stop: Event) -> None:
        now = {file.path: file for file in loaded_files(self._folder)}
        gone = self._gone(now)
        for file in [file for path, file in now.items() if path not in self._counted and file.topic in topics]:
            self._beat()
            try:
                self._read_file(file, gone.get(place_of(file), []))
            except FileNotFoundError:
                return  # compaction has replaced it; the next round reads the new file
            if stop.is_set():
                return
        for files in (self._counted, self._begun):
            for path in [path for path in files if path not in now]:
                del files[path]

    def _gone(self, now: Container[str]) -> dict[Place, list[CountedFile]]:
        """Return the files that are no longer there, by place. A new file may contain their rows."""
        found: dict[Place, list[CountedFile]] = {}
        for files in (self._counted, self._begun):
            for path, one in files.items():
                if path not in now:
                    found.setdefault(one.place, []).append(one)
        return found

    def _read_file(self, file: DataFile, before: list[CountedFile]) -> None:
        """Count the rows of a file that were not counted before, in files that it replaced or in an earlier round."""
        shares = {number: (share.first, share.last) for number, share in file.partitions.items()}
        whole = CountedFile(place_of(file), shares)
        begun = self._begun.get(file.path, whole._replace(rows=0))
        known = [*before, begun] if begun.rows else before
        skips = rows_of(known) if known else None
        done = 0
        for rows in count_file(self._folder, file, self.count, fields=self._fields, skips=skips):
            done += rows
            self._begun[file.path] = whole._replace(rows=max(done, begun.rows or 0))
            self._beat()
        self._counted[file.path] = whole
        self._begun.pop(file.path, None)

    def saved(self) -> dict[str, Any]:
        return {
            "files": [[path, list(one.place), list(one.shares.items())] for path, one in self._counted.items()],
            "begun": [[path, list(one.place), list(one.shares.items()), one.rows] for path, one in self._begun.items()],
        }

    def restore(self, value: dict[str, Any]) -> None:
        for files, key in ((self._counted, "files"), (self._begun, "begun")):
            for path, (topic, date, hour), shares, *rows in value.get(key, []):
                ranges = {number: (first, last) for number, (first, last) in shares}
                files[path] = CountedFile((topic, date, hour), ranges, *rows)


def place_of(file: DataFile) -> Place:
    """Return a file's topic, date and hour. In other layouts, the folder takes the place of the date."""
    return (file.topic, file.place or file.date, file.hour)


def rows_of(files: Sequence[CountedFile]) -> Callable[[Any], NDArray[np.bool_]]:
    """Return a function that selects the counted rows of these files in the batches of another file, or of one of them.

    The batches must come in the order of the file. Compaction keeps the order of a file's rows.
    """
    spans: dict[int, Spans] = {}
    for file in files:
        if file.rows is None:
            for number, (first, last) in file.shares.items():
                spans.setdefault(number, Spans()).add(first, last + 1)
    left = [(file.shares, file.rows) for file in files if file.rows is not None]

    def skips(batch: Any) -> NDArray[np.bool_]:
        partitions, offsets = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("partition", "offset"))
        found = np.zeros(batch.num_rows, np.bool_)
        for number, own in spans.items():
            found |= (partitions == number) & own.has(offsets)
        for at, (shares, rows) in enumerate(left):
            inside = np.zeros(batch.num_rows, np.bool_)
            for number, (first, last) in shares.items():
                inside |= (partitions == number) & (first <= offsets) & (offsets <= last)
            chosen = np.flatnonzero(inside)[:rows]
            found[chosen] = True
            left[at] = (shares, rows - len(chosen))
        return found

    return skips


def without(ranges: Sequence[tuple[int, int]], taken: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of `ranges` that are in no range of `taken`. Each list is sorted, without touching ranges."""
    found, at = [], 0
    for first, end in ranges:
        reached = first
        while at < len(taken) and taken[at][1] <= first:
            at += 1
        place = at
        while place < len(taken) and taken[place][0] < end:
            if taken[place][0] > reached:
                found.append((reached, taken[place][0]))
            reached = max(reached, taken[place][1])
            place += 1
        if reached < end:
            found.append((reached, end))
    return found
