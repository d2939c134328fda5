"""Rebuild groups and offsets from the records of one partition of `__consumer_offsets`.

    take(entry) for each record or marker, in order ─▶ settle ─▶ offsets, values of classic groups, consumer groups

Thread rule: belongs to the reading thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.broker.coordinator import consumer_records
from kafkalite.broker.coordinator.consumer_replay import ConsumerReplay
from kafkalite.broker.coordinator.group_offsets import Committed, GroupOffsets
from kafkalite.broker.coordinator.records import (
    OFFSET_KINDS,
    GroupMetadataValue,
    OffsetCommitKey,
    read_group,
    read_key,
    read_offset,
)
from kafkalite.broker.coordinator.state_log import NO_PRODUCER, Marker
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from kafkalite.broker.coordinator.state_log import Stored

OFFSET_PREFIXES: Final = frozenset(kind.to_bytes(2, "big") for kind in OFFSET_KINDS)
"""Prefix of the keys of committed offsets."""


class GroupReplay:
    """The state of one partition while it is replayed.

    Usually most commits in a log are replaced by later commits with the same key. So commits outside transactions are
    not decoded at once: only the newest commit of each key is kept. It is decoded when a transactional commit, a marker
    or the end of the log is reached.
    """

    def __init__(self) -> None:
        self.offsets: dict[str, GroupOffsets] = {}
        self.values: dict[str, GroupMetadataValue] = {}
        self.consumers = ConsumerReplay()
        self.end_offset = 0
        self.skipped = 0
        self._open: dict[int, list[GroupOffsets]] = {}  # producer id → groups with its pending commits
        self._newest: dict[bytes, Stored] = {}  # commits outside transactions that are not decoded yet, by key

    def group_ids(self) -> set[str]:
        """Return the ids of the classic groups, and of the groups that have offsets."""
        return {group_id for group_id, kept in self.offsets.items() if kept or kept.pending()} | self.values.keys()

    def take(self, entry: Stored | Marker) -> None:
        """Apply an entry. CodecError for a record that is malformed."""
        if isinstance(entry, Marker):
            self.settle()
            for offsets in self._open.pop(entry.producer_id, ()):
                offsets.end(entry.producer_id, commit=entry.commit)
            return
        self.end_offset = entry.offset + 1
        if entry.key[:2] in OFFSET_PREFIXES and entry.producer_id == NO_PRODUCER:
            self._newest[entry.key] = entry
            return
        if entry.producer_id != NO_PRODUCER:
            self.settle()
        kind = consumer_records.kind_of(entry.key)
        if kind in consumer_records.KINDS:
            group_id = self.consumers.take(kind, entry.key, entry.value)
            if group_id is not None:
                self.values.pop(group_id, None)
            return
        key = read_key(entry.key)
        if key is None:
            self.skipped += 1
        elif isinstance(key, OffsetCommitKey):
            self._take_offset(key, entry)
        elif entry.value is None:
            self.values.pop(key.group, None)
        else:
            self.values[key.group] = read_group(entry.value)
            self.consumers.drop(key.group)

    def settle(self) -> None:
        """Decode the commits that were kept undecoded. Call this once more at the end. CodecError."""
        newest, self._newest = self._newest, {}
        for entry in newest.values():
            key = read_key(entry.key)
            assert isinstance(key, OffsetCommitKey), "the prefix said so"
            self._take_offset(key, entry)

    def _take_offset(self, key: OffsetCommitKey, entry: Stored) -> None:
        partition = TopicPartition(key.topic, key.partition)
        offsets = self.offsets.setdefault(key.group, GroupOffsets())
        if entry.value is None:
            offsets.remove([partition])
            return
        committed = Committed.of(read_offset(entry.value), entry.offset)
        if entry.producer_id == NO_PRODUCER:
            offsets.apply(partition, committed)
        else:
            offsets.put_pending(entry.producer_id, partition, committed)
            self._open.setdefault(entry.producer_id, []).append(offsets)
