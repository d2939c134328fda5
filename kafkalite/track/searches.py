"""Run a search: workers read slices of partitions, and hits are yielded as they are found.

    snapshot   is cut into slices of partitions
    workers    read the slices, newest first, each worker with its own client and reader
    hits       go through a queue to the thread that iterates over the search
    reach      the counts of each slice: records seen, markers, gaps, damage

The end offsets are fixed before anything is read. So a search ends even if producers still write to its topics.

Thread rule: a Search belongs to one thread; any thread may call `cancel`.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kafkalite.client.cluster import READ_COMMITTED
from kafkalite.client.errors import ClientError
from kafkalite.client.read.damage import next_readable
from kafkalite.errors import CorruptMessage, KafkaError, OffsetOutOfRange
from kafkalite.model import OFFSET_EARLIEST, TopicPartition
from kafkalite.track.questions import Matcher, needles_of
from kafkalite.track.reach import Reach, Slice, reach_of
from kafkalite.track.snapshot import fault_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalite.avro.client import RegistryClient
    from kafkalite.client import Client
    from kafkalite.client.read.reader import Chunk, Reader
    from kafkalite.track.questions import Place, Questions
    from kafkalite.track.reach import Asked
    from kafkalite.track.snapshot import Snapshot
    from kafkalite.wire.record.columns import Record

HITS_MAX: Final = 10_000
SIZE_MAX: Final = 20 * 1024**3
"""Bytes that a search may read without confirmation."""
TIME_MAX_S: Final = 300.0
WORKERS_MAX: Final = 8
FETCH_SIZE: Final = 2 * 1024 * 1024
"""A slice reads at most this much beyond its end."""
SLICE_SIZE_MIN, SLICE_SIZE_MAX = 16 * 1024**2, 256 * 1024**2
SLICES_AIM: Final = 64
"""The approximate number of slices of a search."""
SLICE_OFFSETS: Final = 200_000
"""Offsets of a slice if no broker reports the partition's size."""
HELD_MAX: Final = 16
"""Partitions that one worker reads at a time."""
POLL_S: Final = 0.1
CHUNK_COUNT: Final = 20_000
"""Records that are matched before a worker checks whether to stop."""
FETCH_WAIT_MS: Final = 100
RETRY_S: Final = 10.0
"""How long an unresponsive partition is retried."""


class Hit(NamedTuple):
    """A matching record. `places` are the matching places; `timestamp_type` is 0 (CreateTime) or 1 (LogAppendTime)."""

    partition: TopicPartition
    record: Record
    timestamp_type: int
    places: tuple[Place, ...]

    def __str__(self) -> str:
        return f"{self.partition}-{self.record.offset}"


class Limits(NamedTuple):
    """Limits that end a search early."""

    hits_max: int = HITS_MAX
    time_max_s: float = TIME_MAX_S
    workers: int = 0
    """0: one per core, at most WORKERS_MAX."""


class Window(NamedTuple):
    """A time range in ms since 1970: from `since` to before `until`."""

    since: int | None = None
    until: int | None = None

    def holds(self, timestamp: int) -> bool:
        """Return whether a timestamp is in the range. Records without a timestamp always are."""
        if timestamp < 0:
            return True
        return (self.since is None or timestamp >= self.since) and (self.until is None or timestamp < self.until)


ALL_TIMES: Final = Window()
DEFAULT_LIMITS: Final = Limits()


class Hunt:
    """Matches the records of chunks for one worker, with a Matcher per topic."""

    def __init__(
        self, questions: Questions, window: Window, open_registry: Callable[[], RegistryClient] | None = None
    ) -> None:
        self._questions = questions
        self._window = window
        self._open_registry = open_registry
        self._registry: RegistryClient | None = None
        self._matchers: dict[str, Matcher] = {}

    def close(self) -> None:
        """Close the registry's connection."""
        if self._registry is not None:
            self._registry.close()

    def hits(self, chunk: Chunk) -> tuple[list[Hit], int]:
        """Return a chunk's hits, and the number of values that could not be decoded."""
        if not len(chunk.columns):
            return [], 0
        matcher = self._matcher(chunk.partition.topic)
        before = matcher.undecodable
        hits = [
            Hit(chunk.partition, record, kind, places)
            for record, kind, places in matcher.found(chunk.columns)
            if self._window.holds(record.timestamp)
        ]
        return hits, matcher.undecodable - before

    def _matcher(self, topic: str) -> Matcher:
        if topic not in self._matchers:
            documents = None
            if self._open_registry is not None:
                from kafkalite.avro.documents import Documents

                self._registry = self._registry or self._open_registry()
                documents = Documents(self._registry)
            self._matchers[topic] = Matcher(self._questions.of(topic), documents)
        return self._matchers[topic]


