"""Determine a record's state in each consumer group from the group's committed offsets, its ledger and its letters.

The ledger is the topic in which a group stores the state of each failed record (`kafkalite.failures`). Letters are
copies of records in retry and dead-letter topics.

    processed                                 the group's offset is after the record, and the group has a ledger
    read                                      the same without a ledger: the record was read, and may have failed
    waiting                                   the group has not reached the record
    waits for GROUP                           by its policy, the group waits until GROUP has handled the record
    trying                                    the record is being processed
    retrying, parked, redriven                a copy of the record is in a retry topic
    dead, unreadable, resolved                the group has given up the record, which is or was a dead letter
    skipped, ignored, lost                    the group has given up the record
    redriven, then processed                  the record was a dead letter, was sent back, and then was processed

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.regex import compiled
from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError
from kafkalite.failures.ledger import Ledger
from kafkalite.failures.names import LEDGER
from kafkalite.failures.rows import UNDECIDED, State
from kafkalite.failures.topics import topic_ids
from kafkalite.track.path import RETRY_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kafkalite.client import Client
    from kafkalite.client.committed import CommittedOffset
    from kafkalite.failures.rows import Row
    from kafkalite.model import TopicPartition
    from kafkalite.track.path import Step
    from kafkalite.track.searches import Hit

READ: Final = "read"
PROCESSED: Final = "processed"
WAITING: Final = "waiting"
AFTER_DEATH: Final = "redriven, then processed"


class Verdict(NamedTuple):
    """The state of a record, such as `orders-3-1842`, in a group. Times are in ms since 1970, or 0.

    `lag`      for a waiting group: offsets to read before the record; -1 otherwise or if unknown
    `attempt`  number of failures so far
    `due`      time of the next attempt
    `since`    time of the last failure
    """

    record: str
    group: str
    state: str
    reason: str = ""
    exception: str = ""
    attempt: int = 0
    due: int = 0
    since: int = 0
    lag: int = -1
    letter: str = ""
    """The place of its letter: topic and partition, with the offset if it was found."""

    @property
    def text(self) -> str:
        """The state for people, without times."""
        if self.state == State.RETRYING:
            return f"retrying (attempt {self.attempt})"
        if self.state == WAITING and self.lag >= 0:
            return f"not yet: at most {self.lag} records before it"
        return "dead letter" if self.state == State.DEAD else self.state


class Groups:
    """The consumer groups that read some topics, and their offsets. `remarks` are sentences about failed requests.

    Committed offsets are read before the ledgers. Otherwise a record that fails in between could be reported as
    processed.
    """

    def __init__(self, client: Client, topics: Iterable[str]) -> None:
        wanted = set(topics)
        self.remarks: list[str] = []
        self.committed: dict[str, Mapping[TopicPartition, CommittedOffset]] = {}
        self.ledgers: dict[str, Ledger] = {}
        self._topic_ids = topic_ids(client, wanted)
        names = self._names(client)
        for name in names:
            try:
                offsets = client.groups.committed(name)
            except (KafkaError, ClientError) as error:
                self.remarks.append(f"cannot read the offsets of group {name}: {error}")
                continue
            if any(key.topic in wanted for key in offsets):
                self.committed[name] = offsets
        for name in self._with_ledger(client):
            ledger = Ledger(client, name)
            try:
                ledger.refresh()
            except (KafkaError, ClientError) as error:
                self.remarks.append(f"cannot read the ledger of group {name}: {error}")
                continue
            self.ledgers[name] = ledger
            if any(key.topic in wanted for key in ledger.rows):
                self.committed.setdefault(name, {})

    def _names(self, client: Client) -> list[str]:
        try:
            return [row.group_id for row in client.groups.list() if row.protocol_type in {"", "consumer"}]
        except (KafkaError, ClientError) as error:
            self.remarks.append(f"cannot list the groups: {error}")
            return []

    def _with_ledger(self, client: Client) -> list[str]:
        topics = client.with_retries(client.topics)
        return [name.removeprefix(f"{LEDGER}.") for name in topics if name.startswith(f"{LEDGER}.")]

    def verdicts(self, steps: Sequence[Step]) -> list[Verdict]:
        """Return the state of each original record in each group that reads its topic."""
        letters: dict[tuple[str, str], Step] = {}
        for step in steps:
            if step.letter is not None and step.letter.letter.group:
                letters[step.origin, step.letter.letter.group] = step  # the last letter decides
        found: list[Verdict] = []
        for step in steps:
            if step.letter is None:
                found += [
                    self._verdict(step.hit, group, letters.get((step.origin, group)))
                    for group in sorted(self._readers(step.hit, letters))
                ]
        return found

    def _readers(self, hit: Hit, letters: Mapping[tuple[str, str], Step]) -> set[str]:
        """Return the groups that read the topic of a record or have written a letter of it."""
        named = {group for origin, group in letters if origin == str(hit)}
        reading = {
            group
            for group, offsets in self.committed.items()
            if any(key.topic == hit.partition.topic for key in offsets) or self._row(group, hit) is not None
        }
        return named | reading

    def _row(self, group: str, hit: Hit) -> Row | None:
        ledger = self.ledgers.get(group)
        row = None if ledger is None else ledger.rows.get(hit.partition, {}).get(hit.record.offset)
        return row if row is not None and row.concerns(self._topic_ids.get(hit.partition.topic, "")) else None

    def _verdict(self, hit: Hit, group: str, letter: Step | None) -> Verdict:
        row = self._row(group, hit)
        if row is not None:
            return by_row(str(hit), group, row, letter)
        committed = self.committed.get(group, {}).get(hit.partition)
        passed = committed is not None and committed.offset > hit.record.offset
        if passed and group in self.ledgers:
            dead = letter is not None and compiled(RETRY_TOPICS).fullmatch(letter.hit.partition.topic) is None
            again = letter is not None and letter.letter is not None and letter.letter.letter.rounds > 0
            return Verdict(str(hit), group, AFTER_DEATH if dead or again else PROCESSED)
        if letter is not None and group not in self.ledgers:
            return by_letter(str(hit), group, letter)
        if passed:
            return Verdict(str(hit), group, READ)
        lag = -1 if committed is None else hit.record.offset - committed.offset
        return Verdict(str(hit), group, self._waits_for(group, hit) or WAITING, lag=lag)

    def _waits_for(self, group: str, hit: Hit) -> str:
        """Return "waits for GROUP" if the policy waits for another group that has not handled the record yet,
        else "".
        """
        ledger = self.ledgers.get(group)
        for other in () if ledger is None or ledger.policy is None else ledger.policy.get("after", ()):
            committed = self.committed.get(other, {}).get(hit.partition)
            row = self._row(other, hit)
            if committed is None or committed.offset <= hit.record.offset or (row and row.state in UNDECIDED):
                return f"waits for {other}"
        return ""


def by_row(record: str, group: str, row: Row, letter: Step | None) -> Verdict:
    """Determine a record's state from its row in the group's ledger."""
    where = f"{row.letter_topic}-{row.letter_partition}" if row.letter_topic else ""
    if letter is not None and (not where or str(letter.hit.partition) == where):
        where = str(letter.hit)
    reason = row.reason
    if letter is not None and letter.letter is not None:
        reason = reason or letter.letter.reason.text
    return Verdict(record, group, row.state.value, reason, row.exception, row.attempt, row.due, row.last, letter=where)


def by_letter(record: str, group: str, step: Step) -> Verdict:
    """Determine a record's state in a group without a ledger, from the record's last retry or dead letter."""
    assert step.letter is not None, "a step with a letter"
    letter, reason = step.letter.letter, step.letter.reason
    retried = compiled(RETRY_TOPICS).fullmatch(step.hit.partition.topic) is not None
    return Verdict(
        record,
        group,
        State.RETRYING.value if retried else State.DEAD.value,
        reason.text,
        reason.exception,
        letter.attempt,
        letter.due,
        step.letter.last or step.hit.record.timestamp,
        letter=str(step.hit),
    )
