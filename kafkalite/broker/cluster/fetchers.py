"""Replicate partitions from their leaders, with up to `num.replica.fetchers` threads per leader.

    kafkalite-fetcher-LEADER-N    fetches from the leader (`Follower`) and applies its responses to the logs

Each partition belongs to one thread. A fetcher has its own connection to the leader's inter-broker listener. A log
rejects a response if the leader epoch has changed since the request (LeaderChanged).

Source: ReplicaFetcherManager, ReplicaFetcherThread, RemoteLeaderEndPoint of Kafka 4.1.
"""

from __future__ import annotations

import functools
import logging
import threading
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.executors import THREADS
from kafkalite.base.logging import fields
from kafkalite.base.metric_families import Family, labels
from kafkalite.broker.cluster.connection import ConnectionFailed, LargeAnswers
from kafkalite.broker.cluster.divergence import UNDEFINED, Diverged, truncation_offset
from kafkalite.broker.cluster.follower import Append, Follower, Limits, Place, Step
from kafkalite.broker.cluster.replication_limits import ReplicationLimits, is_limited
from kafkalite.broker.features import METADATA_VERSION
from kafkalite.broker.log.assignment import LOST
from kafkalite.broker.log.log_truncation import LeaderChanged
from kafkalite.broker.log.replica_log import OffsetsOutOfOrder, UnexpectedAppendOffset
from kafkalite.errors import CorruptMessage, StorageError
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.fetch import ReplicaState
from kafkalite.wire.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkalite._native.serve.quota import Meter
    from kafkalite.base.clock import Clock
    from kafkalite.base.executors import Executors, Job
    from kafkalite.broker.cluster.brokers import Brokers
    from kafkalite.broker.cluster.connection import ControllerConnection
    from kafkalite.broker.cluster.divergence import Key
    from kafkalite.broker.cluster.image import Image
    from kafkalite.broker.log.assignment import Assignment
    from kafkalite.broker.log.replica_log import ReplicaChange, ReplicaLog
    from kafkalite.settings.broker import BrokerConfig
    from kafkalite.wire.protocol.messages.fetch import FetchRequest

logger = logging.getLogger("kafkalite.broker.cluster")

CONNECT_TIMEOUT_S: Final = 10.0
ROWS_MAX: Final = 10_000
"""The most partitions whose lag appears in the metrics."""
WHOLE_ASKED_S: Final = 1.0
"""Interval at which the leader's log end offset is requested for a replica that has lost records."""
WHOLE_ASKED_MAX: Final = 20
"""The most requests for log end offsets after one response, so that other partitions are fetched meanwhile."""
LATEST: Final = -1
EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
_FETCH_VERSIONS: Final = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14), (0, 13))
"""(metadata.version, version of Fetch from there on)"""
_LIST_VERSIONS: Final = ((29, 11), (25, 10), (21, 9), (9, 8), (0, 7))
_REPLICA_STATE_SINCE: Final = 15
_EARLIEST_LOCAL_SINCE: Final = 8


class OwnBroker(NamedTuple):
    """This broker's identity, and its current metadata image."""

    node_id: int
    image: Callable[[], Image]

    @property
    def epoch(self) -> int:
        """The broker epoch of this broker's registration, or -1 before the registration."""
        found = self.image().brokers.get(self.node_id)
        return -1 if found is None else found.epoch

    @property
    def metadata_version(self) -> int:
        """The finalized level of metadata.version."""
        return self.image().features.get(METADATA_VERSION, 0)


@functools.cache
def version_for(rows: tuple[tuple[int, int], ...], metadata_version: int) -> int:
    """Return the request version for this metadata.version, as a Java broker does.

    `rows` has (metadata.version, request version), newest first.
    """
    return next(version for since, version in rows if metadata_version >= since)


