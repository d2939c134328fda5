"""Run a consumer's membership in a 0.7 group: registration, streams, rebalances and offset commits.

    1  creating streams creates the member's id node, and starts the first rebalance, which sets watches
    2  after a rebalance, the fetchers run
    3  if a node has changed or the session was lost, there is another rebalance
    4  if an attempt fails, another follows after a pause; a rebalance has at most rebalance.retries.max attempts
    5  shutdown ends the streams and leaves the group

    a rebalance: stop the fetchers ─▶ clear the streams ─▶ commit offsets (even without auto-commit) ─▶ read the group
                 ─▶ release the owner nodes ─▶ claim the new partitions ─▶ find their offsets ─▶ start fetchers

If the connection is lost for longer than the session timeout, the fetchers stop, because other members may own the
partitions by then.

Thread rule: any thread may commit or shut down. The connector has one watcher thread, one committer, and one fetcher
per broker. The lock `_rebalancing` is held through a rebalance; `_wake` guards the flags that kazoo's callbacks set.

Source: ZookeeperConsumerConnector of Kafka 0.7.2 (`kafkalite.classic`, fact 5, with the differences after the facts).
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base import forks
from kafkalite.base.logging import fields
from kafkalite.classic import ownership
from kafkalite.classic.errors import ClassicError, InvalidConfig, RebalanceFailed
from kafkalite.classic.fetcher import Fetcher
from kafkalite.classic.handlers import DefaultDecoder
from kafkalite.classic.stream import ChunkQueue, ConsumedPosition, KafkaStream
from kafkalite.zookeeper import group as nodes
from kafkalite.zookeeper import session as zookeeper
from kafkalite.zookeeper.nodes import FilterCounts, GroupPaths, NodeError, TopicCounts
from kafkalite.zookeeper.session import NodeConflict, SessionState, ZooKeeperError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from kafkalite.classic.config import ConsumerConfig
    from kafkalite.classic.handlers import Decoder
    from kafkalite.zookeeper.nodes import BrokerPartition, Subscription
    from kafkalite.zookeeper.topic_filter import TopicFilter

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Pause before a failed registration or rebalance is tried again."""
LEAVE_TIMEOUT_S: Final = 6.0
"""How long a shutdown waits for ZooKeeper to store offsets and end the session: 0.7's session timeout."""


