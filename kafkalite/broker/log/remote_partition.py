"""A partition of the cluster's that this broker has no replica of: in its topic's place for it, so that whoever comes
for it is told who leads. Requests go to its core, which refuses them as one of a log that is not led here does.

Thread rule: any thread; only the manager of the logs changes it.
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
    """The partition as far as metadata tells of it."""

    __slots__ = ()

    def __init__(self, topic: str, partition: int, clock: Clock, leader_id: int, leader_epoch: int) -> None:
        self.core = LogCore(
            self,  # type: ignore[arg-type]  # a core that is not led asks nothing of its owner
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
        """Who leads it, -1 nobody, and in which epoch."""
        self.core.set_leader_epoch(leader_epoch, True)
        self.core.set_led(False, leader_id)

    def configure(self, config: TopicConfig) -> None:
        """Settings have nothing to count for here."""
