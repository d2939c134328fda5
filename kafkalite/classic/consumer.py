"""Kafka 0.7's consumer: groups that divide the partitions of topics through ZooKeeper alone.

    config = ConsumerConfig(groupid="g", zk_connect="127.0.0.1:2181")
    with Consumer.create(config) as connector:
        streams = connector.create_message_streams({"events": 2})["events"]

See `kafkalite.classic.connector`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.classic.config import ConsumerConfig
from kafkalite.classic.connector import ConsumerConnector

if TYPE_CHECKING:
    from collections.abc import Mapping


class Consumer:
    """kafka.consumer.Consumer."""

    @staticmethod
    def create(config: ConsumerConfig | Mapping[str, str]) -> ConsumerConnector:
        """Return a connector to a group. Raises InvalidConfig, and StartupError if ZooKeeper does not respond."""
        return ConsumerConnector(
            config if isinstance(config, ConsumerConfig) else ConsumerConfig.from_properties(dict(config))
        )
