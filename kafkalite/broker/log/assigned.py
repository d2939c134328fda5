"""Open, create and drop the logs of a broker in a cluster, as the controllers' metadata requires.

    open ─▶ use_topics(all) ─▶ use_topics(changes) … ─▶ close

The first call of `use_topics` opens the logs of the partitions that have a replica on this broker. Other partition
directories, except for `__cluster_metadata`, are *stray*: they are renamed and kept. The journal has no topics.

Source: LogManager.isStrayKraftReplica and ReplicaManager.applyDelta of Kafka 4.1.

Thread rule: only one thread calls `use_topics`. For the rest, the thread rules of `kafkalite.broker.log.manager` apply.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalite._native.base import file_ops
from kafkalite.base.dataclass import dataclass
from kafkalite.base.logging import fields
from kafkalite.broker.log import adoption, directory, files
from kafkalite.broker.log.assignment import LOST, NOWHERE
from kafkalite.broker.log.journal import TopicState
from kafkalite.broker.log.loading import load_offline
from kafkalite.broker.log.opening import topic_of
from kafkalite.broker.log.remote_partition import Elsewhere
from kafkalite.broker.log.replica_log import ReplicaChange, ReplicaLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.log.assignment import Assignment
    from kafkalite.broker.log.journal import Journal
    from kafkalite.broker.log.loading import LoadPlan
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.settings.topic_setting_lookup import TopicConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AssignedTopic:
    """A topic in a metadata image."""

    name: str
    id: bytes
    config: TopicConfig
    partitions: Sequence[Assignment]


class AssignedTopics:
    """The topics of a cluster as one broker sees them, with the logs of its replicas.

    The manager's `topics` has every topic of the cluster. A partition without a replica here is an `Elsewhere`.
    """

    def __init__(self, logs: LogManager) -> None:
        self.leadership: dict[str, Callable[[int, int | None], None]] = {}
        """Topic name → callback(partition, leader epoch), called when this broker begins to lead in a new leader epoch,
        and with leader epoch None when it stops leading. Called in order, without locks; must not block."""
        self.replica_listeners: list[Callable[[Sequence[ReplicaChange]], None]] = []
        """Callbacks with all changes of this broker's replicas, one call per image: removed replicas first, then
        leaders, then followers. Called without locks, after the changes are published; must not block."""
        self.logs = logs
        self._opener = logs.opener
        self._removals = logs.removals
        self._checkpoints = logs.checkpoints
        self._checkpoints.complete = False  # until the first image has the partitions of this broker
        self._present: dict[tuple[str, int], str] = {}
        """Partition directories found at start."""

    # --- a topic source -----------------------------------------------------------------------------------------------

    def open(self, found: Journal) -> Iterable[Topic]:  # noqa: ARG002 - a cluster's topics come from metadata
        """Prepare the directory and return no topics; `use_topics` opens them."""
        opener = self._opener
        self._present, deleted = directory.partition_directories(opener.directory)
        self._removals.remove_leftovers(deleted, ())
        if deleted or not opener.clean_start:
            opener.services.sync_root()
        opener.cleaner.load()
        self._checkpoints.read()
        return ()

    def went_offline(self, log: PartitionLog) -> None:
        """Report to the controllers that the log is offline."""
        self._opener.services.fitness_changed(log)

    def logs_of(self, topic: Topic) -> Iterable[ReplicaLog]:
        """Return the topic's replicas on this broker."""
        return [log for log in topic.partitions if isinstance(log, ReplicaLog)]

    def state_of(self, topic: Topic) -> TopicState:
        """Return the published state of a topic."""
        return TopicState(topic.name, topic.id, dict(topic.overrides), [])

    # --- topics -------------------------------------------------------------------------------------------------------

    def use_topics(self, changed: Sequence[AssignedTopic], removed: Iterable[bytes] = ()) -> None:
        """Apply a new metadata image: drop topics by id, then create and change topics. May block.

        A topic with a known name and a new id is a new topic with empty logs.
        """
        notices: list[tuple[str, int, int | None]] = []
        changes: list[ReplicaChange] = []
        logs = self.logs
        with logs.lock:
            gone = [logs.topics_by_id[topic_id] for topic_id in removed if topic_id in logs.topics_by_id]
            for topic in gone:
                for log in self.logs_of(topic):
                    self._note_gone(log, notices, changes)
                logs.drop_topic(topic)
            if not self._checkpoints.complete:
                self._keep_strays_aside(changed)
            loaded = self._load_assigned(changed)
            self._sync_walked(loaded.values())
            self._opener.keep_taken_over(loaded.values())
            topics = [self._changed_topic(each, loaded, notices, changes) for each in changed]
            if topics:
                logs.publish(*topics)
            self._checkpoints.complete = True  # not earlier: housekeeping would checkpoint an empty set of logs
        for topic in gone:
            logs.tell_deleted(topic.name)
        self._tell_replicas(changes)
        for name, partition, epoch in notices:
            if name in self.leadership:
                self.leadership[name](partition, epoch)
        for each in changed:
            logs.tell_changed(each.name)
        self._removals.sync_renames()

    def _tell_replicas(self, changes: list[ReplicaChange]) -> None:
        if changes:
            changes.sort(key=lambda change: (change.now.held, change.now.held and not change.now.leads))
            for listener in self.replica_listeners:
                listener(changes)

    @staticmethod
    def _note_gone(log: ReplicaLog, notices: list[tuple[str, int, int | None]], changes: list[ReplicaChange]) -> None:
        if log.led:
            notices.append((log.topic, log.partition, None))
        changes.append(ReplicaChange(log, log.assignment, NOWHERE))

    def _keep_strays_aside(self, topics: Sequence[AssignedTopic]) -> None:
        """Rename directories that belong to no partition of this broker.

        A power cut may undo a rename; the next start repeats it. If a new log gets the old name, its first flush makes
        the renames durable.
        """
        held = {
            (topic.name, number): topic.id
            for topic in topics
            for number, each in enumerate(topic.partitions)
            if each.held
        }
        strays = set()
        for key, path in sorted(self._present.items()):
            if key[0] == adoption.KAFKA_METADATA_TOPIC:
                continue
            topic_id, _ = adoption.identity_of(path)
            if topic_id is not None and held.get(key) == topic_id:
                continue
            target = self._removals.rename_partition(path, files.stray_directory_name)
            strays.add(key)
            logger.warning(
                "renamed a directory that belongs to no partition of this broker",
                extra=fields(path=path, renamed=target),
            )
        if strays:
            self._checkpoints.forget(strays.__contains__)
        self._present = {}

    def _load_assigned(self, topics: Sequence[AssignedTopic]) -> dict[tuple[str, int], ReplicaLog]:
        """Open the logs of assigned replicas; skip logs that are open already."""
        opener, first = self._opener, not self._checkpoints.complete
        points = self._checkpoints.points if first else {}  # None: the file is missing or damaged
        starts = self._checkpoints.starts if first else {}
        plans: list[LoadPlan] = []
        logs: list[PartitionLog] = []
        for topic in topics:
            open_now = self.logs.topics_by_id.get(topic.id)
            present = () if open_now is None else open_now.partitions
            wanted = [
                number
                for number, each in enumerate(topic.partitions)
                if each.held and not (number < len(present) and isinstance(present[number], ReplicaLog))
            ]
            unready = None if first else self._cannot_begin_anew(topic.name, wanted)
            state = TopicState(topic.name, topic.id, {}, [opener.metadata.state.unclean_count] * len(topic.partitions))
            for number in wanted:
                plan = opener.plan(state, topic.config, number, points, starts)
                plan = replace(plan, replicated=True, sole=not topic.partitions[number].others_whole)
                if unready is None:
                    plans.append(plan)
                else:
                    logs.append(load_offline(plan, opener.services, unready))
        logs += opener.load_all(plans) if first else [opener.load(plan) for plan in plans]
        self._correct_log_starts(
            [log for log in logs if starts.get((log.topic, log.partition), 0) > log.log_start_offset]
        )
        return {(log.topic, log.partition): log for log in logs if isinstance(log, ReplicaLog)}

    def _correct_log_starts(self, logs: Sequence[PartitionLog]) -> None:
        """Correct the checkpointed log start offset of logs that actually start lower.

        Otherwise, after a restart, the checkpointed value would hide records that are appended below it from now on. If
        the write fails, these logs go offline.
        """
        if not logs:
            return
        try:
            self._checkpoints.correct_log_starts(logs)
        except OSError as error:
            for log in logs:
                log.go_offline(f"the log start offset could not be written: {error}")

    def _sync_walked(self, logs: Iterable[ReplicaLog]) -> None:
        """Sync all recovered logs with one sync of the file system (see ReplicaLog.sync_walked). A log that cannot be
        synced goes offline.
        """
        walked = [log for log in logs if log.walked and not log.offline]
        if not walked:
            return
        marks = [log.entries.mark() for log in walked]
        try:
            file_ops.sync_file_system(self._opener.directory)
        except OSError as error:  # the error does not say which log failed
            logger.warning("file system sync failed; syncing each log separately", extra=fields(reason=str(error)))
            for log in walked:
                try:
                    log.sync_walked()
                except OSError as failure:
                    log.go_offline(f"the recovered log could not be synced: {failure}")
            return
        for log, mark in zip(walked, marks, strict=True):
            log.entries.synced(mark)
            log.walked.clear()

    def _cannot_begin_anew(self, name: str, partitions: Sequence[int]) -> OSError | None:
        """Move old directories away from the names of new partitions; return the error, or None.

        After an error these partitions go offline, and the other changes of the image still apply: metadata reports
        each change only once.
        """
        try:
            self._removals.clear_directories(name, partitions)
            self._checkpoints.forget({(name, number) for number in partitions}.__contains__)
        except OSError as error:
            return error
        return None

    def _changed_topic(
        self,
        topic: AssignedTopic,
        loaded: dict[tuple[str, int], ReplicaLog],
        notices: list[tuple[str, int, int | None]],
        changes: list[ReplicaChange],
    ) -> Topic:
        open_now = self.logs.topics_by_id.get(topic.id)
        present: Sequence[PartitionLog | Elsewhere] = () if open_now is None else open_now.partitions
        partitions: list[PartitionLog | Elsewhere] = []
        for number, each in enumerate(topic.partitions):
            before = present[number] if number < len(present) else None
            log = loaded.get((topic.name, number), before)
            if isinstance(log, ReplicaLog) and not each.held:
                self._note_gone(log, notices, changes)
                self.logs.drop_log(log)
                log = None
            if isinstance(log, ReplicaLog):
                self._lead_or_resign(log, each, notices, changes, fresh=log is not before)
                partitions.append(log)
            elif isinstance(log, Elsewhere):
                log.set_leader(each.leader_id, each.leader_epoch)
                partitions.append(log)
            else:
                partitions.append(Elsewhere(topic.name, number, self.logs.clock, each.leader_id, each.leader_epoch))
        state = TopicState(topic.name, topic.id, dict(topic.config.overrides), [])
        return topic_of(state, partitions, topic.config)  # type: ignore[arg-type]  # callers check each one

    @staticmethod
    def _lead_or_resign(
        log: ReplicaLog,
        wanted: Assignment,
        notices: list[tuple[str, int, int | None]],
        changes: list[ReplicaChange],
        *,
        fresh: bool,
    ) -> None:
        before = log.assignment
        if wanted == before:
            return
        led = log.led and not fresh
        if fresh and wanted.directory == LOST:
            log.behind = True  # the replica was lost; it is unknown how much was copied since
        changes.append(ReplicaChange(log, before, wanted))
        if wanted.leads:
            log.lead(wanted)
            if not led or before.leader_epoch != wanted.leader_epoch:
                notices.append((log.topic, log.partition, wanted.leader_epoch))
        else:
            log.resign(wanted)
            if led:
                notices.append((log.topic, log.partition, None))
