"""Encode and decode the records of a group's ledger (rows), which store the states of failed and skipped records.

    key     orders-3-1842        the record's topic, partition and offset
            open/orders-3        a member handles this partition; a tombstone: it shut down cleanly
            hand/orders/3        a mark: it names the record that the handler has got (kafkalite.failures.marks)
            breaker/MEMBER       that member's circuit breaker is open since `first`, and was still open at `last`
            policy               the policy of the group
    value   JSON, {"v": 1, "state": …}; a tombstone deletes the row, for example of a record that was processed

A record's row has one of these states:

    trying, retrying, parked, redriven    the record has no final outcome yet
    dead, unreadable                      the record has a dead letter, which can be resolved, or redriven if dead
    resolved, ignored, skipped, lost      the group has given up the record

Thread rule: functions are pure, and values are immutable.
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
    """The state of a record, as its row says."""

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
"""A dead letter of this record waits for a redrive (only DEAD) or for `letters resolve`."""
GIVEN_UP: Final = OPEN_LETTERS | {State.RESOLVED, State.SKIPPED, State.LOST}
"""The group does not handle the record again."""


def hand_key(partition: TopicPartition) -> str:
    """Return the key of a partition's mark.

    Releases without marks ignore it, because no source record has this key.
    """
    return f"{HAND_PREFIX}{partition.topic}/{partition.partition}"


class Row(NamedTuple):
    """One row of the ledger. Times are in ms since 1970; 0 if there is none.

    A few fields have another meaning in the row of an open partition and in a mark, as noted below.

    `id`        id of the record's current letter, in topic `letter_topic`, partition `letter_partition`
    `attempt`   failures so far
    `due`       time of the next attempt
    `tries`     number of times that the handler had only this record and returned no outcome
                in a mark: 1 if the mark names a single record, else 0
    `among`     number of records that were noted together, including this record; 0 if it was noted alone. After an
                unclean shutdown, only the record that the mark names counts the shutdown as a try
    `rounds`    number of redrives of the record
    `topic_id`  id of the record's topic; "" if the client does not know it. A topic that was deleted and created again
                has another id, and its records have nothing to do with the row
    `position`  of an open partition: the offset where it was opened
                in a mark: the source record's offset
    `until`     of an open partition: records before this offset may have crashed the previous owner (-1: none)
                in a mark: it covers the records before this offset (-1: one record)
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
        """Whether the row is an in-hand note.

        Such a row, found when the partition is assigned, means: the process ended while the handler may have had the
        record.
        """
        return bool(self.tries or self.among)

    def concerns(self, topic_id: str) -> bool:
        """Return whether the row is about a record of the topic with this id, as far as both ids are known."""
        return not self.topic_id or not topic_id or self.topic_id == topic_id


DEFAULTS: Final = Row(State.OPEN)._asdict()
FIELDS: Final = tuple(DEFAULTS.items())[1:]
"""All fields except the state, with their defaults."""


def encode_row(row: Row) -> bytes:
    """Encode a row as JSON without default values.

    Each failing record has two rows, so speed matters: json.dumps would take twice as long. This simple encoder
    suffices because rows have only text and integers. Invalid Unicode, such as bytes quoted by an exception, becomes
    question marks.
    """
    said = [f'{{"v": {VERSION}, "state": "{row.state.value}"']
    for (name, default), value in zip(FIELDS, row[1:], strict=True):
        if value != default:
            said.append(f'"{name}": {encode_basestring(value) if isinstance(value, str) else value}')
    return (", ".join(said) + "}").encode(errors="replace")


def decode_row(value: bytes) -> Row:
    """Decode a row and ignore unknown fields. Raises ValueError if it is not a row of this version."""
    found: Any = json.loads(value)
    if not isinstance(found, dict) or found.get("v") != VERSION:
        raise ValueError(f"not a ledger row of version {VERSION}")
    known = {name: field for name, field in found.items() if name in DEFAULTS and name != "state"}
    for name, field in known.items():
        if type(field) is not type(DEFAULTS[name]):
            raise ValueError(f"field {name} of a ledger row has the invalid value {field!r}")
    return Row(State(str(found.get("state"))), **known)
