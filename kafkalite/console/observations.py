"""Compute rates, lags and problems of groups from successive samples of a cluster.

    Look       topics, end offsets, committed offsets and bytes, read from the cluster
    Observer   compares two looks, and returns a Sample for pages, and values that the console stores as time series

The module reads no clock: each sample contains its time in ms since 1970. A count that decreases, for example after
a reset of a group, gives no rate.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.console.ages import SeenEnds
from kafkalite.console.rings import NAN, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kafkalite.client.admin.groups import GroupProgress
    from kafkalite.client.cluster import TopicDescription
    from kafkalite.model import TopicPartition

BASE_MS: Final = 60_000
"""Window of rates and trends on pages: at least a minute, at most two."""
RISING_SHARE: Final = 1.1
RISING_MIN: Final = 10
SEEN_MAX: Final = 5000
"""Partitions whose record ages are tracked."""
WAITING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
TROUBLES: Final = ("stopped", "no consumers", "rising", "rebalancing", "")
"""Problems of a group, the worst first; "" is none."""


class Look(NamedTuple):
    """The raw data of one sample. `sizes` has the bytes of leader replicas; None if they were not requested or not
    authorized."""

    time_ms: int
    topics: Mapping[str, TopicDescription]
    ends: Mapping[TopicPartition, int]
    groups: Sequence[GroupProgress]
    sizes: Mapping[TopicPartition, int] | None = None
    free: Mapping[tuple[int, str], tuple[int, int]] | None = None
    """Usable and total bytes by broker and directory."""


class TopicNow(NamedTuple):
    """A topic in a sample. `rate` is in messages per second over the last minute, or None if it is not known yet."""

    name: str
    id: str
    partitions: int
    offline: int
    under_replicated: int
    internal: bool
    end: int
    rate: float | None
    size: int | None


class Reading(NamedTuple):
    """A group's progress in one topic.

    `age_ms` is the age of the oldest unread record. If not `exact`, it is a lower bound.
    """

    topic: str
    lag: int
    age_ms: float | None
    exact: bool
    committed: int
    rate: float | None


class GroupNow(NamedTuple):
    """A group in a sample. `lag` is None if its offsets may not be read.

    `trouble` is one of TROUBLES. `trend` is the change of the lag in messages per second.
    """

    group: str
    state: str
    kind: str
    lag: int | None
    age_ms: float | None
    exact: bool
    rate: float | None
    trend: float | None
    trouble: str
    readings: tuple[Reading, ...]

    @property
    def zero_s(self) -> float | None:
        """The seconds until the lag is 0 at the current trend. None if the lag does not decrease."""
        if not self.lag or self.trend is None or self.trend >= 0:
            return None
        return self.lag / -self.trend


class Sample(NamedTuple):
    """The state of the cluster at one moment, with the rates."""

    time_ms: int
    topics: dict[str, TopicNow]
    groups: dict[str, GroupNow]
    rate_in: float | None
    rate_out: float | None

    def groups_of(self, topic: str) -> list[tuple[GroupNow, Reading]]:
        """Return the groups with committed offsets for a topic."""
        return [(group, row) for group in self.groups.values() for row in group.readings if row.topic == topic]


class _Base(NamedTuple):
    """An older sample, usually from one or two minutes ago, with which the current sample is compared."""

    time_ms: int
    ends: dict[str, int]
    committed: dict[tuple[str, str], int]
    lags: dict[str, int]


class Observer:
    """Compares successive samples, and computes rates and problems."""

    def __init__(self) -> None:
        self._bases: list[_Base] = []
        self._last: Look | None = None
        self._sums: dict[tuple[str, str], tuple[int, int]] = {}
        self._seen: dict[TopicPartition, SeenEnds] = {}
        self._ids: dict[str, str] = {}
        self._sizes: dict[str, int] = {}

    def observe(self, look: Look) -> tuple[Sample, list[Value]]:
        """Process the next sample. Return it with rates, and the values for the time series. Times must not
        decrease."""
        ids = {name: row.topic_id.hex() for name, row in look.topics.items()}
        self._forget_renewed(ids)
        self._see(look)
        ends: dict[str, int] = defaultdict(int)
        for key, end in look.ends.items():
            ends[key.topic] += end
        if look.sizes is not None:
            self._sizes = defaultdict(int)
            for key, size in look.sizes.items():
                self._sizes[key.topic] += size
        base = self._base(look.time_ms)
        groups = {row.group.group_id: self._group(row, look, base) for row in look.groups}
        topics = {name: self._topic(row, ends, look.time_ms, base) for name, row in look.topics.items()}
        values = list(self._values(look, topics, groups))
        self._bases.append(
            _Base(
                look.time_ms,
                dict(ends),
                {(group.group, row.topic): row.committed for group in groups.values() for row in group.readings},
                {group.group: group.lag for group in groups.values() if group.lag is not None},
            )
        )
        self._thin_bases()
        self._last = look
        sample = Sample(
            look.time_ms, topics, groups, total(row.rate for row in topics.values() if not row.internal), reads(groups)
        )
        return sample, values

    # --- inside -------------------------------------------------------------------------------------------------------

    def _forget_renewed(self, ids: dict[str, str]) -> None:
        """Drop the history of topics that were deleted or recreated."""
        renewed = {name for name, known in self._ids.items() if ids.get(name, known) != known} | self._ids.keys() - ids
        self._ids = ids
        if not renewed:
            return
        self._seen = {key: seen for key, seen in self._seen.items() if key.topic not in renewed}
        for base in self._bases:
            for name in renewed:
                base.ends.pop(name, None)
            for pair in [pair for pair in base.committed if pair[1] in renewed]:
                del base.committed[pair]
        self._sums = {key: row for key, row in self._sums.items() if key[1] not in renewed}

    def _see(self, look: Look) -> None:
        for row in look.groups:
            for key in row.committed or ():
                end = look.ends.get(key)
                if end is None:
                    continue
                seen = self._seen.get(key)
                if seen is None:
                    if len(self._seen) >= SEEN_MAX:
                        continue
                    seen = self._seen[key] = SeenEnds()
                seen.see(look.time_ms, end)

    def _base(self, now_ms: int) -> _Base | None:
        """Return the newest sample that is at least a minute old, or else the oldest sample."""
        old = [base for base in self._bases if now_ms - base.time_ms >= BASE_MS]
        return old[-1] if old else (self._bases[0] if self._bases else None)

    def _thin_bases(self) -> None:
        """Keep one older sample per half minute, for two minutes."""
        newest = self._bases[-1]
        kept = [base for base in self._bases[:-1] if newest.time_ms - base.time_ms <= 2 * BASE_MS]
        if len(kept) >= 2 and kept[-1].time_ms - kept[-2].time_ms < BASE_MS // 2:
            del kept[-1]
        self._bases = [*kept, newest]

    def _topic(self, row: TopicDescription, ends: Mapping[str, int], now_ms: int, base: _Base | None) -> TopicNow:
        end = ends.get(row.name, 0)
        before = None if base is None else base.ends.get(row.name)
        return TopicNow(
            row.name,
            self._ids[row.name],
            len(row.partitions),
            sum(part.leader < 0 for part in row.partitions),
            sum(len(part.in_sync) < len(part.replicas) for part in row.partitions),
            row.is_internal,
            end,
            rate_of(end, before, now_ms, base),
            self._sizes.get(row.name),
        )

    def _group(self, row: GroupProgress, look: Look, base: _Base | None) -> GroupNow:
        group = row.group
        if row.committed is None:
            return GroupNow(group.group_id, group.state, group.kind, None, None, True, None, None, "", ())
        by_topic: dict[str, list[tuple[TopicPartition, int]]] = defaultdict(list)
        for key, offset in row.committed.items():
            if key in look.ends:
                by_topic[key.topic].append((key, offset))
        readings = tuple(
            self._reading(group.group_id, name, pairs, look, base) for name, pairs in sorted(by_topic.items())
        )
        lag = sum(reading.lag for reading in readings)
        ages = [(reading.age_ms, reading.exact) for reading in readings if reading.age_ms is not None]
        age, exact = max(ages, default=(None, True))
        rate = total(reading.rate for reading in readings)
        trend = None
        trouble = ""
        if base is not None:
            before = base.lags.get(group.group_id)
            passed = (look.time_ms - base.time_ms) / 1000
            trend = (lag - before) / passed if before is not None and passed > 0 else None
            trouble = trouble_of(group.state, lag, before, rate, enough=look.time_ms - base.time_ms >= BASE_MS)
        elif lag and group.state == "Empty":
            trouble = "no consumers"
        return GroupNow(group.group_id, group.state, group.kind, lag, age, exact, rate, trend, trouble, readings)

    def _reading(
        self, group: str, topic: str, pairs: list[tuple[TopicPartition, int]], look: Look, base: _Base | None
    ) -> Reading:
        lag = sum(max(look.ends[key] - offset, 0) for key, offset in pairs)
        ages = [seen.age(offset, look.time_ms) for key, offset in pairs if (seen := self._seen.get(key)) is not None]
        age = max((each for each in ages if each is not None), default=None)
        committed = sum(offset for _, offset in pairs)
        before = None if base is None else base.committed.get((group, topic))
        return Reading(
            topic,
            lag,
            None if age is None else age.ms,
            age is None or age.exact,
            committed,
            rate_of(committed, before, look.time_ms, base),
        )

    def _values(self, look: Look, topics: Mapping[str, TopicNow], groups: Mapping[str, GroupNow]) -> Iterator[Value]:
        """Yield the values for the time series. Rates are those since the last sample.

        Pairs (group, topic) that are not in this sample are forgotten.
        """
        before, self._sums = self._sums, {}
        moved_in, moved_out = 0.0, 0.0
        weighed = 1e18  # series of the whole cluster are never evicted
        for topic in topics.values():
            moved = self._moved(before, ("", topic.name), topic.end, look.time_ms)
            if moved is not None:
                rate, count = moved
                moved_in += 0 if topic.internal else rate
                yield Value(("in", topic.name, topic.id), rate, count)
            if look.sizes is not None and topic.size is not None:
                yield Value(("disk", topic.name, topic.id), topic.size, 0.0 if moved is None else moved[1])
        for group in groups.values():
            for row in group.readings:
                topic_id = topics[row.topic].id
                moved = self._moved(before, (group.group, row.topic), row.committed, look.time_ms)
                weight = float(row.lag) + (0.0 if moved is None else moved[1])
                yield Value(("lag", group.group, row.topic, topic_id), row.lag, weight)
                if row.age_ms is not None:
                    yield Value(("lag-seconds", group.group, row.topic, topic_id), row.age_ms / 1000, weight)
                if moved is not None:
                    moved_out += moved[0]
                    yield Value(("out", group.group, row.topic, topic_id), moved[0], weight)
        if self._last is not None:
            yield Value(("total-in",), moved_in, weighed)
            yield Value(("total-out",), moved_out, weighed)
        for (node, path), (usable, _) in (look.free or {}).items():
            yield Value(("free", str(node), path), usable, weighed)

    def _moved(
        self, before: Mapping[tuple[str, str], tuple[int, int]], pair: tuple[str, str], count: int, now_ms: int
    ) -> tuple[float, float] | None:
        """Return (messages per second, messages) since the last sample; None for the first sample.

        The rate is NaN if the count decreased.
        """
        last = before.get(pair)
        self._sums[pair] = (now_ms, count)
        if last is None or now_ms <= last[0]:
            return None
        if count < last[1]:
            return NAN, 0.0
        return (count - last[1]) * 1000 / (now_ms - last[0]), float(count - last[1])


def rate_of(count: int, before: int | None, now_ms: int, base: _Base | None) -> float | None:
    """Return the rate per second since the older sample; None if it cannot be computed."""
    if base is None or before is None or count < before or now_ms <= base.time_ms:
        return None
    return (count - before) * 1000 / (now_ms - base.time_ms)


def total(rates: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None if no value is known."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def reads(groups: Mapping[str, GroupNow]) -> float | None:
    """Return the total consumption rate of these groups."""
    return total(group.rate for group in groups.values())


def trouble_of(state: str, lag: int, before: int | None, rate: float | None, *, enough: bool) -> str:
    """Return one of TROUBLES. `before` is the lag in the older sample.

    If not `enough`, the history is too short to report a group as stopped or rising.
    """
    if state in WAITING:
        return "rebalancing"
    if not lag:
        return ""
    if state == "Empty" and not rate:  # a group can commit without members
        return "no consumers"
    if not enough:
        return ""
    if rate == 0:
        return "stopped"
    if before is not None and lag > max(before * RISING_SHARE, before + RISING_MIN):
        return "rising"
    return ""
