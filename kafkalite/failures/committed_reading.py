"""Reading that misses nothing whose transaction was said to be committed.

A transaction's markers reach its partitions one by one, after its end was answered, and any transaction that is open
holds back all behind it. So a reader of committed records that goes to the last stable offset may not see a record
that is there for good. Here the end is the high watermark, and what is open before it is waited for.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kafkalite.client import READ_COMMITTED, RangeUnavailable
from kafkalite.model import OFFSET_LATEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kafkalite.client import Chunk, Client
    from kafkalite.client.read.marks import Mark
    from kafkalite.model import TopicPartition

POLL_S: Final = 0.2
OPEN_S_MAX: Final = 90.0
"""How long a transaction is waited for."""


def ends_of(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """High watermarks now."""
    found = client.list_offsets(dict.fromkeys(partitions, OFFSET_LATEST))
    return {key: row.offset for key, row in found.items()}


def decided(
    client: Client,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    timeout_s: float = OPEN_S_MAX,
    marks: dict[TopicPartition, Mark] | None = None,
) -> Iterator[Chunk]:
    """Committed records from these offsets to before those. RangeUnavailable when a transaction is open for so long.

    `marks` are those of the batches before `starts`, and are replaced by those before `ends` when all is read. With
    them, LogTruncated is raised for a log that was restored, truncated or recreated below its start.
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
