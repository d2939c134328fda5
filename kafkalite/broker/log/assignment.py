"""What the controllers of a cluster say of one partition, as far as the broker that has a replica of it goes by it.

Source: PartitionRegistration of Kafka 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from kafkalite._native.log.followers import Followers

NO_LEADER: Final = -1
LOST: Final = bytes(15) + b"\x02"
"""The directory of a replica that is in none (Kafka's DirectoryId.LOST): it is not in sync, and cannot be elected."""


class Assignment(NamedTuple):
    """A partition as metadata has it."""

    held: bool
    """Whether a replica of it is here."""
    leads: bool
    """Whether that leads."""
    leader_id: int
    """NO_LEADER: nobody."""
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    """Node ids, the preferred leader first; while it moves those that come and those that go."""
    isr: tuple[int, ...] = ()
    """Those in sync, as committed by the controllers."""
    elr: tuple[int, ...] = ()
    """Those out of sync that may lead all the same (KIP-966)."""
    partition_epoch: int = -1
    """Rises with every change."""
    recovering: bool = False
    """After an unclean election, until the leader has told the controllers that it has recovered."""
    directory: bytes = b""
    """Where the controllers have this broker's replica (KIP-858)."""
    lost: tuple[int, ...] = ()
    """Replicas, on whatever broker, that are in no directory: they are not to be counted on, whatever they fetch."""
    others_whole: bool = False
    """Whether another broker's replica has all that was acknowledged: it is in sync, or eligible to lead (KIP-966)."""

    @property
    def alone(self) -> bool:
        """Whether no other broker has a replica."""
        return len(self.replicas) <= 1


NOWHERE: Final = Assignment(held=False, leads=False, leader_id=NO_LEADER, leader_epoch=-1)
"""Of a partition of which nothing was said yet, or which is none any more."""


class Leading(Protocol):
    """Knows who follows the logs that this broker leads."""

    def lead_locked(self, log: Any, wanted: Assignment, *, elected: bool) -> Followers:
        """This broker leads a `ReplicaLog` with other replicas, from a new epoch on or as before; who follows it. The
        log's lock is held."""

    def configure(self, log: Any, followers: Followers) -> None:
        """The settings of a log that is led count for these followers."""
