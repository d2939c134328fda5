"""Plan the rounds of a load: from the offsets that are already loaded to the current ends of the partitions.

    ends     the end offsets of the partitions when the plan is created
    starts   the positions in the manifests, after the corrections for new partitions and missing records
    round    up to `commit_size` bytes between starts and ends: a LoadRound for an engine

Records may no longer exist, because of retention or because the topic was recreated. With on_data_loss="fail", the load
then fails. With "skip", it continues at existing records and reports the loss.

Thread rule: one thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.dataclass import dataclass
from kafkalite.client import ISOLATIONS, split_by_size
from kafkalite.client.history import find_divergences, marks_at
from kafkalite.errors import OffsetOutOfRange
from kafkalite.load.manifest import Change
from kafkalite.load.selection import (
    OffsetBound,
    Offsets,
    Subscription,
    beyond_the_end,
    discover,
    ids_of,
    offset_bound,
    partitions_of,
    resolve,
)
from kafkalite.load.shares import ESTIMATE_PIECE, end_at_size, fair_shares
from kafkalite.load.storage import LoadError
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.client import Client
    from kafkalite.client.read.marks import Divergence
    from kafkalite.load.manifest import LoadState

REMEDY: Final = 'on_data_loss="skip" (--on-data-loss skip) loads what is left'


@dataclass(frozen=True, slots=True)
class LoadSource:
    """The source of a load. `starting` applies to partitions that were never loaded."""

    subscription: Subscription
    starting: OffsetBound
    isolation_level: str = "read_committed"
    fail_on_data_loss: bool = True


class LoadRound(NamedTuple):
    """One round of a load: the offsets from `starts` to before `ends`. `size` is their approximate size in bytes."""

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    size: int
    density: float
    """Approximate bytes per offset in the densest stretch."""


class LoadPlan:
    """The plan of one load. `losses` has a sentence for each loss of records that the load skipped."""

    def __init__(self, client: Client, source: LoadSource, *, commit_size: int) -> None:
        self.client = client
        self.source = source
        self._commit_size = commit_size
        self._isolation = ISOLATIONS[source.isolation_level]
        topics = discover(client, source.subscription)
        self._keys = partitions_of(source.subscription, topics)
        self.topic_ids = ids_of(topics)
        """Topic → its id as text, without topics of brokers that have no topic ids."""
        self._bounds = self._latest()
        self.losses: list[str] = []

    @property
    def topics(self) -> list[str]:
        """The names of the topics to load."""
        return sorted({key.topic for key in self._keys})

    def _latest(self) -> dict[TopicPartition, int]:
        return Offsets(self.client, self._isolation)(dict.fromkeys(self._keys, OFFSET_LATEST))

    def lags(self, positions: Mapping[TopicPartition, int]) -> dict[str, int]:
        """Return the lag of each topic: the number of offsets from the loaded positions to the current ends."""
        found = dict.fromkeys(self.topics, 0)
        for key, end in self._latest().items():
            found[key.topic] += max(0, end - positions.get(key, 0))
        return found

    def following(self, state: LoadState) -> LoadRound | None:
        """Return the next round; None if all is loaded. The changes of `corrections` must already be in `state`."""
        starts = {key: state.positions[key] for key in self._keys}
        ends = {key: end for key, end in self._bounds.items() if starts[key] < end}
        if not ends:
            return None
        return self._round_within(starts, ends)

    def corrections(self, state: LoadState) -> Change | None:
        """Return changes of positions to commit before the next round; None if there are none.

        The changes are the starts of new partitions, and new positions where records no longer exist. They have a
        separate commit, because a partition may have no records to read. Raises LoadError and OptionError.
        """
        look_up = Offsets(self.client, self._isolation)
        known = [key for key in self._keys if key in state.positions]
        unknown = [key for key in self._keys if key not in state.positions]
        found = self._first(unknown, look_up) if unknown else {}
        earliest = look_up(dict.fromkeys(known, OFFSET_EARLIEST))
        latest = look_up(dict.fromkeys(known, OFFSET_LATEST))
        parted = self._parted(known, state)
        for key in known:
            checked = self._checked(key, earliest[key], latest[key], state, parted.get(key))
            if checked != state.positions[key]:
                found[key] = checked
        ids = {name: text for name, text in self.topic_ids.items() if state.topic_ids.get(name) != text}
        if not found and not ids:
            return None
        return Change("load", positions=found, topic_ids=ids, marks=marks_at(self.client, found))

    def _parted(self, known: list[TopicPartition], state: LoadState) -> dict[TopicPartition, Divergence]:
        """Return the partitions whose log differs from what was loaded, because it was truncated or restored."""
        marks = {key: state.marks[key] for key in known if key in state.marks}
        kept = {key: mark for key, mark in marks.items() if mark.offset == state.positions[key]}
        return {found.partition: found for found in find_divergences(self.client, kept)}

    def _first(self, keys: list[TopicPartition], look_up: Offsets) -> dict[TopicPartition, int]:
        starting = self.source.starting
        if starting.offsets is not None:  # set for the first load; partitions added later start at the earliest offset
            given = {key: starting.offsets.get(key, OFFSET_EARLIEST) for key in keys}
            markers = {key: offset for key, offset in given.items() if offset < 0}
            starts = {**given, **look_up(markers)}
            latest = look_up(dict.fromkeys(keys, OFFSET_LATEST))
            for why in beyond_the_end(starting, starts, latest):
                self._lost(why)
            return {key: min(start, latest[key]) for key, start in starts.items()}
        return resolve(starting, keys, look_up, missing="latest")

    def _checked(
        self, key: TopicPartition, earliest: int, latest: int, state: LoadState, parted: Divergence | None
    ) -> int:
        """Return the position of a partition, or where to continue if the records there no longer exist.

        LoadError if they no longer exist and the load must not skip records.
        """
        position = state.positions[key]
        then, now = state.topic_ids.get(key.topic), self.topic_ids.get(key.topic)
        if then is not None and now is not None and then != now:
            self._lost(f"topic {key.topic} was deleted and recreated after {key} was loaded up to offset {position}")
            return earliest
        if parted is not None:
            self._lost(f"{parted}: it was restored or truncated")
            return max(earliest, 0 if parted.at is None else parted.at)
        if position < earliest:
            self._lost(
                f"offsets {position} to {earliest} of {key} have aged out or were deleted before they were loaded"
            )
            return earliest
        if position > latest:
            self._lost(
                f"{key} ends at offset {latest} but is loaded up to {position}: it lost records or was recreated"
            )
            return latest
        return position

    def _lost(self, why: str) -> None:
        if self.source.fail_on_data_loss:
            raise LoadError(f"{why}; {REMEDY}")
        if why not in self.losses:
            self.losses.append(why)

    def _round_within(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> LoadRound:
        """Return a round with the first part of these ranges, of about `commit_size` bytes in total."""
        target = max(self._commit_size // 16, ESTIMATE_PIECE)
        found = {}
        for key in sorted(ends):
            try:
                found[key] = split_by_size(self.client, key, starts[key], ends[key], target)
            except OffsetOutOfRange as error:
                message = f"records of {key} from offset {starts[key]} on aged out during planning; run the load again"
                raise LoadError(message) from error
        sizes = {key: max(1, sum(piece.size for piece in pieces)) for key, pieces in found.items()}
        shares = fair_shares(sizes, self._commit_size, sum(starts.values()))
        cut = {key: end_at_size(found[key], share) for key, share in shares.items()}
        density = max(
            piece.size / (piece.end - piece.start)
            for key, end in cut.items()
            for piece in found[key]
            if piece.start < end
        )
        return LoadRound({key: starts[key] for key in cut}, cut, sum(shares.values()), density)


def starting_bound(starting: str | int) -> OffsetBound:
    """Return where to start in partitions that were never loaded.

    `starting` is "earliest", "latest", JSON as in Spark's startingOffsets, or a time in ms since 1970. OptionError.
    """
    if isinstance(starting, int):
        return OffsetBound(timestamps=starting)
    return offset_bound("startingOffsets", starting, OFFSET_EARLIEST)