class ConsumerConnector:
    """A consumer's membership in its group (kafka.consumer.ConsumerConnector)."""

    def __init__(self, config: ConsumerConfig) -> None:
        if not config.zk_connect:
            raise InvalidConfig("a consumer needs zk.connect")
        self._config = config
        own = config.consumerid
        if own is None:
            own = f"{socket.gethostname()}-{int(time.time() * 1000)}-{uuid.uuid4().hex[:8]}"
        self.consumer_id = f"{config.groupid}_{own}"
        self._group = GroupPaths(config.groupid)
        self._client = zookeeper.connect(
            config.zk_connect,
            session_timeout_s=config.session_timeout_s,
            connection_timeout_s=config.connection_timeout_s,
        )
        self._rebalancing = threading.Lock()
        self._subscription: Subscription | None = None
        self._queues: dict[tuple[str | None, int], ChunkQueue] = {}  # (topic or None for all topics, stream number)
        self._streams: list[KafkaStream] = []
        self._fetchers: list[Fetcher] = []
        self._owners: dict[tuple[str, BrokerPartition], str] = {}  # nodes that may be ours, even half claimed
        self._positions: dict[tuple[str, BrokerPartition], ConsumedPosition] = {}
        self._wake = threading.Condition(threading.Lock())
        self._changed = False  # guarded by _wake, as are the three below
        self._session_lost = False
        self._away_since: float | None = None
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self._client.add_listener(self._on_state)
        if config.auto_commit:
            self._start_thread(self._commit_often, "commit")
        self._origin = forks.Origin()
        forks.register(self)

    # --- the application's side ---------------------------------------------------------------------------------------

    def create_message_streams(
        self, topic_counts: Mapping[str, int], decoder: Decoder | None = None
    ) -> dict[str, list[KafkaStream]]:
        """Join the group, and return the requested number of streams of each topic. Call it once.

        RebalanceFailed if the group does not settle.
        """
        if not topic_counts or any(count < 1 for count in topic_counts.values()):
            raise InvalidConfig("expected a map from topics to stream counts of at least 1")
        streams: dict[str, list[KafkaStream]] = {}
        for topic, count in topic_counts.items():
            streams[topic] = [self._new_stream(topic, number, decoder) for number in range(count)]
        self._begin(TopicCounts(dict(topic_counts)))
        return streams

    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, stream_count: int = 1, decoder: Decoder | None = None
    ) -> list[KafkaStream]:
        """Join the group, and return streams that all topics matching the filter share. Later topics are included."""
        if stream_count < 1:
            raise InvalidConfig(f"the stream count must be at least 1, not {stream_count}")
        streams = [self._new_stream(None, number, decoder) for number in range(stream_count)]
        self._begin(FilterCounts(topic_filter.marker, stream_count, topic_filter.pattern))
        return streams

    def commit_offsets(self) -> None:
        """Store the offset after the last message that was handed out, for each owned partition. Failures are logged.

        Nothing is stored while ZooKeeper is unreachable, because other members may own the partitions afterwards. If a
        rebalance begins, this commit ends. The rebalance commits the offsets itself, and the next owner may then store
        later ones.
        """
        positions = self._positions
        for (topic, partition), position in list(positions.items()):
            if self._positions is not positions:
                return
            if self._away():
                logger.info(
                    "ZooKeeper is not reachable, so offsets are not stored", extra=fields(consumer=self.consumer_id)
                )
                return
            self._store(topic, partition, position.consumed)

    def leave(self) -> None:
        """Stop in a forked child. The session and its partitions belong to the parent."""
        self._stopping = True

    def shutdown(self) -> None:
        """End the streams, commit if auto-commit is on, and leave the group. Idempotent.

        If ZooKeeper does not respond within LEAVE_TIMEOUT_S seconds, this returns, and a daemon thread continues. The
        session then expires, and uncommitted messages are delivered again. In a forked child this does nothing.
        """
        if not self._origin.is_here:
            return
        with self._wake:
            if self._stopping:
                return
            self._stopping = True
            self._wake.notify_all()
        for queue in list(self._queues.values()):
            queue.end()
        for stream in list(self._streams):
            stream.clear()  # including messages in the streams' hands: after the commit nothing may be handed out
        leaving = threading.Thread(
            target=self._leave, args=(threading.current_thread(),), name="kafkalite-classic-leave", daemon=True
        )
        leaving.start()
        leaving.join(LEAVE_TIMEOUT_S)
        if leaving.is_alive():
            logger.warning(
                "ZooKeeper does not respond: %s stays in its group until its session expires", self.consumer_id,
                extra=fields(consumer=self.consumer_id),
            )  # fmt: skip

    @property
    def owned(self) -> dict[str, list[str]]:
        """Topic → the partitions that this consumer reads now, as `<broker>-<partition>`."""
        found: dict[str, list[str]] = {}
        for topic, partition in list(self._positions):
            found.setdefault(topic, []).append(str(partition))
        return {topic: sorted(partitions) for topic, partitions in found.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _leave(self, caller: threading.Thread) -> None:
        """Commit and leave the group. These are the steps of a shutdown that wait for ZooKeeper."""
        try:
            for thread in self._threads:
                if thread is not caller:
                    thread.join()
            with self._rebalancing:
                self._stop_fetchers()
                if self._config.auto_commit:
                    self.commit_offsets()
        finally:
            zookeeper.close(self._client)

    # --- joining ------------------------------------------------------------------------------------------------------

    def _new_stream(self, topic: str | None, number: int, decoder: Decoder | None) -> KafkaStream:
        if self._subscription is not None:
            raise ClassicError("a connector can create its streams only once")
        queue = self._queues[topic, number] = ChunkQueue(self._config.queued_chunks_max)
        stream = KafkaStream(
            queue,
            decoder or DefaultDecoder(),
            timeout_ms=self._config.consumer_timeout_ms,
            shallow=self._config.shallow_iterator,
        )
        self._streams.append(stream)
        return stream

    def _begin(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._register()
        self._rebalance()
        self._start_thread(self._watch, "watch")

    def _register(self) -> None:
        assert self._subscription is not None
        try:
            zookeeper.create_ephemeral(self._client, self._group.id_of(self.consumer_id), self._subscription.encode())
        except NodeConflict as error:
            raise RebalanceFailed(f"consumer id {self.consumer_id} is in use: {error}") from error

    # --- rebalancing --------------------------------------------------------------------------------------------------

    def _rebalance(self) -> None:
        """Rebalance until an attempt succeeds. Raises RebalanceFailed after rebalance.retries.max attempts."""
        with self._rebalancing:
            failure: Exception | None = None
            for attempt in range(self._config.rebalance_retries_max):
                if self._stopping or self._session_lost:
                    return  # for good, or until the watcher has registered again
                try:
                    with self._wake:
                        self._changed = False
                    self._attempt()
                except (NodeConflict, NodeError, ClassicError, *ZooKeeperError) as error:
                    failure = error
                    logger.info(
                        "rebalance attempt %d failed: %s", attempt + 1, error or type(error).__name__,
                        extra=fields(consumer=self.consumer_id),
                    )  # fmt: skip
                    self._pause()
                    self._give_back()
                    self._wait(self._config.rebalance_backoff_s)
                else:
                    return
            raise RebalanceFailed(
                f"{self.consumer_id} failed to rebalance in {self._config.rebalance_retries_max} attempts: {failure}"
            ) from failure

    def _attempt(self) -> None:
        assert self._subscription is not None
        self._pause()
        watch_topics = isinstance(self._subscription, FilterCounts)
        share = ownership.decide(
            self._client, self._group, self.consumer_id, self._on_change, watch_topics=watch_topics
        )
        ownership.release(self._client, self._group, self._owners)
        self._owners = dict(share.owners)
        ownership.claim(self._client, self._group, share)
        ownership.find_offsets(self._client, self._group, share, self._config)
        self._positions = {
            key: ConsumedPosition(*key, share.offsets[key], self._queue_of(key[0], thread))
            for key, thread in share.owners.items()
        }
        self._was_placed(share.offsets)
        self._start_fetchers(share)
        idle = sorted(share.topics - {topic for topic, _ in share.owners})
        if idle:
            logger.warning(
                "%s gets no partition of topics %s: the group has more streams than partitions",
                self.consumer_id,
                ", ".join(idle),
            )

    def _give_back(self) -> None:
        """Release the owner nodes after a failure, so that other members do not wait for them.

        Nodes that cannot be released now are released by the next attempt.
        """
        try:
            ownership.release(self._client, self._group, self._owners)
        except ZooKeeperError as error:
            logger.info(
                "%d partition owner nodes could not be released yet: %s",
                len(self._owners),
                error or type(error).__name__,
            )

    def _pause(self) -> None:
        """Stop fetching, drop the messages that were not handed out, and commit those that were."""
        self._stop_fetchers()
        for stream in self._streams:
            stream.clear()
        self.commit_offsets()
        self._positions = {}

    def _queue_of(self, topic: str, thread_id: str) -> ChunkQueue:
        number = int(thread_id.rpartition("-")[2])
        return self._queues[None if isinstance(self._subscription, FilterCounts) else topic, number]

    def _start_fetchers(self, share: ownership.ConsumerShare) -> None:
        by_broker: dict[int, list[ConsumedPosition]] = {}
        for (_, partition), position in self._positions.items():
            by_broker.setdefault(partition.broker_id, []).append(position)
        for broker_id, positions in by_broker.items():
            broker = share.brokers.get(broker_id)
            if broker is None:
                logger.warning("broker %d is down; its partitions are consumed when it returns", broker_id)
                continue
            fetcher = Fetcher(broker, positions, self._config, self._store_position)
            self._fetchers.append(fetcher)
            fetcher.start()

    def _stop_fetchers(self) -> None:
        fetchers, self._fetchers = self._fetchers, []
        for fetcher in fetchers:
            fetcher.interrupt()
        for queue in self._queues.values():
            queue.clear()
        for fetcher in fetchers:
            fetcher.join()

    # --- offsets ------------------------------------------------------------------------------------------------------

    def _store_position(self, position: ConsumedPosition, offset: int) -> None:
        self._was_placed({(position.topic, position.partition): offset})
        self._store(position.topic, position.partition, offset)

    def _store(self, topic: str, partition: BrokerPartition, offset: int) -> None:
        try:
            nodes.store_offset(self._client, self._group, topic, partition, offset)
        except ZooKeeperError as error:
            logger.warning("cannot store offset %d of %s-%s: %s", offset, topic, partition, error)
        else:
            self._was_stored(topic, partition, offset)

    def _was_placed(self, offsets: Mapping[tuple[str, BrokerPartition], int]) -> None:
        """Called with the offsets at which reading begins, by (topic, partition). A subclass can override it."""

    def _was_stored(self, topic: str, partition: BrokerPartition, offset: int) -> None:
        """Called with an offset that was stored in ZooKeeper. A subclass can override it."""

    def _commit_often(self) -> None:
        interval_s = self._config.auto_commit_interval_ms / 1000
        while not self._wait(interval_s):
            self.commit_offsets()

    # --- the watcher thread -------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Rebalance whenever the group, the topics or the brokers have changed. Several changes cause one rebalance.

        Changes during a rebalance cause one more. If all attempts of a rebalance fail, the next rebalance starts after
        RETRY_S.
        """
        while True:
            with self._wake:
                while not (self._stopping or self._changed or self._session_lost or self._away_too_long()):
                    self._wake.wait(self._away_left_s())
                if self._stopping:
                    return
                lost, self._session_lost = self._session_lost, False
                away = self._away_too_long()
                if away:
                    self._away_since = None
            if away and not lost:
                logger.warning("ZooKeeper has been unreachable for longer than the session timeout; fetching stops")
                with self._rebalancing:
                    self._drop()  # the owner nodes are released after a reconnection
                continue
            if not self._follow(lost=lost):
                with self._wake:
                    self._session_lost = self._session_lost or lost
                    self._changed = True
                self._wait(RETRY_S)

    def _follow(self, *, lost: bool) -> bool:
        """Register again if the session was lost, and rebalance. Return False if ZooKeeper or the group prevented
        it."""
        try:
            if lost:
                logger.warning("the ZooKeeper session was lost", extra=fields(consumer=self.consumer_id))
                with self._rebalancing:
                    self._drop()
                # The owner nodes were lost with the session, except those that an attempt in progress made in the next
                # one: the rebalance checks each.
                self._register()
            self._rebalance()
        except (RebalanceFailed, *ZooKeeperError) as error:
            if not self._stopping:
                logger.warning("%s", error or type(error).__name__)
            return False
        return True

    def _drop(self) -> None:
        """Stop fetching, and drop messages and uncommitted offsets, since other members may own the partitions by
        now."""
        self._positions = {}
        self._stop_fetchers()
        for stream in self._streams:
            stream.clear()

    def _away(self) -> bool:
        """Return whether the session is lost or may expire. Offsets must not be stored then."""
        return self._session_lost or self._away_since is not None

    def _away_too_long(self) -> bool:
        return self._away_since is not None and self._away_left_s() == 0.0

    def _away_left_s(self) -> float | None:
        """Return the seconds after which the session must be considered lost; None while connected."""
        since = self._away_since
        return None if since is None else max(0.0, since + self._config.session_timeout_s - time.monotonic())

    def _wait(self, timeout_s: float) -> bool:
        """Wait for `timeout_s` seconds or until the connector stops. Return whether it stops."""
        with self._wake:
            self._wake.wait_for(lambda: self._stopping, timeout_s)
            return self._stopping

    def _start_thread(self, run: Any, name: str) -> None:
        thread = threading.Thread(target=run, name=f"kafkalite-classic-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    # --- on kazoo's thread: nothing may wait --------------------------------------------------------------------------

    def _on_change(self, event: object) -> None:
        if not zookeeper.tells_change(event):
            return  # the connection was lost, which `_on_state` handles
        with self._wake:
            self._changed = True
            self._wake.notify_all()

    def _on_state(self, state: str) -> None:
        with self._wake:
            if state == SessionState.LOST:
                self._session_lost = True
                self._away_since = None
            elif state == SessionState.SUSPENDED:
                self._away_since = time.monotonic()
            else:
                self._away_since = None
                self._changed = True  # changes during the disconnection were not reported
            self._wake.notify_all()