class Search:
    """A running search; see the module.

    Iterate over it to get hits in the order in which they are found; then check `reach`. Nothing is read before the
    first iteration.

    Use the search as a context manager, or call `close`. This ends its threads and connections.
    """

    def __init__(
        self,
        client: Client,
        seen: Snapshot,
        questions: Questions,
        *,
        window: Window = ALL_TIMES,
        limits: Limits = DEFAULT_LIMITS,
        isolation: int = READ_COMMITTED,
        open_registry: Callable[[], RegistryClient] | None = None,
    ) -> None:
        self._client = client
        self.snapshot = seen
        self._limits = limits
        self._isolation = isolation
        self._new_hunt: Callable[[], Hunt] = lambda: Hunt(questions, window, open_registry)
        self._needles = needles_of(questions.every())
        self._slices = {key: cut(asked, seen.size) for key, asked in seen.asked.items()}
        waiting = [part for parts in self._slices.values() for part in parts]
        self._waiting = deque(sorted(waiting, key=lambda part: (part.age, part.key)))
        self._lock = threading.Lock()
        self._found: queue.Queue[list[Hit] | None] = queue.Queue(maxsize=1000)
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failure: Exception | None = None
        self.owned: Client | None = None
        """A client that is closed with the search."""
        self.ended_by = ""
        """Why the search ended early, or ""."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def cancel(self) -> None:
        """End the search, and so its iteration. Any thread may call it."""
        self._end_by("it was cancelled")

    def close(self) -> None:
        """Stop the search and wait for the workers. Idempotent."""
        self._stopped.set()
        while any(thread.is_alive() for thread in self._threads):
            self._drain()
            for thread in self._threads:
                thread.join(POLL_S / 10)
        if self.owned is not None:
            self.owned.close()

    def _end_by(self, reason: str) -> None:
        self.ended_by = self.ended_by or reason
        self._stopped.set()

    def _drain(self) -> None:
        try:
            while True:
                self._found.get_nowait()
        except queue.Empty:
            return

    # --- result -------------------------------------------------------------------------------------------------------

    @property
    def reach(self) -> list[Reach]:
        """The account of each partition, sorted, including partitions that could not be read."""
        rows = [reach_of(asked, self._slices[key]) for key, asked in self.snapshot.asked.items()]
        return sorted([*rows, *self.snapshot.refused])

    @property
    def complete(self) -> bool:
        """Whether every existing record was examined."""
        return all(row.complete for row in self.reach)

    # --- iterating ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Hit]:
        """Yield hits. An error that concerns no single partition is raised after all workers have ended."""
        deadline = time.monotonic() + self._limits.time_max_s
        self._begin()
        running, count = len(self._threads), 0
        while running:
            try:
                hits = self._found.get(timeout=min(max(deadline - time.monotonic(), 0.0), POLL_S))
            except queue.Empty:
                hits = []
            if hits is None:
                running -= 1
                continue
            for hit in hits:
                if count < self._limits.hits_max:
                    count += 1
                    yield hit
                else:
                    self._end_by(f"reached the limit of {count} hits")
            if time.monotonic() > deadline:
                self._end_by(f"reached the time limit of {self._limits.time_max_s:g} s")
        self.close()
        if self._failure is not None:
            raise self._failure

    def _begin(self) -> None:
        assert not self._threads, "a search is iterated over once"
        count = self._limits.workers or min(os.cpu_count() or 1, WORKERS_MAX)
        for number in range(min(count, len(self._waiting))):
            thread = threading.Thread(target=self._run, name=f"track-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    # --- a worker's thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        hunt = self._new_hunt()
        try:
            with self._client.twin() as client:
                client.retry_timeout_s = min(client.retry_timeout_s, RETRY_S)
                self._work(client, hunt)
        except Exception as error:  # noqa: BLE001  # the iterating thread raises it
            self._failure = self._failure or error
            self._stopped.set()
        finally:
            hunt.close()
            self._put(None)

    def _put(self, hits: list[Hit] | None) -> None:
        """Queue hits; wait while the queue is full."""
        while True:
            try:
                self._found.put(hits, timeout=POLL_S)
            except queue.Full:
                if not self._stopped.is_set():
                    continue
                if hits is None:
                    self._drain()
                    continue
            return

    def _work(self, client: Client, hunt: Hunt) -> None:
        held: dict[TopicPartition, Slice] = {}
        with client.reader(
            {},
            isolation=self._isolation,
            needles=self._needles,
            fetch_size=FETCH_SIZE,
            max_wait_ms=FETCH_WAIT_MS,
            chunk_count=CHUNK_COUNT,
            retry_damage=False,
        ) as reader:
            while not self._stopped.is_set():
                self._refill(reader, held)
                if not held:
                    return
                try:
                    self._read(reader, held, hunt)
                except (KafkaError, ClientError) as error:
                    self._meet(client, reader, held, error)
                if self._stopped.is_set():
                    return  # chunks may remain unexamined
                for key in [key for key in held if reader.position(key) >= held[key].end]:
                    part = held.pop(key)
                    part.position = part.end
                    reader.drop([key])

    def _refill(self, reader: Reader, held: dict[TopicPartition, Slice]) -> None:
        """Take the newest slices. A worker reads at most one slice of each partition at a time."""
        with self._lock:
            passed: list[Slice] = []
            while self._waiting and len(held) < HELD_MAX and len(passed) < HELD_MAX:
                part = self._waiting.popleft()
                if part.key in held:
                    passed.append(part)
                    continue
                held[part.key] = part
                reader.add({part.key: part.start}, {part.key: part.end})
            self._waiting.extendleft(reversed(passed))

    def _read(self, reader: Reader, held: dict[TopicPartition, Slice], hunt: Hunt) -> None:
        reader.failed = None
        for chunk in reader.answers(POLL_S):
            part = held[chunk.partition]
            part.note(chunk.seen, min(chunk.next_offset, part.end))
            hits, undecodable = hunt.hits(chunk)
            part.undecodable += undecodable
            if hits:
                self._put(hits)
            if self._stopped.is_set():
                return

    def _meet(self, client: Client, reader: Reader, held: dict[TopicPartition, Slice], error: Exception) -> None:
        """Handle a partition's error. Deleted and damaged offsets are skipped; any other error ends the slice."""
        key = reader.failed
        if key is None or key not in held:
            raise error
        part = held[key]
        try:
            if isinstance(error, OffsetOutOfRange):
                first = client.list_offsets({key: OFFSET_EARLIEST})[key].offset
                if first <= part.position:
                    raise error
                gone = min(first, part.end)
                part.aged_out += gone - part.position
                part.position = gone
                reader.seek(key, gone)
                return
            if isinstance(error, CorruptMessage):
                damaged = reader.position(key)
                following = next_readable(client, key, damaged, part.end)
                part.damaged.append((damaged, following))
                part.position = following
                reader.seek(key, following)
                return
        except (KafkaError, ClientError) as worse:
            error = worse
        part.problem = fault_of(error)
        reader.drop([key])
        del held[key]


def cut(asked: Asked, total: int) -> list[Slice]:
    """Cut a partition's range into slices. `total` is the size of the whole search in bytes, or -1 if unknown."""
    length = asked.end - asked.start
    if length <= 0:
        return []
    aim = min(max(total // SLICES_AIM, SLICE_SIZE_MIN), SLICE_SIZE_MAX)
    count = -(-asked.size // aim) if asked.size >= 0 and total >= 0 else -(-length // SLICE_OFFSETS)
    count = max(1, min(count, length))
    bounds = [asked.start + length * number // count for number in range(count + 1)]
    return [Slice(asked.key, bounds[number], bounds[number + 1], count - 1 - number) for number in range(count)]
