"""Create a Kafka 0.7 consumer, whose group divides the partitions of topics among its members through ZooKeeper.

    config = ConsumerConfig(groupid="g", zk_connect="127.0.0.1:2181")
    with Consumer.create(config) as connector:
        streams = connector.create_message_streams({"events": 2})["events"]

The result is a ConsumerConnector (`kafkalite.classic.connector`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.classic.config import ConsumerConfig
from kafkalite.classic.connector import ConsumerConnector

if TYPE_CHECKING:
    from collections.abc import Mapping


class Consumer:
    """Creates a member of a group (kafka.consumer.Consumer)."""

    @staticmethod
    def create(config: ConsumerConfig | Mapping[str, str]) -> ConsumerConnector:
        """Return a new member of the group. Raises InvalidConfig, and StartupError if ZooKeeper does not respond."""
        return ConsumerConnector(
            config if isinstance(config, ConsumerConfig) else ConsumerConfig.from_properties(dict(config))
        )
