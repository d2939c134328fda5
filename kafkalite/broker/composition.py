"""Build and connect all parts of a broker (the composition root), and start and stop them in order.

    start: metrics and health ─▶ log directory (lock, recovery) ─▶ I/O pool ─▶ TLS, SASL ─▶ groups, transactions ─▶
           listeners ─▶ in a cluster: join it ─▶ workers ─▶ ZooKeeper, for the 0.7 listener ─▶ acceptor
    stop:  ZooKeeper ─▶ in a cluster: leave it ─▶ acceptor ─▶ transactions, groups ─▶ workers (parked answers, then
           connections) ─▶ TLS, SASL ─▶ I/O pool ─▶ log directory (flush, clean-shutdown file) ─▶ metrics and health

Each part registers its stop with one ExitStack, and the stops run in reverse order. The workers' stop is registered
before the groups start. So the groups stop first, and complete the workers' parked answers.

Only `kafkalite.broker.server` imports this module.

Thread rule: one thread at a time calls `start` and `stop`. Any thread may call the callbacks of settings and quotas.
"""

from __future__ import annotations

import ipaddress
import logging
import resource
import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from kafkalite._native.serve.fetch_session import FetchSessionCache
from kafkalite._native.serve.memory import MemoryCeiling
from kafkalite.base import forks
from kafkalite.base.pool import IoPool
from kafkalite.broker.coordinator.groups import GroupCoordinator
from kafkalite.broker.coordinator.producer_ids import ProducerIds
from kafkalite.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kafkalite.broker.dispatch import Dispatcher
from kafkalite.broker.handlers.context import BrokerServices, ClusterView
from kafkalite.broker.handlers.table import find
from kafkalite.broker.limits.long_requests import LongRequests
from kafkalite.broker.log.manager import LogManager, open_segments_max
from kafkalite.broker.net.acceptor import Acceptor
from kafkalite.broker.net.listener import BoundListener, bind
from kafkalite.broker.net.rates import ConnectionRates
from kafkalite.broker.quotas.quotas import Quotas, address_rates
from kafkalite.broker.worker_factory import WorkerFactory
from kafkalite.errors import ConfigError
from kafkalite.settings.broker import BrokerConfig, check_thread_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalite._native.serve.connection import Connection
    from kafkalite.base.clock import Clock
    from kafkalite.base.metric_families import Source
    from kafkalite.broker.cluster_parts import ClusterParts
    from kafkalite.broker.handlers.sign_in import SignIns
    from kafkalite.broker.handlers.table import Row
    from kafkalite.broker.log.retention import RetentionPolicy
    from kafkalite.broker.log.topic_source import TopicSource
    from kafkalite.broker.metrics.errors import ErrorCounts
    from kafkalite.broker.metrics.parts import Parts
    from kafkalite.broker.metrics.server import MetricsServer
    from kafkalite.broker.net.worker import Worker
    from kafkalite.broker.security.authorizer import Authorizer
    from kafkalite.broker.security.tls_listener import TlsListeners
    from kafkalite.settings.listeners import Listener

logger = logging.getLogger("kafkalite.broker")

DESCRIPTORS_KEPT: Final = 64
"""Descriptors reserved for listeners, wake-ups, directories, journals and new files."""
CONNECTIONS_ROOM_MIN: Final = 8
DRAIN_S: Final = 0.5
"""Time in seconds that clients have to receive their last responses at a stop."""
LEAVE_S: Final = 5.0
"""Time in seconds that a surplus network worker has to complete its clients' requests."""
POOL_CLOSE_S: Final = 5.0
LONG_REQUEST_STOP_S: Final = 1.0
"""Time in seconds that a stop waits for the thread for long requests, which ends at its next checkpoint."""


