"""Serve the requests of Kafka 0.7's protocol that may block: appends, reads and OFFSETS.

A function raises ValueError for a request that gets no response: the text of the error is logged, and the connection is
closed.

Source: Kafka 0.7.2 (`kafkalite.classic`, fact 1). The page docs/kafka-0.7.md lists the differences.

Thread rule: `dropped`, `reason` and `code_without_log` never block, and network workers may call them. The rest runs on
the I/O pool.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from kafkalite._native.classic import classic_log as native
from kafkalite._native.classic.message_set import ANY_PARTITION
from kafkalite.base import randomness
from kafkalite.base.acls import CLUSTER_NAME, AclOperation, ResourceType
from kafkalite.base.logging import RepeatLogger, fields
from kafkalite.broker.log.classic.log import OFFSETS_EARLIEST, OFFSETS_LATEST, ClassicLog
from kafkalite.errors import ErrorCode, KafkaError, TopicAlreadyExists
from kafkalite.model import INTERNAL_TOPICS, topic_name_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite._native.log.log_slice import LogSlice
    from kafkalite._native.serve.topic_table import Topic, TopicTable
    from kafkalite.settings.broker import BrokerConfig

logger = RepeatLogger(logging.getLogger("kafkalite.classic"))

WRONG_PARTITION: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
"""The name in 0.7 of error code 3. All of 0.7's codes have the same number today, but some have another name."""


class Topics(Protocol):
    """The parts of the log manager that the 0.7 protocol uses."""

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def table(self) -> TopicTable: ...

    @property
    def topics(self) -> Mapping[str, Topic]: ...

    def create_topic(self, name: str, partition_count: int, overrides: dict[str, str]) -> Topic: ...


class Authorizer(Protocol):
    """Decides by ACLs whether a client is permitted to do an operation."""

    def allows(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str, api: str
    ) -> bool: ...


Asker = tuple[str, str]
"""Principal and host of a client; None if the listener has no authorizer."""


