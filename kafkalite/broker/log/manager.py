"""A data directory as a whole: opened, served, looked after, closed.

    open    lock ▸ identity ▸ journal ▸ adopt or clean up ▸ load every partition ▸ start the threads
    close   stop the threads ▸ flush ▸ save indexes and producers ▸ checkpoints ▸ clean-shutdown marker ▸ unlock

Threads: a flusher (group commit), a sealer (full segments: trim, sync, save), a housekeeper (retention, checkpoints,
flush.ms, producer expiry, removal of files) and the cleaners (compaction). Lock order: `_lock` (one change of topics at
a time) ▸ a log's flush lock ▸ that log's lock ▸ `_journal_lock`. The
sealer takes no log's lock, so that a roll may wait for room in its queue.

Topics are published copy-on-write: `topics` and `table` may be read by any thread without a lock. All methods that
change something block and are for the io pool.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import threading
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import file_ops
from kafkalite._native.log.log_traffic import sum_traffic
from kafkalite._native.log.segment import FileCache
from kafkalite._native.serve.topic_table import Topic, TopicTable
from kafkalite.base.chance import random_bytes
from kafkalite.base.clock import Clock, ExpiryTime
from kafkalite.base.executors import THREADS, Executors
from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.log import (
    adoption,
    checkpoints,
    cut,
    directory,
    disk,
    expiry_checkpoint,
    files,
    handover,
    journal,
)
from kafkalite.broker.log.cleaner import LogCleaner
from kafkalite.broker.log.flusher import Flusher, flush_together
from kafkalite.broker.log.formats import FORMATS
from kafkalite.broker.log.high_watermarks import HighWatermarks
from kafkalite.broker.log.housekeeping import BULK_FLUSH_COUNT_MIN, Housekeeper
from kafkalite.broker.log.journal import Journal, TopicState
from kafkalite.broker.log.loading import LoadPlan, load, load_offline
from kafkalite.broker.log.partition_log import LogServices, PartitionLog
from kafkalite.broker.log.sealer import Sealer
from kafkalite.errors import (
    ConfigError,
    InvalidConfig,
    InvalidPartitions,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    StartupError,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from kafkalite.model import (
    INTERNAL_TOPICS,
    ScramCredential,
    new_uuid,
    topic_name_error,
    topic_names_collide,
    uuid_text,
)
from kafkalite.settings.client_metrics import ClientMetricsConfig
from kafkalite.settings.group import GroupConfig
from kafkalite.settings.topic import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

    from kafkalite._native.log.log_traffic import TrafficCounts
    from kafkalite.base.acls import Acl
    from kafkalite.base.quota_entities import Change, Entity
    from kafkalite.broker.features import Features
    from kafkalite.broker.log.journal import MetadataState
    from kafkalite.broker.log.retention import RetentionPolicy
    from kafkalite.settings.broker import BrokerConfig

logger = logging.getLogger(__name__)
repeats = RepeatLogger(logger, lines=EVENT_LINES)

OPEN_SEGMENTS_MIN: Final = 8
DELETED_NAMES_MAX: Final = 1000
"""Names of deleted topics that are remembered, so that Metadata answers them as unknown once."""
CLOSE_THREADS: Final = 4
"""Threads that close logs: closing waits for the file system far more than it computes."""
LOCK_WAIT_S: Final = 0.05
"""How soon the housekeeper, which waits for the manager's lock, sees that it is to end."""


