"""Store time series in ring buffers of fixed size: 5 s slots for an hour, 1 min for a day, 15 min for two weeks.

    add ─▶ 5 s slots ─▶ 1 min slots, each from 12 ─▶ 15 min slots, each from 15

A slot without a value is NaN, which is a gap in charts. Times are in ms since 1970 and come with each call.

Thread rule: one thread writes, without a lock. A concurrent reader may see one slot too few or too many.
"""

from __future__ import annotations

import heapq
import json
import math
import struct
import sys
import zlib
from array import array
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Key = tuple[str, ...]

NAN: Final = math.nan
SERIES_MAX: Final = 2000
"""Maximum number of series. A series takes 28 KB."""
PEAKS: Final = frozenset({"lag", "lag-seconds", "latency-p99"})
"""Kinds (the first word of a key) whose coarse slots have the peak. Those of all other kinds have the mean."""
WEIGHT_KEPT: Final = 0.98
"""Decay of a series' weight per sample: it halves in three minutes."""
TAKEN_OVER: Final = 2.0
"""Factor by which a newcomer must be busier than the series it evicts."""
ABSENT_MS: Final = 600_000
"""How long a topic or group may be absent: much longer than a failed sample of one broker takes."""
REPLACED_MAX: Final = 50
"""Maximum evictions per sample."""
MAGIC: Final = b"kafkalite rings 1\n"
_SIZES: Final = struct.Struct("<II")


class Span(NamedTuple):
    """The resolution of a ring: name, ms per slot, number of slots."""

    name: str
    step_ms: int
    slots: int

    @property
    def length_ms(self) -> int:
        """The length of the ring in ms."""
        return self.step_ms * self.slots


HOUR: Final = Span("hour", 5_000, 720)
DAY: Final = Span("day", 60_000, 1440)
FORTNIGHT: Final = Span("fortnight", 900_000, 1344)
SPANS: Final = (HOUR, DAY, FORTNIGHT)


class Ring:
    """A ring buffer of the last `count` slots. `head` is the number of the newest slot, -1 if there is none."""

    __slots__ = ("head", "values")

    def __init__(self, count: int) -> None:
        self.values = array("d", [NAN]) * count
        self.head = -1

    def put(self, slot: int, value: float) -> None:
        """Write a slot. An older slot is written if the ring still has it.

        A slot that is older than the whole ring means that the clock was set back. Then the ring is emptied first.
        """
        count = len(self.values)
        if self.head < 0 or slot <= self.head - count:
            self._clear()
            self.head = slot
        for passed in range(max(self.head + 1, slot - count + 1), slot):
            self.values[passed % count] = NAN
        self.head = max(self.head, slot)
        self.values[slot % count] = value

    def window(self, last: int, length: int) -> list[float]:
        """Return `length` slots up to the slot `last`, oldest first. Unknown values are NaN."""
        return [self._at(slot) for slot in range(last - length + 1, last + 1)]

    def _at(self, slot: int) -> float:
        count = len(self.values)
        return self.values[slot % count] if 0 <= self.head - slot < count else NAN

    def _clear(self) -> None:
        for index in range(len(self.values)):
            self.values[index] = NAN


