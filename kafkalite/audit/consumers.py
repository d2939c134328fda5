"""Wrap `kafkalite.client`'s GroupReader so that it reports the records that it processed, as a stage of the audit.

    with AuditedGroupReader(client, "billing", "orders") as reader:
        for chunk in reader:
            …
            reader.commit()

A report follows each explicit or automatic commit. kafkalite.audit.taken describes the recovery from a crash between a
commit and its report.

Thread rule: that of GroupReader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.audit.events import AUDIT_TOPIC
from kafkalite.audit.taken import TakenTally
from kafkalite.client import Admin, GroupReader, Producer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from re import Pattern

    from kafkalite.client import Chunk, Client
    from kafkalite.client.committed import CommittedOffset, Offsets
    from kafkalite.model import TopicPartition


class AuditedGroupReader(GroupReader):
    """A GroupReader that reports its records to the audit; see the module.

    `stage`        the name of the stage (default: the group's)
    `audit_topic`  the topic for reports; created with one partition if missing
    `options`      those of GroupReader
    """

    def __init__(
        self,
        client: Client,
        group_id: str,
        topics: Iterable[str] | str | Pattern[str],
        *,
        stage: str | None = None,
        audit_topic: str = AUDIT_TOPIC,
        **options: Any,
    ) -> None:
        tally = TakenTally(stage or group_id)
        super().__init__(client, group_id, topics, **options)
        tally.cluster = client.cluster_id
        self.tally = tally
        self._audit_client = client
        self._audit_topic = audit_topic
        self._reporter: Producer | None = None

    def __iter__(self) -> Iterator[Chunk]:
        """Iterate as GroupReader does. The records of a chunk count as processed once the chunk is returned."""
        for chunk in super().__iter__():
            self.tally.took(chunk.partition, chunk.columns.offsets)
            self._report()
            yield chunk

    def poll(self, timeout_s: float = 1.0) -> list[Chunk]:
        """Poll as GroupReader.poll does, and send the reports of commits that did not wait for their response."""
        chunks = super().poll(timeout_s)
        for chunk in chunks:
            self.tally.took(chunk.partition, chunk.columns.offsets)
        self._report()
        return chunks

    def commit(self, offsets: Offsets | None = None, *, timeout_s: float | None = None) -> None:
        """Commit as GroupReader.commit does; then report the committed records."""
        super().commit(offsets, timeout_s=timeout_s)
        self._report()

    def close(self, **options: Any) -> None:
        """Close as GroupReader.close does; report the records of its last commits."""
        try:
            super().close(**options)
        finally:
            self._report()
            reporter, self._reporter = self._reporter, None
            if reporter is not None:
                reporter.close()

    def _rows(self, offsets: Offsets | None) -> dict[TopicPartition, CommittedOffset]:
        """Add the taken ranges to the metadata of a commit, unless the caller has set metadata."""
        return {
            key: row if row.metadata else row._replace(metadata=self.tally.metadata(key, row.offset))
            for key, row in super()._rows(offsets).items()
        }

    def _was_committed(self, rows: Mapping[TopicPartition, CommittedOffset]) -> None:
        super()._was_committed(rows)
        for key, row in rows.items():
            self.tally.committed(key, row.offset)

    def _was_placed(self, rows: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._holdings.note_committed({key: row.offset for key, row in rows.items()})
        for key, row in rows.items():
            self.tally.begin(key, row.metadata)

    def _report(self) -> None:
        records = self.tally.reports()
        if not records:
            return
        if self._reporter is None:
            Admin(self._audit_client).create_topic_if_missing(self._audit_topic, 1)
            self._reporter = Producer(self._audit_client)
        try:
            self._reporter.send(self._audit_topic, 0, records)
            self._reporter.flush()
        except BaseException:
            self.tally.put_back(records)
            raise
