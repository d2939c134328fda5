"""Define the ledger's rows: the state of each record that failed, was skipped or is in doubt.

    key     orders-3-1842        the record's topic, partition and offset
            open/orders-3        a member handles this partition; a tombstone: it shut down cleanly
            hand/orders/3        the record of a batch that its handler has (kafkalite.failures.marks)
            breaker/MEMBER       that member's breaker is open, since `first`, and was still open at `last`
            policy               the policy that the group runs by
    value   JSON, {"v": 1, "state": …}; a tombstone: the record was processed after all

    trying ─▶ (tombstone) · dead       in hand after an unclean shutdown; dead, `crashed`, after the second one
    open   ─▶ (tombstone)              `until`: records before it are in doubt since an unclean shutdown
    parked ─▶ retrying ─▶ (tombstone) · dead ─▶ redriven ─▶ …
                                        dead · unreadable ─▶ resolved
    ignored · skipped · unreadable · lost

If a topic is recreated, it has another id: the rows of the old one are void, and are skipped.

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
    """The state of a record by its row."""

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
"""A letter of this record is in a retry topic, and will be handled."""
UNDECIDED: Final = WAITING | {State.TRYING}
"""The record has no final outcome yet."""
OPEN_LETTERS: Final = frozenset({State.DEAD, State.UNREADABLE})
"""A dead letter of this record waits for a redrive or for `letters resolve`."""
GIVEN_UP: Final = OPEN_LETTERS | {State.RESOLVED, State.SKIPPED, State.LOST}
"""The group does not handle the record again."""


def hand_key(partition: TopicPartition) -> str:
    """Return the key of a partition's mark. It differs from every record's key, also for versions without marks."""
    return f"{HAND_PREFIX}{partition.topic}/{partition.partition}"


class Row(NamedTuple):
    """One row of the ledger. Times are in ms since 1970; 0 if there is none.

    `id`        id of the record's current letter, in topic `letter_topic`, partition `letter_partition`
    `attempt`   failures so far
    `due`       time of the next attempt
    `tries`     how often the record was in hand alone at an unclean shutdown; in a mark: 1 if it counts as one
    `among`     number of records noted as in hand together, including this one, if several. It counts as a try only for
                the record that a mark names
    `rounds`    how often the record was redriven
    `position`  of an open partition: the offset where it was opened; of a mark: the source record's offset
    `until`     of an open partition: records before this offset may have ended the previous member; of a mark: it
                covers the records before this offset; -1: none, or one record
    `held`      digest of the record's key if the key waits for the record's outcome
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
        """Whether a process ended while this record was noted as in hand."""
        return bool(self.tries or self.among)


DEFAULTS: Final = Row(State.OPEN)._asdict()
FIELDS: Final = tuple(DEFAULTS.items())[1:]
"""All fields except the state, with their defaults."""


def encode_row(row: Row) -> bytes:
    """Encode a row as JSON without its default values. Rows have only text and integers, so this avoids json.dumps,
    which takes twice as long: each failing record has two rows. Text that is not valid Unicode, such as bytes quoted by
    an exception, becomes question marks."""
    said = [f'{{"v": {VERSION}, "state": "{row.state.value}"']
    for (name, default), value in zip(FIELDS, row[1:], strict=True):
        if value != default:
            said.append(f'"{name}": {encode_basestring(value) if isinstance(value, str) else value}')
    return (", ".join(said) + "}").encode(errors="replace")


def decode_row(value: bytes) -> Row:
    """Decode a row and ignore unknown fields. ValueError for anything that is not a row of this version."""
    found: Any = json.loads(value)
    if not isinstance(found, dict) or found.get("v") != VERSION:
        raise ValueError(f"not a ledger row of version {VERSION}")
    known = {name: field for name, field in found.items() if name in DEFAULTS and name != "state"}
    for name, field in known.items():
        if type(field) is not type(DEFAULTS[name]):
            raise ValueError(f"field {name} of a ledger row has the invalid value {field!r}")
    return Row(State(str(found.get("state"))), **known)
