"""What the core is told, and what it wants done.

    events    Assigned · Revoking · Revoked · Lost · Fetched · Finished · FinishedTogether · RunEnded ·
              TransactionEnded · CommitEnded · Damaged · Decided · Released · Tick
    actions   Run · Withdraw · Pause · Resume · Transact · Commit · Doubt · Alarm · Stop

Offsets, sizes and partitions are Kafka's. Whoever carries out a Transact, a Commit or a Run says with the event that
belongs to it how it ended; nothing else is waited for.

Thread rule: immutable values.
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
    """A record as it lies in its partition. `timestamp` in ms; names of headers keep bytes that are no UTF-8.

    `attempt` is for its handler: how often the record has failed so far, wherever that was.
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
    """What the headers of a record in a retry topic say: whose it is, and how far it got."""

    id: str
    group: str
    partition: TopicPartition
    offset: int
    attempt: int = 0
    due: int = 0
    first: int = 0
    rounds: int = 0


class Arrival(NamedTuple):
    """A record that was read, and the letter that it is, if it is one."""

    message: Message
    letter: Letter | None = None


# --- outcomes ---------------------------------------------------------------------------------------------------------


class FailureKind(Enum):
    """What an exception means."""

    FATAL = "fatal"
    RETRIABLE = "retriable"
    OUTAGE = "outage"


class Failure(NamedTuple):
    """Why a handler failed: the class of the exception, of its innermost cause, its text, its stack.

    `rule` is the place of the policy's rule that fits; -1: the strategy. `dead` is that of its dead-letter topic in the
    policy's `dead_topics`; -1: the topic of the others.
    """

    kind: FailureKind
    name: str
    cause: str = ""
    text: str = ""
    stack: str = ""
    rule: int = -1
    dead: int = -1


class DeadLetter(NamedTuple):
    """A record that became a dead letter, the failure, and the letter as it is in its topic.

    `record`    with its own topic, partition, offset, timestamp, key, headers and number of failures; the value is
                decoded by the policy's `decode` if that is possible. None for a value that did not fit into the letter
    `failure`   as the letter's headers have it, so the stack is its end, and the kind is FATAL: nobody tries again
    """

    record: Message
    failure: Failure
    letter: Message


class Output(NamedTuple):
    """A record that a handler wants written in the transaction that finishes its own; partition None: by key."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Outcome(NamedTuple):
    """What became of a record in the handler: no failure is success."""

    failure: Failure | None = None
    outputs: tuple[Output, ...] = ()


# --- events -----------------------------------------------------------------------------------------------------------


class Start(NamedTuple):
    """Of a partition that was assigned: where it goes on, up to where the ledger that was read behind that knows of all
    letters, and where it ended after that. What others write meanwhile, as a redrive does, stands in between."""

    position: int
    known: int
    end: int


class Assigned(NamedTuple):
    """Partitions came. `rows` are the ledger's of these partitions, read up to its end after `known`;
    `opened` those of partitions that nobody has given up in good order."""

    starts: Mapping[TopicPartition, Start]
    rows: Rows
    opened: Mapping[TopicPartition, Row]
    hands: Mapping[TopicPartition, Row] = {}
    """By partition, the mark of the record that a handler had last of a batch."""


class Revoking(NamedTuple):
    """Partitions will be given up: nothing new is begun in them."""

    partitions: Sequence[TopicPartition]


class Revoked(NamedTuple):
    """Partitions are about to go; what is done can be committed still, and then they are forgotten."""

    partitions: Sequence[TopicPartition]


class Lost(NamedTuple):
    """Partitions are somebody else's already."""

    partitions: Sequence[TopicPartition]


class Fetched(NamedTuple):
    """Records of a partition, in order, and the offset that follows them."""

    partition: TopicPartition
    arrivals: Sequence[Arrival]
    next_offset: int


class Finished(NamedTuple):
    """A record of a run has its outcome."""

    partition: TopicPartition
    run: int
    offset: int
    outcome: Outcome


