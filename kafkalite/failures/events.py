"""Define the events and actions of a session (kafkalite.failures.session), and the values that they contain.

    events    Assigned · Revoking · Revoked · Lost · Fetched · Finished · FinishedTogether · RunEnded ·
              TransactionEnded · CommitEnded · Damaged · Decided · Released · Tick
    actions   Run · Withdraw · Pause · Resume · Transact · Commit · Doubt · Alarm · Stop

The runner (kafkalite.failures.runner) passes events to the session and executes the actions that the session returns.
RunEnded, TransactionEnded and CommitEnded report the ends of Run, Transact and Commit.

Thread rule: the values are immutable.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalite.failures.rows import Row
    from kafkalite.model import TopicPartition

    Headers = tuple[tuple[str, bytes | None], ...]
    Rows = Mapping[TopicPartition, Mapping[int, Row]]


class Message(NamedTuple):
    """A record as stored in its partition. `timestamp` in ms. Header names keep bytes that are not UTF-8.

    `attempt` is the number of times that the record has failed so far, in any topic.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_type: int = 0
    attempt: int = 0


class Letter(NamedTuple):
    """The headers of a letter: its group, its source record, its failures so far, and its due time."""

    id: str
    group: str
    partition: TopicPartition
    offset: int
    attempt: int = 0
    due: int = 0
    first: int = 0
    rounds: int = 0


class Arrival(NamedTuple):
    """A record that was read, with its letter headers if it has any."""

    message: Message
    letter: Letter | None = None


# --- outcomes ---------------------------------------------------------------------------------------------------------


class FailureKind(Enum):
    """The class of an exception, which determines how the policy reacts."""

    FATAL = "fatal"
    RETRIABLE = "retriable"
    OUTAGE = "outage"


class Failure(NamedTuple):
    """The reason why a handler failed: the exception's class, the class of its innermost cause, its text and its stack.

    `rule` is the index of the policy's rule that matches, or -1 for the strategy. `dead` is the index of the
    dead-letter topic in the policy's `dead_topics`, or -1 for the default topic.
    """

    kind: FailureKind
    name: str
    cause: str = ""
    text: str = ""
    stack: str = ""
    rule: int = -1
    dead: int = -1


class DeadLetter(NamedTuple):
    """A record that became a dead letter, with its failure, and the letter as stored in its topic.

    `record`    the source record: its topic, partition, offset, timestamp, key, headers and number of failures. The
                value is decoded by the policy's `decode` if possible; None if the value did not fit into the letter
    `failure`   from the letter's headers: the stack may be truncated, and the kind is FATAL
    """

    record: Message
    failure: Failure
    letter: Message


class Output(NamedTuple):
    """A record that a handler sends. One transaction writes it and commits the handled record's offset.

    If `partition` is None, the key determines it.
    """

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Outcome(NamedTuple):
    """The result of handling a record. Without a failure it is a success."""

    failure: Failure | None = None
    outputs: tuple[Output, ...] = ()


# --- events -----------------------------------------------------------------------------------------------------------


class Start(NamedTuple):
    """Offsets of an assigned partition.

    `position`  the offset to read from
    `known`     the last stable offset before the ledger was read: the ledger covers all letters below
    `end`       the end after the ledger was read. Other programs may write letters in between, such as a redrive
    """

    position: int
    known: int
    end: int


class Assigned(NamedTuple):
    """Partitions were assigned.

    `rows` are the partitions' ledger rows, read after the offsets `known` of `starts`. `opened` are the rows of
    partitions whose last owner did not shut down cleanly.
    """

    starts: Mapping[TopicPartition, Start]
    rows: Rows
    opened: Mapping[TopicPartition, Row]
    hands: Mapping[TopicPartition, Row] = {}
    """By partition, the mark that was written last (kafkalite.failures.marks)."""
    topic_ids: Mapping[str, str] = {}
    """Ids of the group's source and dead-letter topics, as far as they are known."""


class Revoking(NamedTuple):
    """Partitions will be revoked. No new handler call starts in them."""

    partitions: Sequence[TopicPartition]


class Revoked(NamedTuple):
    """Partitions are being revoked. Offsets of finished records can still be committed. Then the session forgets the
    partitions.
    """

    partitions: Sequence[TopicPartition]


class Lost(NamedTuple):
    """Partitions were lost: another member may own them already."""

    partitions: Sequence[TopicPartition]


class Fetched(NamedTuple):
    """Records of one partition were read: the records in order, and the offset after them."""

    partition: TopicPartition
    arrivals: Sequence[Arrival]
    next_offset: int


class Finished(NamedTuple):
    """A record of a run was handled; `outcome` is the result."""

    partition: TopicPartition
    run: int
    offset: int
    outcome: Outcome


