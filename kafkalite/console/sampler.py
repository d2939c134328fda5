"""Sample a cluster on a thread, every five seconds or less often; store the latest sample and the time series.

    read      ListOffsets, ListGroups and OffsetFetch; metadata, in large clusters once a minute; sizes of logs, once a
              minute
    compute   the Observer turns the readings into the latest sample, and into values for the rings
    save      once a minute, the rings are written to a file

While the cluster does not respond, the time series have a gap.

Thread rule: `start` starts the thread, `stop` ends it. Any thread may read the public attributes, and call `topics` and
`renew`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.client.cluster import READ_COMMITTED
from kafkalite.client.errors import ClientError
from kafkalite.console.observations import Look, Observer
from kafkalite.console.rings import HOUR, Rings
from kafkalite.errors import KafkaError, StartupError
from kafkalite.model import OFFSET_LATEST, TopicPartition
from kafkalite.wire.protocol import api

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kafkalite.client import Client
    from kafkalite.client.admin.groups import GroupProgress
    from kafkalite.client.cluster import TopicDescription
    from kafkalite.console.latencies import Latencies
    from kafkalite.console.observations import Sample

logger = logging.getLogger(__name__)

INTERVAL_MS: Final = HOUR.step_ms
INTERVALS_MAX: Final = 12
"""Pauses longer than this many intervals are gaps, of any cause."""
SHARE: Final = 5
"""A sample is followed by a pause of at least this many times its duration."""
SAVE_MS: Final = 60_000
SIZES_MS: Final = 60_000
"""Milliseconds between two samples of the disks."""
METADATA_MS: Final = 60_000
PARTITIONS_MANY: Final = 2000
"""With more partitions, metadata is read once a minute, and pages list the topics that were read last."""
HELD_MS: Final = 60_000
"""Milliseconds between two searches for open transactions, with many partitions."""
STOP_S: Final = 5.0
ASKED: Final = (
    api.LIST_TRANSACTIONS,
    api.DESCRIBE_ACLS,
    api.DESCRIBE_USER_SCRAM_CREDENTIALS,
    api.DESCRIBE_QUORUM,
)
FILE: Final = "console-numbers"


class Seen(NamedTuple):
    """All topics at one time, from metadata. `many` says that there are too many to fetch them for each page."""

    topics: Mapping[str, TopicDescription]
    time_ms: int
    many: bool
    renewals: int
    """Number of topic changes announced before this list was read."""


class Held(NamedTuple):
    """The partitions whose last stable offset was below the end offset, at one time."""

    time_ms: int
    partitions: tuple[TopicPartition, ...]


class Sampler:
    """The sampler of a cluster. It owns `client`. `path` is the directory of its history file; None for no file."""

    def __init__(self, client: Client, path: Path | None = None, latencies: Latencies | None = None) -> None:
        self.rings = Rings()
        self.latest: Sample | None = None
        """None before the first look."""
        self.failure = ""
        """Error of the last sample, "" if it succeeded."""
        self.interval_ms = INTERVAL_MS
        """Milliseconds between the last two samples."""
        self.lacks: frozenset[int] = frozenset()
        """APIs that pages need and the cluster does not support; known after the first sample."""
        self.held: Held | None = None
        """With many partitions, those with open transactions; None: ask all partitions."""
        self.latencies = latencies
        """Latencies of brokers with metrics; None: not configured."""
        self._client = client
        self._path = path
        self._observer = Observer()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console-sampler", daemon=True)
        self._seen = Seen({}, 0, many=False, renewals=0)
        self._renewals = 0
        self._sizes_at = 0
        self._saved_at = 0
        self._loaded = path is None

    def start(self) -> None:
        """Start the thread. Call it once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and save the history. Idempotent."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._client.interrupt()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)
        self._save()
        self._client.close()

    def topics(self, client: Client) -> Mapping[str, TopicDescription]:
        """Return all topics, fetched with the client.

        If there are many partitions, return the last sample's list, at most two minutes old. `renew` invalidates it.
        """
        seen = self._seen
        fresh = time.time() * 1000 - seen.time_ms < 2 * METADATA_MS and seen.renewals == self._renewals
        return seen.topics if seen.many and fresh and not self.failure else client.with_retries(client.topics)

    def renew(self) -> None:
        """Invalidate the list of topics, since topics were created or deleted."""
        self._renewals += 1

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            self.sample(int(time.time() * 1000))
            took_ms = int((time.monotonic() - began) * 1000)
            now_ms = int(time.time() * 1000)
            pause_ms = max(INTERVAL_MS - now_ms % INTERVAL_MS, SHARE * took_ms)
            self._stopped.wait(pause_ms / 1000)

    def sample(self, now_ms: int) -> None:
        """Take one sample and store it."""
        try:
            look = self._look(now_ms)
        except (KafkaError, ClientError, OSError) as error:
            if not self.failure and not self._stopped.is_set():
                logger.warning("gap in the cluster's history: %s", error)
            self.failure = str(error)
            self.renew()  # a topic may have gone meanwhile
            return
        except Exception as error:  # the thread must continue; pages show the last sample
            logger.exception("cannot sample the cluster")
            self.failure = str(error)
            return
        try:
            self._keep(now_ms, look)
        except Exception as error:
            logger.exception("cannot save the cluster's history")
            self.failure = str(error)
        else:
            self.failure = ""

    def _keep(self, now_ms: int, look: Look) -> None:
        if self.latest is not None:
            self.interval_ms = max(min(now_ms - self.latest.time_ms, INTERVALS_MAX * INTERVAL_MS), INTERVAL_MS)
        self.latest, values = self._observer.observe(look)
        if self.latencies is not None:
            values += self.latencies.values()
        self.rings.add(now_ms, values)
        if now_ms - self._saved_at >= SAVE_MS:
            self._saved_at = now_ms
            self._save()

    def _look(self, now_ms: int) -> Look:
        client = self._client
        seen = self._seen
        if not seen.many or now_ms - seen.time_ms >= METADATA_MS or seen.renewals != self._renewals:
            renewals = self._renewals
            topics = client.with_retries(client.topics)
            many = sum(len(topic.partitions) for topic in topics.values()) > PARTITIONS_MANY
            seen = self._seen = Seen(topics, now_ms, many, renewals)
        self._load()
        connection = client.any_connection()
        self.lacks = frozenset(key for key in ASKED if not connection.supports(key))
        keys = [
            TopicPartition(name, row.partition)
            for name, topic in seen.topics.items()
            for row in topic.partitions
            if row.leader >= 0
        ]
        groups: tuple[GroupProgress, ...] = ()
        with contextlib.suppress(KafkaError):  # not authorized
            groups = client.groups.progress()
        # After the groups, so that no committed offset is beyond an end.
        ends = {key: row.offset for key, row in client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST)).items()}
        self._look_held(now_ms, ends)
        sizes: dict[TopicPartition, int] | None = None
        free: dict[tuple[int, str], tuple[int, int]] | None = None
        if now_ms - self._sizes_at >= SIZES_MS:
            self._sizes_at = now_ms
            with contextlib.suppress(KafkaError, ClientError):
                sizes, free = self._disks(frozenset(keys))
        return Look(now_ms, seen.topics, ends, groups, sizes, free)

    def _look_held(self, now_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        """Find the partitions with open transactions.

        The last stable offset is read after the end offset, so it is lower only if a transaction is open.
        """
        if not self._seen.many or api.LIST_TRANSACTIONS in self.lacks:
            self.held = None
            return
        if self.held is not None and now_ms - self.held.time_ms < HELD_MS:
            return
        stable = self._client.list_offsets(dict.fromkeys(ends, OFFSET_LATEST), isolation=READ_COMMITTED)
        self.held = Held(now_ms, tuple(key for key, end in ends.items() if stable[key].offset < end))

    def _disks(
        self, keys: frozenset[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[tuple[int, str], tuple[int, int]]]:
        """Return (bytes of each leader replica, usable and total bytes of each log directory)."""
        leaders = {
            TopicPartition(name, row.partition): row.leader
            for name, topic in self._seen.topics.items()
            for row in topic.partitions
        }
        sizes: dict[TopicPartition, int] = {}
        free: dict[tuple[int, str], tuple[int, int]] = {}
        for broker in self._client.brokers():
            for row in self._client.admin.log_directories(broker.node_id):
                sizes |= {
                    key: size for key, size in row.sizes.items() if key in keys and leaders[key] == broker.node_id
                }
                if row.usable is not None and row.total is not None:
                    free[broker.node_id, row.path] = (row.usable, row.total)
        return sizes, free

    # --- the file -----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Load the history once the cluster's id is known."""
        if self._loaded or self._path is None:
            return
        self._loaded = True
        try:
            raw = (self._path / FILE).read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("cannot read the saved history: %s", error)
            return
        try:
            if not self.rings.load(raw, self._client.cluster_id or ""):
                logger.warning("the history in %s is from another cluster and is discarded", self._path)
        except (ValueError, LookupError, TypeError) as error:
            logger.warning("the history in %s is discarded: %s", self._path, error)

    def _save(self) -> None:
        if self._path is None or not self._loaded or not len(self.rings):
            return
        try:
            save(self._path, self.rings.dump(self._client.cluster_id or ""))
        except OSError as error:
            logger.warning("cannot save the history: %s", error)


def require_writable(directory: Path) -> None:
    """Create the directory if necessary, and check that it is writable. Raises StartupError."""
    fresh = directory / f"{FILE}.new"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / FILE).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        fresh.open("wb").close()
        fresh.unlink()
    except OSError as error:
        raise StartupError(f"--state-dir {directory}: cannot write: {error.strerror}") from error


def save(directory: Path, raw: bytes) -> None:
    """Replace the file atomically. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f"{FILE}.new"
    with fresh.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(directory / FILE)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