class Composition:
    """The parts of a broker from one start to its stop. A failed start must be stopped, too.

    policies       retention policies, in addition to the topics' settings
    sources        further metrics
    notes          further notes for the health page
    place          returns the listener to bind instead of a configured one
    faults         injected into requests, in a broker under test
    given_up       an event that ends a start early
    failed         an event that is set here when the broker cannot continue
    """

    pool: IoPool
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    long_requests: LongRequests
    memory: MemoryCeiling
    quotas: Quotas
    _factory: WorkerFactory

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        policies: Sequence[RetentionPolicy],
        sources: Sequence[Source],
        notes: Sequence[Callable[[], list[str]]],
        place: Callable[[Listener], Listener],
        faults: object | None,
        descriptor_count_max: int,
        given_up: threading.Event,
        failed: threading.Event,
    ) -> None:
        self.config = config
        self.clock = clock
        self._policies = policies
        self._sources = sources
        self._notes = notes
        self._place = place
        self._faults = faults
        self._descriptor_count_max = descriptor_count_max
        self._given_up = given_up
        self._failed = failed
        self._stops = ExitStack()
        """Stops the parts in reverse order. A part that must stop later is registered before it is built. For example,
        the workers stop after the groups, because the groups complete the workers' parked answers."""
        self._crash = False  # stop as the end of the process would
        self._clean = True
        self._serves_groups = False
        self._configuring = threading.Lock()  # one thread at a time applies the cluster's settings
        self._leaving: list[threading.Thread] = []  # each stops a surplus worker
        self.workers: list[Worker] = []
        self.listeners: list[BoundListener] = []
        self.sign_ins: Mapping[str, SignIns] = {}
        self.logs: LogManager | None = None
        self.services: BrokerServices | None = None
        self.acceptor: Acceptor | None = None
        """Set once clients are served or about to be."""
        self.cluster: ClusterParts | None = None
        self.tls: TlsListeners | None = None
        self.told: Parts | None = None
        self.metrics: MetricsServer | None = None

    @property
    def progress(self) -> str:
        """Return a description of the start's progress, or "" before the data directory is opened. Any thread."""
        logs, member = self.logs, None if self.cluster is None else self.cluster.member
        if logs is None:
            return ""
        opened = f"{logs.opener.loaded_count} of {logs.opener.planned_count} partitions opened"
        return opened if member is None else f"{member.progress}, {opened}"

    def reload_certificates(self) -> None:
        """Load the certificates of every TLS listener again. If this fails, log the error and keep the current
        certificates."""
        for part in (self.tls, self.metrics):
            if part is not None:
                part.reload()
        if self.cluster is not None:
            self.cluster.reload_certificates()

    def leave(self) -> None:
        """Close a forked child's copies of the parent's directory lock, listeners and connections."""
        holders = [each for each in (self.acceptor, self.metrics, *self.workers) if each is not None]
        known = [descriptor for each in holders for descriptor in each.descriptors()]
        bound = [listener.socket.getsockname()[:2] for listener in self.listeners]
        forks.abandon([*known, *forks.open_below([str(self.config.data_directory)], bound)])
        forks.keep_alive(self)

    # --- start --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all parts. On return clients are served. Raises StartupError."""
        forks.register(self)
        self._start_metrics()
        self.cluster = cluster = self._find_cluster()
        logs = self._open_logs("" if cluster is None else cluster.find_cluster_id())
        self.pool = pool = IoPool(logs.config.num_io_threads)
        pool.start()
        self._stops.callback(self._close_pool)
        self._load_tls_and_sasl(logs)
        self._stops.callback(self._stop_workers, DRAIN_S)
        if cluster is not None:
            self._stops.callback(cluster.stop)
        self._start_coordinators(logs)
        authorizer = load_authorizer(logs)
        self.quotas = Quotas(logs.metadata.quotas(), logs.metadata.change_quotas, logs.config, self._use_quotas)
        self.long_requests = LongRequests(pool)
        self._stops.callback(self._close_long_requests)
        self._stops.callback(self._end_at_once)
        self._stops.callback(self._stop_accepting)
        for wanted in self.config.bound_listeners:  # one by one, so that a stop closes those before a failing one
            self.listeners.append(self._bind(self._place(wanted)))
        services = self._join(logs, authorizer)
        self._make_workers(logs, services)
        if self.tls is not None:
            self.tls.start()
        for worker in self.workers:
            worker.start()
        self.services = services
        self._use_cluster_config()  # changes since they were made
        self._register(logs)
        assert self.acceptor is not None, "made with the workers"
        self.acceptor.start()
        if cluster is not None:
            self._use_quotas()  # changes while the workers were made
            cluster.enter()
        if self.told is not None:
            self.told.accepting = True

    def _find_cluster(self) -> ClusterParts | None:
        """Return the parts that only a broker in a cluster has. For a standalone broker, import nothing and return
        None."""
        if not self.config.in_cluster:
            return None
        from kafkalite.broker.cluster_parts import ClusterParts

        return ClusterParts(self.config, self.clock, self._given_up, self._on_fatal)

    def _open_logs(self, cluster_id: str) -> LogManager:
        """Open the data directory. A new directory gets `cluster_id`, or a new cluster id if `cluster_id` is ""."""
        self.logs = logs = LogManager(
            self.config,
            self.clock,
            on_fatal=self._on_fatal,
            policies=self._policies,
            cluster_id=cluster_id,
            topics_of=topic_source_of(self.config),
        )
        self._stops.callback(self._close_logs, logs)
        logs.open()
        return logs

    def _load_tls_and_sasl(self, logs: LogManager) -> None:
        """Load TLS and SASL for the listeners that use them."""
        self._stops.callback(self._stop_tls_and_sasl)
        self.tls = load_tls(logs.config)
        self.sign_ins = load_sasl(logs, self.pool, self.clock)
        for sign_ins in self.sign_ins.values():
            sign_ins.start()

    def _start_coordinators(self, logs: LogManager) -> None:
        config, pool, clock = self.config, self.pool, self.clock
        self.memory = MemoryCeiling(config.broker_memory_max, queued_max=config.queued_max_request_bytes or -1)
        self.groups = groups = GroupCoordinator(logs.config, logs, pool, clock, memory=self.memory)
        self._stops.callback(self._stop_groups)
        self._serves_groups = True
        groups.start()
        self.transactions = transactions = TransactionCoordinator(
            logs.config, logs, pool, clock, groups, ProducerIds(logs), groups.timers
        )
        self._stops.callback(transactions.stop)
        transactions.start()

    def _join(self, logs: LogManager, authorizer: Authorizer | None) -> BrokerServices:
        """Join the cluster, if the broker belongs to one, and return the services that handlers use."""
        endpoints = {bound.name: bound.endpoint for bound in self.listeners if not bound.classic}
        view, member = ClusterView(logs.cluster_id, self.config.node_id, self.config.broker_rack, endpoints), None
        if self.cluster is not None:
            self._stops.callback(self._leave_cluster, self.cluster, logs)
            member = self.cluster.join(
                logs,
                self.groups,
                self.transactions,
                self.quotas,
                self.sign_ins.values(),
                authorizer,
                endpoints,
                self._use_cluster_config,
            )
        services = BrokerServices(
            logs.config,  # with the changes of an earlier run, or of the cluster
            logs,
            view,
            self.clock,
            self.pool,
            self.groups,
            self.transactions,
            self.quotas,
            member,
            authorizer,
        )
        logs.topic_listeners.append(lambda name: services.partition_shares.topic_changed(name, logs.topics))
        return services

    def _make_workers(self, logs: LogManager, services: BrokerServices) -> None:
        """Build the workers and the acceptor, and connect them to metrics and changes of settings."""
        config = services.config
        sessions = FetchSessionCache(
            slots_max=config.max_incremental_fetch_session_cache_slots,
            partitions_max=config.fetch_session_cache_max_partitions,
            eviction_ms=config.min_incremental_fetch_session_eviction_ms,
            memory=self.memory,
        )
        find_row = self._find_plain_row()
        self._factory = WorkerFactory(
            self.config,
            logs,
            self.pool,
            Dispatcher(services, find_row if self.told is None else self.told.errors.find, self.long_requests),
            self.transactions,
            sessions,
            self.memory,
            self.quotas,
            listeners=self.listeners,
            find_row=find_row,
            authorizer=services.authorizer,
            cluster=self.cluster,
            told=self.told,
            faults=self._faults,
            on_connection_closed=self._on_connection_closed,
        )
        count = config.num_network_threads
        self.workers = [self._factory.make(number, count) for number in range(count)]
        self.acceptor = self._make_acceptor(config)
        self._tell_parts(logs, sessions, services)
        self._take_client_metrics(logs, services)
        services.config_checks.append(lambda new: check_thread_counts(services.config, new))
        services.config_listeners.append(self._use_config)
        if self.cluster is not None:
            services.config_listeners.append(self.cluster.fetchers.use_config)
        if self.tls is not None:
            services.config_checks.append(self.tls.check)
            services.config_listeners.append(self.tls.use)

    def _find_plain_row(self) -> Callable[[int], Row | None]:
        if self.cluster is None:
            return find
        from kafkalite.broker.handlers import cluster_table

        return cluster_table.find

    def _new_error_counts(self) -> ErrorCounts:
        from kafkalite.broker.metrics.errors import ErrorCounts

        if not self.config.in_cluster:
            return ErrorCounts()
        from kafkalite.broker.handlers import cluster_table

        return ErrorCounts(cluster_table.ROWS)

    def _start_metrics(self) -> None:
        """Start serving metrics and health if that is configured. Otherwise import nothing."""
        if not self.config.metrics_listeners and not self.config.request_slow_log_ms:
            return
        from kafkalite.broker.metrics.parts import Parts
        from kafkalite.broker.metrics.slow import SlowLog

        slow = SlowLog() if self.config.request_slow_log_ms else None
        self.told = Parts(config=self.config, clock=self.clock, errors=self._new_error_counts(), slow=slow)
        if not self.config.metrics_listeners:
            return
        from kafkalite.broker.metrics.server import MetricsServer

        self.metrics = MetricsServer(self.told)
        self._stops.callback(self.metrics.stop)
        self.metrics.start(on_failure=self._failed.set)
        logger.info("serving metrics and health at %s", ", ".join(self.metrics.urls))

    def _tell_parts(self, logs: LogManager, sessions: FetchSessionCache, services: BrokerServices) -> None:
        """Connect metrics and health to all parts, after the parts were built."""
        told = self.told
        if told is None:
            return
        told.logs, told.pool, told.sessions = logs, self.pool, sessions
        told.long_requests, told.memory = self.long_requests, self.memory
        told.groups, told.transactions = self.groups, self.transactions
        told.quotas, told.authorizer, told.sign_ins = services.quotas, services.authorizer, self.sign_ins
        told.acceptor = self.acceptor
        told.listeners, told.workers = self.listeners, self.workers
        told.sources = services.metric_sources
        services.metric_sources.extend(self._sources)
        if self.cluster is not None:
            services.metric_sources.extend(self.cluster.sources())
        told.notes = list(self._notes)

    def _take_client_metrics(self, logs: LogManager, services: BrokerServices) -> None:
        """Collect clients' metrics if the broker serves metrics. Otherwise import nothing."""
        if not self.config.metrics_listeners:
            return
        from kafkalite.broker.telemetry.clients import ClientMetrics

        services.client_metrics = ClientMetrics(
            lambda: logs.metadata.client_metrics, lambda: services.config.telemetry_max_bytes, self.clock
        )
        services.metric_sources.append(services.client_metrics.families)

    # --- changes, on any thread ---------------------------------------------------------------------------------------

    def _use_config(self, config: BrokerConfig) -> None:
        """Apply changed settings of the network and the I/O pool. Any thread."""
        if self.acceptor is not None:
            self.acceptor.set_limits(
                connections_max=config.max_connections,
                connections_per_address_max=config.max_connections_per_ip,
                per_address_overrides=config.connections_per_ip_overrides(),
                per_listener_max=config.connections_per_listener(),
            )
            self.acceptor.rates.set_rates(config.max_connection_creation_rate, config.connection_rates_of_listeners())
            self._resize_workers(self.acceptor, config.num_network_threads)
        self.pool.resize(config.num_io_threads)

    def _use_cluster_config(self) -> None:
        """Give the services the changed settings that the log manager already has. Any thread."""
        services = self.services
        if self.cluster is None or services is None:
            return
        with self._configuring:
            if services.config is not services.logs.config:
                services.use_config(services.logs.config)

    def _use_quotas(self) -> None:
        """Apply changed quotas. Any thread."""
        for worker in self.workers:
            worker.io.use_quotas(self.quotas.client_control)
        if self.acceptor is not None:
            self.acceptor.rates.set_address_rates(*address_rates(self.quotas.table))

    def _resize_workers(self, acceptor: Acceptor, count: int) -> None:
        """Start or stop network workers.

        A stopping worker first serves the requests that it has begun, then closes its connections.
        """
        for number in range(len(self.workers), count):
            worker = self._factory.make(number, count)
            worker.start()
            self.workers.append(worker)
        leaving = self.workers[count:]
        del self.workers[count:]
        acceptor.set_workers(tuple(self.workers))
        for worker in leaving:
            # On another thread: the client that changed the setting may be served by this worker, and waits for the
            # response.
            thread = threading.Thread(target=worker.stop, args=(LEAVE_S,), name="kafkalite-net-leaving", daemon=True)
            self._leaving.append(thread)
            thread.start()

    # --- listeners and connections ------------------------------------------------------------------------------------

    def _make_acceptor(self, config: BrokerConfig) -> Acceptor:
        return Acceptor(
            self.listeners,
            tuple(self.workers),
            connections_max=config.max_connections,
            connections_room=self._connections_room(),
            connections_per_address_max=config.max_connections_per_ip,
            per_address_overrides=config.connections_per_ip_overrides(),
            per_listener_max=config.connections_per_listener(),
            rates=self._connection_rates(config),
        )

    def _connection_rates(self, config: BrokerConfig) -> ConnectionRates:
        rates = ConnectionRates(window_s=config.quota_window_size_seconds, samples=config.quota_window_num)
        rates.set_rates(config.max_connection_creation_rate, config.connection_rates_of_listeners())
        rates.set_address_rates(*address_rates(self.quotas.table))
        return rates

    def _bind(self, wanted: Listener) -> BoundListener:
        listening = bind(
            wanted.host,
            wanted.port,
            self.config.socket_listen_backlog_size,
            send_buffer_bytes=self.config.socket_send_buffer_bytes,
            receive_buffer_bytes=self.config.socket_receive_buffer_bytes,
        )
        port = int(listening.getsockname()[1])
        endpoint = self.config.advertised_endpoint(wanted, port)
        tls = None if self.tls is None else self.tls.by_name.get(wanted.name)
        remote = not ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback
        if remote and wanted.classic and self.config.asks_rules and not self.config.classic_listener_allow_remote:
            listening.close()
            raise ConfigError(
                "listeners",
                f"{wanted} is reachable from other machines, and Kafka 0.7's clients cannot authenticate, although "
                "authorizer.class.name is set; bind it to 127.0.0.1, or set classic.listener.allow.remote=true",
            )
        if tls is None and remote:
            logger.warning(
                "listener %s has no TLS and is reachable from other machines: anyone who %s has access to its data",
                wanted,
                "can eavesdrop on the network" if wanted.sasl else "can reach it",
            )
        sasl = self.sign_ins.get(wanted.name)
        return BoundListener(wanted.name, listening, endpoint, classic=wanted.classic, tls=tls, sasl=sasl)

    def _connections_room(self) -> int:
        """Return the number of connections for which descriptors are left after those for segments and the process
        itself."""
        if self._descriptor_count_max == resource.RLIM_INFINITY:
            return self.config.max_connections
        left = self._descriptor_count_max - open_segments_max(self.config) - DESCRIPTORS_KEPT
        return max(left, CONNECTIONS_ROOM_MIN)

    def _on_connection_closed(self, connection: Connection) -> None:
        if self._serves_groups:
            self.groups.connection_closed(connection)
        if self.acceptor is not None:
            self.acceptor.released(connection)

    def _on_fatal(self, error: BaseException) -> None:
        logger.critical("the broker stops after a fatal error: %s", error)
        self._failed.set()

    def _register(self, logs: LogManager) -> None:
        """Register the broker in ZooKeeper, if ZooKeeper is configured and the broker has a listener for 0.7
        clients."""
        config = logs.config
        endpoint = next((bound.endpoint for bound in self.listeners if bound.classic), None)
        if not config.zookeeper_connect or not config.enable_zookeeper:
            return
        if endpoint is None:
            logger.warning("zookeeper.connect has no effect without a kafka07:// listener")
            return
        from kafkalite.zookeeper.broker import BrokerRegistration

        session_timeout_s = config.zk_sessiontimeout_ms / 1000
        connection_timeout_ms = config.zk_connectiontimeout_ms or config.zk_sessiontimeout_ms
        registration = BrokerRegistration(
            config.zookeeper_connect,
            config.node_id,
            config.hostname or reachable_address(endpoint.host),
            endpoint.port,
            self.clock,
            session_timeout_s=session_timeout_s,
            connection_timeout_s=connection_timeout_ms / 1000,
            on_fatal=self._on_fatal,
        )

        def topic_changed(name: str) -> None:
            topic = logs.topics.get(name)
            if topic is not None and topic.config.message_format == "classic":
                registration.topic_created(name, len(topic.partitions))
            else:
                registration.topic_deleted(name)

        logs.topic_listeners.append(topic_changed)
        self._stops.callback(registration.stop)
        registration.start(logs.classic_topics())

    # --- stop ---------------------------------------------------------------------------------------------------------

    def stop(self, *, crash: bool = False) -> bool:
        """Stop the running parts. Return whether the logs were closed cleanly.

        With `crash`, stop as at the end of the process: send no responses, and close nothing in order.
        """
        self._crash = crash
        self._stops.close()
        forks.unregister(self)
        return self._clean

    def _leave_cluster(self, cluster: ClusterParts, logs: LogManager) -> None:
        cluster.leave(logs, controlled=self.config.controlled_shutdown_enable and not self._crash)

    def _stop_accepting(self) -> None:
        if self.acceptor is not None:
            self.acceptor.stop()
        else:
            for bound in self.listeners:
                bound.socket.close()

    def _end_at_once(self) -> None:
        if self._crash:
            self._stop_workers(0.0)

    def _close_long_requests(self) -> None:
        """Close the thread for long requests before the coordinators stop, so that it starts no work that would never
        end."""
        if not self.long_requests.close(LONG_REQUEST_STOP_S):
            logger.warning("a long request is still running after %.0f s; the broker stops anyway", LONG_REQUEST_STOP_S)

    def _stop_groups(self) -> None:
        self.groups.stop()
        self._serves_groups = False

    def _stop_workers(self, drain_s: float) -> None:
        for worker in self.workers:
            worker.stop(drain_s)
        self.workers = []
        for thread in self._leaving:
            thread.join()
        self._leaving = []

    def _stop_tls_and_sasl(self) -> None:
        if self.tls is not None:
            self.tls.stop()
        for sign_ins in self.sign_ins.values():
            sign_ins.stop()

    def _close_pool(self) -> None:
        if not self.pool.close(POOL_CLOSE_S):
            logger.warning("background work is still running after %.0f s; the broker stops anyway", POOL_CLOSE_S)

    def _close_logs(self, logs: LogManager) -> None:
        if self._crash:
            logs.abandon()
            self._clean = False
        else:
            self._clean = logs.close()
        self.logs = None


