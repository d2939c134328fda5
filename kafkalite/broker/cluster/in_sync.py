"""Track the in-sync replicas (ISR) of a partition that this broker leads: its proposals and the controllers' answers.

The state is COMMITTED, or PENDING while a proposal is not decided:

    the leader proposes an ISR                     COMMITTED ─▶ PENDING
    answer: accepted                               PENDING ─▶ COMMITTED, with the ISR of the answer
    answer: refused for now                        PENDING ─▶ COMMITTED, with the ISR from before
    the proposal is withdrawn before it is sent    PENDING ─▶ COMMITTED, with the ISR from before
    answer: out of date                            PENDING, until metadata arrives
    answer: any other error                        PENDING, and the proposal is sent again
    metadata: newer partition or leader epoch      COMMITTED, with the ISR of the metadata

A proposal must contain the partition epoch of the controllers' last decision (compare and set).

Source: Partition.prepareIsrExpand, handleAlterPartitionUpdate, handleAlterPartitionError and makeLeader of Kafka 4.1.

Thread rule: the caller must hold a lock. Does no I/O.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_EPOCH: Final = -1

_NOT_NOW: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""Errors which mean that the change was not made; the committed state is still the known state."""
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
"""Errors which mean that the controllers have newer metadata than this broker; the metadata will show whether the
change was made."""


class Proposal(NamedTuple):
    """A change of the ISR that the leader proposes to the controllers."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class Verdict(enum.Enum):
    """The effect of a controller's answer on the state of the ISR."""

    TAKEN = "taken"
    """The state is committed again, with the answer's ISR."""
    DROPPED = "dropped"
    """The state is committed again, with the previous ISR."""
    WAITS = "waits"
    """The proposal stays pending until metadata arrives."""
    AGAIN = "again"
    """The same proposal must be sent again."""
    STALE = "stale"
    """The proposal was no longer pending; nothing changed."""


class Answer(NamedTuple):
    """A controller's answer for one partition."""

    error_code: int
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()


class InSync:
    """The in-sync replicas of one partition since the election of its leader."""

    __slots__ = ("isr", "leader_epoch", "partition_epoch", "pending")

    def __init__(self) -> None:
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.isr: tuple[int, ...] = ()
        """The committed ISR, in the controllers' order."""
        self.pending: Proposal | None = None

    @property
    def maximal(self) -> frozenset[int]:
        """All replicas that count for the high watermark: with a pending proposal, those of both ISRs.

        A joining replica may already be eligible as leader, and a leaving replica may still be eligible (KIP-497).
        """
        return frozenset(self.isr) if self.pending is None else frozenset(self.isr) | frozenset(self.pending.isr)

    def told(self, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...]) -> bool:
        """Apply metadata; return whether it is new.

        The answer to a proposal and the metadata of the decision arrive in either order; the second of them changes
        nothing. Unlike in Kafka, metadata with the current partition epoch leaves a proposal pending.
        """
        if leader_epoch == self.leader_epoch and partition_epoch <= self.partition_epoch:
            return False
        if leader_epoch < self.leader_epoch:
            return False
        self.leader_epoch, self.partition_epoch, self.isr, self.pending = leader_epoch, partition_epoch, isr, None
        return True

    def propose(self, joining: Iterable[int], leaving: Iterable[int]) -> Proposal | None:
        """Return a proposal that replicas join the ISR, or, if none can join, that replicas leave it.

        Return None if nothing changes or a proposal is pending. A proposal never does both, since different replicas
        count for the high watermark meanwhile.
        """
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
        """Withdraw a proposal that was not sent; return whether it was pending."""
        if proposal is not self.pending:
            return False
        self.pending = None
        return True

    def answered(self, proposal: Proposal, answer: Answer) -> Verdict:
        """Apply the controllers' answer to a proposal."""
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
