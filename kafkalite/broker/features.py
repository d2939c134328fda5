"""Define the features of a standalone broker (KIP-584): their supported levels, and the levels in force.

    eligible.leader.replicas.version  1: tracks replicas that may be elected (KIP-966); here there is one replica
    group.version                     1: groups of the consumer protocol (KIP-848)
    kraft.version                     1: a quorum that can change (KIP-853); here there is one voter
    metadata.version                  7 to 33 (4.4-IV2): tools derive the release from it
    transaction.version               2: each transaction raises the producer epoch (KIP-890); 0 and 1: it does not

`share.version` and `streams.version` are not supported. Except for metadata.version, a feature has its newest level
until a client changes it. A change is a line in the journal.

Source: Feature, MetadataVersion, KRaftVersion, GroupVersion and TransactionVersion of Kafka 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

ELR_VERSION: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"
KRAFT_VERSION: Final = "kraft.version"
METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"

LEVELS: Final = {
    ELR_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (7, 33),
    TRANSACTION_VERSION: (0, 2),
}
"""Name → oldest and newest level. metadata.version 7 is 3.3-IV3, the first of KRaft."""
DEFAULT_METADATA_LEVEL: Final = 27
"""4.1-IV1. If tools see a later release, they also request share groups and streams groups."""
CORDON_LEVEL: Final = 30
"""4.3-IV0, the first metadata.version with cordoned directories (KIP-1066)."""
METADATA_CHANGES: Final = (7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33)
"""Levels that changed the content of Kafka's metadata, so that Kafka does not downgrade below them."""
EPOCH: Final = 3
"""The epoch while all features have their defaults; rises with every release that changes LEVELS."""


@dataclass(frozen=True, slots=True)
class Features:
    """The features in force, with their levels."""

    changed: tuple[tuple[str, int], ...] = ()
    """(name, level) of the changed features, by name."""
    change_count: int = 0
    """The number of changes."""

    @property
    def epoch(self) -> int:
        """The epoch of these levels. Clients use the levels with the highest epoch."""
        return EPOCH + self.change_count

    def level(self, name: str) -> int:
        """Return the level of a feature in LEVELS; 0 is off."""
        newest = DEFAULT_METADATA_LEVEL if name == METADATA_VERSION else LEVELS[name][1]
        return dict(self.changed).get(name, newest)

    def changed_to(self, levels: Mapping[str, int]) -> Features:
        """Return a copy of the features with changed levels."""
        return Features(tuple(sorted({**dict(self.changed), **levels}.items())), self.change_count + 1)
