"""Where a group's offsets go when they are reset, as kafka-consumer-groups.sh has it: a plan, for `Groups.commit`.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.client.cluster import Cluster

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
TIME: Final = "time"
OFFSET: Final = "offset"
SHIFT: Final = "shift"
TARGETS: Final = (EARLIEST, LATEST, TIME, OFFSET, SHIFT)


class Target(NamedTuple):
    """One of TARGETS, with its number: ms since 1970, an offset, or how many records on (back below 0)."""

    kind: str
    number: int = 0


class Reset(NamedTuple):
    """One partition: committed now (None: nothing), where it goes, and what the log has."""

    partition: TopicPartition
    before: int | None
    after: int
    start: int
    end: int


def plan_reset(
    client: Cluster, keys: Iterable[TopicPartition], committed: Mapping[TopicPartition, int], target: Target
) -> list[Reset]:
    """Where each partition would go, kept inside what its log has. ValueError: a shift from nothing."""
    wanted = list(keys)
    starts = client.list_offsets(dict.fromkeys(wanted, OFFSET_EARLIEST))
    ends = client.list_offsets(dict.fromkeys(wanted, OFFSET_LATEST))
    times = client.list_offsets(dict.fromkeys(wanted, target.number)) if target.kind == TIME else {}
    missing = [str(key) for key in wanted if key not in committed] if target.kind == SHIFT else []
    if missing:
        raise ValueError(f"nothing is committed for {', '.join(missing)}")
    found = []
    for key in wanted:
        start, end = starts[key].offset, ends[key].offset
        if target.kind == EARLIEST:
            offset = start
        elif target.kind == LATEST:
            offset = end
        elif target.kind == TIME:
            offset = times[key].offset if times[key].offset >= 0 else end
        elif target.kind == OFFSET:
            offset = target.number
        else:
            offset = committed[key] + target.number
        found.append(Reset(key, committed.get(key), min(max(offset, start), end), start, end))
    return found
