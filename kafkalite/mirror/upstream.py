"""Find topics of a mirror's source that are themselves copies, so that two mirrors do not copy each other's copies.

    the source's kafkalite.mirror.* ─▶ Upstream ─▶ "orders" is a copy of cluster B's "orders"

Every mirror stores its progress in its target. So a cluster's progress topics list the topics that were copied into it.
If such a topic was already a copy in its source, its rows also contain its origins: the topics of which it is a copy.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.client import READ_COMMITTED, ColumnReader
from kafkalite.errors import KafkaError
from kafkalite.mirror.progress import PREFIX, Origin, origins_of
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite.client import Client, TopicDescription


class MirrorLoop(ValueError):
    """Two mirrors would endlessly copy each other's copies."""


class Copy(NamedTuple):
    """A topic of this cluster and its origins."""

    topic: str
    origins: frozenset[Origin]


class Upstream:
    """Reads the progress topics in a mirror's source; see the module."""

    def __init__(self, source: Client, note: Callable[[str], object]) -> None:
        """`note` is called if a progress topic cannot be read."""
        self._source = source
        self._note = note
        self._read: dict[str, tuple[bytes, int]] = {}
        """The id of each progress topic, and the offset up to which it was read."""
        self._copies: dict[str, dict[str, Copy]] = {}
        """The topics of this cluster that are copies, by progress topic and key."""

    def refresh(self, topics: Mapping[str, TopicDescription]) -> None:
        """Read new rows of the progress topics; `topics` are all topics of the source.

        The origins in the rows also reveal a ring of three clusters, after each mirror has read the previous mirror's
        rows.
        """
        present = {name: topic.topic_id for name, topic in topics.items() if name.startswith(PREFIX)}
        for name in [name for name, (topic_id, _) in self._read.items() if present.get(name) != topic_id]:
            del self._read[name]
            self._copies.pop(name, None)
        for name, topic_id in present.items():
            try:
                self._read_on(name, topic_id)
            except KafkaError as error:
                self._note(f"cannot read the progress of mirror {mirror_of(name)} in the source: {error}")

    def _read_on(self, name: str, topic_id: bytes) -> None:
        key = TopicPartition(name, 0)
        end = self._source.list_offsets({key: OFFSET_LATEST}, isolation=READ_COMMITTED)[key].offset
        first = self._source.list_offsets({key: OFFSET_EARLIEST})[key].offset
        start = max(self._read.get(name, (topic_id, 0))[1], first)
        if start >= end:
            return
        rows = self._copies.setdefault(name, {})
        reader = ColumnReader(self._source, isolation_level="read_committed", columns=["key", "value"])
        for columns in reader.read_numpy(name, 0, start, end):
            for text, value in zip(columns.keys, columns.values, strict=True):
                if text is not None:
                    self._take(rows, text, None if value is None else json.loads(value))
        self._read[name] = topic_id, end

    @staticmethod
    def _take(rows: dict[str, Copy], text: bytes, fields: dict[str, Any] | None) -> None:
        source_id, topic, partition = json.loads(text)
        if fields is None:
            rows.pop(text.decode(), None)
        elif partition >= 0:
            origins = origins_of(fields) | {Origin(source_id, topic)}
            rows[text.decode()] = Copy(fields.get("target", topic), origins)

    def origins(self, topic: str) -> frozenset[Origin]:
        """Return the topics of other clusters of which this source topic is a copy; empty if it is not a copy."""
        found: set[Origin] = set()
        for rows in self._copies.values():
            for copy in rows.values():
                if copy.topic == topic:
                    found |= copy.origins
        return frozenset(found)

    def mirror(self, topic: str, origin: Origin) -> str:
        """Return the name of the mirror that copied this origin to this source topic."""
        for name, rows in self._copies.items():
            if any(copy.topic == topic and origin in copy.origins for copy in rows.values()):
                return mirror_of(name)
        raise KeyError(topic)


def mirror_of(progress_topic: str) -> str:
    """Return the name of the mirror with this progress topic."""
    return progress_topic.removeprefix(PREFIX)
