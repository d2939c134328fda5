"""Represent a partition of the cluster that has no replica on this broker.

In a topic's list of partitions, an `Elsewhere` takes the place of the log. It names the leader, and refuses Produce and
Fetch.

Thread rule: any thread; only `AssignedTopics` changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite._native.log.log_core import LogCore
from kafkalite.broker.log.formats import format_named
from kafkalite.broker.log.log_state import LogState

if TYPE_CHECKING:
    from kafkalite.base.clock import Clock
    from kafkalite.settings.topic_setting_lookup import TopicConfig


class Elsewhere(LogState):
    """A partition without a replica on this broker, as metadata describes it."""

    __slots__ = ()

    def __init__(self, topic: str, partition: int, clock: Clock, leader_id: int, leader_epoch: int) -> None:
        self.core = LogCore(
            self,  # type: ignore[arg-type]  # a core that is not led never calls its owner
            topic,
            partition,
            format_named("v2"),
            clock,
            dirty_logs=set(),
        )
        self.set_leader(leader_id, leader_epoch)

    def __repr__(self) -> str:
        return f"Elsewhere({self.topic}-{self.partition}, led by {self.core.leader_id})"

    def set_leader(self, leader_id: int, leader_epoch: int) -> None:
        """Set the leader's node id (-1: no leader) and the leader epoch."""
        self.core.set_leader_epoch(leader_epoch, True)
        self.core.set_led(False, leader_id)

    def configure(self, config: TopicConfig) -> None:
        """Do nothing: there is no log to configure."""