class ClassicHost:
    """The topics and logs of a data directory, as clients of the 0.7 protocol use them. Shared by all workers."""

    def __init__(self, logs: Topics, authorizer: Authorizer | None = None) -> None:
        self._logs = logs
        self._authorizer = authorizer

    def _allows(self, asker: Asker | None, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        if asker is None or self._authorizer is None:
            return True
        return self._authorizer.allows(*asker, operation, kind, name, "0.7")

    def _may(self, asker: Asker | None, operation: AclOperation, name: bytes) -> bool:
        """Return whether the client is permitted to do `operation` on a topic, even if the topic does not exist."""
        return self._allows(asker, operation, ResourceType.TOPIC, name.decode("utf-8", "replace"))

    def dropped(self, log: ClassicLog) -> None:
        """Log that a message set was dropped because of a message above max.message.size. The connection stays open, as
        in 0.7.2.
        """
        logger.warning(
            "dropped a message set with a message larger than max.message.size",
            extra=fields(log=log.name, max_message_size=log.core.message_size_max),
        )

    def reason(self, log: ClassicLog, error: int) -> str:
        """Return the log text for a refused append."""
        return f"{log.name} refused a message set: {ErrorCode(error).name}"

    def code_without_log(self, name: bytes, partition: int) -> int:
        """Return 0.7's error code for a FETCH of a topic that does not exist: no error if the name is valid, and the
        new topic would have this partition.
        """
        topic = _text(name)
        if topic is None or topic in INTERNAL_TOPICS or topic_name_error(topic) is not None:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE if 0 <= partition < self._logs.config.classic_partition_count(topic) else WRONG_PARTITION

    def append(
        self, name: bytes, partition: int, data: bytes, asker: Asker | None = None
    ) -> tuple[ClassicLog, int] | None:
        """Append a message set, and create the topic if needed. Return (log, end offset) if the caller has to wait for
        a flush, else None.

        The caller has checked the permission to write. ValueError if the set is refused, or if the topic does not exist
        and cannot be created.
        """
        topic = self._topic(name, asker)
        if partition == ANY_PARTITION:
            partition = randomness.below(len(topic.partitions))
        log = _log_of(topic, partition)
        _, error, _, end_offset, flush_due = native.append(log.core, data)
        if error == ErrorCode.MESSAGE_TOO_LARGE:
            self.dropped(log)
            return None
        if error:
            raise ValueError(self.reason(log, error))
        return (log, end_offset) if flush_due else None

    def _topic(self, name: bytes, asker: Asker | None) -> Topic:
        topic = self._logs.table.get(name)
        if topic is not None:
            return topic
        text = _text(name)
        if text is None:
            raise ValueError("the topic name is not UTF-8")
        if text in INTERNAL_TOPICS:  # the coordinators create these, and could not use a classic one
            raise ValueError(f"{text} is an internal topic")
        if not self._logs.config.auto_create_topics_enable:
            raise ValueError(f"topic {text!r:.300} does not exist, and auto.create.topics.enable is false")
        if not self._allows(asker, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) and not self._allows(
            asker, AclOperation.CREATE, ResourceType.TOPIC, text
        ):
            raise ValueError(f"topic {text!r:.300} does not exist, and the client is not authorized to create it")
        try:
            count = self._logs.config.classic_partition_count(text)
            return self._logs.create_topic(text, count, {"message.format": "classic"})
        except TopicAlreadyExists:
            return self._logs.topics[text]  # another request was faster
        except KafkaError as error:
            raise ValueError(f"topic {text!r:.300} could not be created: {error}") from error

    def read(
        self, name: bytes, partition: int, offset: int, size_max: int, asker: Asker | None = None
    ) -> tuple[int, LogSlice | None]:
        """Return (error code of 0.7, slice of the log with the bytes) for one partition of a FETCH. The caller releases
        the slice.
        """
        if not self._may(asker, AclOperation.READ, name):
            return WRONG_PARTITION, None
        topic = self._logs.table.get(name)
        if topic is None:
            return self.code_without_log(name, partition), None
        try:
            log = _log_of(topic, partition)
        except ValueError:
            return WRONG_PARTITION, None
        error, found = log.range_blocking(offset, size_max)
        if error:
            known = error == ErrorCode.OFFSET_OUT_OF_RANGE
            return (ErrorCode.OFFSET_OUT_OF_RANGE if known else ErrorCode.UNKNOWN_SERVER_ERROR), None
        return ErrorCode.NONE, found

    def offsets_before(
        self, name: bytes, partition: int, time_ms: int, count_max: int, asker: Asker | None = None
    ) -> list[int]:
        """Return the offsets for an OFFSETS response (see ClassicLog.offsets_before). ValueError for a request without
        a response.
        """
        if not self._may(asker, AclOperation.DESCRIBE, name):
            raise ValueError("the client is not authorized to describe the topic of an OFFSETS request")
        topic = self._logs.table.get(name)
        if topic is not None:
            return _log_of(topic, partition).offsets_before(time_ms, count_max)
        if self.code_without_log(name, partition) != ErrorCode.NONE:
            raise ValueError(f"OFFSETS request for partition {partition} of topic {name!r:.300}, which does not exist")
        return [0] if time_ms in {OFFSETS_LATEST, OFFSETS_EARLIEST} else []


def _text(name: bytes) -> str | None:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def _log_of(topic: Topic, partition: int) -> ClassicLog:
    """Return the log of a classic topic's partition; ValueError if the log does not exist or has another format."""
    if not 0 <= partition < len(topic.partitions):
        raise ValueError(f"topic {topic.name} has no partition {partition}; it has {len(topic.partitions)}")
    log = topic.partitions[partition]
    if not isinstance(log, ClassicLog):
        text = f"topic {topic.name} is not in Kafka 0.7's format: its message.format is {log.format.name}"
        raise ValueError(text)  # noqa: TRY004 - a client's mistake, not a caller's
    return log
