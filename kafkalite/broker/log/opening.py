"""Open the logs of all partitions in a data directory, and group them by topic.

    plan (facts about a partition before its directory is read) ─▶ load ─▶ a log, offline if loading failed

After an unclean stop, several threads load logs (num.recovery.threads.per.data.dir). Everything here blocks.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kafkalite._native.serve.topic_table import Topic
from kafkalite.broker.log import files
from kafkalite.broker.log.loading import LoadPlan, load, load_offline
from kafkalite.errors import ConfigError, KafkaError, StartupError
from kafkalite.model import INTERNAL_TOPICS
from kafkalite.settings.topic_setting_lookup import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Mapping, Sequence

    from kafkalite.base.executors import Executors
    from kafkalite.broker.log.cleaner import LogCleaner
    from kafkalite.broker.log.journal import TopicState
    from kafkalite.broker.log.metadata_store import MetadataStore
    from kafkalite.broker.log.offset_checkpoints import OffsetCheckpoints
    from kafkalite.broker.log.partition_log import LogServices, PartitionLog
    from kafkalite.settings.broker import BrokerConfig


class LogOpener:
    """Opens the logs of one data directory."""

    def __init__(
        self,
        directory: str,
        config: Callable[[], BrokerConfig],
        services: LogServices,
        metadata: MetadataStore,
        checkpoints: OffsetCheckpoints,
        cleaner: LogCleaner,
        executors: Executors,
    ) -> None:
        self.clean_start = True
        """Whether the previous run stopped cleanly, so that logs match the checkpoints."""
        self.planned_count = self.loaded_count = 0
        """Number of partitions to open at a start, and number of partitions opened so far."""
        self.directory = directory
        self.config = config
        self.services = services
        self.metadata = metadata
        self.checkpoints = checkpoints
        self.cleaner = cleaner
        self._executors = executors

    def resolve(self, overrides: Mapping[str, str], name: str) -> TopicConfig:
        """Return a topic's effective settings: its own, with the broker's as defaults. StartupError if a setting is
        invalid.
        """
        try:
            return TopicConfig.resolve(self.config(), overrides, name)
        except ConfigError as error:
            raise StartupError(f"topic {name} has a setting that this release does not accept: {error}") from None

    def plan(
        self,
        state: TopicState,
        config: TopicConfig,
        partition: int,
        points: Mapping[tuple[str, int], int] | None,
        starts: Mapping[tuple[str, int], int],
        adopted: Container[str] = (),
    ) -> LoadPlan:
        """Return the load plan for a partition. `points` and `starts` are the checkpointed recovery points and log
        starts.
        """
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
            leader_epoch=max(0, self.metadata.state.unclean_count - state.epoch_bases[partition]),
            adopted=state.name in adopted,
            cleaned=self.cleaner.has_cleaned(*key),
            high_watermark=self.checkpoints.high_watermarks.of(*key),
            points_known=points is not None,
        )

    def load(self, plan: LoadPlan) -> PartitionLog:
        """Return the log of a plan; offline if its directory cannot be read."""
        try:
            return load(plan, self.services)
        except OSError as error:
            return load_offline(plan, self.services, error)
        finally:
            self.loaded_count += 1  # threads may lose an increment: the count is only displayed

    def load_all(self, plans: Sequence[LoadPlan]) -> list[PartitionLog]:
        """Open all logs at a start; return them in the order of their plans."""
        self.planned_count = len(plans)
        if self.clean_start:
            return [self.load(plan) for plan in plans]
        return self._executors.each(
            "kafkalite-recovery", self.config().num_recovery_threads_per_data_dir, self.load, plans
        )

    def keep_taken_over(self, logs: Collection[PartitionLog]) -> None:
        """Make logs durable that Kafka wrote last and that no other replica has; write recovery points at their ends.

        Call this before the logs are published. Kafka's index files are the only sign that Kafka wrote such a log, and
        the first append removes them.

        If the file of recovery points is missing and a log may have gaps, all logs are made durable, and this method
        writes the file. Until then, the missing file is the only sign of the gaps.
        """
        known = self.checkpoints.points is not None
        if not any(log.taken_over or not (known or log.indexes.dense) for log in logs):
            return
        for log in logs:
            if log.taken_over or not known:
                with contextlib.suppress(KafkaError):  # the log is offline then
                    log.flush()
        try:
            self.checkpoints.add_recovery_points(logs)
        except OSError as error:
            for log in logs:
                if log.taken_over:
                    log.go_offline(f"the recovery point of a log adopted from Kafka could not be written: {error}")
            return
        for log in logs:
            if log.taken_over and not log.offline:
                log.forget_foreign_indexes(log.active)
                log.taken_over = False


def topic_of(state: TopicState, logs: list[PartitionLog], config: TopicConfig | None = None) -> Topic:
    """Return a topic with these logs as its partitions. The topic's settings are `config`, or without it the first
    log's.
    """
    config = config or logs[0].config
    internal = state.name in INTERNAL_TOPICS
    return Topic(state.name, state.topic_id, logs, config, config.overrides, internal=internal)
