"""The state of a cluster except its recorded broker: events in, partitions and the other broker's logs out.

The same events build the state while a run is recorded and, up to a moment, when one of its crash states is judged.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN, PEER = 7, 8
"""Node ids of the recorded broker and of the other one."""
UNDEFINED = -1
_HEAD = struct.Struct(">qiibIhi")  # base offset, length, leader epoch, magic, CRC, attributes, last offset delta

Key = tuple[bytes, int]
"""A partition: its topic's id, its number."""


class Batch(NamedTuple):
    """One of a log."""

    base: int
    behind: int
    epoch: int
    data: bytes

    @property
    def crc(self) -> int:
        """Of what a producer sent: offset and epoch are not under it."""
        return int.from_bytes(self.data[17:21], "big")


def split(data: bytes) -> Iterator[Batch]:
    """The batches in a log's bytes; what follows the last whole one is left out."""
    position = 0
    while len(data) - position >= _HEAD.size:
        base, length, epoch, _, _, _, delta = _HEAD.unpack_from(data, position)
        end = position + 12 + length
        if length <= 0 or end > len(data):
            return
        yield Batch(base, base + delta + 1, epoch, data[position:end])
        position = end


class Part(NamedTuple):
    """A partition as the controllers have it."""

    topic: str
    replicas: tuple[int, ...]
    leader: int
    epoch: int
    version: int
    isr: tuple[int, ...]


@dataclass
class Line:
    """The other broker's log of a partition, by Kafka's rules."""

    batches: list[Batch] = field(default_factory=list)
    """Those below `start` too: they were given out once."""
    start: int = 0
    end: int = 0
    high: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    ever: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """(epoch, offset) → batch, of all that was ever in it."""
    histories: dict[int, list[Batch]] = field(default_factory=dict)
    """What it held when its leadership in an epoch ended."""
    high_max: int = 0
    told: tuple[int, int] = (UNDEFINED, 0)
    """(epoch, end) of the recorded broker's last fetch in it that was no divergence."""

    def take(self, batch: Batch) -> None:
        """Appends."""
        if not self.epochs or self.epochs[-1][0] < batch.epoch:
            self.epochs.append((batch.epoch, batch.base))
        self.batches.append(batch)
        self.ever[batch.epoch, batch.base] = batch.data
        self.end = batch.behind

    def cut(self, offset: int) -> None:
        """Takes off all that reaches beyond an offset; epochs that began there go even if nothing else does."""
        self.batches = [each for each in self.batches if each.behind <= offset]
        self.end = min(self.end, offset)
        self.high = min(self.high, self.end)
        self.epochs = [each for each in self.epochs if each[1] < self.end]

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Kafka's endOffsetFor: (largest epoch not above this one, where it ends)."""
        if not self.epochs or epoch > self.epochs[-1][0]:
            return UNDEFINED, UNDEFINED
        if epoch == self.epochs[-1][0]:
            return epoch, self.end
        above = next(i for i, each in enumerate(self.epochs) if each[0] > epoch)
        return (self.epochs[above - 1][0] if above else epoch), self.epochs[above][1]

    @property
    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else UNDEFINED


class Event(NamedTuple):
    """What happened to a partition, and before which record of the trace."""

    place: int
    kind: str
    key: Key
    what: Any


class State:
    """All partitions."""

    def __init__(self) -> None:
        self.parts: dict[Key, Part] = {}
        self.lines: dict[Key, Line] = {}

    @classmethod
    def at(cls, kept: dict[str, Any], moment: int) -> State:
        """As it was at a moment; `kept` as `Others.kept` has it."""
        state = cls()
        for place, kind, (topic_id, number), what in kept["events"]:
            if place <= moment:
                state.apply(Event(place, kind, (bytes.fromhex(topic_id), number), what))
        return state

    def apply(self, event: Event) -> None:
        """Apply one event."""
        key, what = event.key, event.what
        if event.kind == "part":
            before, part = self.parts.get(key), Part(what[0], tuple(what[1]), *what[2:5], tuple(what[5]))
            line = self.lines.setdefault(key, Line())
            if before is not None and before.leader == PEER and before.epoch != part.epoch:
                line.histories[before.epoch] = list(line.batches)
            self.parts[key] = part
            return
        line = self.lines[key]
        if event.kind == "gone":
            del self.parts[key]
        elif event.kind == "append":
            for batch in split(bytes.fromhex(what)):
                line.take(batch)
        elif event.kind == "cut":
            line.cut(what)
        elif event.kind == "lead":
            line.epochs = [each for each in line.epochs if each[1] < line.end]
            line.epochs.append((what, line.end))
        elif event.kind == "front":
            line.start = what
            line.high = max(line.high, what)
        elif event.kind == "high":
            line.high = what
            line.high_max = max(line.high_max, what)
        else:
            line.told = tuple(what)

    def history(self, key: Key, epoch: int) -> list[Batch]:
        """The log of the leader of an epoch in which the other broker led, as it was at the epoch's end or is now."""
        return self.lines[key].histories.get(epoch, self.lines[key].batches)

    def name(self, key: Key) -> str:
        return f"{self.parts[key].topic}-{key[1]}"


class Kept:
    """What `Others.kept` has, up to a moment."""

    def __init__(self, kept: dict[str, Any], moment: int) -> None:
        self.state = State.at(kept, moment)
        self._isr: dict[Key, list[tuple[int, tuple[int, ...]]]] = {}
        for place, kind, (topic_id, number), what in kept["events"]:
            if kind == "part" and place <= moment:
                self._isr.setdefault((bytes.fromhex(topic_id), number), []).append((place, tuple(what[5])))

    def in_sync(self, key: Key, begin: int, end: int) -> set[tuple[int, ...]]:
        """Who was in sync with a partition from a moment to another."""
        rows = self._isr.get(key, [])
        found = {isr for place, isr in rows if begin < place <= end}
        return found | {isr for place, isr in [each for each in rows if each[0] <= begin][-1:]}
