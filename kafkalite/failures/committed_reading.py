"""Read committed records up to the high watermark, waiting for transactions that are still open.

A read_committed consumer gets no records from the last stable offset on, where the first open transaction begins. Some
of these records can be committed already. Even a transaction whose commit was acknowledged stays open in a partition
until its marker is written there. So this module waits for open transactions, until it has reached the high watermark.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kafkalite.client import READ_COMMITTED, RangeUnavailable
from kafkalite.client.errors import LogTruncated
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kafkalite.client import Chunk, Client
    from kafkalite.client.read.marks import Mark
    from kafkalite.model import TopicPartition

POLL_S: Final = 0.2
OPEN_S_MAX: Final = 90.0
"""Longest wait without progress for an open transaction."""


def ends_of(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the current high watermark of each partition."""
    found = client.list_offsets(dict.fromkeys(partitions, OFFSET_LATEST))
    return {key: row.offset for key, row in found.items()}


def decided(
    client: Client,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    timeout_s: float = OPEN_S_MAX,
    marks: dict[TopicPartition, Mark] | None = None,
) -> Iterator[Chunk]:
    """Yield the committed records from `starts` to before `ends`.

    Raises RangeUnavailable if there is no progress for `timeout_s`, because a transaction stays open.

    `marks` identify the last batch before each start. With marks, LogTruncated is raised if the log below the start was
    restored, truncated or recreated. At the end, `marks` identify the last batch before each end.
    """
    behind = {key: offset for key, offset in starts.items() if offset < ends[key]}
    if not behind:
        return
    deadline = time.monotonic() + timeout_s
    with client.reader(
        behind,
        ends={key: ends[key] for key in behind},
        isolation=READ_COMMITTED,
        reset="earliest",
        marks=marks,
        raises_truncation=marks is not None,
    ) as reader:
        while not reader.done:
            chunks = reader.poll(POLL_S)
            if chunks:
                deadline = time.monotonic() + timeout_s
            elif time.monotonic() > deadline:
                topics = ", ".join(sorted({key.topic for key in behind}))
                raise RangeUnavailable(f"a transaction in {topics} is still open after {timeout_s:g} s")
            yield from chunks
        if marks is not None:
            marks.update({key: reader.mark(key) for key in behind})


class CommittedTail:
    """Reads the committed records since its last read. If the log was truncated or recreated, all records are read
    again.

    `take` is called with the key (b"" for null) and the value of each record. `forget` is called with the reason before
    records are read again. `positions` are the offsets at which to begin; default: the starts of the logs.
    """

    def __init__(
        self,
        take: Callable[[bytes, bytes | None], object],
        forget: Callable[[str], object],
        positions: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self.positions = dict(positions or {})
        """The offset after the last record read, by partition."""
        self._take = take
        self._forget = forget
        self._marks: dict[TopicPartition, Mark] = {}

    def read(self, client: Client, ends: Mapping[TopicPartition, int], timeout_s: float) -> None:
        """Read up to these ends, which cover all partitions. Raises RangeUnavailable if a transaction stays open."""
        for key, end in ends.items():
            if self.positions.get(key, 0) > end:
                self._restart(f"{key.topic} ends before the offsets already read: it was truncated or recreated")
                break
        try:
            self._read(client, ends, timeout_s)
        except LogTruncated as error:
            self._restart(str(error))
            self._read(client, ends, timeout_s)

    def _read(self, client: Client, ends: Mapping[TopicPartition, int], timeout_s: float) -> None:
        fresh = [key for key in ends if key not in self.positions]
        if fresh:
            starts = client.list_offsets(dict.fromkeys(fresh, OFFSET_EARLIEST))
            self.positions |= {key: starts[key].offset for key in fresh}
        for chunk in decided(client, self.positions, ends, timeout_s, self._marks):
            for key, value in zip(chunk.columns.keys, chunk.columns.values, strict=True):
                self._take(key or b"", value)
            self.positions[chunk.partition] = chunk.next_offset
        self.positions = {key: max(self.positions[key], end) for key, end in ends.items()}

    def _restart(self, reason: str) -> None:
        self._forget(reason)
        self.positions.clear()
        self._marks.clear()
