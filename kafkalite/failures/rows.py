"""Rows of the ledger: what became of each record that was not plainly processed.

    key     orders-3-1842        the record's topic, partition and offset
            open/orders-3        somebody handles this partition; a tombstone: it was given up in good order
            hand/orders/3        which record of a batch its handler has (kafkalite.failures.marks)
            breaker/MEMBER       that member's breaker is open, since `first` and still so at `last`
            policy               the policy, as its group runs it
    value   JSON, {"v": 1, "state": …}; a tombstone: the record was processed after all

    trying ─▶ (tombstone) · dead       in hand after an unclean end; dead, `crashed`, when two ends found it so
    open   ─▶ (tombstone)              `until`: records before it are doubted, since the member before was killed
    parked ─▶ retrying ─▶ (tombstone) · dead ─▶ redriven ─▶ …
                                        dead · unreadable ─▶ resolved
    ignored · skipped · unreadable · lost

A topic made anew under its old name has another id: its rows are void, and are stepped over.

Thread rule: pure functions and immutable values.
"""

from __future__ import annotations

import json
from enum import StrEnum
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from kafkalite.model import TopicPartition

VERSION: Final = 1
POLICY_KEY: Final = "policy"
OPEN_PREFIX: Final = "open/"
HAND_PREFIX: Final = "hand/"
BREAKER_PREFIX: Final = "breaker/"


class State(StrEnum):
    """What a row says of its record."""

    TRYING = "trying"
    RETRYING = "retrying"
    PARKED = "parked"
    DEAD = "dead"
    UNREADABLE = "unreadable"
    IGNORED = "ignored"
    SKIPPED = "skipped"
    REDRIVEN = "redriven"
    RESOLVED = "resolved"
    LOST = "lost"
    OPEN = "open"


WAITING: Final = frozenset({State.RETRYING, State.PARKED, State.REDRIVEN})
"""A letter of this record stands in a retry topic, and will be handled."""
UNDECIDED: Final = WAITING | {State.TRYING}
"""Nobody knows yet what becomes of the record."""
OPEN_LETTERS: Final = frozenset({State.DEAD, State.UNREADABLE})
"""A dead letter of this record waits for a redrive or for `letters resolve`."""
GIVEN_UP: Final = OPEN_LETTERS | {State.RESOLVED, State.SKIPPED, State.LOST}
"""The group has decided not to handle it."""


def hand_key(partition: TopicPartition) -> str:
    """The key of a partition's mark: no record's key looks like it, also to versions that know no marks."""
    return f"{HAND_PREFIX}{partition.topic}/{partition.partition}"


class Row(NamedTuple):
    """One row. Times in ms since 1970, 0 where there is none.

    `id`        of the letter that speaks for the record now, in topic `letter_topic`, partition `letter_partition`
    `attempt`   failures so far · `due`: when it is tried again · `tries`: how often it was in hand after unclean ends;
                of a mark: 1 where that counts as one
    `among`     how many records were noted as in hand at once, this one included, where that were several: it counts as
                a try only of what is marked as in the handler's hand
    `rounds`    how often it was redriven · `position`: of an open partition: the offset where it was opened; of a mark:
                the record's offset in its own topic
    `until`     of an open partition: records before this offset may have ended the member before; of a mark: it stands
                for the records before this offset; -1: none, and one
    `held`      the digest of its key, where that waits for what becomes of the record
    """

    state: State
    id: str = ""
    letter_topic: str = ""
    letter_partition: int = -1
    attempt: int = 0
    due: int = 0
    exception: str = ""
    reason: str = ""
    first: int = 0
    last: int = 0
    member: str = ""
    topic_id: str = ""
    tries: int = 0
    rounds: int = 0
    position: int = -1
    held: str = ""
    among: int = 0
    until: int = -1

    @property
    def is_suspect(self) -> bool:
        """Whether a process has ended while this record was noted as in hand."""
        return bool(self.tries or self.among)


DEFAULTS: Final = Row(State.OPEN)._asdict()
FIELDS: Final = tuple(DEFAULTS.items())[1:]
"""All but the state, and what they are where nothing is said."""


def encode_row(row: Row) -> bytes:
    """As JSON; what has its default is left out. Texts and whole numbers are all that there is: json.dumps takes twice
    as long, and each record that fails has two rows. What of a text is no Unicode, as a handler's exception may quote
    whatever it was given, is a question mark."""
    said = [f'{{"v": {VERSION}, "state": "{row.state.value}"']
    for (name, default), value in zip(FIELDS, row[1:], strict=True):
        if value != default:
            said.append(f'"{name}": {encode_basestring(value) if isinstance(value, str) else value}')
    return (", ".join(said) + "}").encode(errors="replace")


def decode_row(value: bytes) -> Row:
    """ValueError for what is no row of this version; fields that are not known are left out."""
    found: Any = json.loads(value)
    if not isinstance(found, dict) or found.get("v") != VERSION:
        raise ValueError(f"not a ledger row of version {VERSION}")
    known = {name: field for name, field in found.items() if name in DEFAULTS and name != "state"}
    for name, field in known.items():
        if type(field) is not type(DEFAULTS[name]):
            raise ValueError(f"field {name} of a ledger row has the invalid value {field!r}")
    return Row(State(str(found.get("state"))), **known)
