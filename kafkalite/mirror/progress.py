"""Store a mirror's progress in a compacted topic of the target, in the transactions that copy the records.

    topic    kafkalite.mirror.NAME, one partition, cleanup.policy=compact
    key      ["source cluster id", "topic", partition]                          JSON; partition -1: the whole topic
    value    {"offset": next offset to copy, "topic_id": "id of the source's topic"}   JSON, and if applicable
             "epoch": leader epoch, "batch": [first offset, CRC]     of the batch before the offset (client.read.marks)
             "target": "the target's topic"              if it has another name: the mirror has a prefix
             "origins": [["cluster id", "topic"], …]     the topics of which the source's topic is a copy
             "left_behind": "why", "since": ms, "tries": n       for a topic that cannot be copied, with partition -1

Records and progress become visible together. So a mirror that was killed continues where its last transaction ended.

This is version 1 of the format; a reader ignores unknown fields.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.client import ColumnReader
from kafkalite.client.read.marks import Mark
from kafkalite.mirror.states import LeftBehind
from kafkalite.model import ZERO_UUID, TopicPartition, topic_name_error, uuid_bytes, uuid_text
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.client import Client, Producer

PREFIX: Final = "kafkalite.mirror."
"""Topics with this prefix belong to mirrors and are not mirrored."""
SETTINGS: Final = {"cleanup.policy": "compact"}
WHOLE_TOPIC: Final = -1
"""Replaces the partition in the key of a topic's state."""


class Origin(NamedTuple):
    """The original of a copied topic: a cluster id and a topic."""

    cluster_id: str
    topic: str


class CopiedUpTo(NamedTuple):
    """The progress of a source partition: its records before `offset` are copied.

    `topic_id` is the id of the topic that was copied.
    """

    offset: int
    topic_id: bytes
    mark: Mark = Mark()
    """The mark of the last copied batch."""


class Progress:
    """Reads and writes the progress of one mirror; see the module.

    Progress is not stored as a group's offsets, because these expire when a mirror is stopped for a week.
    """

    def __init__(self, target: Client, name: str, source_id: str, prefix: str | None = "") -> None:
        """`prefix` begins the names of the target's topics. None accepts any prefix, for objects that only read.

        Raises ValueError for an invalid mirror name.
        """
        self.topic = f"{PREFIX}{name}"
        self._prefix = prefix
        self.origins: dict[str, frozenset[Origin]] = {}
        """The origins of the source's topics, which are written with the progress."""
        self.left_behind: dict[str, LeftBehind] = {}
        """The topics left behind, as of `load`."""
        wrong = topic_name_error(self.topic) if name else "it is empty"
        if wrong is not None:
            raise ValueError(f"{name!r} is not a valid mirror name: {wrong}")
        self._target = target
        self._source_id = source_id

    def create(self) -> None:
        """Create the topic if it is missing."""
        self._target.admin.create_topic_if_missing(self.topic, 1, configs=SETTINGS)

    def load(self) -> dict[TopicPartition, CopiedUpTo]:
        """Return the progress as of the last transaction.

        Initialize the transactional id first, so that no other mirror writes.
        """
        found: dict[TopicPartition, CopiedUpTo] = {}
        start = self._target.start_offset(self.topic, 0)
        end = self._target.end_offset(self.topic, 0)
        reader = ColumnReader(self._target, isolation_level="read_committed", columns=["key", "value"])
        for columns in reader.read_numpy(self.topic, 0, start, end):
            for key, value in zip(columns.keys, columns.values, strict=True):
                source_id, topic, partition = json.loads(key or b"[null, null, null]")
                if source_id != self._source_id:
                    continue
                where = TopicPartition(topic, partition)
                fields = None if value is None else json.loads(value)
                if partition == WHOLE_TOPIC:
                    self._take_state(topic, fields)
                    continue
                prefix = self._prefix
                if fields is None or (prefix is not None and fields.get("target", topic) != prefix + topic):
                    found.pop(where, None)  # withdrawn, or copied to a topic with another name
                    continue
                mark = Mark(fields.get("epoch", -1), *fields.get("batch", ()))
                found[where] = CopiedUpTo(fields["offset"], uuid_bytes(fields["topic_id"]), mark)
                self.origins[topic] = origins_of(fields)
        return found

    def write(self, producer: Producer, reached: Mapping[TopicPartition, CopiedUpTo]) -> None:
        """Write progress in the producer's open transaction."""
        records = []
        for key, value in reached.items():
            fields: dict[str, object] = {"offset": value.offset, "topic_id": uuid_text(value.topic_id)}
            if value.mark.epoch >= 0:
                fields["epoch"] = value.mark.epoch
            if value.mark.base_offset >= 0:
                fields["batch"] = value.mark[1:]
            if self._prefix:
                fields["target"] = self._prefix + key.topic
            if origins := self.origins.get(key.topic):
                fields["origins"] = sorted(origins)
            records.append(Record(-1, -1, self._key(key), json.dumps(fields, separators=(",", ":")).encode()))
        producer.send(self.topic, 0, records)

    def _take_state(self, topic: str, fields: dict[str, Any] | None) -> None:
        self.left_behind.pop(topic, None)
        if fields is not None and "left_behind" in fields:
            self.left_behind[topic] = left_behind_of(fields)

    def write_state(self, producer: Producer, topic: str, row: LeftBehind) -> None:
        """Write in the producer's open transaction that a topic cannot be copied.

        Call `withdraw` when the topic is copied again.
        """
        fields = {"offset": 0, "topic_id": uuid_text(ZERO_UUID)}  # fields that older releases require
        fields |= {"left_behind": row.reason, "since": row.since_ms, "tries": row.tries}
        if self._prefix:
            fields["target"] = self._prefix + topic
        text = json.dumps(fields, separators=(",", ":")).encode()
        producer.send(self.topic, 0, [Record(-1, -1, self._key(TopicPartition(topic, WHOLE_TOPIC)), text)])

    def withdraw(self, producer: Producer, keys: Iterable[TopicPartition]) -> None:
        """Write tombstones for these rows in the producer's open transaction."""
        producer.send(self.topic, 0, [Record(-1, -1, self._key(key), None) for key in keys])

    def _key(self, key: TopicPartition) -> bytes:
        return json.dumps([self._source_id, key.topic, key.partition], separators=(",", ":")).encode()


def left_behind_of(fields: Mapping[str, Any]) -> LeftBehind:
    """Decode the left-behind state in a value of the topic."""
    return LeftBehind(reason=fields["left_behind"], since_ms=fields["since"], tries=fields["tries"])


def origins_of(fields: Mapping[str, Any]) -> frozenset[Origin]:
    """Decode the origins in a value of the topic."""
    return frozenset(Origin(*origin) for origin in fields.get("origins", ()))