class FinishedTogether(NamedTuple):
    """One call has handled several records of a run. The call's outputs are committed with all these records, or not at
    all.
    """

    partition: TopicPartition
    run: int
    offsets: tuple[int, ...]
    outputs: tuple[Output, ...]


class RunEnded(NamedTuple):
    """A run has ended. Its records without an outcome were not handled.

    `each_ms` is the mean time per record in the handler, only for a run with marks.
    """

    partition: TopicPartition
    run: int
    each_ms: float = 0.0


class TransactionEnded(NamedTuple):
    """A transaction was committed, or it failed (`failed`).

    If a record was too large, `too_large` is the index of its Put.
    """

    number: int
    failed: bool = False
    too_large: int | None = None


class CommitEnded(NamedTuple):
    """The offsets of a Commit were committed, or the commit failed (`failed`)."""

    number: int
    failed: bool = False


class Damaged(NamedTuple):
    """Records from `offset` to before `next_offset` cannot be read, and were skipped."""

    partition: TopicPartition
    offset: int
    next_offset: int
    text: str


class Decided(NamedTuple):
    """Another group, for which this group waits, has decided on records of a partition.

    The other group has decided on all records below `upto`, except those at `open_offsets`. It has given up the records
    at `dead_offsets`.
    """

    group: str
    partition: TopicPartition
    upto: int
    open_offsets: frozenset[int] = frozenset()
    dead_offsets: frozenset[int] = frozenset()


class Released(NamedTuple):
    """The key of a dead record is no longer held: its later records may be handled.

    `partition` and `offset` are those of the source record.
    """

    partition: TopicPartition
    offset: int


class Tick(NamedTuple):
    """Time has passed."""


Event = (
    Assigned
    | Revoking
    | Revoked
    | Lost
    | Fetched
    | Finished
    | FinishedTogether
    | RunEnded
    | TransactionEnded
    | CommitEnded
    | Damaged
    | Decided
    | Released
    | Tick
)


# --- actions ----------------------------------------------------------------------------------------------------------


class Mark(NamedTuple):
    """A ledger row that names the record which the handler is about to get (kafkalite.failures.marks)."""

    key: str
    row: Row


class Run(NamedTuple):
    """Handle these records. Stop after `failures_max` failures, or after an outage.

    With `by_key`, skip the later records of a key that has failed.
    """

    partition: TopicPartition
    number: int
    messages: tuple[Message, ...]
    failures_max: int
    by_key: bool = False
    marks: tuple[Mark | None, ...] = ()
    """For each record, the mark to write to the ledger before it is handled; () if no marks are needed."""


class Withdraw(NamedTuple):
    """Do not start the remaining records of this partition's run."""

    partition: TopicPartition


class Pause(NamedTuple):
    """Stop reading this partition."""

    partition: TopicPartition


class Resume(NamedTuple):
    """Continue to read this partition."""

    partition: TopicPartition


class Goal(Enum):
    """The kind of topic to which a record is written."""

    RETRY = "retry"
    PARK = "parked"
    DEAD = "dead"
    OUTPUT = "output"


class Put(NamedTuple):
    """A record to write: the original message with the headers of `letter`.

    `shrink` selects what to leave out so that the record fits: 0 nothing, 1 the stack, 2 also the error text, 3 also
    the value.

    If `partition` is None, the key determines it.
    """

    goal: Goal
    topic: str
    partition: int | None
    message: Message
    letter: Letter | None = None
    failure: Failure | None = None
    last: int = 0
    shrink: int = 0


class Transact(NamedTuple):
    """Write records, ledger rows (None: a tombstone) and offsets of the group: by default in one transaction."""

    number: int
    puts: tuple[Put, ...]
    rows: tuple[tuple[str, Row | None], ...]
    offsets: Mapping[TopicPartition, int]
    scope: TopicPartition | None = None
    """The source partition of all of it, if each transaction covers only one."""


class Commit(NamedTuple):
    """Commit offsets of the group without a transaction. Earlier commits end first."""

    number: int
    offsets: Mapping[TopicPartition, int]


class Doubt(NamedTuple):
    """Report that records from `first` to before `until` may have crashed the previous owner's process.

    These records are noted in the ledger before they are handled, in growing batches. `suspects` is the number of
    records that are handled one at a time. `over` says that all of the records have an outcome.
    """

    partition: TopicPartition
    first: int
    until: int
    suspects: int = 0
    over: bool = False


class Alarm(NamedTuple):
    """Report a condition to the user. `kind`: loss, loss-over, breaker, lost, damaged, foreign, crashed, held,
    dead-handler, age, slow or stopped."""

    kind: str
    text: str
    details: Mapping[str, Any]


class Stop(NamedTuple):
    """End the member."""

    reason: str


Action = Run | Withdraw | Pause | Resume | Transact | Commit | Doubt | Alarm | Stop