class FinishedTogether(NamedTuple):
    """Records of a run that one call has handled. What the call sent is committed with all of them, or not at all."""

    partition: TopicPartition
    run: int
    offsets: tuple[int, ...]
    outputs: tuple[Output, ...]


class RunEnded(NamedTuple):
    """A run is over; records of it without outcome were not handled. `each_ms`: what one took in the handler, in the
    mean, where the run had marks."""

    partition: TopicPartition
    run: int
    each_ms: float = 0.0


class TransactionEnded(NamedTuple):
    """A transaction is committed; or it is not (`failed`), maybe since put number `too_large` did not fit."""

    number: int
    failed: bool = False
    too_large: int | None = None


class CommitEnded(NamedTuple):
    """The offsets of a Commit are committed, or nobody can tell (`failed`)."""

    number: int
    failed: bool = False


class Damaged(NamedTuple):
    """Records from `offset` to before `next_offset` cannot be read, and were passed over."""

    partition: TopicPartition
    offset: int
    next_offset: int
    text: str


class Decided(NamedTuple):
    """What a group that is waited for has decided in a partition: all below `upto` but `open_offsets`, which nobody
    knows yet, and it gave up `dead_offsets`."""

    group: str
    partition: TopicPartition
    upto: int
    open_offsets: frozenset[int] = frozenset()
    dead_offsets: frozenset[int] = frozenset()


class Released(NamedTuple):
    """Somebody has decided that the key of a dead record goes on: `partition` and `offset` are the record's own."""

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
    """A row of the ledger that says which record is in hand (kafkalite.failures.marks)."""

    key: str
    row: Row


class Run(NamedTuple):
    """Have these records handled, one after the other; stop after so many failures, and after an outage. With
    `by_key` nothing more is handled of a key that has failed."""

    partition: TopicPartition
    number: int
    messages: tuple[Message, ...]
    failures_max: int
    by_key: bool = False
    marks: tuple[Mark | None, ...] = ()
    """Of each record, what has to be in the ledger before it is handled; () where nothing has."""


class Withdraw(NamedTuple):
    """Handle nothing more of this partition's run."""

    partition: TopicPartition


class Pause(NamedTuple):
    """Read no more of this partition."""

    partition: TopicPartition


class Resume(NamedTuple):
    """Read on."""

    partition: TopicPartition


class Goal(Enum):
    """Where a record goes."""

    RETRY = "retry"
    PARK = "parked"
    DEAD = "dead"
    OUTPUT = "output"


class Put(NamedTuple):
    """A record to be written: the message as it was, with the headers of this letter.

    `shrink` is how much of the reason must be left out for it to fit: 0 nothing, 1 the stack, 2 the text, 3 the value.
    `partition` None is chosen by key.
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
    """All of it or nothing: records, rows of the ledger (None: a tombstone), offsets of the group."""

    number: int
    puts: tuple[Put, ...]
    rows: tuple[tuple[str, Row | None], ...]
    offsets: Mapping[TopicPartition, int]
    scope: TopicPartition | None = None
    """The partition that all of it is about, where transactions are one partition's."""


class Commit(NamedTuple):
    """Offsets of the group, outside of any transaction; behind those of commits that are under way."""

    number: int
    offsets: Mapping[TopicPartition, int]


class Doubt(NamedTuple):
    """Records of a partition from `first` to before `until` may have ended the process of the member before, and are
    noted in the ledger before they are handled: in growing batches, `suspects` of them one at a time. `over`: all of
    these records have their outcome."""

    partition: TopicPartition
    first: int
    until: int
    suspects: int = 0
    over: bool = False


class Alarm(NamedTuple):
    """Somebody should know. `kind`: loss, loss-over, breaker, lost, damaged, foreign, crashed, held, dead-handler,
    age, slow or stopped."""

    kind: str
    text: str
    details: Mapping[str, Any]


class Stop(NamedTuple):
    """The member ends."""

    reason: str


Action = Run | Withdraw | Pause | Resume | Transact | Commit | Doubt | Alarm | Stop