def topic_source_of(config: BrokerConfig) -> Callable[[LogManager], TopicSource] | None:
    """Return the source of topics for a broker in a cluster; None for a standalone broker."""
    if not config.in_cluster:
        return None
    from kafkalite.broker.log.assigned import AssignedTopics

    return AssignedTopics


def load_tls(config: BrokerConfig) -> TlsListeners | None:
    """Return the certificates of TLS listeners. If no listener uses TLS, import nothing and return None."""
    if not any(listener.tls for listener in config.bound_listeners):
        return None
    from kafkalite._native.tls.tls_context import library_version
    from kafkalite.broker.security.tls_listener import TlsListeners

    listeners = TlsListeners(config)
    logger.info("TLS library: %s", library_version())
    return listeners


def load_sasl(logs: LogManager, pool: IoPool, clock: Clock) -> Mapping[str, SignIns]:
    """Return the authentication of SASL listeners, by listener name. If no listener uses SASL, import nothing."""
    config = logs.config
    listeners = [listener for listener in config.bound_listeners if listener.sasl]
    if not listeners:
        return {}
    from kafkalite.broker.handlers.sign_in import SignIns
    from kafkalite.broker.security.sasl_listener import SaslListener, Users

    users = Users(logs.metadata.credentials, logs.metadata.secret())
    return {
        listener.name: SignIns(
            SaslListener(listener.name, config.sasl_of(listener.name), users, encrypted=listener.tls),
            pool,
            clock,
            lambda: logs.metadata.features,
            (logs.cluster_id, config.node_id),
            telemetry=bool(config.metrics_listeners),
        )
        for listener in listeners
    }


def load_authorizer(logs: LogManager) -> Authorizer | None:
    """Return the authorizer with the journal's ACLs. If no authorizer is configured, import nothing and return None."""
    config = logs.config
    if not config.asks_rules:
        return None
    from kafkalite.broker.security.authorizer import Authorizer

    authorizer = Authorizer(
        logs.metadata.acls(),
        logs.metadata.change_acls,
        super_users=config.super_user_names,
        allow_without_acl=config.allow_everyone_if_no_acl_found,
    )
    if not config.in_cluster:  # its ACLs are not known yet
        logger.info("authorizing requests with %d ACLs", len(authorizer))
    return authorizer


def reachable_address(host: str) -> str:
    """Return the address of a host for the registration of a 0.7 broker in ZooKeeper; the name if it cannot be
    resolved."""
    try:
        return str(socket.gethostbyname(host))
    except (OSError, ValueError):  # not found, or not a valid name, for example one with a NUL
        return host