class Series:
    """The time series of one key, in a ring for each resolution.

    `weight` measures how busy the series is. `present_ms` is the time of the last sample with its topic or group.
    """

    __slots__ = ("peak", "present_ms", "rings", "weight")

    def __init__(self, kind: str) -> None:
        self.rings = tuple(Ring(span.slots) for span in SPANS)
        self.peak = kind in PEAKS
        self.weight = 0.0
        self.present_ms = -1

    def add(self, time_ms: int, value: float) -> None:
        """Add a value to the finest ring, and update the coarser rings."""
        self.rings[0].put(time_ms // SPANS[0].step_ms, value)
        for place in range(1, len(SPANS)):
            fine, coarse = SPANS[place - 1], SPANS[place]
            slot = time_ms // coarse.step_ms
            parts = coarse.step_ms // fine.step_ms
            found = [each for each in self.rings[place - 1].window((slot + 1) * parts - 1, parts) if each == each]
            if found:
                self.rings[place].put(slot, max(found) if self.peak else math.fsum(found) / len(found))

    def window(self, span: Span, now_ms: int) -> list[float]:
        """Return all slots of a span up to now, oldest first."""
        return self.rings[SPANS.index(span)].window(now_ms // span.step_ms, span.slots)


class Value(NamedTuple):
    """The value of a series in a sample, NaN if it is unknown.

    `weight` measures how busy the series was: for a topic by its messages since the last sample.
    The key of a topic's series contains the topic's id, so a recreated topic starts a new series.
    """

    key: Key
    value: float
    weight: float


class Rings:
    """All time series of a cluster. Their number is limited; the busiest series are kept.

    `left_out` is the number of series in the last sample for which there was no room.
    """

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        self._series: dict[Key, Series] = {}
        self._series_max = series_max
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._series)

    def get(self, *key: str) -> Series | None:
        """Return a series; None if it is not stored."""
        return self._series.get(key)

    def add(self, time_ms: int, values: Iterable[Value]) -> None:
        """Add the values of one sample."""
        for series in self._series.values():
            series.weight *= WEIGHT_KEPT
        strangers: list[Value] = []
        present: set[Key] = set()
        for row in values:
            present.add(row.key[1:])
            known = self._series.get(row.key)
            if known is None:
                strangers.append(row)
            else:
                known.weight += row.weight
                known.add(time_ms, row.value)
        self._forget_absent(time_ms, present)
        self.left_out = len(strangers) - self._admit(time_ms, strangers)

    def _forget_absent(self, time_ms: int, present: set[Key]) -> None:
        """Drop each series whose topic or group has been missing for ABSENT_MS.

        Keys in `present` have no kind of value, since a sample need not contain every kind.
        """
        absent = []
        for key, series in self._series.items():
            if series.present_ms < 0 or key[1:] in present:
                series.present_ms = time_ms
            elif time_ms - series.present_ms > ABSENT_MS:
                absent.append(key)
        for key in absent:
            del self._series[key]

    def _admit(self, time_ms: int, strangers: list[Value]) -> int:
        """Add new series while there is room. Then let busy new series replace idle ones. Return the number of series
        added."""
        free = self._series_max - len(self._series)
        if len(strangers) > free:
            strangers = heapq.nlargest(max(free, 0) + REPLACED_MAX, strangers, key=lambda row: row.weight)
        for row in strangers[: max(free, 0)]:
            self._begin(time_ms, row)
        rest = strangers[max(free, 0) :]
        if not rest:
            return len(strangers)
        idle = heapq.nsmallest(len(rest), self._series.items(), key=lambda item: item[1].weight)
        taken = 0
        for row, (key, series) in zip(rest, idle, strict=False):
            if row.weight <= TAKEN_OVER * series.weight:
                break
            del self._series[key]
            self._begin(time_ms, row)
            taken += 1
        return max(free, 0) + taken

    def _begin(self, time_ms: int, row: Value) -> None:
        series = self._series[row.key] = Series(row.key[0])
        series.weight, series.present_ms = row.weight, time_ms
        series.add(time_ms, row.value)

    # --- kept over restarts -------------------------------------------------------------------------------------------

    def dump(self, cluster: str) -> bytes:
        """Return all series as bytes with a checksum. `cluster` is the cluster's id, which `load` checks."""
        known = list(self._series.items())
        rows = [[list(key), [ring.head for ring in series.rings], series.weight] for key, series in known]
        head = json.dumps({"cluster": cluster, "series": rows}).encode()
        parts = [head]
        for _, series in known:
            parts += [little_endian(ring.values) for ring in series.rings]
        body = b"".join(parts)
        return b"".join((MAGIC, _SIZES.pack(len(head), zlib.crc32(body)), body))

    def load(self, raw: bytes, cluster: str) -> bool:
        """Load the result of `dump`. Return False if it belongs to another cluster. Raises ValueError if it is
        damaged."""
        start = len(MAGIC) + _SIZES.size
        if len(raw) < start or not raw.startswith(MAGIC):
            raise ValueError("not a history file of the console")
        size, checksum = _SIZES.unpack_from(raw, len(MAGIC))
        body = memoryview(raw)[start:]
        if zlib.crc32(body) != checksum:
            raise ValueError("wrong checksum")
        document = json.loads(bytes(body[:size]))
        if document["cluster"] != cluster:
            return False
        self._series = read_series(document, body[size:])
        return True


def read_series(document: Mapping[str, Any], body: memoryview) -> dict[Key, Series]:
    """Read the series of a file with a valid checksum."""
    found: dict[Key, Series] = {}
    place = 0
    for key, heads, weight in document["series"]:
        series = Series(key[0])
        series.weight = weight
        for ring, head in zip(series.rings, heads, strict=True):
            size = len(ring.values) * ring.values.itemsize
            ring.values = array("d", bytes(body[place : place + size]))
            if sys.byteorder != "little":
                ring.values.byteswap()
            ring.head = head
            place += size
        found[tuple(key)] = series
    return found


def little_endian(values: array[float]) -> bytes:
    """Return the array's bytes in little-endian order, which files have on every machine."""
    if sys.byteorder == "little":
        return values.tobytes()
    swapped = array("d", values)
    swapped.byteswap()
    return swapped.tobytes()
