"""Copy topic settings, ACLs, quotas and group offsets to the target, periodically and when a run ends without error.

If one of these parts fails, the failure is reported, and the part is retried in the next period. The mirror continues
to copy records.

Thread rule: one thread at a time, that of the Clients.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError
from kafkalite.mirror.groups import GroupFilter, GroupOffsets
from kafkalite.mirror.rules import QuotasCopy, RulesCopy, UsersMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.client import Client, TopicDescription
    from kafkalite.mirror.offsets import OffsetMap
    from kafkalite.mirror.topics import TargetTopics

INTERVAL_S: Final = 60.0
"""Kafka's default of sync.group.offsets.interval.seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncOptions:
    """The parts to copy besides records. Topics are created with their settings in any case."""

    topic_configs: bool = False
    """Changes of topics' settings (MirrorMaker 2: sync.topic.configs.enabled)."""
    group_offsets: bool = False
    """Committed offsets of groups (KIP-545: sync.group.offsets.enabled)."""
    acls: bool = False
    quotas: bool = False
    users: bool = False
    """Whether to report users that need a password in the target."""
    groups: GroupFilter = field(default_factory=GroupFilter)
    interval_s: float = INTERVAL_S


class Synchroniser:
    """Copies the enabled parts; see the module."""

    def __init__(
        self,
        source: Client,
        target: Client,
        options: SyncOptions,
        *,
        topics: TargetTopics,
        offsets: OffsetMap | None,
        note: Callable[[str], object],
    ) -> None:
        """`offsets` translates group offsets; `note` is called with messages for the operator."""
        self._topics = topics if options.topic_configs else None
        self._note = note
        self.groups = (
            None if offsets is None else GroupOffsets(source, target, offsets, options.groups, note, named=topics.named)
        )
        self.rules = RulesCopy(source, target, note) if options.acls else None
        self.quotas = QuotasCopy(source, target, note) if options.quotas else None
        self.users = UsersMissing(source, target, note) if options.users else None

    def sync(self, topics: Iterable[TopicDescription]) -> None:
        """Copy all enabled parts; `topics` are the mirrored topics."""
        if self._topics is not None:
            for topic in topics:
                self._part(f"settings of {topic.name}", lambda name=topic.name: self._follow(name))  # type: ignore[misc]
        for what, part in (
            ("ACLs", self.rules),
            ("quotas", self.quotas),
            ("users", self.users),
            ("group offsets", self.groups),
        ):
            if part is not None:
                self._part(what, part.sync)

    def _follow(self, name: str) -> None:
        assert self._topics is not None, "asked for"
        self._topics.follow(name)

    def _part(self, what: str, work: Callable[[], object]) -> None:
        try:
            work()
        except (KafkaError, ClientError) as error:
            self._note(f"{what} not synchronized: {error}")
