"""Who is in sync with a partition that this broker leads: what its leader proposes, and what becomes of that.

    COMMITTED ──propose──▶ PENDING ─┬─ answered: taken ──────────▶ COMMITTED, as the answer says
        ▲                           ├─ answered: refused for now, or withdrawn ─▶ COMMITTED, as before
        │                           ├─ answered: not understood ──▶ PENDING, sent again
        │                           └─ answered: out of date ─────▶ PENDING, until metadata tells
        └──────── metadata: a newer partition epoch, or another leader epoch ────────┘

The controllers decide; each of their decisions has a partition epoch, which is the compare-and-set number of the next
proposal. One proposal is pending at a time. While it is, all count that are in either set (`maximal`): one that is to
join may be elected already, one that is to leave may be elected still (KIP-497). The answer and the metadata record
that tells the same come in any order, and the later of the two changes nothing.

Source: Partition.prepareIsrExpand, handleAlterPartitionUpdate, handleAlterPartitionError and makeLeader of Kafka 4.1;
but metadata of the epoch that is known leaves a proposal pending, where Kafka forgets it. Pure; guarded by its user.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_EPOCH: Final = -1

_NOT_NOW: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""It was not done, and what is committed is as known here."""
_OUT_OF_DATE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The controllers know more than this broker: whether it was done, metadata will tell."""


class Proposal(NamedTuple):
    """A change that the controllers are asked for."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class Verdict(enum.Enum):
    """What became of an answer."""

    TAKEN = "taken"
    """There is a committed state again, of the answer's."""
    DROPPED = "dropped"
    """There is a committed state again, the one before."""
    WAITS = "waits"
    """For metadata."""
    AGAIN = "again"
    """The same proposal is to be sent again."""
    STALE = "stale"
    """The proposal is not pending any more: nothing changed."""


class Answer(NamedTuple):
    """What a controller says of one partition."""

    error_code: int
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()


class InSync:
    """Of one partition, from its election on; see the module."""

    __slots__ = ("isr", "leader_epoch", "partition_epoch", "pending")

    def __init__(self) -> None:
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.isr: tuple[int, ...] = ()
        """Committed, in the controllers' order."""
        self.pending: Proposal | None = None

    @property
    def maximal(self) -> frozenset[int]:
        """All that count for the high watermark."""
        return frozenset(self.isr) if self.pending is None else frozenset(self.isr) | frozenset(self.pending.isr)

    def told(self, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...]) -> bool:
        """Metadata says so; whether that is news."""
        if leader_epoch == self.leader_epoch and partition_epoch <= self.partition_epoch:
            return False
        if leader_epoch < self.leader_epoch:
            return False
        self.leader_epoch, self.partition_epoch, self.isr, self.pending = leader_epoch, partition_epoch, isr, None
        return True

    def propose(self, joining: Iterable[int], leaving: Iterable[int]) -> Proposal | None:
        """The change by which these join, or else those leave; None where there is nothing to change, or a proposal is
        pending. One change does not do both, as each has its own rule for who counts meanwhile."""
        if self.pending is not None:
            return None
        added = tuple(replica for replica in dict.fromkeys(joining) if replica not in self.isr)
        gone = frozenset(leaving)
        wanted = (*self.isr, *added) if added else tuple(replica for replica in self.isr if replica not in gone)
        if wanted == self.isr:
            return None
        self.pending = Proposal(self.leader_epoch, self.partition_epoch, wanted)
        return self.pending

    def withdraw(self, proposal: Proposal) -> bool:
        """A proposal that was not sent is not made after all; whether it was pending."""
        if proposal is not self.pending:
            return False
        self.pending = None
        return True

    def answered(self, proposal: Proposal, answer: Answer) -> Verdict:
        """The controllers have answered a proposal."""
        if proposal is not self.pending:
            return Verdict.STALE
        code = answer.error_code
        if code in _NOT_NOW:
            self.pending = None
            return Verdict.DROPPED
        if code in _OUT_OF_DATE:
            return Verdict.WAITS
        if code:
            return Verdict.AGAIN
        if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
            return Verdict.WAITS
        self.isr, self.partition_epoch, self.pending = answer.isr, answer.partition_epoch, None
        return Verdict.TAKEN
