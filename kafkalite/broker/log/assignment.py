"""Describe one partition as the controllers' metadata does, with the fields that this broker's replica needs.

Source: PartitionRegistration of Kafka 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from kafkalite._native.log.followers import Followers

NO_LEADER: Final = -1
LOST: Final = bytes(15) + b"\x02"
"""The directory id of a replica in no directory (Kafka's DirectoryId.LOST): not in sync and not electable."""


class Assignment(NamedTuple):
    """One partition's replicas, leader and epochs in a metadata image."""

    held: bool
    """Whether this broker has a replica."""
    leads: bool
    """Whether this broker's replica leads."""
    leader_id: int
    """Node id of the leader, or NO_LEADER."""
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    """Node ids, the preferred leader first; during a reassignment they include the added and the removed replicas."""
    isr: tuple[int, ...] = ()
    """Node ids of the in-sync replicas, as committed by the controllers."""
    elr: tuple[int, ...] = ()
    """Node ids of eligible leader replicas: out of sync, but electable (KIP-966)."""
    partition_epoch: int = -1
    """Rises with every change of the partition."""
    recovering: bool = False
    """True after an unclean election, until the leader has reported to the controllers that it has recovered."""
    directory: bytes = b""
    """Directory id of this broker's replica (KIP-858)."""
    lost: tuple[int, ...] = ()
    """Node ids of replicas that are in no directory. Such replicas do not count as in sync, even if they fetch."""
    others_whole: bool = False
    """Whether another broker's replica has every acknowledged record, because it is in sync or eligible to lead
    (KIP-966)."""

    @property
    def alone(self) -> bool:
        """Whether no other broker has a replica of the partition."""
        return len(self.replicas) <= 1


NOWHERE: Final = Assignment(held=False, leads=False, leader_id=NO_LEADER, leader_epoch=-1)
"""The assignment of a partition that is not in the metadata, or whose replica here is removed."""


class Leading(Protocol):
    """Tracks the followers of the logs that this broker leads."""

    def lead_locked(self, log: Any, wanted: Assignment, *, elected: bool) -> Followers:
        """Start to track the followers of `log`, a `ReplicaLog` that this broker leads; return the followers.

        `elected`: whether a new leader epoch begins; False for the current one. Called under the log's lock.
        """

    def configure(self, log: Any, followers: Followers) -> None:
        """Apply a log's changed settings to the tracking of its followers."""