class LogManager:
    """The topics and logs of one data directory. `on_fatal` is told when a thread without which nothing works dies."""

    _time_unstored = False
    """Whether the last try to store the expiry time failed."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        on_fatal: Callable[[BaseException], None],
        policies: Iterable[RetentionPolicy] = (),
        executors: Executors = THREADS,
        cluster_id: str = "",
    ) -> None:
        """`cluster_id` is that of a cluster with controllers; one that stands alone draws its own."""
        self.config = config
        self.clock = clock
        self.executors = executors
        self.expiry_time = ExpiryTime(clock, config.clock_jump_hold_ms)
        self.directory = str(config.data_directory)
        self.table = TopicTable()
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.deleted_names: dict[str, None] = {}  # since the start, and not created again; oldest first
        self.group_configs: dict[str, GroupConfig] = {}  # of groups with settings of their own; replaced as a whole
        self.client_metrics: dict[str, ClientMetricsConfig] = {}  # subscriptions by name; replaced as a whole
        self.cluster_id = cluster_id
        self.broker_epoch = self.previous_broker_epoch = directory.NO_BROKER_EPOCH
        """In a cluster: what the controllers gave this broker, and the one in which an earlier one stopped cleanly."""
        self.clean_start = True
        self.dirty_logs: set[PartitionLog] = set()
        self.flusher = Flusher(on_fatal, executors)
        self.planned_count = self.loaded_count = 0  # partitions to open at a start, and opened so far
        self.on_topic_deleted: Callable[[str], None] | None = None
        self.topic_listeners: list[Callable[[str], None]] = []
        """Told, with no lock held, of a topic that came, went, or has more partitions. They must not block."""
        self._on_fatal = on_fatal
        self._lock = threading.RLock()
        self._journal_lock = threading.Lock()
        self._credentials_lock = threading.Lock()  # held while a change is decided and written: above the journal's
        self._checkpoint_lock = threading.Lock()  # a leaf, as the journal's
        self._traffic_lock = threading.Lock()  # a leaf: no topic goes between the two halves of traffic()
        self._traffic_gone: TrafficCounts = sum_traffic(())
        self._written: dict[str, dict[tuple[str, int], int]] = {}  # what the checkpoint files say
        self._journal: Journal | None = None
        self._cluster_credentials: dict[tuple[str, str], ScramCredential] = {}  # of a cluster's users
        self._to_remove: list[tuple[str, int]] = []  # directories renamed, not synced; delays in ms; guarded by _lock
        self._renames_unsynced = self._names_kept = False  # of partition directories; guarded by _lock, as the next
        self._renames_failed: str | None = None
        self._directory_lock: directory.DirectoryLock | None = None
        self._offline: dict[PartitionLog, str] = {}
        self.sealer = Sealer(executors)
        self._started = False
        self.services = LogServices(
            cache=FileCache(open_segments_max(config)),
            clock=clock,
            dirty_logs=self.dirty_logs,
            seal=self.sealer.submit,
            remove_later=self._remove_later,
            request_flush=self.flusher.submit,
            log_start_moved=lambda _log: self.write_log_starts(),
            went_offline=self._went_offline,
            producer_id_seen=self._producer_id_seen,
            sync_root=lambda: file_ops.sync_directory(self.directory),
            front_goes=self._note_front,
            end_lowered=self._end_lowered,
            producer_count_max=config.partition_max_producer_ids,
            decompressed_size_max=config.decompressed_batch_max_bytes,
            nesting_max=config.classic_nesting_max,
            policies=tuple(policies),
        )
        self.high_watermarks = HighWatermarks(self.directory, self.logs)
        self.housekeeper = Housekeeper(self)
        self.cleaner = LogCleaner(self)

    # --- open and close -----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Opens the data directory, recovering what needs it. StartupError in words; nothing is harmed by it."""
        directory.prepare(self.directory)
        self._directory_lock = directory.DirectoryLock(self.directory)
        try:
            self._open_locked()
        except BaseException as error:
            if self._journal is not None:
                self._journal.close()
            self._directory_lock.release()
            if isinstance(error, OSError):
                raise StartupError(f"{self.directory} cannot be opened: {error}") from error
            raise
        self._started = True
        self.flusher.start()
        self.sealer.start()
        self.housekeeper.start()
        self.cleaner.start()

    def _open_locked(self) -> None:
        directory.check_finished(self.directory)
        handover.check_whole(self.directory)
        identity = directory.read_identity(self.directory, self.config.node_id)
        in_cluster = self.config.in_cluster
        if identity is not None:
            directory.check_kind(self.directory, identity, in_cluster=in_cluster)
        found = Journal.open(self.directory)
        if found is None and identity is not None and identity.ours:
            raise StartupError(
                f"{self.directory} has data but its {files.JOURNAL_NAME} is missing: restore it from a copy"
            )
        used_before = found is not None or identity is not None
        self._resume_time()
        if found is None:
            drawn = self.cluster_id or uuid_text(new_uuid())
            found = Journal.create(self.directory, identity.cluster_id if identity else drawn)
        self._journal = found
        self.cluster_id = found.state.cluster_id
        if identity is not None and identity.cluster_id != self.cluster_id:
            raise StartupError(
                f"{self.directory}: {files.META_PROPERTIES_NAME} and {files.JOURNAL_NAME} name different clusters"
            )
        directory.write_identity(self.directory, self.cluster_id, self.config.node_id, in_cluster=in_cluster)
        if in_cluster:
            self.previous_broker_epoch = directory.clean_broker_epoch(self.directory)
        self.clean_start = directory.take_clean_marker(self.directory) or not used_before
        if not self.clean_start:
            found.record({"op": "unclean", "count": found.state.unclean_count + 1})
        self._take_broker_overrides(found.state)
        self._take_groups(found)
        self._take_client_metrics(found)
        self._open_topics(found)
        found.compact()

    def _resume_time(self) -> None:
        """Begins with the stored trusted time, else with the newest time of the checkpoint files. What those say is
        stored before any of them is written again, with a wall clock that may be wrong."""
        stored = expiry_checkpoint.read(self.directory)
        if stored is not None:
            self.expiry_time.resume(stored)
            return
        found = expiry_checkpoint.newest_checkpoint(self.directory)
        if found is not None:
            self.expiry_time.resume(found)
            self.store_time()

    def _open_topics(self, found: Journal) -> None:
        """Sorts out the directories of partitions, and opens those of the topics that there are."""
        present, deleted = directory.partition_directories(self.directory)
        changed, leftovers, strays = adoption.sort_out(
            found.state,
            frozenset() if self.clean_start else found.state.deleted_names,
            present,
            {record_format.suffix: name for name, record_format in FORMATS.items()},
            self.config.classic_partition_count,
        )
        if changed:
            found.record(*(journal.topic_change(topic) for topic in changed))
        self._keep_strays(strays)
        self._remove_leftovers(deleted, leftovers)
        if changed or deleted or leftovers or not self.clean_start:
            # Once for all partitions: whose directory's name an earlier process left unsynced, or somebody copied here.
            # And what is removed must not come back once the journal forgets its id.
            self.services.sync_root()
        self.cleaner.load()
        self._load_all({topic.name for topic in changed})

    def serve_backup(self) -> None:
        """Makes the cut for a backup that was asked for (kafkalite.broker.log.cut). May block."""

        def make(links: str, path: str) -> None:
            if not self._lock_unless_stopping():
                raise OSError("the broker is stopping")
            try:
                cut.make(self, links, path)
            finally:
                self._lock.release()

        cut.look(self.directory, make)

    def journal_size(self) -> int:
        """Bytes of the journal whose lines hold."""
        with self._journal_lock:
            return self._open_journal().size

    def link_journal(self, path: str) -> int:
        """Links the journal's file to `path`; bytes of it that hold. Compaction replaces the file, never changes it."""
        with self._journal_lock:
            journal_ = self._open_journal()
            disk.link(journal_.path, path)
            return journal_.size

    def compact_journal(self) -> None:
        """Shortens the journal where topics and settings that changed often have made it long. May block.

        Not while a deleted topic's directory may still have its own name, or come back under it: only the topic's id,
        which the journal forgets here, tells a start whose it is.
        """
        if not self._lock_unless_stopping():
            return
        try:
            if self._renames_unsynced or self._renames_failed is not None or self._names_kept:
                return
            with self._journal_lock:
                journal_ = self._open_journal()
                before = journal_.size
                if journal_.compact_running():
                    logger.info("the journal was rewritten", extra=fields(size=journal_.size, before=before))
        finally:
            self._lock.release()

    def _lock_unless_stopping(self) -> bool:
        """Takes the lock for the housekeeper; False when it is to end: a stop waits for it under that lock."""
        while not self._lock.acquire(timeout=LOCK_WAIT_S):
            if self.housekeeper.stopping():
                return False
        return True

    def _keep_strays(self, strays: Iterable[str]) -> None:
        """Gives directories that may be a deleted topic's, and cannot tell, names that no start takes for a topic's."""
        for path in strays:
            logger.warning(
                "a directory with the name of a deleted topic, which does not tell whose it is, is kept under another",
                extra=fields(path=self._rename_partition(path, files.stray_directory_name)),
            )

    def _remove_leftovers(self, deleted: Iterable[str], leftovers: Iterable[str]) -> None:
        """Removes directories of deleted topics: those that were renamed, and those that still have their own name.

        What goes first is that name, durably: half of a directory that came back under it could not say whose it was.
        """
        doomed = [*deleted, *(self._rename_partition(path, files.deleted_directory_name) for path in leftovers)]
        if doomed:
            self.services.sync_root()
        for path in doomed:
            files.remove_tree(path)

    def _rename_partition(self, path: str, new_name: Callable[[str, int], str]) -> str:
        """Renames a partition directory to what `new_name` makes of its topic and number; the new path."""
        name = files.parse_directory_name(os.path.basename(path))
        assert name is not None, "it was listed as a partition directory"
        target = f"{self.directory}/{new_name(*name)}"
        file_ops.rename(path, target)
        return target

    def _take_broker_overrides(self, state: MetadataState) -> None:
        try:
            self.config = self.config.with_dynamic(state.cluster_overrides, cluster=True)
            self.config = self.config.with_dynamic(state.broker_overrides)
        except ConfigError as error:
            raise StartupError(f"a setting changed earlier while running is no longer valid: {error}") from None

    def _load_all(self, adopted: Container[str] = ()) -> None:
        assert self._journal is not None, "the journal is read before the logs"
        points = checkpoints.read_offsets(f"{self.directory}/{files.RECOVERY_POINTS_NAME}")
        starts = checkpoints.read_offsets(f"{self.directory}/{files.LOG_STARTS_NAME}")
        if points is not None:
            self._written[files.RECOVERY_POINTS_NAME] = points
        if starts is not None:
            self._written[files.LOG_STARTS_NAME] = starts
        starts = starts or {}
        self.high_watermarks.read()
        plans: list[LoadPlan] = []
        for state in self._journal.state.topics.values():
            config = self._resolve(state.overrides, state.name)
            plans += [self._plan(state, config, i, points, starts, adopted) for i in range(len(state.epoch_bases))]
        self.planned_count = len(plans)
        if self.clean_start:
            logs = [self._load(plan) for plan in plans]
        else:
            count = self.config.num_recovery_threads_per_data_dir
            logs = self.executors.each("kafkalite-recovery", count, self._load, plans)
        by_topic: dict[str, list[PartitionLog]] = {}
        for log in logs:
            by_topic.setdefault(log.topic, []).append(log)
        self._correct_epochs(logs)
        self._keep_taken_over(logs)
        self._publish(*(self._topic(state, by_topic[state.name]) for state in self._journal.state.topics.values()))

    def _plan(
        self,
        state: TopicState,
        config: TopicConfig,
        partition: int,
        points: Mapping[tuple[str, int], int] | None,
        starts: Mapping[tuple[str, int], int],
        adopted: Container[str] = (),
    ) -> LoadPlan:
        assert self._journal is not None, "plans come from the journal"
        key = (state.name, partition)
        return LoadPlan(
            topic=state.name,
            partition=partition,
            topic_id=state.topic_id,
            config=config,
            directory=f"{self.directory}/{files.directory_name(state.name, partition)}",
            clean=self.clean_start,
            recovery_point=(points or {}).get(key),
            log_start=starts.get(key),
            leader_epoch=max(0, self._journal.state.unclean_count - state.epoch_bases[partition]),
            adopted=state.name in adopted,
            cleaned=self.cleaner.has_cleaned(*key),
            high_watermark=self.high_watermarks.of(*key),
            points_known=points is not None,
        )

    def _load(self, plan: LoadPlan) -> PartitionLog:
        try:
            return load(plan, self.services)
        except OSError as error:
            return load_offline(plan, self.services, error)
        finally:
            self.loaded_count += 1  # threads may lose one to each other: it is for people

    def _keep_taken_over(self, logs: Collection[PartitionLog]) -> None:
        """Before they are published: has recovery points say that logs are on the disk as they are which Kafka wrote to
        last, and nobody else has. What tells that they are Kafka's goes with the first append. And so of all that may
        have gaps where there are no recovery points: what tells that goes with the first that are written."""
        known = files.RECOVERY_POINTS_NAME in self._written
        if not any(log.taken_over or not (known or log.indexes.dense) for log in logs):
            return
        for log in logs:
            if log.taken_over or not known:
                with contextlib.suppress(KafkaError):  # then it is offline
                    log.flush()
        ends = {(log.topic, log.partition): log.flushed_offset for log in logs if not log.offline}
        try:
            self._write_offsets(files.RECOVERY_POINTS_NAME, lambda: {**self._recovery_points(), **ends})
        except OSError as error:
            for log in logs:
                if log.taken_over:
                    log.go_offline(f"the recovery point of what Kafka left could not be written: {error}")
            return
        for log in logs:
            if log.taken_over and not log.offline:
                log.forget_foreign_indexes(log.active)
                log.taken_over = False

    def _correct_epochs(self, logs: Iterable[PartitionLog]) -> None:
        """Writes down epochs that a directory put in place of ours is ahead of the journal with."""
        assert self._journal is not None, "called while opening"
        state = self._journal.state
        changes = []
        for log in logs:
            base = state.topics[log.topic].epoch_bases[log.partition]
            if log.leader_epoch > state.unclean_count - base:
                changes.append(
                    {
                        "op": "epoch_base",
                        "name": log.topic,
                        "partition": log.partition,
                        "base": state.unclean_count - log.leader_epoch,
                    }
                )
        if changes:
            self._journal.record(*changes)

    def close(self) -> bool:
        """Clean stop. Nobody may append any more; what fails is logged, and then the next start is an unclean one, and
        the answer is False."""
        with self._lock:
            if not self._started:
                return True
            self._stop_threads()
            clean = self._close_logs()
            self.store_time()
            try:
                self.write_recovery_points()
                self.write_log_starts()
                self.write_high_watermarks()
                if clean:
                    # One that never registered changed nothing: what the controllers count on holds.
                    epoch = max(self.broker_epoch, self.previous_broker_epoch)
                    directory.leave_clean_marker(self.directory, epoch)
            except OSError as error:
                clean = False
                reason = fields(reason=str(error))
                logger.error("the data directory could not be closed cleanly", extra=reason)  # noqa: TRY400
            self._release()
            return clean

    def abandon(self) -> None:
        """Ends as the death of the process would: nothing is flushed, trimmed or written down. For tests.

        The next start is an unclean one, and finds what the page cache has.
        """
        with self._lock:
            if not self._started:
                return
            self._stop_threads()
            for log in self.logs():
                for segment in log.segments:
                    segment.close()
            self._release()

    def _stop_threads(self) -> None:
        self._started = False
        self.cleaner.stop()
        self.housekeeper.stop()
        self.sealer.stop()
        self.flusher.stop()

    def _release(self) -> None:
        """Gives the directory back."""
        assert self._journal is not None, "open until now"
        self._journal.close()
        assert self._directory_lock is not None, "held until now"
        self._directory_lock.release()

    def _close_logs(self) -> bool:
        """Whether every log is closed cleanly."""
        logs = list(self.logs())
        dirty = [log for log in logs if log in self.dirty_logs or log.entries.dirty]
        if len(dirty) >= BULK_FLUSH_COUNT_MIN:
            flush_together(dirty, self.directory)
        if len(logs) < BULK_FLUSH_COUNT_MIN:
            closed = [self._close_log(log) for log in logs]
        else:
            closed = self.executors.each("kafkalite-close", CLOSE_THREADS, self._close_log, logs)
        return all(closed) and not self._offline

    @staticmethod
    def _close_log(log: PartitionLog) -> bool:
        try:
            log.close()
        except KafkaError as error:
            logger.warning("log was not closed cleanly", extra=fields(log=log.name, reason=str(error)))
            return False
        return True

    def logs(self) -> Iterable[PartitionLog]:
        """Every partition's log."""
        for topic in list(self.topics.values()):
            yield from self._logs_of(topic)

    def _logs_of(self, topic: Topic) -> Iterable[PartitionLog]:
        """The logs of a topic that are here."""
        return topic.partitions

    # --- topics -------------------------------------------------------------------------------------------------------

    def traffic(self) -> tuple[list[Topic], TrafficCounts]:
        """The topics there are, whose logs count for themselves, and what logs of deleted ones have counted."""
        with self._traffic_lock:
            return list(self.topics.values()), self._traffic_gone

    def create_topic(
        self, name: str, partition_count: int, overrides: Mapping[str, str], topic_id: bytes | None = None
    ) -> Topic:
        """Makes a topic that can be written to when this returns; KafkaError says why not."""
        with self._lock:
            self.check_new_topic(name, partition_count, overrides)
            state = TopicState(name, topic_id or new_uuid(), dict(overrides), [self._unclean_count()] * partition_count)
            config = self._resolve(overrides, name)
            self._clear_directories(name, range(partition_count))
            self._forget_offsets(name)
            self._record(journal.topic_change(state))
            logs = [self._load(self._plan(state, config, i, {}, {})) for i in range(partition_count)]
            topic = self._topic(state, logs)
            self._publish(topic)
            self.deleted_names.pop(name, None)
        repeats.info("topic created", extra=fields(topic=name, partitions=partition_count))
        self._tell_changed(name)
        return topic

    def classic_topics(self) -> dict[str, int]:
        """Name → number of partitions of the topics that 0.7's clients can use."""
        return {
            topic.name: len(topic.partitions)
            for topic in self.topics.values()
            if topic.config.message_format == "classic"
        }

    def check_new_topic(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> None:
        """Raises what create_topic would refuse these with."""
        reason = topic_name_error(name)
        if reason is not None:
            raise InvalidTopic(reason)
        if name in self.topics:
            raise TopicAlreadyExists(f"topic {name} exists")
        clash = next((other for other in self.topics if topic_names_collide(name, other)), None)
        if clash is not None:
            raise InvalidTopic(f"topic {name} differs from {clash} in '.' and '_' only")
        self._check_count(partition_count, partition_count)
        self._resolve_or_refuse(overrides, name)

    def _check_count(self, total: int, added: int) -> None:
        if total <= 0:
            raise InvalidPartitions(f"a topic has at least one partition, not {total}")
        count = sum(len(topic.partitions) for topic in self.topics.values())
        if count + added > self.config.max_partitions:
            raise PolicyViolation(f"{count} partitions exist and max.partitions is {self.config.max_partitions}")

    def delete_topic(self, name: str, *, durable: bool = True) -> None:
        """Removes a topic for good; its files go after file.delete.delay.ms.

        Unless `durable` the caller has several to remove, and then calls `sync_renames` before it answers.
        """
        with self._lock:
            topic = self._existing(name)
            self._record({"op": "delete", "name": name, "id": uuid_text(topic.id)})
            self._drop_topic(topic)
            self.deleted_names[name] = None
            if len(self.deleted_names) > DELETED_NAMES_MAX:
                del self.deleted_names[next(iter(self.deleted_names))]
        self._tell_deleted(name)
        if durable:
            self.sync_renames()

    def _drop_topic(self, topic: Topic) -> None:
        """Takes a topic out of those there are, with its logs; under the lock."""
        name = topic.name
        with self._traffic_lock:
            self.topics = {other: kept for other, kept in self.topics.items() if other != name}
            gone = zip(self._traffic_gone, sum_traffic([log.core for log in topic.partitions]), strict=True)
            self._traffic_gone = tuple(map(sum, gone))  # type: ignore[assignment]  # as many as before
        self._publish()
        for log in self._logs_of(topic):
            self._drop_log(log)
        try:
            self._forget_offsets(name)
        except StorageError as error:  # the topic is gone all the same; making one of that name tries again
            repeats.warning("checkpoints of a deleted topic stay", extra=fields(topic=name, reason=str(error)))

    def _drop_log(self, log: PartitionLog) -> None:
        log.mark_deleted()
        self.dirty_logs.discard(log)
        self._remove_directory(log.directory, log.topic, log.partition, log.config.file_delete_delay_ms)

    def _tell_deleted(self, name: str) -> None:
        repeats.info("topic deleted", extra=fields(topic=name))
        on_topic_deleted = self.on_topic_deleted
        if on_topic_deleted is not None:
            on_topic_deleted(name)
        self._tell_changed(name)

    def _tell_changed(self, name: str) -> None:
        for listener in tuple(self.topic_listeners):
            listener(name)

    def _forget_offsets(self, name: str) -> None:
        """Takes a topic out of the checkpoint files, durably: its successor's offsets begin at 0."""
        try:
            self.cleaner.forget_topic(name)
            self._forget_in_checkpoints(lambda key: key[0] == name)
        except OSError as error:
            raise StorageError(f"the checkpoints of topic {name} could not be removed: {error}") from error

    def add_partitions(self, name: str, total: int) -> Topic:
        """Raises a topic's number of partitions to `total`."""
        with self._lock:
            topic = self._existing(name)
            count = len(topic.partitions)
            if total <= count:
                raise InvalidPartitions(f"topic {name} has {count} partitions already, {total} is not more")
            self._check_count(total, total - count)
            self._clear_directories(name, range(count, total))
            self._record({"op": "partitions", "name": name, "total": total, "epoch_base": self._unclean_count()})
            state = self._state_of(name)
            added = [self._load(self._plan(state, topic.config, i, {}, {})) for i in range(count, total)]
            changed = self._topic(state, [*topic.partitions, *added])
            self._publish(changed)
        repeats.info("partitions added", extra=fields(topic=name, partitions=total))
        self._tell_changed(name)
        return changed

    def alter_topic(self, name: str, overrides: Mapping[str, str]) -> Topic:
        """Replaces all of a topic's own settings; they hold at once."""
        with self._lock:
            topic = self._existing(name)
            config = self._resolve_or_refuse(overrides, name)
            if config.message_format != topic.config.message_format:
                raise InvalidConfig("message.format is fixed when a topic is created")
            self._record({"op": "overrides", "name": name, "overrides": dict(overrides)})
            changed = self._use_topic_config(topic, config)
        repeats.info("topic settings changed", extra=fields(topic=name))
        return changed

    def use_topic_config(self, name: str, config: TopicConfig) -> None:
        """From now on a topic has these: what the controllers of a cluster say. Nothing is made durable.

        One that has no log here has nothing that they would count for.
        """
        with self._lock:
            topic = self.topics.get(name)
            if topic is not None:
                self._use_topic_config(topic, config)

    def _use_topic_config(self, topic: Topic, config: TopicConfig) -> Topic:
        for log in topic.partitions:
            log.configure(config)
        changed = self._topic(self._state_of(topic.name), list(topic.partitions), config)
        self._publish(changed)
        return changed

    @property
    def broker_overrides(self) -> dict[str, str]:
        """The broker settings changed while running, of this broker or of all."""
        return {**self.config.cluster_texts, **self.config.dynamic_texts}

    def alter_broker(self, overrides: Mapping[str, str], *, cluster: bool = False) -> BrokerConfig:
        """Replaces all broker settings changed while running, this broker's or those of all brokers at once.

        Topics that inherit them follow at once.
        """
        with self._lock:
            try:
                config = self.config.with_dynamic(overrides, cluster=cluster)
            except ConfigError as error:
                raise InvalidConfig(str(error)) from None
            self._record({"op": "cluster" if cluster else "broker", "overrides": dict(overrides)})
            self._use_config(config)
        self.cleaner.resize()
        return config

    def use_config(self, config: BrokerConfig) -> None:
        """From now on these are the broker's: what the controllers of a cluster say. Nothing is made durable."""
        with self._lock:
            self._use_config(config)
        self.cleaner.resize()

    def _use_config(self, config: BrokerConfig) -> None:
        self.config = config
        changed = []
        for topic in self.topics.values():
            resolved = TopicConfig.resolve(config, topic.overrides, topic.name)
            for log in topic.partitions:
                log.configure(resolved)
            changed.append(self._topic(self._state_of(topic.name), list(topic.partitions), resolved))
        self._publish(*changed)

    def allocate_producer_ids(self, count: int) -> int:
        """The first of `count` producer ids never given out before, which is on the disk when this returns."""
        with self._journal_lock:
            journal_ = self._open_journal()
            first = journal_.state.next_producer_id
            self._write(journal_, {"op": "producer_ids", "next": first + count})
            return first

    # --- users --------------------------------------------------------------------------------------------------------

    @property
    def credentials(self) -> Mapping[tuple[str, str], ScramCredential]:
        """What is kept of passwords, by mechanism and user. It changes in place, under the GIL."""
        return self._cluster_credentials if self.config.in_cluster else self._open_journal().state.credentials

    def use_credentials(self, credentials: Mapping[tuple[str, str], ScramCredential]) -> None:
        """From now on these are the users: what the controllers of a cluster say. Nothing is made durable."""
        known = self._cluster_credentials
        known.update(credentials)
        for gone in known.keys() - credentials.keys():
            del known[gone]

    def alter_credentials(self, decide: Callable[[], Sequence[dict[str, object]]]) -> None:
        """Writes down, as a whole, what `decide` changes of the present credentials, which hold still meanwhile."""
        with self._credentials_lock:
            changes = decide()
            if changes:
                self._record(journal.credentials_change(changes))

    def secret(self) -> bytes:
        """Random bytes that this data directory keeps, made when they are first asked for. May block."""
        with self._journal_lock:
            journal_ = self._open_journal()
            if not journal_.state.secret:
                self._write(journal_, {"op": "secret", "value": random_bytes(32).hex()})
            return journal_.state.secret

    # --- the cluster --------------------------------------------------------------------------------------------------

    @property
    def features(self) -> Features:
        """Those in force."""
        return self._open_journal().state.features

    def alter_group(self, group_id: str, config: GroupConfig) -> None:
        """Gives a group these settings; in force, and on the disk, when this returns."""
        with self._journal_lock:
            journal_ = self._open_journal()
            self._write(journal_, journal.group_change(group_id, config.overrides))
            self._take_groups(journal_)

    def _take_groups(self, journal_: Journal) -> None:
        """A group whose settings this broker's bounds do not allow any more has none, as in Kafka."""
        configs = {}
        for group_id, overrides in journal_.state.group_overrides.items():
            try:
                configs[group_id] = GroupConfig.resolve(self.config, overrides)
            except ConfigError as error:
                repeats.warning("settings of a group do not count: %s", error, extra=fields(group=group_id))
        self.group_configs = configs

    def alter_client_metrics(self, name: str, config: ClientMetricsConfig) -> None:
        """Makes this subscription to clients' metrics, or ends it; in force, and on the disk, when this returns."""
        with self._journal_lock:
            journal_ = self._open_journal()
            self._write(journal_, journal.client_metrics_change(name, config.overrides))
            self._take_client_metrics(journal_)

    def _take_client_metrics(self, journal_: Journal) -> None:
        """A subscription that this release cannot read does not count, and stays in the journal."""
        configs = {}
        for name, overrides in journal_.state.client_metrics_overrides.items():
            try:
                configs[name] = ClientMetricsConfig.resolve(overrides)
            except (ConfigError, InvalidRequest) as error:
                repeats.warning(
                    "a subscription to client metrics does not count: %s", error, extra=fields(subscription=name)
                )
        self.client_metrics = configs

    def change_features(self, levels: Mapping[str, int]) -> None:
        """Switches features to these levels; on the disk when this returns, all or none."""
        with self._journal_lock:
            journal_ = self._open_journal()
            self._write(journal_, journal.features_change(journal_.state.features.changed_to(levels)))

    def metadata_position(self) -> tuple[int, int]:
        """(changes written to the journal, leader epoch of who writes it): what Kafka tells of its metadata log."""
        with self._journal_lock:
            journal_ = self._open_journal()
            return journal_.change_count, journal_.state.unclean_count + 1

    def acls(self) -> list[Acl]:
        """The rules (ACLs) that the journal has."""
        with self._journal_lock:
            return list(self._open_journal().state.acls)

    def change_acls(self, added: Sequence[Acl], removed: Sequence[Acl]) -> None:
        """Adds rules that are not there and removes some that are; on the disk when this returns, all or none."""
        self._record(journal.acls_change(added, removed))

    def quotas(self) -> dict[Entity, dict[str, float]]:
        """The quotas that the journal has: values by key, by entity."""
        with self._journal_lock:
            return {entity: dict(values) for entity, values in self._open_journal().state.quotas.items()}

    def change_quotas(self, changes: Sequence[Change]) -> None:
        """Sets quotas, and takes some away that are there; on the disk when this returns, all or none."""
        self._record(journal.quotas_change(changes))

    def _existing(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        return topic

    def _resolve(self, overrides: Mapping[str, str], name: str) -> TopicConfig:
        try:
            return TopicConfig.resolve(self.config, overrides, name)
        except ConfigError as error:
            raise StartupError(f"topic {name} has a setting this release does not take: {error}") from None

    def _resolve_or_refuse(self, overrides: Mapping[str, str], name: str) -> TopicConfig:
        try:
            config = TopicConfig.resolve(self.config, overrides, name)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None
        if config.message_format not in FORMATS:
            raise InvalidConfig(f"message.format: this release has no format {config.message_format}")
        return config

    def _topic(self, state: TopicState, logs: list[PartitionLog], config: TopicConfig | None = None) -> Topic:
        config = config or logs[0].config
        internal = state.name in INTERNAL_TOPICS
        return Topic(state.name, state.topic_id, logs, config, config.overrides, internal=internal)

    def _publish(self, *changed: Topic) -> None:
        """Makes topics visible, each dict replaced as a whole."""
        self.topics = {**self.topics, **{topic.name: topic for topic in changed}}
        self.topics_by_id = {topic.id: topic for topic in self.topics.values()}
        self.table.publish(self.topics.values())

    def _clear_directories(self, name: str, partitions: Iterable[int]) -> None:
        """Moves directories that stand in new partitions' way out of it, durably: records in them, if any, are not
        theirs. What belongs to no topic is kept under another name."""
        for partition in partitions:
            path = f"{self.directory}/{files.directory_name(name, partition)}"
            if not disk.lexists(path):
                continue
            ours = adoption.identity_of(path)[0] in self._open_journal().state.deleted_ids
            if ours or not any(adoption.has_segments(path, each.suffix) for each in FORMATS.values()):
                target = f"{self.directory}/{files.deleted_directory_name(name, partition)}"
                self._to_remove.append((self._rename_out_of_the_way(path, target), 0))
            else:
                target = f"{self.directory}/{files.stray_directory_name(name, partition)}"
                self._rename_out_of_the_way(path, target)
                logger.warning("a directory that is no topic's is kept under another name", extra=fields(path=target))
        self.sync_renames()

    def _rename_out_of_the_way(self, path: str, target: str) -> str:
        try:
            file_ops.rename(path, target)
        except OSError as error:
            raise StorageError(f"{path} stands in the way and could not be renamed: {error}") from error
        self._renames_unsynced = True
        return target

    def sync_renames(self) -> None:
        """Returns when no directory that was renamed can come back under its old name. StorageError: it may.

        After a sync that failed no other one tells whether the names are there: that stays so until the next start.
        """
        with self._lock:
            if not self._renames_unsynced:
                return
            if self._renames_failed is None:
                try:
                    self.services.sync_root()
                except OSError as error:
                    self._renames_failed = str(error)
            if self._renames_failed is not None:
                raise StorageError(f"the data directory could not be synced: {self._renames_failed}")
            self._renames_unsynced = False
            removals, self._to_remove = self._to_remove, []
        # Not before: a directory that comes back under its old name must still say whose it was.
        for path, delay_ms in removals:
            self._remove_later([path], delay_ms)

    def _remove_directory(self, path: str, topic: str, partition: int, delay_ms: int) -> None:
        """Of a deleted partition. One that cannot be renamed stays until the next start, which knows the topic's id."""
        target = f"{self.directory}/{files.deleted_directory_name(topic, partition)}"
        try:
            file_ops.rename(path, target)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("partition directory could not be renamed", extra=fields(path=path, reason=str(error)))
            self._names_kept = True
            return
        self._renames_unsynced = True
        self._to_remove.append((target, delay_ms))

    # --- journal ------------------------------------------------------------------------------------------------------

    @property
    def journal_failure(self) -> str | None:
        """Why the journal takes nothing any more, None when it does."""
        return None if self._journal is None else self._journal.failure

    def _open_journal(self) -> Journal:
        if self._journal is None:
            raise StorageError("the data directory is not open")
        return self._journal

    def _write(self, journal_: Journal, *changes: dict[str, object]) -> None:
        try:
            journal_.record(*changes)
        except OSError as error:
            raise StorageError(f"the change could not be written down: {error}") from error

    def _record(self, *changes: dict[str, object]) -> None:
        with self._journal_lock:
            self._write(self._open_journal(), *changes)

    def _state_of(self, name: str) -> TopicState:
        return self._open_journal().state.topics[name]

    def _unclean_count(self) -> int:
        return self._open_journal().state.unclean_count

    def _producer_id_seen(self, producer_id: int) -> None:
        """A log knows a producer id of another broker's: ours go on above it, where they are not a cluster's."""
        if self.config.in_cluster:
            return
        with self._journal_lock:
            journal_ = self._open_journal()
            if producer_id >= journal_.state.next_producer_id:
                self._write(journal_, {"op": "producer_ids", "next": producer_id + 1})

    # --- what the logs ask for ----------------------------------------------------------------------------------------

    def _remove_later(self, paths: list[str], delay_ms: int) -> None:
        self.housekeeper.remove_later(paths, delay_ms)

    def _went_offline(self, log: PartitionLog, reason: str) -> None:
        """May be called under the log's lock: who waits for the log is told by another thread."""
        self._offline[log] = reason
        self.housekeeper.notify_later(log)

    @property
    def offline_logs(self) -> dict[PartitionLog, str]:
        """Partitions that storage failures took away, with the reason."""
        return dict(self._offline)

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def write_recovery_points(self) -> None:
        """Writes down up to where each log is on the disk."""
        self._write_offsets(files.RECOVERY_POINTS_NAME, self._recovery_points)

    def _recovery_points(self) -> dict[tuple[str, int], int]:
        points = {(log.topic, log.partition): log.flushed_offset for log in self.logs() if not log.offline}
        for log in self._offline:
            if not log.deleted:
                points[log.topic, log.partition] = log.flushed_offset
        return points

    def note_flushed(self, log: PartitionLog, offset: int) -> None:
        """Returns when all below an offset is on the disk and the recovery points say so. OSError, KafkaError."""
        if log.flushed_offset < offset or log.entries.dirty:
            log.flush()
        if self._written.get(files.RECOVERY_POINTS_NAME, {}).get((log.topic, log.partition), -1) < offset:
            self.write_recovery_points()

    def _end_lowered(self, log: PartitionLog, offset: int) -> None:
        """What is written down must not be above a log's end, whatever comes there next."""
        self.write_recovery_points()
        self.write_high_watermarks()
        self.cleaner.lower(log, offset)

    def _note_front(self, log: PartitionLog) -> bool:
        """Of several names that go, any may come back. Writes down where the log starts now: a start removes what ends
        below. Below the recovery point the hole between them and the log start is no reason to cut the log there.

        False where it could not be written down: on a full disk it is retention that makes room."""
        first = log.segments[0].base_offset
        try:
            self.write_log_starts()
            if self._written.get(files.RECOVERY_POINTS_NAME, {}).get((log.topic, log.partition), -1) < first:
                self.write_recovery_points()
        except OSError as error:
            reason = str(error)
            logger.warning("the log start could not be written down", extra=fields(log=log.name, reason=reason))
            return False
        return self._written.get(files.LOG_STARTS_NAME, {}).get((log.topic, log.partition), -1) >= first

    def store_time(self) -> None:
        """Stores the trusted time, durably. A start without it begins with an older one, and keeps things longer."""
        try:
            expiry_checkpoint.write(self.directory, self.expiry_time.to_store())
        except OSError as error:
            if not self._time_unstored:
                logger.warning("the expiry time could not be stored", extra=fields(reason=str(error)))
            self._time_unstored = True
        else:
            self._time_unstored = False

    def write_log_starts(self) -> None:
        """Writes down log start offsets that the names of the segment files do not tell, or not durably yet."""
        self._write_offsets(files.LOG_STARTS_NAME, self._log_starts)

    def write_high_watermarks(self) -> None:
        """Writes down how far logs with replicas are known to be on all of them, where there are any. OSError."""
        self.high_watermarks.write()

    def _log_starts(self) -> dict[tuple[str, int], int]:
        return {
            (log.topic, log.partition): log.log_start_offset
            for log in self.logs()
            if log.log_start_offset > log.segments[0].base_offset
            or not log.segments[0].has_file
            or (log.log_start_offset > 0 and log.entries.dirty)
        }

    def _write_offsets(self, name: str, current: Callable[[], dict[tuple[str, int], int]]) -> None:
        """Replaces a checkpoint file unless it says the same already.

        `current` is asked under the lock, so that nobody writes what was true before a topic went.
        """
        with self._checkpoint_lock:
            offsets = current()
            if self._written.get(name) != offsets:
                checkpoints.write_offsets(f"{self.directory}/{name}", offsets)
                self._written[name] = offsets

    def _forget_in_checkpoints(self, is_gone: Callable[[tuple[str, int]], bool]) -> None:
        with self._checkpoint_lock:
            for name, offsets in self._written.items():
                kept = {key: offset for key, offset in offsets.items() if not is_gone(key)}
                if len(kept) < len(offsets):
                    checkpoints.write_offsets(f"{self.directory}/{name}", kept)
                    self._written[name] = kept


def open_segments_max(config: BrokerConfig) -> int:
    """Segments kept open at once: log.open.files.max, but never more than half of the process's descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return config.log_open_files_max
    return min(config.log_open_files_max, max(soft // 2, OPEN_SEGMENTS_MIN))
