"""Create a Kafka 0.7 consumer: a member of a group that divides the partitions of topics through ZooKeeper alone.

    config = ConsumerConfig(groupid="g", zk_connect="127.0.0.1:2181")
    with Consumer.create(config) as connector:
        streams = connector.create_message_streams({"events": 2})["events"]

`kafkalite.classic.connector` describes the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.classic.config import ConsumerConfig
from kafkalite.classic.connector import ConsumerConnector

if TYPE_CHECKING:
    from collections.abc import Mapping


class Consumer:
    """Creates connectors to groups (kafka.consumer.Consumer)."""

    @staticmethod
    def create(config: ConsumerConfig | Mapping[str, str]) -> ConsumerConnector:
        """Return a connector to a group. Raises InvalidConfig, and StartupError if ZooKeeper does not respond."""
        return ConsumerConnector(
            config if isinstance(config, ConsumerConfig) else ConsumerConfig.from_properties(dict(config))
        )
