"""Replicas' logs read from their directories, by the format alone: compared byte by byte, with their content.

Files may be read while their brokers run: they only grow, except that a replica is truncated above its high watermark.
So they are read when the cluster is in sync, and only below a high watermark reported before.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tests.kit.checkers.ledger import ReadRecord, Verdict
from tests.kit.harness import wire
from tests.kit.harness.load import unpack
from tests.kit.harness.transactional_load import ABORT_MARKER, CONTROL, TRANSACTIONAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_FRAME = 12
"""Bytes of a batch before what its length counts."""
_LENGTH = slice(8, 12)


class Stored(NamedTuple):
    """A replica of one partition as its directory has it."""

    batches: list[wire.Batch]
    data: list[bytes]
    """Of each batch."""
    epochs: list[tuple[int, int]]
    """(leader epoch, its first offset), rising."""

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0


def read(directory: Path) -> Stored:
    """Whole batches of all segments; the last one may end in a part of one, or in zeros."""
    batches: list[wire.Batch] = []
    data: list[bytes] = []
    for segment in sorted(directory.glob("*.log")):
        for piece in split(segment.read_bytes()):
            data.append(piece)
            batches += wire.split_batches(piece)
    return Stored(batches, data, read_epochs(directory / "leader-epoch-checkpoint"))


def split(data: bytes) -> list[bytes]:
    """The bytes of each whole batch."""
    found, position = [], 0
    while position + wire.BATCH_HEADER_SIZE <= len(data):
        size = _FRAME + int.from_bytes(data[position:][_LENGTH], "big")
        if size < wire.BATCH_HEADER_SIZE or position + size > len(data):
            break
        found.append(data[position : position + size])
        position += size
    return found


def read_epochs(path: Path) -> list[tuple[int, int]]:
    """Entries of a leader-epoch-checkpoint; none where there is no file."""
    if not path.exists():
        return []
    rows = path.read_text().splitlines()[2:]
    return [(int(epoch), int(offset)) for epoch, offset in (row.split() for row in rows)]


def compare(name: str, replicas: Mapping[int, Stored], high_watermark: int) -> Verdict:
    """What differs below the high watermark, by the brokers' ids."""
    verdict = Verdict()
    kept = {broker: _below(stored, high_watermark) for broker, stored in replicas.items()}
    # A replica may begin later than others, which retention does.
    start = max((stored.batches[0].base_offset for stored in replicas.values() if stored.batches), default=0)
    for broker, stored in replicas.items():
        verdict.read_count += 1
        if stored.end < high_watermark:
            verdict.add(
                "replicas", f"{name}: broker {broker} ends at {stored.end}, the high watermark is {high_watermark}"
            )
        for batch in stored.batches:
            if not batch.crc_is_right:
                verdict.add("replicas", f"{name}: broker {broker}: batch {batch.base_offset} is spoiled")
        _compare_epochs(verdict, f"{name}: broker {broker}", stored, high_watermark)
    first = next(iter(kept), None)
    for broker, batches in kept.items():
        for offset in sorted(batches.keys() | kept[first].keys()):
            if offset >= start and batches.get(offset) != kept[first].get(offset):
                verdict.add("replicas", f"{name}: brokers {first} and {broker} differ from offset {offset} on")
                break
    return verdict


def _below(stored: Stored, high_watermark: int) -> dict[int, bytes]:
    """Batches that begin below an offset, by their first one's."""
    pairs = zip(stored.batches, stored.data, strict=True)
    return {batch.base_offset: data for batch, data in pairs if batch.base_offset < high_watermark}


def _compare_epochs(verdict: Verdict, who: str, stored: Stored, high_watermark: int) -> None:
    """Each batch's epoch is the one that the checkpoint has for its offset."""
    starts = [offset for _, offset in stored.epochs]
    for batch in stored.batches:
        if batch.base_offset >= high_watermark:
            break
        at = bisect.bisect_right(starts, batch.base_offset) - 1
        epoch = stored.epochs[at][0] if at >= 0 else None
        if epoch != batch.leader_epoch:
            text = f"{who}: batch {batch.base_offset} is of epoch {batch.leader_epoch}, and the epochs say {epoch}"
            verdict.add("epochs", text)
            return


def records(stored: Stored, high_watermark: int) -> list[ReadRecord]:
    """All records below an offset, without the markers of transactions."""
    return [
        ReadRecord(*row)
        for batch in stored.batches
        if batch.base_offset < high_watermark and not batch.attributes & CONTROL
        for row in wire.decode_records(unpack(batch))
    ]


class Written(NamedTuple):
    """A record's producer and its sequence number, as the batch has them."""

    producer_id: int
    producer_epoch: int
    sequence: int


def written(stored: Stored, high_watermark: int) -> dict[int, Written]:
    """The same of all records below an offset, by their offsets."""
    return {
        batch.base_offset + number: Written(batch.producer_id, batch.producer_epoch, batch.base_sequence + number)
        for batch in stored.batches
        if batch.base_offset < high_watermark and not batch.attributes & CONTROL
        for number in range(batch.last_offset_delta + 1)
    }


def committed(name: str, stored: Stored, high_watermark: int) -> tuple[list[ReadRecord], Verdict]:
    """Records of transactions that ended in a commit, in order of offsets; what is undecided is a finding."""
    verdict = Verdict()
    open_batches: dict[int, list[wire.Batch]] = defaultdict(list)
    kept: list[wire.Batch] = []
    for batch in stored.batches:
        if batch.base_offset >= high_watermark:
            break
        if batch.attributes & CONTROL:
            key = wire.decode_records(batch)[0][1] or b""
            ended = open_batches.pop(batch.producer_id, [])
            if int.from_bytes(key[2:4], "big") != ABORT_MARKER:
                kept += ended
        elif batch.attributes & TRANSACTIONAL:
            open_batches[batch.producer_id].append(batch)
        else:
            kept.append(batch)
    for producer, batches in open_batches.items():
        verdict.add("hanging", f"{name}: producer {producer} from offset {batches[0].base_offset} on")
    kept.sort(key=lambda batch: batch.base_offset)
    return [ReadRecord(*row) for batch in kept for row in wire.decode_records(unpack(batch))], verdict


def names(data_dirs: Sequence[Path]) -> set[str]:
    """topic-partition of every replica in these data directories but the metadata's."""
    return {
        path.parent.name
        for data_dir in data_dirs
        for path in data_dir.glob("*/*.log")
        if not path.parent.name.startswith("__cluster_metadata") and path.parent.name.rpartition("-")[2].isdigit()
    }