class Fetcher:
    """One fetcher thread, which replicates partitions from one leader."""

    def __init__(
        self,
        leader_id: int,
        number: int,
        own: OwnBroker,
        brokers: Brokers,
        limits: Limits,
        limit: Meter,
        timeout_s: float,
        large: LargeAnswers,
        clock: Clock,
        executors: Executors,
    ) -> None:
        self._leader_id = leader_id
        self._own = own
        self._brokers = brokers
        self._timeout_s = timeout_s
        self._large = large
        self._clock = clock
        self._client_id = f"broker-{own.node_id}-fetcher-{number}"
        self.metrics_id = f"ReplicaFetcherThread-{number}-{leader_id}"
        """Kafka's name for the fetcher thread in metrics."""
        self.lags: dict[Key, tuple[str, int, int]] = {}
        """(topic, partition, records missing here below the leader's high watermark), by the latest responses."""
        self._name = f"kafkalite-fetcher-{leader_id}-{number}"
        self._follower = Follower(self._name, limits)
        self._logs: dict[Key, ReplicaLog] = {}
        self._unknown: set[Key] = set()  # logs without epochs that are still to be truncated
        self._limit = limit
        self._limited: dict[Key, int] = {}
        """Throttled partitions known to lag, with the leader epoch in which they are followed."""
        self._lacking: dict[Key, float] = {}
        """Partition whose log has lost records → the time from which its leader may be asked for the log end offset
        again."""
        self._connection: ControllerConnection | None = None
        self._worker = executors.worker(self._name, self._turn)
        self._put: list[tuple[ReplicaLog, Assignment | None]] = []  # guarded by the worker's lock, as the next
        self._stopping = False
        self._answers = True  # whether the leader answered the last request

    @property
    def given_up(self) -> int:
        """The number of partitions not fetched until their metadata changes. Any thread."""
        return self._follower.given_up

    def start(self) -> None:
        """Start fetching the partitions that were added so far."""
        self._worker.start()

    def put(self, changes: Sequence[tuple[ReplicaLog, Assignment | None]]) -> None:
        """Follow these partitions from now on; with None as assignment, stop following them. Any thread.

        The changes take effect in their order.
        """
        with self._worker.lock:
            self._put += changes
            self._worker.call_locked()

    def stop_soon(self) -> None:
        """Send no more requests, and end the request in flight."""
        with self._worker.lock:
            self._stopping = True
        if self._connection is not None:
            self._connection.abort()

    def stop(self) -> None:
        """Stop fetching, and return when nothing is appended any more."""
        self.stop_soon()
        self._worker.stop()
        if self._connection is not None:
            self._connection.close()

    # --- a turn -------------------------------------------------------------------------------------------------------

    def _turn(self) -> float | None:
        """Send one request if a partition is due; return the seconds until the next run."""
        with self._worker.lock:
            if self._stopping:
                return None
            changes, self._put = self._put, []
        try:
            self._take(changes)
            return self._fetch()
        except Exception:  # the thread must live
            logger.exception("fetching from a leader failed", extra=fields(fetcher=self._name))
            self._follower.unanswered(self._clock.monotonic())
            return self._follower.wait(self._clock.monotonic())

    def _take(self, changes: Sequence[tuple[ReplicaLog, Assignment | None]]) -> None:
        for log, assignment in changes:
            key = (log.topic_id, log.partition)
            if assignment is None:
                self._follower.forget(key)
                self._logs.pop(key, None)
                self.lags.pop(key, None)
                self._unknown.discard(key)
                self._limited.pop(key, None)
                self._lacking.pop(key, None)
            elif self._follower.leader_epoch(key) != assignment.leader_epoch or self._logs.get(key) is not log:
                self._logs[key] = log
                self._begin(key, log, assignment.leader_epoch)
            if assignment is not None and log.behind:
                self._lacking.setdefault(key, 0.0)
                self._mend(key, log, assignment)

    def _begin(self, key: Key, log: ReplicaLog, leader_epoch: int) -> None:
        """Start following a partition.

        A log without leader epochs cannot be compared with the leader's. So it is first truncated to its high
        watermark, below which all replicas are equal.
        """
        self._follower.follow(key, leader_epoch, place_of(log))
        self._unknown.discard(key)
        if self._is_limited(log):
            self._limited[key] = leader_epoch
        if log.epochs.latest == UNDEFINED and log.high_watermark < log.log_end_offset:
            self._unknown.add(key)
            self._change(key, log, leader_epoch, lambda: self._cut_unknown(key, log, leader_epoch))

    def _cut_unknown(self, key: Key, log: ReplicaLog, leader_epoch: int) -> bool:
        log.truncate_to(log.high_watermark, leader_epoch=leader_epoch)
        self._unknown.discard(key)
        return True

    def _mend(self, key: Key, log: ReplicaLog, assignment: Assignment) -> None:
        """Truncate a damaged log at the damage, because the leader has the records.

        Do nothing until the replica's directory is LOST and the replica is out of the ISR.
        """
        damage, epoch = log.damage_start, assignment.leader_epoch
        if damage is None or assignment.directory != LOST or self._own.node_id in assignment.isr:
            return
        logger.warning(
            "a replica is damaged; truncating it at the offset and copying the rest from its leader",
            extra=fields(fetcher=self._name, log=log.name, offset=damage, log_end=log.log_end_offset),
        )
        self._change(key, log, epoch, lambda: log.truncate_to(damage, leader_epoch=epoch))

    def _is_limited(self, log: ReplicaLog) -> bool:
        return is_limited(log.config.follower_replication_throttled_replicas, log.partition, self._own.node_id)

    def _hold_back(self, now: float) -> None:
        """Delay throttled partitions that lag, while the throttled rate is used up.

        Partitions that are no longer throttled are forgotten here.
        """
        if not self._limited or not self._limit.owes_ms(now):
            return
        self._follower.take_up(now)
        for key, leader_epoch in tuple(self._limited.items()):
            if not self._is_limited(self._logs[key]):
                del self._limited[key]
            elif self._follower.asks_for(key, leader_epoch):
                self._follower.delay(key, leader_epoch, now)

    def _count(self, log: ReplicaLog, step: Append) -> None:
        """Charge the bytes fetched for a partition to the throttled rate, if the partition is throttled."""
        limited = self._is_limited(log)
        if limited:
            self._limit.charge(len(step.records), self._clock.monotonic())
        if limited and step.high_watermark > log.log_end_offset:
            self._limited[step.key] = step.leader_epoch
        else:
            self._limited.pop(step.key, None)

    def _fetch(self) -> float | None:
        self._hold_back(self._clock.monotonic())
        request = self._follower.request(self._clock.monotonic())
        if request is not None:
            try:
                response = self._ask(api.FETCH, self._fetch_version, self._signed(request))
            except ConnectionFailed as error:
                if self._answers and not self._stopping:
                    logger.info("the leader does not respond", extra=fields(fetcher=self._name, reason=str(error)))
                self._answers = False
                self._follower.unanswered(self._clock.monotonic())
            else:
                self._answers = True
                for step in self._follower.answered(response, self._clock.monotonic()):
                    self._carry_out(step)
                if self._connection is not None:
                    self._connection.end_answer()
                if self._lacking:
                    self._look_at_lacking()
        return self._follower.wait(self._clock.monotonic())

    def _signed(self, request: FetchRequest) -> FetchRequest:
        if self._fetch_version >= _REPLICA_STATE_SINCE:
            request.replica_state = ReplicaState(replica_id=self._own.node_id, replica_epoch=self._own.epoch)
        else:
            request.replica_id = self._own.node_id
        return request

    @property
    def _fetch_version(self) -> int:
        return version_for(_FETCH_VERSIONS, self._own.metadata_version)

    def _ask(self, key: int, version: int, request: object) -> Any:
        """Send a request to the leader and return its response. Raises ConnectionFailed."""
        connection = self._connection
        address = self._brokers.address(self._leader_id)
        if connection is not None and (connection.closed or connection.address != address):
            connection.close()
            connection = self._connection = None
        if connection is None:
            if address is None:
                raise ConnectionFailed(f"broker {self._leader_id} has no listener for inter-broker connections")
            connection = self._connection = self._brokers.connect(address, self._client_id, CONNECT_TIMEOUT_S)
            if self._stopping:
                connection.close()
                raise ConnectionFailed("the broker is stopping")
            connection.large = self._large
        return connection.request(key, version, request, self._timeout_s, views=True)

    # --- responses ----------------------------------------------------------------------------------------------------

    def _carry_out(self, step: Step) -> None:
        log = self._logs[step.key]
        if step.key in self._unknown:
            self._change(step.key, log, step.leader_epoch, lambda: self._cut_unknown(step.key, log, step.leader_epoch))
        elif isinstance(step, Append):
            self._change(step.key, log, step.leader_epoch, lambda: self._append(log, step))
        elif isinstance(step, Diverged):
            self._change(step.key, log, step.leader_epoch, lambda: self._cut(log, step))
        else:
            self._change(step.key, log, step.leader_epoch, lambda: self._go_on(log, step.leader_epoch))

    def _change(self, key: Key, log: ReplicaLog, leader_epoch: int, change: Callable[[], bool | None]) -> None:
        """Change a log by calling `change`, and report the log's new position to the `Follower`.

        If `change` fails or returns False, the partition is delayed, or given up until its metadata changes.
        """
        named = fields(fetcher=self._name, log=log.name, epoch=leader_epoch)
        try:
            helped = change()
        except LeaderChanged:
            self._follower.give_up(key, leader_epoch)  # metadata has reported that, and the next step follows
            return
        except ConnectionFailed as error:
            helped = self._told(key, logging.INFO, "the leader does not respond", error, named)
        except (CorruptMessage, OffsetsOutOfOrder, UnexpectedAppendOffset) as error:
            helped = self._told(key, logging.WARNING, "the leader sent invalid records", error, named)
        except StorageError as error:
            helped = self._told(key, logging.WARNING, "could not write to a replica", error, named)
        except Exception:
            if not log.deleted:
                logger.exception("stopped replicating a partition until it has a new leader", extra=named)
            self._follower.give_up(key, leader_epoch)
            return
        else:
            if helped is not False:
                self._follower.goes_well(key)
        if log.offline:
            self._follower.give_up(key, leader_epoch)
            return
        self._follower.note_place(key, leader_epoch, place_of(log))
        if helped is False:
            self._follower.delay(key, leader_epoch, self._clock.monotonic())

    def _told(self, key: Key, level: int, message: str, error: Exception, named: Mapping[str, Any]) -> bool:
        """Log a problem that keeps a partition from being replicated; repeats only at DEBUG. Return False: no
        progress.
        """
        if not self._follower.is_news(key, type(error)):
            level = logging.DEBUG
        logger.log(level, message, extra={**named, **fields(reason=str(error))})
        return False

    def _append(self, log: ReplicaLog, step: Append) -> bool:
        appended = log.append_as_follower(step.records, step.leader_epoch, step.high_watermark)
        self.lags[step.key] = (log.topic, log.partition, max(0, step.high_watermark - log.log_end_offset))
        self._count(log, step)
        if log.log_start_offset < step.log_start <= log.log_end_offset:
            log.advance_log_start(step.log_start, leader_epoch=step.leader_epoch)
        if appended.size == 0 and step.records:
            return False  # a newer leader wrote them: metadata will name it
        if log.behind:
            self._lacking.setdefault(step.key, 0.0)
            if log.epochs.latest == step.leader_epoch:
                log.caught_up(step.high_watermark)
        return True

    def _look_at_lacking(self) -> None:
        """Check whether logs that had lost records have all acknowledged records again.

        A log has all of them when it reaches the leader's high watermark and has records of the leader's epoch. Before
        that epoch has records, the high watermark may be older than the last committed one (KIP-207), and does not rise
        without new writes. So the leader is asked for its log end offset instead. Source: Partition.isFollowerInSync.
        """
        now = self._clock.monotonic()
        left = WHOLE_ASKED_MAX
        for key, ask_from in tuple(self._lacking.items()):
            log, epoch = self._logs[key], self._follower.leader_epoch(key)
            if not log.behind:
                del self._lacking[key]
            elif left and now >= ask_from and key not in self._unknown and self._follower.is_told(key, place_of(log)):
                left -= 1
                self._lacking[key] = now + WHOLE_ASKED_S
                try:
                    log.caught_up(self._list(log, epoch, LATEST))
                except ConnectionFailed as error:
                    logger.debug("could not get the leader's log end offset", extra=fields(reason=str(error)))
                    if self._connection is None or self._connection.closed:
                        return  # the leader does not answer or this fetcher stops: the next request handles it

    def _cut(self, log: ReplicaLog, step: Diverged) -> bool:
        offset = truncation_offset(step, log.epoch_end(step.epoch), log.log_end_offset)
        before = place_of(log)
        if offset is not None:
            if offset < log.high_watermark:
                logger.warning(
                    "truncating records below the high watermark, because the leader's log diverges there; "
                    "consumers may have read them",
                    extra=fields(log=log.name, offset=offset, high_watermark=log.high_watermark),
                )
            log.truncate_to(max(offset, 0), leader_epoch=step.leader_epoch)
        return place_of(log) != before

    def _go_on(self, log: ReplicaLog, leader_epoch: int) -> bool:
        """Truncate a log whose next fetch offset is outside the leader's log.

        Records above the leader's log end are removed. If the log ends below the leader's log start, all its records
        are removed.
        """
        before = place_of(log)
        end = self._list(log, leader_epoch, LATEST)
        if end < log.log_end_offset:
            log.truncate_to(end, leader_epoch=leader_epoch)
        else:
            start = self._list(log, leader_epoch, EARLIEST_LOCAL)
            if start > log.log_end_offset:
                log.truncate_fully_and_start_at(start, leader_epoch=leader_epoch)
        return place_of(log) != before

    def _list(self, log: ReplicaLog, leader_epoch: int, what: int) -> int:
        """Return an offset of the leader's log, by ListOffsets. Raises ConnectionFailed, also if the response has an
        error code.
        """
        version = version_for(_LIST_VERSIONS, self._own.metadata_version)
        if what == EARLIEST_LOCAL and version < _EARLIEST_LOCAL_SINCE:
            what = EARLIEST
        part = ListOffsetsPartition(partition_index=log.partition, current_leader_epoch=leader_epoch, timestamp=what)
        topic = ListOffsetsTopic(name=log.topic, partitions=[part])
        answer = self._ask(api.LIST_OFFSETS, version, ListOffsetsRequest(replica_id=self._own.node_id, topics=[topic]))
        found = answer.topics[0].partitions[0]
        if found.error_code or found.offset < 0:
            why = f"it returned offset {found.offset} and error {found.error_code}"
            raise ConnectionFailed(
                f"broker {self._leader_id} refused ListOffsets for {log.name}, timestamp {what}: {why}"
            )
        return int(found.offset)


