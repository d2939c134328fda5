"""Order the records that a search has found: copies come after their originals.

    orders-3-1842 ──▶ retry.billing.orders.10s-3-77   copy for a retry: attempt 1, ValueError
                  └─▶ dlq.billing.orders-3-12         copy as a dead letter

A letter is a record in a retry or dead-letter topic. Its headers name its original (`kafkalite.failures.headers`).

Thread rule: functions are pure except `letters_of` and `origins_of`, which belong to the Client's thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.client.cluster import READ_COMMITTED
from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError, UnknownTopicOrPartition
from kafkalite.failures.dead_topics import routed_topics
from kafkalite.failures.headers import found_letter
from kafkalite.failures.names import origin_text
from kafkalite.track.questions import Kind, Place, Questions
from kafkalite.track.searches import Hit, Limits, Search
from kafkalite.track.snapshot import TopicFilter, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalite.client import Client
    from kafkalite.failures.headers import FoundLetter
    from kafkalite.model import TopicPartition

    Origin = tuple[TopicPartition, int]

LETTER_TOPICS: Final = r"(retry|dlq)\..+|.+[-._]([dD][lL][tTqQ]|retry)([-._].*)?"
"""Names of letter topics: kafkalite's, share groups', Spring's, and common ones of Connect."""
RETRY_TOPICS: Final = r"retry\..+|.+[-._]retry([-._].*)?"
LETTERS_MAX: Final = 100_000
"""The most records of letter topics that are examined for the origins of hits."""
SLACK_MS: Final = 65 * 60 * 1000
"""How far a letter's timestamp may precede that of its original.

Brokers accept records up to an hour ahead of their clock (message.timestamp.after.max.ms), and clocks differ.
"""
REMARKS_MAX: Final = 3
ORIGINS_MAX: Final = 1000
"""The most originals that are read because only their letters were found."""


class Step(NamedTuple):
    """A step of a record's path through topics: the original record or one of its copies.

    `letter` describes the original if this record is a letter. `after_ms` is the time since the previous step, negative
    if clocks differ.
    """

    hit: Hit
    letter: FoundLetter | None
    after_ms: int

    @property
    def origin(self) -> str:
        """The original record, such as orders-3-1842. A record that is not a letter is its own original."""
        if self.letter is None:
            return str(self.hit)
        return origin_text(self.letter.letter.partition, self.letter.letter.offset)


def steps_of(hits: Iterable[Hit]) -> list[Step]:
    """Return the records found as steps, by time, each record once.

    A copy never comes before its original, even if clocks differ.
    """
    unique = {(hit.partition, hit.record.offset): hit for hit in hits}
    letters = {where: found_letter(hit.record.headers) for where, hit in unique.items()}

    def order(where: Origin) -> tuple[int, int, int, int, Origin]:
        hit, letter = unique[where], letters[where]
        if letter is None:
            return hit.record.timestamp, 0, 0, 0, where
        origin = unique.get((letter.letter.partition, letter.letter.offset))
        time = hit.record.timestamp if origin is None else max(hit.record.timestamp, origin.record.timestamp)
        return time, 1, letter.letter.rounds, letter.letter.attempt, where

    steps: list[Step] = []
    for where in sorted(unique, key=order):
        before = steps[-1].hit.record.timestamp if steps else unique[where].record.timestamp
        steps.append(Step(unique[where], letters[where], unique[where].record.timestamp - before))
    return steps


def originals(steps: Iterable[Step]) -> list[Hit]:
    """Return the hits that are not letters."""
    return [step.hit for step in steps if step.letter is None]


def origins_of(client: Client, hits: Sequence[Hit]) -> list[Hit]:
    """Return the original records of the letters found. Originals that are hits already, or no longer exist, are left
    out.
    """
    known = {(hit.partition, hit.record.offset) for hit in hits}
    wanted: dict[Origin, None] = {}
    for hit in hits:
        letter = found_letter(hit.record.headers)
        if letter is not None and (letter.letter.partition, letter.letter.offset) not in known:
            wanted[letter.letter.partition, letter.letter.offset] = None
    found: list[Hit] = []
    for (partition, offset), _ in zip(wanted, range(ORIGINS_MAX), strict=False):
        try:
            for chunk in client.read(*partition, offset, offset + 1, isolation=READ_COMMITTED):
                found += [Hit(partition, record, 0, ()) for record in chunk.records()]
        except (KafkaError, ClientError):
            continue  # deleted, or not permitted: the letter names its place
    return found


def letters_of(
    client: Client,
    hits: Sequence[Hit],
    topics: str = LETTER_TOPICS,
    remark: Callable[[str], object] | None = None,
) -> list[Hit]:
    """Return the letters whose headers name one of these records as their original.

    A search for an id can miss letters, because a letter may lack its original's value.

    The search covers topics with names of retry and dead-letter topics, and dead-letter topics that policies choose.
    Calls `remark` with a sentence if not all letters could be examined.
    """
    origins = {(hit.partition, hit.record.offset): hit for hit in hits if found_letter(hit.record.headers) is None}
    if not origins:
        return []
    since = min((hit.record.timestamp for hit in origins.values() if hit.record.timestamp >= 0), default=0) - SLACK_MS
    found: list[Hit] = []
    try:
        routed = routed_topics(client, client.with_retries(client.topics))
        names = "|".join([topics, *map(re.escape, sorted(routed))])  # one part: it may fit only one of them
        seen = snapshot(client, TopicFilter(names), READ_COMMITTED, since=max(since, 0))
    except UnknownTopicOrPartition:
        return []  # there are no such topics
    for name in sorted({partition.topic for partition, _ in origins}):
        questions = Questions(name, [Place(Kind.HEADER, "*")])
        with Search(client, seen, questions, limits=Limits(hits_max=LETTERS_MAX)) as search:
            for hit in search:
                letter = found_letter(hit.record.headers)
                if letter is not None and (letter.letter.partition, letter.letter.offset) in origins:
                    found.append(hit)
        whys = [f"{row.topic}-{row.partition}: {row.remarks()[0]}" for row in search.reach if row.unseen or row.damaged]
        whys = [search.ended_by] if search.ended_by else whys
        if whys and remark is not None:
            more = f"; and {len(whys) - REMARKS_MAX} more partitions" if len(whys) > REMARKS_MAX else ""
            remark(f"dead letters of {name} may be missing: {'; '.join(whys[:REMARKS_MAX])}{more}")
    return found
