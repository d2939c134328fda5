"""Read a range of offsets in which some records no longer exist.

Records may be missing because of retention, because the log was truncated, or because the topic was recreated.

Thread rule: the thread of the reader's Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.client import RangeUnavailable
from kafkalite.errors import InconsistentTopicId, OffsetOutOfRange, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalite.client import ColumnReader
    from kafkalite.model import TopicPartition


def what_is_left(
    reader: ColumnReader,
    key: TopicPartition,
    at: int,
    end: int,
    topic_id: bytes | None,
    on_loss: Callable[[str], object],
) -> Iterator[Any]:
    """Yield the existing records from offset `at` to before `end`, as record batches.

    `on_loss` is called with a sentence for each part of the range that is missing. `reader` must include the column
    `offset`.
    """
    while at < end:
        try:
            for batch in reader.read(key.topic, key.partition, at, end, topic_id=topic_id):
                at = batch.column("offset")[-1].as_py() + 1
                yield batch
            break
        except (InconsistentTopicId, UnknownTopicOrPartition) as error:
            on_loss(f"offsets {at} to {end} of {key} are gone: {error}")
            break
        except (OffsetOutOfRange, RangeUnavailable):
            earliest = reader.offsets_for([key], "earliest")[key]
            latest = reader.offsets_for([key], "latest")[key]
            if at < earliest:
                on_loss(f"offsets {at} to {min(earliest, end)} of {key} have aged out")
                at = earliest
            elif latest < end:
                on_loss(f"{key} ends at offset {latest}, below the requested {end}")
                end = latest
            else:
                raise
