"""What could not be decoded, for a topic of its own: key, value, headers and timestamp byte for byte, and where it was.

    headers of a dead letter:  those of the record, in their order │ dlq.topic │ dlq.partition │ dlq.offset │ dlq.error

Numbers are decimal text. `restore` takes the added headers off again, so that a letter can be sent again once its cause
is mended.

Pure functions over columns; a batch has few bad records, so they go through Python one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafkalite.failures.headers import ERROR, OFFSET, PARTITION, TEXT_MAX, TOPIC
from kafkalite.model import TopicPartition
from kafkalite.record.columns import BytesColumn, HeaderColumns, RecordColumns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite.avro.decoder import Decoded

    Headers = list[tuple[bytes, bytes | None]]

ADDED: Final = (TOPIC, PARTITION, OFFSET, ERROR)


class Origin(NamedTuple):
    """Where a dead letter was, and why it is one."""

    partition: TopicPartition
    offset: int
    error: str


def dead_letters(columns: RecordColumns, decoded: Decoded, source: TopicPartition) -> RecordColumns:
    """The records of a batch that failed, to be sent to another topic; as many as `decoded.failed`."""
    rows = decoded.failed.tolist()
    added: list[Headers] = []
    for row, reason in zip(rows, decoded.reasons, strict=True):
        texts = (source.topic, str(source.partition), str(int(columns.offsets[row])), reason[:TEXT_MAX])
        added.append([(name.encode(), text.encode()) for name, text in zip(ADDED, texts, strict=True)])
    headers = [headers_of(columns, row) + more for row, more in zip(rows, added, strict=True)]
    return _chosen(columns, rows, headers)


def restore(letters: RecordColumns) -> tuple[RecordColumns, list[Origin]]:
    """The records as they were, and where; ValueError for one that is no dead letter."""
    headers, origins = [], []
    for row in range(len(letters)):
        found = headers_of(letters, row)
        own, added = found[: -len(ADDED)], found[-len(ADDED) :]
        if [name for name, _ in added] != [name.encode() for name in ADDED]:
            raise ValueError(f"record {row} does not end in the headers of a dead letter")
        topic, partition, offset, error = ((value or b"").decode() for _, value in added)
        headers.append(own)
        origins.append(Origin(TopicPartition(topic, int(partition)), int(offset), error))
    return _chosen(letters, list(range(len(letters))), headers), origins


def headers_of(columns: RecordColumns, row: int) -> Headers:
    """A record's headers; keys as the bytes that they are."""
    if columns.headers is None:
        return []
    span = range(int(columns.headers.record_starts[row]), int(columns.headers.record_ends[row]))
    return [(columns.headers.keys[place] or b"", columns.headers.values[place]) for place in span]


def _chosen(columns: RecordColumns, rows: Sequence[int], headers: Sequence[Headers]) -> RecordColumns:
    ends = np.cumsum([len(own) for own in headers], dtype=np.int64)
    starts = ends - np.array([len(own) for own in headers], np.int64)
    flat = [pair for own in headers for pair in own]
    return RecordColumns(
        np.empty(0, np.int64),
        columns.timestamps[np.array(rows, np.int64)],
        BytesColumn.from_items([columns.keys[row] for row in rows]),
        BytesColumn.from_items([columns.values[row] for row in rows]),
        HeaderColumns(
            starts,
            ends,
            BytesColumn.from_items([name for name, _ in flat]),
            BytesColumn.from_items([value for _, value in flat]),
        ),
    )
