"""Report on the mirrors that copy to a cluster, from their progress topics: copied offsets and errors per topic.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import TYPE_CHECKING, Any

from kafkalite.base.dataclass import dataclass
from kafkalite.client import READ_COMMITTED, ColumnReader
from kafkalite.errors import KafkaError
from kafkalite.mirror.progress import PREFIX, WHOLE_TOPIC, left_behind_of
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from kafkalite.client import Client
    from kafkalite.mirror.states import LeftBehind


@dataclass(slots=True)
class TopicReport:
    """The progress of one topic of one mirror."""

    mirror: str
    source_id: str
    topic: str
    target: str
    offsets: dict[int, int] = field(default_factory=dict)
    """The offset up to which each source partition is copied."""
    last_ms: int = -1
    """When a row of the topic was last written, in ms since 1970."""
    left_behind: LeftBehind | None = None
    lag: int | None = None
    """The number of offsets not copied yet, or None if the source was not asked."""


def read_reports(target: Client, name: str | None = None) -> list[TopicReport]:
    """Return the reports of the mirror `name`, or of all mirrors that copy to `target`, sorted by mirror and topic.

    Raises KeyError if there is no mirror `name`.
    """
    topics = [topic for topic in target.topics() if topic.startswith(PREFIX)]
    if name is not None:
        if PREFIX + name not in topics:
            raise KeyError(name)
        topics = [PREFIX + name]
    found: list[TopicReport] = []
    for topic in topics:
        found += sorted(reports_of(target, topic), key=lambda report: (report.topic, report.source_id))
    return found


def reports_of(target: Client, progress: str) -> list[TopicReport]:
    """Return the reports of the mirror that has this progress topic."""
    key = TopicPartition(progress, 0)
    start = target.list_offsets({key: OFFSET_EARLIEST})[key].offset
    end = target.list_offsets({key: OFFSET_LATEST}, isolation=READ_COMMITTED)[key].offset
    rows: dict[str, tuple[int, dict[str, Any]]] = {}
    reader = ColumnReader(target, isolation_level="read_committed", columns=["key", "value", "timestamp"])
    for columns in reader.read_numpy(progress, 0, start, end):
        for name, value, stamp in zip(columns.keys, columns.values, columns.timestamps, strict=True):
            if name is not None:
                rows.pop(name.decode(), None)
                if value is not None:
                    rows[name.decode()] = int(stamp), json.loads(value)
    found: dict[tuple[str, str], TopicReport] = {}
    for text, (stamp, fields) in rows.items():
        source_id, topic, partition = json.loads(text)
        new = TopicReport(progress.removeprefix(PREFIX), source_id, topic, fields.get("target", topic))
        report = found.setdefault((source_id, topic), new)
        report.last_ms = max(report.last_ms, stamp)
        if partition == WHOLE_TOPIC:
            report.left_behind = left_behind_of(fields)
        else:
            report.offsets[partition] = fields["offset"]
    return list(found.values())


def add_lags(reports: list[TopicReport], source: Client) -> None:
    """Add the lag of each topic of this source. For deleted topics and topics of other clusters, the lag stays None."""
    source.refresh([])
    for report in reports:
        if report.source_id != (source.cluster_id or ""):
            continue
        try:
            keys = [TopicPartition(report.topic, number) for number in source.partitions(report.topic)]
            first = source.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST))
            ends = source.list_offsets(dict.fromkeys(keys, OFFSET_LATEST), isolation=READ_COMMITTED)
        except KafkaError:
            continue
        reached = {key: max(first[key].offset, report.offsets.get(key.partition, 0)) for key in keys}
        report.lag = sum(max(0, ends[key].offset - reached[key]) for key in keys)
