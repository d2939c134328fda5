"""Register a broker and its classic topics in ZooKeeper, as Kafka 0.7 does, while the broker runs.

    start              connect, and register the broker's id; the registry thread then registers the topics
    topic changed      the registry thread registers the topic, or removes its node
    connection lost    the registry thread repeats what fails until the connection is back
    session lost       the registry thread registers the id and all topics again
    stop               end the session, so that the broker's nodes vanish

After the start, the broker serves clients even while ZooKeeper cannot be reached.

Source: `kafkalite.classic`, fact 3.

Thread rule: any thread may call `topic_created` and `topic_deleted`. The lock `_changed` guards the state shared with
the registry thread.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from kazoo.client import KazooState

from kafkalite.base.logging import fields
from kafkalite.errors import StartupError
from kafkalite.zookeeper import session as zookeeper
from kafkalite.zookeeper.nodes import BrokerNode, NodeError, topic_broker_path
from kafkalite.zookeeper.session import NodeConflict, ZooKeeperError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kazoo.client import KazooClient

    from kafkalite.base.clock import Clock

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.5
"""Pause after a failed operation."""
STALE_WAIT_FACTOR: Final = 2.0
"""How many session timeouts to wait for the node of an earlier run: the server checks sessions in steps."""


class BrokerRegistration:
    """The registration of one broker in ZooKeeper."""

    def __init__(
        self,
        servers: str,
        broker_id: int,
        host: str,
        port: int,
        clock: Clock,
        *,
        session_timeout_s: float,
        connection_timeout_s: float,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._servers = servers
        self._broker_id = broker_id
        self._host = host
        self._port = port
        self._clock = clock
        self._session_timeout_s = session_timeout_s
        self._connection_timeout_s = connection_timeout_s
        self._on_fatal = on_fatal
        self._client: KazooClient | None = None
        self._changed = threading.Condition(threading.Lock())
        self._wanted: dict[str, int] = {}  # guarded by _changed
        self._session = 0  # number of lost sessions, guarded by _changed
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._registered: dict[str, int] = {}  # used by the registry thread only

    def start(self, topics: Mapping[str, int]) -> None:
        """Register the broker's id, and start the thread that registers its topics: name → number of partitions.

        StartupError if ZooKeeper cannot be reached within the connection timeout, or if another broker has this id.
        """
        self._wanted = dict(topics)
        self._client = client = zookeeper.connect(
            self._servers,
            session_timeout_s=self._session_timeout_s,
            connection_timeout_s=self._connection_timeout_s,
        )
        client.add_listener(self._on_state)
        try:
            self._register_at_start(client)
        except (NodeConflict, NodeError, *ZooKeeperError) as error:
            zookeeper.close(client)
            self._client = None
            raise StartupError(self._conflict_text(error)) from error
        self._thread = threading.Thread(target=self._run, name="kafkalite-registry", daemon=True)
        self._thread.start()

    def topic_created(self, topic: str, partition_count: int) -> None:
        """Let the thread register a new topic, or a changed number of partitions."""
        with self._changed:
            self._wanted[topic] = partition_count
            self._changed.notify()

    def topic_deleted(self, topic: str) -> None:
        """Let the thread remove the node of a deleted topic."""
        with self._changed:
            self._wanted.pop(topic, None)
            self._changed.notify()

    def stop(self) -> None:
        """Stop the thread and end the session, which removes the broker's nodes."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._client is not None:
            zookeeper.close(self._client)
            self._client = None

    # --- the registry thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        session = 0
        while True:
            with self._changed:
                while not self._stopping and self._session == session and self._wanted == self._registered:
                    self._changed.wait()
                if self._stopping:
                    return
                lost = self._session != session
                session = self._session
                wanted = dict(self._wanted)
            if not self._follow(wanted, lost=lost):
                with self._changed:
                    if lost:
                        session = -1  # the id must be registered again in any case
                    self._changed.wait(RETRY_S)

    def _follow(self, wanted: dict[str, int], *, lost: bool) -> bool:
        """Register `wanted` in ZooKeeper. Return False if that failed and must be repeated.

        If `lost` is set, the session is new, and the broker's id is registered first.
        """
        assert self._client is not None
        try:
            if lost:
                self._registered.clear()
                self._register_id(self._client, time.monotonic() + STALE_WAIT_FACTOR * self._session_timeout_s)
                logger.info(
                    "ZooKeeper session was lost; the broker is registered again",
                    extra=fields(broker_id=self._broker_id),
                )
            for topic in [topic for topic in self._registered if topic not in wanted]:
                zookeeper.delete(self._client, topic_broker_path(topic, self._broker_id))
                del self._registered[topic]
            for topic, count in wanted.items():
                if self._registered.get(topic) != count:
                    self._register_topic(self._client, topic, count)
                    self._registered[topic] = count
        except NodeConflict as error:
            # Another broker took the id meanwhile: two brokers must not use one id.
            self._on_fatal(StartupError(self._conflict_text(error)))
            return False
        except ZooKeeperError as error:
            logger.warning("could not register in ZooKeeper: %s; retrying", error or type(error).__name__)
            return False
        return True

    def _register_at_start(self, client: KazooClient) -> None:
        """Register the broker's id, and retry after a lost connection. A busy server may cause one."""
        began = time.monotonic()
        while True:
            try:
                self._register_id(client, began + STALE_WAIT_FACTOR * self._session_timeout_s)
            except zookeeper.CONNECTION_GONE:
                if time.monotonic() - began >= self._connection_timeout_s:
                    raise
                time.sleep(RETRY_S)
            else:
                return

    def _register_id(self, client: KazooClient, deadline: float) -> None:
        """Register the broker's id. NodeConflict if another broker has it.

        If an earlier process of this broker was killed, its node may still exist. Then wait until the node vanishes or
        the deadline passes, by which that process's session must have expired. Kafka 0.7 did not wait.
        """
        while True:
            creator = f"{self._host}-{self._clock.time_ms()}"
            node = BrokerNode(self._broker_id, creator, self._host, self._port)
            try:
                zookeeper.create_ephemeral(client, node.path, node.encode())
            except NodeConflict as conflict:
                if time.monotonic() >= deadline or not self._is_ours(conflict.value):
                    raise
                time.sleep(RETRY_S)
            else:
                return

    def _is_ours(self, value: bytes) -> bool:
        """Return whether a broker's node has this broker's address, so that an earlier run or session created it."""
        try:
            found = BrokerNode.decode(self._broker_id, value)
        except ValueError:
            return False
        return (found.host, found.port) == (self._host, self._port)

    def _register_topic(self, client: KazooClient, topic: str, count: int) -> None:
        """Register one topic.

        Replace a node that an earlier run has left; this broker has the id, so the node belongs to it.
        """
        path = topic_broker_path(topic, self._broker_id)
        if topic in self._registered:
            zookeeper.delete(client, path)  # recreated, because consumers watch the list of nodes, not their values
        while True:
            try:
                zookeeper.create_ephemeral(client, path, str(count).encode())
            except NodeConflict:
                zookeeper.delete(client, path)
            else:
                return

    def _on_state(self, state: str) -> None:
        """Record that the session was lost. Called on kazoo's thread, so it must not block."""
        if state == KazooState.LOST and not self._stopping:
            with self._changed:
                self._session += 1
                self._changed.notify()
        elif state == KazooState.SUSPENDED and not self._stopping:
            logger.warning("lost the connection to ZooKeeper; the broker continues to serve")

    def _conflict_text(self, error: BaseException) -> str:
        if isinstance(error, NodeConflict):
            return (
                f"broker id {self._broker_id} is already registered in ZooKeeper at {self._servers} by another "
                f"broker ({error.value.decode('utf-8', 'replace')}); set another broker.id"
            )
        if isinstance(error, NodeError):
            return f"cannot register this broker in ZooKeeper: {error}"
        return f"lost the connection to ZooKeeper at {self._servers} while registering the broker: {error}"