def place_of(log: ReplicaLog) -> Place:
    """Return the position of a log, from which the next fetch continues."""
    return Place(log.log_end_offset, log.epochs.latest, log.log_start_offset)


class Fetchers:
    """All fetchers of this broker. Any thread.

    `use` is a listener of AssignedTopics, `use_config` a listener of settings.
    """

    def __init__(
        self, own: OwnBroker, brokers: Brokers, config: BrokerConfig, clock: Clock, executors: Executors = THREADS
    ) -> None:
        self._own = own
        self._brokers = brokers
        self._config = config
        self._clock = clock
        self._executors = executors
        self._lock = threading.Lock()
        self._fetchers: dict[tuple[int, int], Fetcher] = {}  # guarded by _lock, as the next
        self._followed: dict[ReplicaLog, tuple[int, int]] = {}
        self._ending: dict[Fetcher, Job] = {}
        self._large = LargeAnswers(2 * config.replica_fetch_response_max_bytes)
        self.limits = ReplicationLimits(config)
        """Throttled rates of this broker's partitions, as follower and as leader."""

    def use(self, changes: Sequence[ReplicaChange]) -> None:
        """Follow the leaders of replicas that have changed."""
        with self._lock:
            self._use([(change.log, change.now) for change in changes])

    def recheck(self, log: ReplicaLog) -> None:
        """Make the fetcher of a damaged replica check it again. Do nothing if the replica's leader is changing."""
        with self._lock:
            place, now = self._followed.get(log), log.assignment
            if place is not None and place[0] == now.leader_id:
                self._fetcher(*place).put([(log, now)])

    def use_config(self, config: BrokerConfig) -> None:
        """Apply settings that changed at runtime: the number of threads and the throttled rates."""
        self.limits.use_config(config)
        with self._lock:
            changed = config.num_replica_fetchers != self._config.num_replica_fetchers
            self._config = config
            if changed:
                self._use([(log, log.assignment) for log in self._followed])

    def _use(self, places: Sequence[tuple[ReplicaLog, Assignment]]) -> None:
        put: dict[tuple[int, int], list[tuple[ReplicaLog, Assignment | None]]] = {}
        for log, now in places:
            before = self._followed.pop(log, None)
            wanted = None
            if now.held and not now.leads and now.leader_id >= 0:
                wanted = self._followed[log] = (now.leader_id, self._number_of(log))
            if before is not None and before != wanted:
                put.setdefault(before, []).append((log, None))
            if wanted is not None:
                put.setdefault(wanted, []).append((log, now))
        for place, changed in put.items():
            self._fetcher(*place).put(changed)
        for place in self._fetchers.keys() - set(self._followed.values()):
            self._end(self._fetchers.pop(place))

    def _end(self, fetcher: Fetcher) -> None:
        """Stop a fetcher that follows nothing, in the background. Only `stop` waits for it."""

        def end() -> None:
            fetcher.stop()
            with self._lock:
                del self._ending[fetcher]

        fetcher.stop_soon()
        self._ending[fetcher] = self._executors.job("kafkalite-fetcher-end", end)

    def _number_of(self, log: ReplicaLog) -> int:
        return zlib.crc32(log.name.encode()) % self._config.num_replica_fetchers

    def _fetcher(self, leader_id: int, number: int) -> Fetcher:
        found = self._fetchers.get((leader_id, number))
        if found is None:
            config = self._config
            limits = Limits(
                wait_ms=config.replica_fetch_wait_max_ms,
                min_bytes=config.replica_fetch_min_bytes,
                response_bytes=config.replica_fetch_response_max_bytes,
                partition_bytes=config.replica_fetch_max_bytes,
                backoff_s=config.replica_fetch_backoff_ms / 1000,
            )
            timeout_s = config.replica_socket_timeout_ms / 1000
            found = self._fetchers[leader_id, number] = Fetcher(
                leader_id,
                number,
                self._own,
                self._brokers,
                limits,
                self.limits.following,
                timeout_s,
                self._large,
                self._clock,
                self._executors,
            )
            found.start()
        return found

    def families(self) -> Iterator[Family]:
        """Yield metrics, with Kafka's names: the replication lag, and the number of partitions given up."""
        with self._lock:
            fetchers = list(self._fetchers.values())
        lags = [(each.metrics_id, *lag) for each in fetchers for lag in tuple(each.lags.values())]
        rows = [
            (labels(clientId=name, topic=topic, partition=partition), lag)
            for name, topic, partition, lag in lags[:ROWS_MAX]
        ]
        text = "Records of a partition that its leader has committed and this broker has not fetched yet."
        yield Family("kafka_server_fetcherlagmetrics_consumerlag", "gauge", text, rows)
        manager = labels(clientId="Replica")
        text = "Largest replication lag of any partition, in records."
        most = max((lag for *_, lag in lags), default=0)
        yield Family("kafka_server_replicafetchermanager_maxlag", "gauge", text, [(manager, most)])
        text = "Partitions that are not replicated until they have a new leader."
        failed = sum(each.given_up for each in fetchers)
        yield Family("kafka_server_replicafetchermanager_failedpartitionscount", "gauge", text, [(manager, failed)])

    def stop(self) -> None:
        """Stop all fetchers, and return when nothing is appended any more."""
        with self._lock:
            fetchers, ending = list(self._fetchers.values()), list(self._ending.values())
        for fetcher in fetchers:
            fetcher.stop_soon()
        for fetcher in fetchers:
            fetcher.stop()
        for job in ending:
            job.join()
