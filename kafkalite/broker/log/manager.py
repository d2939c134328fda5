"""Manage a data directory as a whole: open it, create and change topics, run its threads, close it.

    open    lock ▸ identity ▸ journal ▸ adopt or clean up ▸ load every partition ▸ start the threads
    close   stop the threads ▸ flush ▸ save indexes and producers ▸ checkpoints ▸ clean-shutdown marker ▸ unlock

Lock order: `lock` (one change of topics at a time) ▸ a log's lock ▸ its flush lock ▸ the journal's lock.

Thread rule: methods that change something block; handlers call them on the I/O pool. Any thread may read `topics` and
`table` without a lock: topics are published copy-on-write.
"""

from __future__ import annotations

import logging
import resource
import threading
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import file_ops
from kafkalite._native.log.log_traffic import sum_traffic
from kafkalite._native.log.segment import FileCache
from kafkalite._native.serve.topic_table import TopicTable
from kafkalite.base.clock import Clock, ExpiryTime
from kafkalite.base.executors import THREADS, Executors
from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.log import backup_cut, directory, files, handover, journal
from kafkalite.broker.log.cleaner import LogCleaner
from kafkalite.broker.log.expiry_checkpoint import ExpiryCheckpoint
from kafkalite.broker.log.flusher import Flusher, flush_together
from kafkalite.broker.log.formats import FORMATS
from kafkalite.broker.log.housekeeping import BULK_FLUSH_COUNT_MIN, Housekeeper
from kafkalite.broker.log.journal import Journal, TopicState
from kafkalite.broker.log.metadata_store import MetadataStore
from kafkalite.broker.log.offset_checkpoints import OffsetCheckpoints
from kafkalite.broker.log.opening import LogOpener, topic_of
from kafkalite.broker.log.partition_log import LogServices, PartitionLog
from kafkalite.broker.log.removals import Removals
from kafkalite.broker.log.sealer import Sealer
from kafkalite.broker.log.topic_source import JournalTopics
from kafkalite.errors import (
    ConfigError,
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    StartupError,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from kafkalite.model import new_uuid, topic_name_error, topic_names_collide, uuid_text
from kafkalite.settings.topic_setting_lookup import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite._native.log.log_traffic import TrafficCounts
    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.log.journal import MetadataState
    from kafkalite.broker.log.retention import RetentionPolicy
    from kafkalite.broker.log.topic_source import TopicSource
    from kafkalite.settings.broker import BrokerConfig

logger = logging.getLogger(__name__)
repeats = RepeatLogger(logger, lines=EVENT_LINES)

OPEN_SEGMENTS_MIN: Final = 8
DELETED_NAMES_MAX: Final = 1000
"""Number of deleted topics' names to remember, so that Metadata reports each as unknown once."""
CLOSE_THREADS: Final = 4
"""Threads that close logs: closing mostly waits for the file system."""
LOCK_WAIT_S: Final = 0.05
"""Interval in seconds at which the housekeeper, while it waits for the manager's lock, checks whether it has to end."""


class LogManager:
    """The topics and logs of one data directory. `on_fatal` is called when an indispensable thread fails."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        on_fatal: Callable[[BaseException], None],
        policies: Iterable[RetentionPolicy] = (),
        executors: Executors = THREADS,
        cluster_id: str = "",
        topics_of: Callable[[LogManager], TopicSource] | None = None,
    ) -> None:
        """Manage the directory of `config`, which `open` opens.

        `cluster_id` is the id of a cluster with controllers; a standalone broker generates a cluster id. `topics_of`
        returns the source of topics; if it is None, the source is the directory's journal.
        """
        self.config = config
        self.clock = clock
        self.executors = executors
        self.expiry_time = ExpiryTime(clock, config.clock_jump_hold_ms)
        self.directory = str(config.data_directory)
        self.table = TopicTable()
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.deleted_names: dict[str, None] = {}  # deleted since the start and not created again; oldest first
        self.cluster_id = cluster_id
        self.broker_epoch = self.previous_broker_epoch = directory.NO_BROKER_EPOCH
        """In a cluster: this broker's current broker epoch, and the broker epoch of the last clean stop."""
        self.dirty_logs: set[PartitionLog] = set()
        self.flusher = Flusher(on_fatal, executors)
        self.on_topic_deleted: Callable[[str], None] | None = None
        self.topic_listeners: list[Callable[[str], None]] = []
        """Callbacks with the name of a topic that was created, was deleted or got new partitions. Called without locks;
        must not block."""
        self._on_fatal = on_fatal
        self.lock = threading.RLock()
        self._traffic_lock = threading.Lock()  # a leaf: no topic is deleted between the two halves of traffic()
        self._traffic_gone: TrafficCounts = sum_traffic(())
        self._directory_lock: directory.DirectoryLock | None = None
        self._offline: dict[PartitionLog, str] = {}
        self.sealer = Sealer(executors)
        self._started = False
        self.metadata = MetadataStore(lambda: self.config)
        self.checkpoints = OffsetCheckpoints(self.directory, self.logs, self._offline)
        self.expiry_checkpoint = ExpiryCheckpoint(self.directory, self.expiry_time)
        self.services = self._make_services(policies)
        self.housekeeper = Housekeeper(self)
        self.cleaner = LogCleaner(self)
        self.removals = Removals(
            self.directory,
            self.lock,
            sync_root=self.services.sync_root,
            remove_later=self._remove_later,
            deleted_ids=lambda: self.metadata.state.deleted_ids,
        )
        self.opener = LogOpener(
            self.directory,
            lambda: self.config,
            self.services,
            self.metadata,
            self.checkpoints,
            self.cleaner,
            executors,
        )
        self.source: TopicSource = topics_of(self) if topics_of else JournalTopics(self.opener, self.removals)

    def _make_services(self, policies: Iterable[RetentionPolicy]) -> LogServices:
        return LogServices(
            cache=FileCache(open_segments_max(self.config)),
            clock=self.clock,
            dirty_logs=self.dirty_logs,
            seal=self.sealer.submit,
            remove_later=self._remove_later,
            request_flush=self.flusher.submit,
            log_start_moved=lambda _log: self.checkpoints.write_log_starts(),
            went_offline=self._went_offline,
            producer_id_seen=self.metadata.producer_id_seen,
            sync_root=lambda: file_ops.sync_directory(self.directory),
            front_goes=self.checkpoints.note_front,
            end_lowered=self._end_lowered,
            producer_count_max=self.config.partition_max_producer_ids,
            decompressed_size_max=self.config.decompressed_batch_max_bytes,
            nesting_max=self.config.classic_nesting_max,
            policies=tuple(policies),
        )

    # --- open and close -----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the data directory, and recover it if needed. StartupError, with the reason, if this fails."""
        directory.prepare(self.directory)
        self._directory_lock = directory.DirectoryLock(self.directory)
        try:
            self._open_locked()
        except BaseException as error:
            self.metadata.close()
            self._directory_lock.release()
            if isinstance(error, OSError):
                raise StartupError(f"{self.directory} could not be opened: {error}") from error
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
                f"{self.directory} has data, but its {files.JOURNAL_NAME} is missing; restore it from a copy"
            )
        used_before = found is not None or identity is not None
        self.expiry_checkpoint.resume()
        if found is None:
            drawn = self.cluster_id or uuid_text(new_uuid())
            found = Journal.create(self.directory, identity.cluster_id if identity else drawn)
        self.metadata.open(found)
        self.cluster_id = found.state.cluster_id
        if identity is not None and identity.cluster_id != self.cluster_id:
            raise StartupError(
                f"{self.directory}: {files.META_PROPERTIES_NAME} and {files.JOURNAL_NAME} have different cluster ids"
            )
        directory.write_identity(self.directory, self.cluster_id, self.config.node_id, in_cluster=in_cluster)
        if in_cluster:
            self.previous_broker_epoch = directory.clean_broker_epoch(self.directory)
        self.opener.clean_start = directory.take_clean_marker(self.directory) or not used_before
        if not self.clean_start:
            found.record({"op": "unclean", "count": found.state.unclean_count + 1})
        self._take_broker_overrides(found.state)
        self.metadata.load_settings()
        self.publish(*self.source.open(found))
        found.compact()

    def serve_backup(self) -> None:
        """Link the files for a pending backup request (kafkalite.broker.log.backup_cut). May block."""

        def make(links: str, path: str) -> None:
            if not self._lock_unless_stopping():
                raise OSError("the broker is stopping")
            try:
                backup_cut.make(self, links, path)
            finally:
                self.lock.release()

        backup_cut.look(self.directory, make)

    def compact_journal(self) -> None:
        """Shorten the journal if changes to topics and settings have made it long. May block.

        Do nothing while a deleted topic's directory has its original name, or may get it back after a crash. A start
        recognizes such a directory by the topic id in the journal, and the shortened journal has no ids of deleted
        topics.
        """
        if not self._lock_unless_stopping():
            return
        try:
            if self.removals.settled:
                self.metadata.compact()
        finally:
            self.lock.release()

    def _lock_unless_stopping(self) -> bool:
        """Take the lock for the housekeeper; return False if the housekeeper has to end.

        While close() has the lock, it waits for the housekeeper, so the housekeeper must not wait for the lock.
        """
        while not self.lock.acquire(timeout=LOCK_WAIT_S):
            if self.housekeeper.stopping():
                return False
        return True

    def _take_broker_overrides(self, state: MetadataState) -> None:
        try:
            self.config = self.config.with_dynamic(state.cluster_overrides, cluster=True)
            self.config = self.config.with_dynamic(state.broker_overrides)
        except ConfigError as error:
            raise StartupError(f"a stored dynamic setting is no longer valid: {error}") from None

    def close(self) -> bool:
        """Stop cleanly; appends must have ended. Return whether the stop was clean.

        A failure is logged, and the next start then counts as an unclean start.
        """
        with self.lock:
            if not self._started:
                return True
            self._stop_threads()
            clean = self._close_logs()
            self.expiry_checkpoint.store()
            try:
                self.checkpoints.write_recovery_points()
                self.checkpoints.write_log_starts()
                self.checkpoints.write_high_watermarks()
                if clean:
                    # A broker that never registered changed nothing, so the previous epoch still holds.
                    epoch = max(self.broker_epoch, self.previous_broker_epoch)
                    directory.leave_clean_marker(self.directory, epoch)
            except OSError as error:
                clean = False
                reason = fields(reason=str(error))
                logger.error("could not close the data directory cleanly", extra=reason)  # noqa: TRY400  # the reason suffices
            self._release()
            return clean

    def abandon(self) -> None:
        """Stop as if the process had died, without flushing, trimming or writing anything. For tests.

        The next start is an unclean start, and finds the files as they are in the page cache.
        """
        with self.lock:
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
        """Release the journal and the directory's lock."""
        self.metadata.close()
        assert self._directory_lock is not None, "held until now"
        self._directory_lock.release()

    def _close_logs(self) -> bool:
        """Close all logs; return whether the stop can count as clean.

        It cannot if a log is offline or was closed with an error. In a cluster, after an unclean start, it cannot
        before the logs have been opened.
        """
        logs = list(self.logs())
        dirty = [log for log in logs if log in self.dirty_logs or log.entries.dirty]
        if len(dirty) >= BULK_FLUSH_COUNT_MIN:
            flush_together(dirty, self.directory)
        if len(logs) < BULK_FLUSH_COUNT_MIN:
            closed = [self._close_log(log) for log in logs]
        else:
            closed = self.executors.each("kafkalite-close", CLOSE_THREADS, self._close_log, logs)
        known = self.checkpoints.complete or self.clean_start
        return all(closed) and not self._offline and known

    @staticmethod
    def _close_log(log: PartitionLog) -> bool:
        try:
            log.close()
        except KafkaError as error:
            logger.warning("could not close a log cleanly", extra=fields(log=log.name, reason=str(error)))
            return False
        return True

    @property
    def clean_start(self) -> bool:
        """Whether the previous run stopped cleanly."""
        return self.opener.clean_start

    def logs(self) -> Iterable[PartitionLog]:
        """Yield every partition's log."""
        for topic in list(self.topics.values()):
            yield from self.source.logs_of(topic)

    # --- topics -------------------------------------------------------------------------------------------------------

    def traffic(self) -> tuple[list[Topic], TrafficCounts]:
        """Return (the current topics, whose logs count their traffic; the sum of the counts of deleted topics)."""
        with self._traffic_lock:
            return list(self.topics.values()), self._traffic_gone

    def create_topic(
        self, name: str, partition_count: int, overrides: Mapping[str, str], topic_id: bytes | None = None
    ) -> Topic:
        """Create a topic, which is writable on return. KafkaError, with the reason, if it cannot be created."""
        with self.lock:
            self.check_new_topic(name, partition_count, overrides)
            state = TopicState(
                name, topic_id or new_uuid(), dict(overrides), [self.metadata.state.unclean_count] * partition_count
            )
            config = self.opener.resolve(overrides, name)
            self.removals.clear_directories(name, range(partition_count))
            self._forget_offsets(name)
            self.metadata.record(journal.topic_change(state))
            logs = [self.opener.load(self.opener.plan(state, config, i, {}, {})) for i in range(partition_count)]
            topic = topic_of(state, logs)
            self.publish(topic)
            self.deleted_names.pop(name, None)
        repeats.info("topic created", extra=fields(topic=name, partitions=partition_count))
        self.tell_changed(name)
        return topic

    def classic_topics(self) -> dict[str, int]:
        """Return name → number of partitions of the topics that clients of Kafka 0.7 can use."""
        return {
            topic.name: len(topic.partitions)
            for topic in self.topics.values()
            if topic.config.message_format == "classic"
        }

    def check_new_topic(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> None:
        """Raise the error that create_topic would raise for these arguments."""
        reason = topic_name_error(name)
        if reason is not None:
            raise InvalidTopic(reason)
        if name in self.topics:
            raise TopicAlreadyExists(f"topic {name} already exists")
        clash = next((other for other in self.topics if topic_names_collide(name, other)), None)
        if clash is not None:
            raise InvalidTopic(f"topic {name} differs from topic {clash} only in '.' and '_'")
        self._check_count(partition_count, partition_count)
        self._resolve_or_refuse(overrides, name, new=True)

    def _check_count(self, total: int, added: int) -> None:
        if total <= 0:
            raise InvalidPartitions(f"invalid partition count {total}; a topic needs at least 1")
        count = sum(len(topic.partitions) for topic in self.topics.values())
        if count + added > self.config.max_partitions:
            raise PolicyViolation(
                f"{count} partitions exist, and more would exceed max.partitions={self.config.max_partitions}"
            )

    def delete_topic(self, name: str, *, durable: bool = True) -> None:
        """Delete a topic; its files are removed after file.delete.delay.ms.

        With `durable=False` the deletion is not durable on return. A caller that deletes several topics then calls
        `removals.sync_renames` before it responds.
        """
        with self.lock:
            topic = self._existing(name)
            self.metadata.record({"op": "delete", "name": name, "id": uuid_text(topic.id)})
            self.drop_topic(topic)
            self.deleted_names[name] = None
            if len(self.deleted_names) > DELETED_NAMES_MAX:
                del self.deleted_names[next(iter(self.deleted_names))]
        self.tell_deleted(name)
        if durable:
            self.removals.sync_renames()

    def drop_topic(self, topic: Topic) -> None:
        """Remove a topic and its logs from memory and rename its directories; called under the lock."""
        name = topic.name
        with self._traffic_lock:
            self.topics = {other: kept for other, kept in self.topics.items() if other != name}
            gone = zip(self._traffic_gone, sum_traffic([log.core for log in topic.partitions]), strict=True)
            self._traffic_gone = tuple(map(sum, gone))  # type: ignore[assignment]  # the length is the same
        self.publish()
        for log in self.source.logs_of(topic):
            self.drop_log(log)
        try:
            self._forget_offsets(name)
        except StorageError as error:  # the topic is deleted nevertheless; creating it again retries this
            repeats.warning(
                "could not remove the checkpoints of a deleted topic", extra=fields(topic=name, reason=str(error))
            )

    def drop_log(self, log: PartitionLog) -> None:
        log.mark_deleted()
        self.dirty_logs.discard(log)
        self.removals.remove_directory(log.directory, log.topic, log.partition, log.config.file_delete_delay_ms)

    def tell_deleted(self, name: str) -> None:
        repeats.info("topic deleted", extra=fields(topic=name))
        on_topic_deleted = self.on_topic_deleted
        if on_topic_deleted is not None:
            on_topic_deleted(name)
        self.tell_changed(name)

    def tell_changed(self, name: str) -> None:
        for listener in tuple(self.topic_listeners):
            listener(name)

    def _forget_offsets(self, name: str) -> None:
        """Remove a topic from the checkpoint files, durably: a new topic of its name begins at offset 0."""
        try:
            self.cleaner.forget_topic(name)
            self.checkpoints.forget(lambda key: key[0] == name)
        except OSError as error:
            raise StorageError(f"the checkpoints of topic {name} could not be removed: {error}") from error

    def add_partitions(self, name: str, total: int) -> Topic:
        """Raise a topic's number of partitions to `total`."""
        with self.lock:
            topic = self._existing(name)
            count = len(topic.partitions)
            if total <= count:
                raise InvalidPartitions(f"topic {name} has {count} partitions, which cannot be changed to {total}")
            self._check_count(total, total - count)
            self.removals.clear_directories(name, range(count, total))
            self.metadata.record(
                {"op": "partitions", "name": name, "total": total, "epoch_base": self.metadata.state.unclean_count}
            )
            state = self.source.state_of(topic)
            added = [self.opener.load(self.opener.plan(state, topic.config, i, {}, {})) for i in range(count, total)]
            changed = topic_of(state, [*topic.partitions, *added])
            self.publish(changed)
        repeats.info("partitions added", extra=fields(topic=name, partitions=total))
        self.tell_changed(name)
        return changed

    def alter_topic(self, name: str, overrides: Mapping[str, str]) -> Topic:
        """Replace a topic's own settings; they apply at once."""
        with self.lock:
            topic = self._existing(name)
            config = self._resolve_or_refuse(overrides, name)
            if config.message_format != topic.config.message_format:
                raise InvalidConfig("message.format cannot change after a topic is created")
            self.metadata.record({"op": "overrides", "name": name, "overrides": dict(overrides)})
            changed = self._use_topic_config(topic, config)
        repeats.info("topic settings changed", extra=fields(topic=name))
        return changed

    def use_topic_config(self, name: str, config: TopicConfig) -> None:
        """Apply the settings that the controllers have for a topic. Nothing is made durable.

        A topic that this broker does not know is ignored.
        """
        with self.lock:
            topic = self.topics.get(name)
            if topic is not None:
                self._use_topic_config(topic, config)

    def _use_topic_config(self, topic: Topic, config: TopicConfig) -> Topic:
        for log in topic.partitions:
            log.configure(config)
        changed = topic_of(self.source.state_of(topic), list(topic.partitions), config)
        self.publish(changed)
        return changed

    @property
    def broker_overrides(self) -> dict[str, str]:
        """This broker's dynamic settings: its own settings, and the settings for all brokers."""
        return {**self.config.cluster_texts, **self.config.dynamic_texts}

    def alter_broker(self, overrides: Mapping[str, str], *, cluster: bool = False) -> BrokerConfig:
        """Replace this broker's dynamic settings, or with `cluster` the settings for all brokers.

        The change applies at once to topics that inherit the settings.
        """
        with self.lock:
            try:
                config = self.config.with_dynamic(overrides, cluster=cluster)
            except ConfigError as error:
                raise InvalidConfig(str(error)) from None
            self.metadata.record({"op": "cluster" if cluster else "broker", "overrides": dict(overrides)})
            self._use_config(config)
        self.cleaner.resize()
        return config

    def use_config(self, config: BrokerConfig) -> None:
        """Apply the broker settings that the controllers have. Nothing is made durable."""
        with self.lock:
            self._use_config(config)
        self.cleaner.resize()

    def _use_config(self, config: BrokerConfig) -> None:
        self.config = config
        changed = []
        for topic in self.topics.values():
            resolved = TopicConfig.resolve(config, topic.overrides, topic.name)
            for log in topic.partitions:
                log.configure(resolved)
            changed.append(topic_of(self.source.state_of(topic), list(topic.partitions), resolved))
        self.publish(*changed)

    def _existing(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {name} does not exist")
        return topic

    def _resolve_or_refuse(self, overrides: Mapping[str, str], name: str, *, new: bool = False) -> TopicConfig:
        resolve = TopicConfig.requested if new else TopicConfig.resolve
        try:
            config = resolve(self.config, overrides, topic=name)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None
        if config.message_format not in FORMATS:
            raise InvalidConfig(f"message.format: unsupported format {config.message_format}")
        return config

    def publish(self, *changed: Topic) -> None:
        """Make new and changed topics visible; each dict is replaced as a whole."""
        self.topics = {**self.topics, **{topic.name: topic for topic in changed}}
        self.topics_by_id = {topic.id: topic for topic in self.topics.values()}
        self.table.publish(self.topics.values())

    # --- callbacks of the logs ----------------------------------------------------------------------------------------

    def _remove_later(self, paths: list[str], delay_ms: int) -> None:
        self.housekeeper.remove_later(paths, delay_ms)

    def _went_offline(self, log: PartitionLog, reason: str) -> None:
        """Note a log that went offline. The housekeeper wakes the requests that wait for the log, because the log's
        lock may be held here.
        """
        self._offline[log] = reason
        self.housekeeper.notify_later(log)
        self.source.went_offline(log)

    @property
    def offline_logs(self) -> dict[PartitionLog, str]:
        """Logs that are offline after storage failures, with the reason."""
        return dict(self._offline)

    def _end_lowered(self, log: PartitionLog, offset: int) -> None:
        """Lower a log's checkpointed offsets before the log is truncated to `offset`, so that none is above its new
        end.
        """
        self.checkpoints.write_recovery_points()
        self.checkpoints.write_high_watermarks()
        self.cleaner.lower(log, offset)


def open_segments_max(config: BrokerConfig) -> int:
    """Return the maximum number of open segments: log.open.files.max, and at most half of the process's descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return config.log_open_files_max
    return min(config.log_open_files_max, max(soft // 2, OPEN_SEGMENTS_MIN))
