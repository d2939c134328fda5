"""Find the live brokers, and the partitions of topics, for a producer: in ZooKeeper or in a fixed list.

Results from ZooKeeper are cached until a watch reports a change or the client reconnects. While ZooKeeper is
unreachable, the producer uses the cached results.

Thread rule: any thread. A lock guards the caches, but is not held while a thread waits for ZooKeeper. Watches fire on
kazoo's thread and only drop results.

Source: Kafka 0.7.2 (`kafkalite.classic`, facts 3 and 6).
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafkalite.classic.errors import InvalidConfig, NoBrokersForPartition
from kafkalite.classic.wire import ANY_PARTITION
from kafkalite.zookeeper import group
from kafkalite.zookeeper import session as zookeeper
from kafkalite.zookeeper.nodes import BrokerPartition
from kafkalite.zookeeper.session import SessionState, ZooKeeperError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.classic.config import ProducerConfig

_ENTRY: Final = re.compile(r"(\d+):([^:\s]+):(\d+)")
_FIRST_PARTITION: Final = 0


class Address(NamedTuple):
    """A broker's id, host and port."""

    broker_id: int
    host: str
    port: int


class Brokers(Protocol):
    """The source of brokers and partitions for a producer."""

    def partitions(self, topic: str) -> list[BrokerPartition]:
        """Return a topic's partitions in their order for partitioners, which choose one by index."""
        ...

    def address(self, broker_id: int) -> Address | None:
        """Return a broker's address, or None while no live broker has this id."""
        ...

    def refresh(self) -> None:
        """Drop cached results, since they may be outdated."""
        ...

    def close(self) -> None: ...


class FixedBrokers:
    """The brokers of a fixed list (`broker.list`: `id:host:port,id:host:port`). A broker chooses the partition of an
    event."""

    def __init__(self, text: str) -> None:
        self._addresses: dict[int, Address] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            found = _ENTRY.fullmatch(part)
            if found is None:
                raise InvalidConfig(f"broker.list must be id:host:port,id:host:port, not {text!r}")
            self._addresses[int(found[1])] = Address(int(found[1]), found[2], int(found[3]))
        if not self._addresses:
            raise InvalidConfig("broker.list is empty")
        self._partitions = [BrokerPartition(broker_id, ANY_PARTITION) for broker_id in self._addresses]

    def partitions(self, topic: str) -> list[BrokerPartition]:
        del topic
        return self._partitions

    def address(self, broker_id: int) -> Address | None:
        return self._addresses.get(broker_id)

    def refresh(self) -> None:
        """Do nothing, since the list is fixed."""

    def close(self) -> None:
        """Do nothing, since nothing is open."""


class ZooKeeperBrokers:
    """The brokers that are registered in ZooKeeper (`zk.connect`)."""

    def __init__(self, config: ProducerConfig) -> None:
        assert config.zk_connect is not None
        self._client = zookeeper.connect(
            config.zk_connect,
            session_timeout_s=config.session_timeout_s,
            connection_timeout_s=config.connection_timeout_s,
        )
        self._client.add_listener(self._on_state)
        self._lock = threading.Lock()
        self._version = 0  # rises when results are forgotten, so that an older answer is not cached
        self._partitions: dict[str, list[BrokerPartition]] = {}
        self._addresses: dict[int, Address] | None = None

    def partitions(self, topic: str) -> list[BrokerPartition]:
        """Return a topic's partitions; for a new topic partition 0 of every live broker. Raises
        NoBrokersForPartition."""
        with self._lock:
            known, version = self._partitions.get(topic), self._version
        if known is None:
            try:
                known = group.partitions(self._client, topic, self._dropper(topic))
            except ZooKeeperError as error:
                raise NoBrokersForPartition(
                    f"cannot read the brokers of topic {topic!r} from ZooKeeper: {error!r}"
                ) from error
            with self._lock:
                if self._version == version:
                    self._partitions[topic] = known
        if not known:
            known = [BrokerPartition(broker_id, _FIRST_PARTITION) for broker_id in sorted(self._live())]
        if not known:
            raise NoBrokersForPartition(f"no live broker for topic {topic!r}")
        return known

    def address(self, broker_id: int) -> Address | None:
        return self._live().get(broker_id)

    def refresh(self) -> None:
        with self._lock:
            self._version += 1
            self._partitions.clear()
            self._addresses = None

    def close(self) -> None:
        zookeeper.close(self._client)

    def _live(self) -> dict[int, Address]:
        with self._lock:
            known, version = self._addresses, self._version
        if known is None:
            try:
                nodes = group.brokers(self._client, self._on_brokers)
            except ZooKeeperError as error:
                raise NoBrokersForPartition(f"cannot read the live brokers from ZooKeeper: {error!r}") from error
            known = {node.broker_id: Address(node.broker_id, node.host, node.port) for node in nodes.values()}
            with self._lock:
                if self._version == version:
                    self._addresses = known
        return known

    def _on_brokers(self, event: object) -> None:
        if zookeeper.tells_change(event):
            self.refresh()

    def _dropper(self, topic: str) -> Callable[[object], None]:
        def drop(event: object) -> None:
            if not zookeeper.tells_change(event):
                return
            with self._lock:
                self._version += 1
                self._partitions.pop(topic, None)

        return drop

    def _on_state(self, state: str) -> None:
        if state == SessionState.CONNECTED:  # reconnected: the watches were lost with the connection
            self.refresh()


def brokers_of(config: ProducerConfig) -> Brokers:
    """Return the source of brokers that a producer's settings name."""
    return FixedBrokers(config.broker_list) if config.broker_list else ZooKeeperBrokers(config)
