"""Wrap Kafka 0.7's consumers so that they report the messages that they processed, as a stage of the audit.

    with AuditedClassicConnector(ConsumerConfig(groupid="hadoop", zk_connect="zk:2181")) as connector:
        (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]

A report follows each explicit or automatic commit. For each partition, it contains the range of offsets since the last
report, up to the offset stored in ZooKeeper. The first range begins where reading began.

Thread rule: that of ConsumerConnector. The lock `_reporting` guards the tally, and only one report is sent at a time.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from kafkalite.audit.events import AUDIT_TOPIC, classic_topic
from kafkalite.audit.taken import TakenTally
from kafkalite.classic import ConsumerConnector, Producer, ProducerConfig, ProducerData
from kafkalite.classic.errors import ClassicError
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.classic import ConsumerConfig
    from kafkalite.zookeeper.nodes import BrokerPartition

logger = logging.getLogger(__name__)


class AuditedClassicConnector(ConsumerConnector):
    """A ConsumerConnector that reports its messages to the audit; see the module.

    ZooKeeper stores only an offset. So after a crash between a commit and its report, the messages of that commit are
    missing in the stage. All partitions are on one broker, which the audit calls `live`.

    `stage`        the name of the stage (default: the group's)
    `audit_topic`  the topic of counts of current clients; the name of 0.7's topic is derived from it
    """

    def __init__(self, config: ConsumerConfig, *, stage: str | None = None, audit_topic: str = AUDIT_TOPIC) -> None:
        self.tally = TakenTally(stage or config.groupid)
        self._reporting = threading.Lock()
        self._reached: dict[tuple[str, BrokerPartition], int] = {}  # the offset up to which messages are reported
        self._audit_topic = classic_topic(audit_topic)
        self._reporter: Producer | None = None
        super().__init__(config)

    def _was_placed(self, offsets: Mapping[tuple[str, BrokerPartition], int]) -> None:
        super()._was_placed(offsets)
        with self._reporting:
            self._reached.update(offsets)

    def _was_stored(self, topic: str, partition: BrokerPartition, offset: int) -> None:
        super()._was_stored(topic, partition, offset)
        with self._reporting:
            first = self._reached.get((topic, partition), offset)
            if offset > first:
                self._reached[topic, partition] = offset
                key = TopicPartition(topic, partition.partition)
                self.tally.took_range(key, first, offset)
                self.tally.committed(key, offset)
            self._report()

    def _report(self) -> None:
        """Send the reports. A failure is logged, as 0.7 does, and the reports are kept until the next commit."""
        records = self.tally.reports()
        if not records:
            return
        try:
            if self._reporter is None:
                self._reporter = Producer(ProducerConfig(zk_connect=self._config.zk_connect))
            self._reporter.send(ProducerData(self._audit_topic, [record.value for record in records]))
        except (ClassicError, OSError) as error:
            self.tally.put_back(records)
            logger.warning("cannot report consumed messages: %s", error)

    def _leave(self, caller: threading.Thread) -> None:
        try:
            super()._leave(caller)
        finally:
            with self._reporting:
                self._report()
                reporter, self._reporter = self._reporter, None
            if reporter is not None:
                reporter.close()
