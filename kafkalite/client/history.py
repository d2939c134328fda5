"""Detect logs that were truncated, restored or recreated below a read position.

A position is stored with its mark: the leader epoch, first offset and CRC of the batch before it. Three requests
compare the position and its mark with the log:

    OffsetForLeaderEpoch   the epoch ends before the position: the log was truncated (KIP-320)
    ListOffsets            the log ends before the position
    Fetch                  a different batch precedes the position: the log was restored and has the same epoch

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from kafkalite._native.wire.batch import BatchError
from kafkalite.client.errors import UnsupportedApi
from kafkalite.client.read.marks import Divergence, Mark, Position
from kafkalite.client.read.reader import Reader
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from kafkalite.wire.protocol.api import DESCRIBE_CONFIGS
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.wire.record.batches import next_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kafkalite._native.wire.batch import BatchInfo
    from kafkalite.client.cluster import Cluster, TopicDescription
    from kafkalite.client.read.reader import ReadPosition

RESOURCE_TOPIC: Final = 2
FETCH_SIZE: Final = 64 * 1024
"""Bytes per fetch: only the first batch of each partition is needed."""


class HeaderReader(Reader):
    """A Reader that yields only the header of the first batch at each position."""

    def headers(self) -> Iterator[tuple[TopicPartition, BatchInfo | None]]:
        """Yield, for each position, the header of the batch there, or None if it cannot be parsed."""
        while not self.done:
            for item in self.answers():
                found: Any = item
                yield found

    def _decode(self, position: ReadPosition, _: int, row: Any) -> Iterator[Any]:
        info = None
        with contextlib.suppress(BatchError):  # written by Kafka 0.10 or older, or corrupt: other readers report it
            info = next_whole(memoryview(row.records), 0)
        yield position.key, info


def find_divergences(client: Cluster, positions: Mapping[TopicPartition, Position]) -> list[Divergence]:
    """Return the positions whose log no longer has the records read before them, sorted by partition.

    A position without a mark is compared only with the log's end.
    """
    marked = {key: position.mark.epoch for key, position in positions.items() if position.mark.epoch >= 0}
    try:
        epochs = client.epoch_ends(marked) if marked else {}
    except UnsupportedApi:
        epochs = {}
    ends = client.list_offsets(dict.fromkeys(positions, OFFSET_LATEST)) if positions else {}
    leaders = leader_epochs(client.described({key.topic for key in positions}).values())
    found: dict[TopicPartition, Divergence] = {}
    for key, (offset, mark) in positions.items():
        epoch, end = epochs.get(key, (-1, -1))
        leader = leaders.get(key, -1)
        if 0 <= end < offset:
            # A log that was restored and has been in the same epoch since may have other records below that end, too.
            sure = epoch == mark.epoch < leader
            found[key] = Divergence(key, offset, end if sure else None)
        elif 0 <= epoch < mark.epoch or 0 <= leader < mark.epoch or ends[key].offset < offset:
            found[key] = Divergence(key, offset, None)
    rest = {key: row for key, row in positions.items() if key not in found and row.mark.base_offset >= 0}
    for key in other_batches(client, rest):
        found[key] = Divergence(key, positions[key].offset, None)
    return [found[key] for key in sorted(found)]


def marks_at(client: Cluster, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, Position]:
    """Read the batch before each offset and return it as the offset's mark.

    Offsets without a batch before them are left out.
    """
    first = client.list_offsets(dict.fromkeys(positions, OFFSET_EARLIEST)) if positions else {}
    starts = {key: offset - 1 for key, offset in positions.items() if offset > first[key].offset}
    found = {}
    with HeaderReader(
        client, starts, ends={key: offset + 1 for key, offset in starts.items()}, fetch_size=FETCH_SIZE
    ) as reader:
        for key, info in reader.headers():
            if info is not None and info.base_offset <= starts[key] <= info.last_offset:
                mark = Mark(info.leader_epoch, info.base_offset, info.crc)
                found[key] = Position(positions[key], mark)
    return found


def leader_epochs(topics: Iterable[TopicDescription]) -> dict[TopicPartition, int]:
    """Return the leader epoch of each partition in the metadata."""
    return {
        TopicPartition(topic.name, partition.partition): partition.leader_epoch
        for topic in topics
        for partition in topic.partitions
    }


def other_batches(client: Cluster, positions: Mapping[TopicPartition, Position]) -> list[TopicPartition]:
    """Return the partitions in which a different batch precedes the position.

    Unreadable partitions are left out. So are compacted topics, because compaction rewrites batches.
    """
    kept = uncompacted(client, {key.topic for key in positions}) if positions else set()
    asked = {key: row.mark for key, row in positions.items() if key.topic in kept}
    if not asked:
        return []
    first = client.list_offsets(dict.fromkeys(asked, OFFSET_EARLIEST))
    starts = {key: mark.base_offset for key, mark in asked.items() if mark.base_offset >= first[key].offset}
    found = []
    with HeaderReader(
        client, starts, ends={key: offset + 1 for key, offset in starts.items()}, fetch_size=FETCH_SIZE
    ) as reader:
        for key, info in reader.headers():
            if info is not None and (info.base_offset, info.crc) != asked[key][1:]:
                found.append(key)
    return found


def uncompacted(client: Cluster, topics: set[str]) -> set[str]:
    """Return the topics that are not compacted. Topics whose configuration cannot be read are left out."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=RESOURCE_TOPIC, resource_name=name, configuration_keys=["cleanup.policy"]
            )
            for name in sorted(topics)
        ]
    )
    try:
        answer = client.with_retries(lambda: client.any_connection().request(DESCRIBE_CONFIGS, request))
    except UnsupportedApi:
        return set()
    return {
        row.resource_name
        for row in answer.results
        if not row.error_code and not any("compact" in (entry.value or "") for entry in row.configs)
    }
