"""Bundle the objects that all consumer groups (KIP-848) share, such as topics, timeouts and assignors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.coordinator.base import GroupBase
    from kafkalite.broker.coordinator.metadata_hash import MetadataHashes

Describes: TypeAlias = "Callable[[frozenset[str]], frozenset[str]]"
"""Returns the given topics that a client may describe. Callable at any time; takes no group's lock."""


class Timing(NamedTuple):
    """The heartbeat interval and the session timeout of a group, both in ms."""

    heartbeat_interval_ms: int
    session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class ConsumerEnvironment:
    """The objects that all consumer groups share."""

    topics: Callable[[], Mapping[str, Topic]]
    hashes: MetadataHashes
    run_soon: Callable[[Callable[[], None]], object]
    """Runs a longer task later on another thread: `IoPool.submit`."""
    timing: Callable[[str], Timing]
    """Returns the current timing of a group, by its id."""
    size_max: int
    assignors: tuple[str, ...]
    """Assignors that members may request; the first is the default."""
    downgrades: bool
    """Whether a group becomes a classic group when only classic members are left."""
    succeed: Callable[[GroupBase, GroupBase], None]
    """Lets a group (the second argument) replace the first, which is dead afterwards. Called under the lock that both
    share."""
