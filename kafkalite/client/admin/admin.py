"""Administer topics, partitions and configurations; delete records and describe log directories.

A call sends its request to the responsible broker: the controller, a partition's leader, or the broker concerned. The
first error is raised as KafkaError. A request is retried after a retriable error code. After a lost connection, only
look-ups and DeleteRecords are retried, because another request may have taken effect.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.client.cluster import RETRY_BACKOFF_S_MAX, by_topic, raise_for, raise_from_leader, require_answers
from kafkalite.client.errors import ProtocolError
from kafkalite.errors import ErrorCode, KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.wire.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kafkalite.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.client.cluster import Cluster, TopicDescription
    from kafkalite.client.connection import Connection

RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4
KINDS: Final = {RESOURCE_TOPIC: "topic", RESOURCE_BROKER: "broker"}
OPERATION_SET: Final = 0
OPERATION_DELETE: Final = 1
DELETE_BY_NAME_VERSION_MAX: Final = 5
"""The last DeleteTopics version with plain names."""
DOCUMENTATION_VERSION: Final = 3
"""The first DescribeConfigs version with documentation of settings."""
SOURCES: Final = {
    0: "unknown",
    1: "topic",
    2: "broker, changed while running",
    3: "all brokers, changed while running",
    4: "broker",
    5: "default",
    6: "broker logger",
}
TYPES: Final = {
    0: "unknown",
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}


class ConfigEntry(NamedTuple):
    """One setting of a topic or broker. `value` is None if it is secret or not set."""

    name: str
    value: str | None
    source: str
    """Origin of the value: one of SOURCES."""
    read_only: bool
    sensitive: bool
    type: str
    documentation: str | None


class LogDirectory(NamedTuple):
    """A log directory of a broker; `error_code` is not 0 if its disk failed.

    `total` and `usable` are the bytes of the directory's file system. They are None if the broker does not report them
    (before KIP-827).
    """

    path: str
    error_code: int
    total: int | None
    usable: int | None
    sizes: dict[TopicPartition, int]


class Admin:
    """Topic and configuration administration, created by `Client.admin`."""

    def __init__(self, client: Cluster) -> None:
        self._client = client

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Create a topic and wait until metadata shows it. A count of -1 means the broker's default.

        Raises TopicAlreadyExists and other KafkaErrors.
        """
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
                )
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )

        def ask() -> None:
            answer = self._client.controller().request(api.CREATE_TOPICS, request)
            for row in answer.topics:
                raise_for(row.error_code, f"topic {row.name}", row.error_message)

        self._client.of_controller(ask)
        if not validate_only:
            self._wait_for(name, 1)

    def create_topic_if_missing(
        self, name: str, partitions: int = -1, *, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic as `create_topic` does, unless it exists."""
        try:
            self._client.topic(name)
        except UnknownTopicOrPartition:
            with contextlib.suppress(TopicAlreadyExists):  # another client has just created it
                self.create_topic(name, partitions, configs=configs)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records. Raises UnknownTopicOrPartition, TopicDeletionDisabled and others."""

        def ask() -> None:
            connection = self._client.controller()
            request = DeleteTopicsRequest(topic_names=[name], timeout_ms=self._timeout_ms)
            answer = connection.request(api.DELETE_TOPICS, request, version_max=DELETE_BY_NAME_VERSION_MAX)
            for row in answer.responses:
                raise_for(row.error_code, f"topic {row.name}", row.error_message)

        self._client.of_controller(ask)
        self._client.forget(name)

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the partitions of a topic to `total`.

        Raises InvalidPartitions if the topic already has `total` or more.
        """
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=total, assignments=None)],
            timeout_ms=self._timeout_ms,
        )

        def ask() -> None:
            answer = self._client.controller().request(api.CREATE_PARTITIONS, request)
            for row in answer.results:
                raise_for(row.error_code, f"topic {row.name}", row.error_message)

        self._client.of_controller(ask)
        self._wait_for(name, total)

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete all records below these offsets (-1: all records); return the new log start offsets."""
        starts: dict[TopicPartition, int] = {}

        def ask() -> None:
            for connection, keys in self._client.by_leader(key for key in offsets if key not in starts):
                answer = connection.request(api.DELETE_RECORDS, self._delete_records_request(keys, offsets))
                for topic in answer.topics:
                    for row in topic.partitions:
                        key = TopicPartition(topic.name, row.partition_index)
                        raise_from_leader(row.error_code, key)
                        starts[key] = row.low_watermark

        self._client.with_retries(ask)
        require_answers("DeleteRecords", offsets, starts)
        return starts

    def partition_sizes(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the bytes of each partition on its leader's disk. Raises KafkaError (CLUSTER_AUTHORIZATION_FAILED).

        A partition is left out if its leader does not report it: the leader has moved, or its log directory has failed.
        """
        wanted = set(keys)

        def ask() -> dict[TopicPartition, int]:
            sizes = {}
            for connection, led in self._client.by_leader(wanted):
                topics = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in by_topic(led)]
                answer = connection.request(api.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=topics))
                raise_for(answer.error_code, "partition sizes")
                for topic in (topic for result in answer.results for topic in result.topics):
                    for row in topic.partitions:
                        if not row.is_future_key:
                            sizes[TopicPartition(topic.name, row.partition_index)] = row.partition_size
            return sizes

        return self._client.with_retries(ask)

    def log_directories(self, node_id: int) -> list[LogDirectory]:
        """Return the log directories of a broker with the bytes of each replica. Raises the errors of
        `partition_sizes`.
        """

        def ask() -> list[LogDirectory]:
            answer = self._broker(node_id).request(api.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None))
            raise_for(answer.error_code, f"log directories of broker {node_id}")
            return [
                LogDirectory(
                    row.log_dir,
                    row.error_code,
                    row.total_bytes if row.total_bytes >= 0 else None,
                    row.usable_bytes if row.usable_bytes >= 0 else None,
                    {
                        TopicPartition(topic.name, part.partition_index): part.partition_size
                        for topic in row.topics
                        for part in topic.partitions
                        if not part.is_future_key
                    },
                )
                for row in answer.results
            ]

        return self._client.with_retries(ask)

    def describe_topic_configs(self, topic: str, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """Return all settings of a topic by name, or only those in `names`."""
        return self._describe(self._client.any_connection, RESOURCE_TOPIC, topic, names)

    def describe_broker_configs(self, node_id: int, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """Return all settings of a broker by name, or only those in `names`."""
        return self._describe(lambda: self._broker(node_id), RESOURCE_BROKER, str(node_id), names)

    def alter_topic_configs(self, topic: str, values: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Set some settings of a topic; the value None removes an override. Other settings do not change."""
        self._alter(self._client.controller, RESOURCE_TOPIC, topic, values, validate_only)

    def alter_broker_configs(
        self, node_id: int, values: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set some dynamic settings of a broker; the value None removes a setting."""
        self._alter(lambda: self._broker(node_id), RESOURCE_BROKER, str(node_id), values, validate_only)

    # --- inside -------------------------------------------------------------------------------------------------------

    @property
    def _timeout_ms(self) -> int:
        return int(self._client.request_timeout_s * 1000)

    def _broker(self, node_id: int) -> Connection:
        if node_id not in {broker.node_id for broker in self._client.brokers()}:
            raise_for(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node_id}")
        return self._client.connection_to(node_id)

    def _delete_records_request(
        self, keys: list[TopicPartition], offsets: Mapping[TopicPartition, int]
    ) -> DeleteRecordsRequest:
        topics = [
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(partition_index=partition, offset=offsets[TopicPartition(topic, partition)])
                    for partition in partitions
                ],
            )
            for topic, partitions in by_topic(keys)
        ]
        return DeleteRecordsRequest(topics=topics, timeout_ms=self._timeout_ms)

    def _describe(
        self, connect: Callable[[], Connection], kind: int, name: str, names: Iterable[str] | None
    ) -> list[ConfigEntry]:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configuration_keys=None if names is None else list(names),
                )
            ],
        )

        def ask() -> list[ConfigEntry]:
            connection = connect()
            request.include_documentation = connection.version_for(api.DESCRIBE_CONFIGS) >= DOCUMENTATION_VERSION
            results = connection.request(api.DESCRIBE_CONFIGS, request).results
            if len(results) != 1:
                raise ProtocolError(f"the DescribeConfigs response has {len(results)} resources; expected 1")
            (result,) = results
            raise_for(result.error_code, f"{KINDS[kind]} {name}", result.error_message)
            return sorted(map(entry_of, result.configs))

        return self._client.with_retries(ask)

    def _alter(
        self,
        connect: Callable[[], Connection],
        kind: int,
        name: str,
        values: Mapping[str, str | None],
        validate_only: bool,
    ) -> None:
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        AlterableConfig(
                            name=key,
                            config_operation=OPERATION_DELETE if value is None else OPERATION_SET,
                            value=value,
                        )
                        for key, value in values.items()
                    ],
                )
            ],
            validate_only=validate_only,
        )

        def ask() -> None:
            answer = connect().request(api.INCREMENTAL_ALTER_CONFIGS, request)
            for row in answer.responses:
                raise_for(row.error_code, f"{KINDS[kind]} {name}", row.error_message)

        self._client.of_controller(ask)

    def _wait_for(self, name: str, partitions: int) -> TopicDescription | None:
        """Wait until metadata shows the topic with this many partitions, each with a leader, or until the timeout."""
        deadline = time.monotonic() + self._client.retry_timeout_s
        backoff = self._client.retry_backoff_s
        while True:
            try:
                topic = self._client.topic(name)
                if len(topic.partitions) >= partitions and all(p.leader >= 0 for p in topic.partitions):
                    return topic
            except KafkaError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
            if time.monotonic() + backoff > deadline:
                return None
            time.sleep(backoff)
            backoff = min(2 * backoff, RETRY_BACKOFF_S_MAX)


def entry_of(row: Any) -> ConfigEntry:
    """Convert a setting of a DescribeConfigs response."""
    return ConfigEntry(
        row.name,
        row.value,
        SOURCES.get(row.config_source, "unknown"),
        row.read_only,
        row.is_sensitive,
        TYPES.get(row.config_type, "unknown"),
        row.documentation or None,
    )
