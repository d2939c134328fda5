"""Supply the topics of a data directory: from its own journal, or from the metadata of a cluster's controllers.

`JournalTopics` serves a standalone broker. `AssignedTopics` of `kafkalite.broker.log.assigned` serves a broker in a
cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkalite.broker.log import adoption, directory, journal
from kafkalite.broker.log.formats import FORMATS
from kafkalite.broker.log.opening import topic_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.log.journal import Journal, TopicState
    from kafkalite.broker.log.loading import LoadPlan
    from kafkalite.broker.log.opening import LogOpener
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.broker.log.removals import Removals


class TopicSource(Protocol):
    """Supplies the topics of a data directory, and the logs of the partitions in it."""

    def open(self, found: Journal) -> Iterable[Topic]:
        """Return the topics that are known at a start, with open logs."""

    def logs_of(self, topic: Topic) -> Iterable[PartitionLog]:
        """Return a topic's logs on this broker."""

    def state_of(self, topic: Topic) -> TopicState:
        """Return the source's state of a topic."""

    def went_offline(self, log: PartitionLog) -> None:
        """Note that a log's storage failed. Any thread may call this, possibly under the log's lock. Does not block."""


class JournalTopics:
    """Supplies the topics in a data directory's own journal."""

    def __init__(self, opener: LogOpener, removals: Removals) -> None:
        self._opener = opener
        self._removals = removals

    def logs_of(self, topic: Topic) -> Iterable[PartitionLog]:
        """Return all partitions: a standalone broker has every log."""
        return topic.partitions

    def state_of(self, topic: Topic) -> TopicState:
        """Return the journal's state of a topic."""
        return self._opener.metadata.state.topics[topic.name]

    def went_offline(self, log: PartitionLog) -> None:
        """Do nothing: a standalone broker has no controller to notify."""

    def open(self, found: Journal) -> Iterable[Topic]:
        """Adopt or remove partition directories, and open the logs of all topics."""
        opener = self._opener
        present, deleted = directory.partition_directories(opener.directory)
        changed, leftovers, strays = adoption.sort_out(
            found.state,
            frozenset() if opener.clean_start else found.state.deleted_names,
            present,
            {record_format.suffix: name for name, record_format in FORMATS.items()},
            opener.config().classic_partition_count,
        )
        if changed:
            found.record(*(journal.topic_change(topic) for topic in changed))
        self._removals.keep_strays(strays)
        self._removals.remove_leftovers(deleted, leftovers)
        if changed or deleted or leftovers or not opener.clean_start:
            # Once for all partitions: an earlier process may have left their names unsynced, or they were copied here.
            # Also, removed directories must not come back once the journal forgets their topic ids.
            opener.services.sync_root()
        opener.cleaner.load()
        return self._load_all(found, {topic.name for topic in changed})

    def _load_all(self, found: Journal, adopted: Container[str]) -> Sequence[Topic]:
        opener, checkpoints, topics = self._opener, self._opener.checkpoints, found.state.topics
        checkpoints.read()
        plans: list[LoadPlan] = []
        for state in topics.values():
            config = opener.resolve(state.overrides, state.name)
            plans += [
                opener.plan(state, config, i, checkpoints.points, checkpoints.starts, adopted)
                for i in range(len(state.epoch_bases))
            ]
        logs = opener.load_all(plans)
        by_topic: dict[str, list[PartitionLog]] = {}
        for log in logs:
            by_topic.setdefault(log.topic, []).append(log)
        self._correct_epochs(found, logs)
        opener.keep_taken_over(logs)
        return [topic_of(state, by_topic[state.name]) for state in topics.values()]

    @staticmethod
    def _correct_epochs(found: Journal, logs: Iterable[PartitionLog]) -> None:
        """Raise the journal's leader epochs for logs that were copied here and have higher epochs."""
        state = found.state
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
            found.record(*changes)
