"""The environment that all consumer groups (KIP-848) share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.coordinator.base import GroupBase
    from kafkalite.broker.coordinator.metadata_hash import MetadataHashes

Describes: TypeAlias = "Callable[[frozenset[str]], frozenset[str]]"
"""Of topics, those that somebody may describe, at any time; no lock of a group's is taken."""


class Timing(NamedTuple):
    """How often members of a group report, and after which silence one is out, both in ms."""

    heartbeat_interval_ms: int
    session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class ConsumerEnvironment:
    """What all groups of this protocol share."""

    topics: Callable[[], Mapping[str, Topic]]
    hashes: MetadataHashes
    run_soon: Callable[[Callable[[], None]], object]
    """Runs something on a thread that may work for a while, not at once: `IoPool.submit`."""
    timing: Callable[[str], Timing]
    """What holds for a group, by its id, at this moment."""
    size_max: int
    assignors: tuple[str, ...]
    """Those that members may ask for; the first is the default."""
    downgrades: bool
    """Whether a group becomes a classic one when nobody is left in it but classic members."""
    succeed: Callable[[GroupBase, GroupBase], None]
    """Under the lock of both: a group takes the place of another, which is dead from then on."""
