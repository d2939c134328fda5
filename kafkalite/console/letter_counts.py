"""Count the dead letters of topics: exactly by reading topics and ledgers, or as an upper bound if that takes too long.

An exact count leaves out letters that were resolved, redriven or processed.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError
from kafkalite.failures.letters import LetterBox
from kafkalite.failures.names import DEAD, ledger_name
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.client import Client
    from kafkalite.client.cluster import TopicDescription

READ_MAX: Final = 20_000
"""Offsets of letters and ledgers that a page reads."""
DURATION_S_MAX: Final = 3.0
"""How long a page reads; then it shows upper bounds."""
OPEN_S_MAX: Final = 1.0

SUFFIXES: Final = ("-dlt", ".dlt", "-dlq", ".dlq", "_dlt", "_dlq")


class LetterCount(NamedTuple):
    """The number of dead letters of a topic; None if a partition has no leader.

    If not `exact`, it is an upper bound: the difference of end and start offsets. It then also counts resolved letters.
    The bound is also used for topics that the client may not read.
    """

    letters: int | None
    exact: bool


def is_dead_letter_topic(name: str) -> bool:
    """Return whether a topic has the name of a dead-letter topic of kafkalite, share groups or Spring."""
    return name.startswith(f"{DEAD}.") or name.lower().endswith(SUFFIXES)


def count_letters(
    client: Client,
    topics: Iterable[TopicDescription],
    since_ms: int = 0,
    owners: Mapping[str, str] | None = None,
) -> dict[str, LetterCount]:
    """Return topic → number of dead letters that the broker stored after a time.

    `owners` has the groups of topics whose names do not contain the group. Raises KafkaError, ClientError.
    """
    parts = {topic.name: topic.partitions for topic in topics}
    led = {name: [row.partition for row in rows if row.leader >= 0] for name, rows in parts.items()}
    keys = [TopicPartition(name, number) for name, numbers in led.items() for number in numbers]
    ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST))
    begins = client.list_offsets(dict.fromkeys(keys, since_ms or OFFSET_EARLIEST))
    starts: dict[str, dict[TopicPartition, int]] = {name: {} for name in parts}
    for key in keys:
        if 0 <= begins[key].offset < ends[key].offset:
            starts[key.topic][key] = begins[key].offset
    found: dict[str, LetterCount] = {}
    for name, own in starts.items():
        span = sum(ends[key].offset - start for key, start in own.items())
        found[name] = LetterCount(span if len(led[name]) == len(parts[name]) else None, exact=not span)
    _count_exactly(client, found, starts, since_ms, owners or {})
    return found


def _count_exactly(
    client: Client,
    found: dict[str, LetterCount],
    starts: Mapping[str, Mapping[TopicPartition, int]],
    since_ms: int,
    owners: Mapping[str, str],
) -> None:
    """Replace upper bounds by exact counts, small topics first, until the limit of reads for a page is reached."""
    bounds = {name: row.letters for name, row in found.items() if row.letters and not row.exact}
    wanted = {name: [owners[name]] if name in owners else groups_of(name) for name in bounds}
    lengths = _ledgers(client, {group for groups in wanted.values() for group in groups})
    left, deadline = READ_MAX, time.monotonic() + DURATION_S_MAX
    for name in sorted(bounds, key=lambda name: bounds[name]):
        groups = [group for group in wanted[name] if group in lengths]
        if len(groups) > 1:
            continue  # the name matches two groups
        group = (groups or wanted[name] or [""])[0]
        left -= bounds[name] + lengths.get(group, 0)
        if left < 0 or time.monotonic() > deadline:
            return
        try:
            counts = LetterBox(client, group, name, open_s_max=OPEN_S_MAX).count_open(starts[name], since_ms)
        except (KafkaError, ClientError):  # a transaction is open, or not authorized
            continue
        found[name] = LetterCount(sum(counts.values()), exact=True)


def groups_of(topic: str) -> list[str]:
    """Return the groups that the name of a dead-letter topic may contain: a and a.b for dlq.a.b.c.

    A topic name of another product contains none.
    """
    first, *parts = topic.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))] if first == DEAD else []


def _ledgers(client: Client, names: Iterable[str]) -> dict[str, int]:
    """Return group → number of offsets in its ledger, for the groups that have a ledger."""
    groups = {ledger_name(group): group for group in names}
    keys = [TopicPartition(name, 0) for name in client.described(groups)]
    starts = client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST))
    ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST))
    return {groups[key.topic]: ends[key].offset - starts[key].offset for key in keys}
