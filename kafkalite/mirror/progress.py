"""How far a mirror is, kept in the target: a compacted topic of its own, written in the transactions that it describes.

    topic    kafkalite.mirror.NAME, one partition, cleanup.policy=compact
    key      ["source cluster id", "topic", partition]                          JSON
    value    {"offset": next offset to copy, "topic_id": "of the source's topic"}   JSON

Records and progress become visible together or not at all, so that a mirror killed at any moment goes on where its last
transaction ended. A topic and not a group's offsets, since those expire when a mirror rests for a week.

Version 1. A value may get more fields; a reader ignores those that it does not know.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.client import ColumnReader
from kafkalite.errors import TopicAlreadyExists, UnknownTopicOrPartition
from kafkalite.model import TopicPartition, topic_name_error, uuid_bytes, uuid_text
from kafkalite.record.columns import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.client import Client, Producer

PREFIX: Final = "kafkalite.mirror."
"""Topics of this prefix are mirrors' own and are not mirrored."""
SETTINGS: Final = {"cleanup.policy": "compact"}


class CopiedUpTo(NamedTuple):
    """A source partition is copied up to, not including, `offset`; the topic had this id then."""

    offset: int
    topic_id: bytes


class Progress:
    """See the module."""

    def __init__(self, target: Client, name: str, source_id: str) -> None:
        self.topic = f"{PREFIX}{name}"
        wrong = topic_name_error(self.topic) if name else "it needs a name"
        if wrong is not None:
            raise ValueError(f"no mirror can be called {name!r}: {wrong}")
        self._target = target
        self._source_id = source_id

    def create(self) -> None:
        """Makes the topic, unless it is there."""
        try:
            self._target.topic(self.topic)
        except UnknownTopicOrPartition:
            with contextlib.suppress(TopicAlreadyExists):
                self._target.admin.create_topic(self.topic, 1, configs=SETTINGS)

    def load(self) -> dict[TopicPartition, CopiedUpTo]:
        """What the last transaction left. The transactional id must be taken: nobody else may be about to write."""
        found: dict[TopicPartition, CopiedUpTo] = {}
        start = self._target.start_offset(self.topic, 0)
        end = self._target.end_offset(self.topic, 0)
        reader = ColumnReader(self._target, isolation_level="read_committed", columns=["key", "value"])
        for columns in reader.read_numpy(self.topic, 0, start, end):
            for key, value in zip(columns.keys, columns.values, strict=True):
                source_id, topic, partition = json.loads(key or b"[null, null, null]")
                if source_id == self._source_id and value is not None:
                    fields = json.loads(value)
                    found[TopicPartition(topic, partition)] = CopiedUpTo(
                        fields["offset"], uuid_bytes(fields["topic_id"])
                    )
        return found

    def write(self, producer: Producer, reached: Mapping[TopicPartition, CopiedUpTo]) -> None:
        """Into the producer's open transaction."""
        records = []
        for key, value in reached.items():
            name = json.dumps([self._source_id, key.topic, key.partition], separators=(",", ":"))
            text = json.dumps({"offset": value.offset, "topic_id": uuid_text(value.topic_id)}, separators=(",", ":"))
            records.append(Record(-1, -1, name.encode(), text.encode()))
        producer.send(self.topic, 0, records)
