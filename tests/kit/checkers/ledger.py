"""Remembers what was sent and acknowledged, and judges what is read back.

Each record names itself in its key, so that values of any size (0 bytes too) can be judged:

    "KL"  producer u32  partition u32  sequence u64  value size u32  CRC-32 of the value u32  CRC-32 of the above u32

The sequence counts per (producer, partition) from 0. `Ledger.judge` takes what a reader found and returns every way in
which it is wrong:

    lost       acknowledged, not there
    doubled    there more than once
    reordered  a later one of the same producer and partition precedes it
    changed    key or value do not match their checksums, or the record is not one of ours
    moved      in another partition, or at another offset than the acknowledgement said
    invented   ours by its checksum, never sent
    gap        offsets of a partition do not follow each other
    vanished   two reads of the same log differ (`compare_reads`)

Ledger is thread-safe: producers' callbacks and senders run in different threads.
"""

from __future__ import annotations

import itertools
import struct
import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_KEY_BODY = struct.Struct(">2sIIQII")
_KEY_CRC = struct.Struct(">I")
KEY_SIZE = _KEY_BODY.size + _KEY_CRC.size
EXAMPLE_COUNT_MAX = 5


class Identity(NamedTuple):
    producer: int
    partition: int
    sequence: int


class ReadRecord(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


Read = Mapping[int, Sequence[ReadRecord]]


def make_value(identity: Identity, size: int) -> bytes:
    """`size` bytes that depend on the identity, half of them compressible."""
    seed = f"{identity.producer}/{identity.partition}/{identity.sequence};".encode()
    return (seed * (size // len(seed) + 1))[:size]


def make_key(identity: Identity, value: bytes) -> bytes:
    body = _KEY_BODY.pack(b"KL", *identity, len(value), zlib.crc32(value))
    return body + _KEY_CRC.pack(zlib.crc32(body))


def parse_record(record: ReadRecord) -> Identity | str:
    """The identity of a sound record, or what is wrong with it."""
    key = record.key
    if key is None or len(key) != KEY_SIZE:
        return f"key of {None if key is None else len(key)} bytes"
    magic, producer, partition, sequence, size, value_crc = _KEY_BODY.unpack_from(key)
    if magic != b"KL" or _KEY_CRC.unpack_from(key, _KEY_BODY.size)[0] != zlib.crc32(key[: _KEY_BODY.size]):
        return "key checksum differs"
    value = record.value or b""
    if len(value) != size or zlib.crc32(value) != value_crc:
        return f"value of {producer}/{partition}/{sequence} differs ({len(value)} bytes, {size} were sent)"
    return Identity(producer, partition, sequence)


@dataclass
class Verdict:
    """All findings by kind; true when there is none."""

    findings: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    sent_count: int = 0
    acknowledged_count: int = 0
    read_count: int = 0

    def add(self, kind: str, text: str) -> None:
        self.findings[kind].append(text)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(kind for kind, texts in self.findings.items() if texts)

    def __bool__(self) -> bool:
        return not self.kinds

    def __str__(self) -> str:
        head = f"sent {self.sent_count}, acknowledged {self.acknowledged_count}, read {self.read_count}"
        parts = [
            f"{kind}: {len(texts)}, such as {'; '.join(texts[:EXAMPLE_COUNT_MAX])}"
            for kind, texts in self.findings.items()
            if texts
        ]
        return " | ".join([head, *(parts or ["nothing wrong"])])


class Ledger:
    """The records that producers sent to one topic, and the acknowledgements they got."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: Counter[tuple[int, int]] = Counter()
        self._acknowledged: dict[Identity, int | None] = {}
        self.failures: Counter[str] = Counter()

    def next_record(self, producer: int, partition: int, size: int) -> tuple[Identity, bytes, bytes]:
        """Identity, key and value of the next record to send."""
        identity = self.sent(producer, partition)
        value = make_value(identity, size)
        return identity, make_key(identity, value), value

    def sent(self, producer: int, partition: int) -> Identity:
        """The next record, of which no more is wanted than its name: another process has sent it."""
        with self._lock:
            sequence = self._next[producer, partition]
            self._next[producer, partition] += 1
        return Identity(producer, partition, sequence)

    def acknowledge(self, identity: Identity, offset: int | None = None) -> None:
        """The broker said that it has it; `offset` None when the client does not tell where."""
        with self._lock:
            self._acknowledged[identity] = offset if offset is None or offset >= 0 else None

    def fail(self, identity: Identity, reason: str) -> None:
        """The client gave up: it may be there or not."""
        with self._lock:
            self.failures[reason] += 1

    @property
    def acknowledged_count(self) -> int:
        with self._lock:
            return len(self._acknowledged)

    def at(self, acknowledged: Mapping[Identity, int | None]) -> Ledger:
        """The same records, of which no more is sure than was acknowledged at some moment (`acknowledged_now`)."""
        ledger = Ledger()
        with self._lock:
            ledger._next = Counter(self._next)
        ledger._acknowledged = dict(acknowledged)
        return ledger

    def acknowledged_now(self) -> dict[Identity, int | None]:
        """Return the records acknowledged so far, with their offsets."""
        with self._lock:
            return dict(self._acknowledged)

    @property
    def sent_count(self) -> int:
        with self._lock:
            return sum(self._next.values())

    def judge(
        self,
        read: Read,
        *,
        doubles_allowed: bool = False,
        order_required: bool = True,
        gaps_allowed: bool = False,
        renumbered: Collection[Identity] = (),
    ) -> Verdict:
        """Compares `read` (by partition, as read from the log's start to its end) with what was sent.

        Records in `renumbered` may be there more than once: their client is known to have sent them as new ones.
        """
        with self._lock:
            acknowledged, sent = dict(self._acknowledged), Counter(self._next)
        verdict = Verdict(
            sent_count=sum(sent.values()),
            acknowledged_count=len(acknowledged),
            read_count=sum(len(records) for records in read.values()),
        )
        places: dict[Identity, list[tuple[int, int]]] = defaultdict(list)
        for partition, records in read.items():
            if not gaps_allowed:
                _judge_gaps(verdict, partition, records)
            for record in records:
                identity = parse_record(record)
                if isinstance(identity, str):
                    verdict.add("changed", f"{partition}@{record.offset}: {identity}")
                elif identity.sequence >= sent[identity.producer, identity.partition]:
                    verdict.add("invented", f"{partition}@{record.offset}: {identity}")
                else:
                    places[identity].append((partition, record.offset))
        allowed = places.keys() if doubles_allowed else set(renumbered)
        _judge_places(verdict, places, acknowledged, allowed)
        if order_required:
            _judge_order(verdict, places)
        return verdict


def _judge_gaps(verdict: Verdict, partition: int, records: Sequence[ReadRecord]) -> None:
    for before, after in itertools.pairwise(records):
        if after.offset != before.offset + 1:
            verdict.add("gap", f"partition {partition}: {before.offset} is followed by {after.offset}")


def _judge_places(
    verdict: Verdict,
    places: Mapping[Identity, list[tuple[int, int]]],
    acknowledged: Mapping[Identity, int | None],
    doubles_allowed: Collection[Identity],
) -> None:
    for identity, found in places.items():
        if len(found) > 1 and identity not in doubles_allowed:
            verdict.add("doubled", f"{identity} at {found}")
        for partition, offset in found:
            if partition != identity.partition:
                verdict.add("moved", f"{identity} in partition {partition} at {offset}")
    for identity, offset in acknowledged.items():
        found = places.get(identity, [])
        if not found:
            verdict.add("lost", f"{identity} acknowledged at {offset}")
        elif offset is not None and all(place[1] != offset for place in found):
            verdict.add("moved", f"{identity} acknowledged at {offset}, found at {found}")


def _judge_order(verdict: Verdict, places: Mapping[Identity, list[tuple[int, int]]]) -> None:
    first: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for identity, found in places.items():
        here = [offset for partition, offset in found if partition == identity.partition]
        if here:
            first[identity.producer, identity.partition].append((identity.sequence, min(here)))
    for (producer, partition), pairs in first.items():
        pairs.sort()
        for (sequence, offset), (later, later_offset) in itertools.pairwise(pairs):
            if later_offset <= offset:
                verdict.add("reordered", f"producer {producer} partition {partition}: {later} before {sequence}")


def compare_reads(first: Read, second: Read) -> Verdict:
    """Check that two reads of an idle log are the same; the second may only have more at the end."""
    verdict = Verdict(read_count=sum(len(records) for records in second.values()))
    for partition, before in first.items():
        after = second.get(partition, ())
        for number, record in enumerate(before):
            if number >= len(after) or after[number] != record:
                verdict.add("vanished", f"partition {partition} offset {record.offset} differs in the second read")
                break
    return verdict
