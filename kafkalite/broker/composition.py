"""The composition root: builds every part, joins them, and knows the order of start and stop.

    start: descriptors ─▶ metrics and health ─▶ log directory (lock, recovery) ─▶ I/O pool ─▶ groups, transactions ─▶
           listeners ─▶ in a cluster: its controllers ─▶ workers ─▶ ZooKeeper, for the 0.7 listener ─▶ acceptor
    stop:  controllers, who follows, ZooKeeper ─▶ acceptor ─▶ transactions, groups ─▶ workers (parked answers, then
           connections) ─▶ I/O pool ─▶ log directory (flush, marker) ─▶ metrics and health

Nothing else imports this module. A Broker is started and stopped by any thread; a stop while another one starts it
ends that start where it waits for a cluster, and waits for it otherwise.
"""

from __future__ import annotations

import functools
import ipaddress
import logging
import resource
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

from kafkalite._native.serve.fetch_session import FetchSessionCache
from kafkalite._native.serve.memory import MemoryCeiling
from kafkalite.base.available_memory import MIB, cgroup_limit
from kafkalite.base.clock import SystemClock
from kafkalite.base.logging import fields, forget_repeats
from kafkalite.base.pool import IoPool
from kafkalite.broker.coordinator.groups import GroupCoordinator
from kafkalite.broker.coordinator.producer_ids import ProducerIds
from kafkalite.broker.coordinator.transactions import TransactionCoordinator
from kafkalite.broker.dispatch import Dispatcher
from kafkalite.broker.handlers.context import BrokerServices, ClusterView
from kafkalite.broker.handlers.table import find
from kafkalite.broker.limits import budget
from kafkalite.broker.limits.long_requests import LongRequests
from kafkalite.broker.log.manager import LogManager, open_segments_max
from kafkalite.broker.log.retention import named_policies
from kafkalite.broker.net.acceptor import Acceptor
from kafkalite.broker.net.listener import BoundListener, bind
from kafkalite.broker.net.rates import ConnectionRates
from kafkalite.broker.process import address_space_limit, load_libraries, raise_descriptor_limit, warm_up_soon
from kafkalite.broker.quotas.quotas import Quotas, address_rates
from kafkalite.broker.worker_factory import WorkerFactory
from kafkalite.errors import ConfigError
from kafkalite.settings.broker import BrokerConfig, check_thread_counts
from kafkalite.settings.rows import key_of, to_text
from kafkalite.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from kafkalite._native.serve.connection import Connection
    from kafkalite.base.clock import Clock
    from kafkalite.base.families import Family
    from kafkalite.broker.cluster.member import Member
    from kafkalite.broker.cluster_parts import ClusterParts
    from kafkalite.broker.handlers.sign_in import SignIns
    from kafkalite.broker.handlers.table import Row
    from kafkalite.broker.log.retention import RetentionPolicy
    from kafkalite.broker.metrics.errors import ErrorCounts
    from kafkalite.broker.metrics.parts import Parts
    from kafkalite.broker.metrics.server import MetricsServer
    from kafkalite.broker.net.worker import Worker
    from kafkalite.broker.security.authorizer import Authorizer
    from kafkalite.broker.security.tls_listener import TlsListeners
    from kafkalite.model import Endpoint
    from kafkalite.settings.listeners import Listener
    from kafkalite.zookeeper.broker import BrokerRegistration

logger = logging.getLogger("kafkalite.broker")

DESCRIPTORS_KEPT: Final = 64
"""Descriptors left for listeners, wake-ups, directories, journals and files that are being made."""
CONNECTIONS_ROOM_MIN: Final = 8
DRAIN_S: Final = 0.5
"""How long clients have to take their last answers at a stop."""
LEAVE_S: Final = 5.0
"""How long a network worker that is one too many has for what its clients have asked for."""
POOL_CLOSE_S: Final = 5.0
LONG_REQUEST_STOP_S: Final = 1.0
"""How long a stop waits for the thread for long requests, which ends at its next checkpoint."""


class Companion(Protocol):
    """What works in a broker's process as a client of it: it begins when clients are served, and ends before they are
    not. A mirror is one."""

    def start(self, bootstrap_servers: str) -> None:
        """The broker serves there."""

    def stop(self) -> None:
        """The broker is about to stop. Idempotent, also before `start`."""

    def families(self) -> Iterable[Family]:
        """A source of metrics, while it works and after."""

    def notes(self) -> list[str]:
        """What whoever asks for the broker's health should know; a broker is ready all the same."""


class Broker:
    """A Kafka broker inside this process.

    With process.roles=broker it is one of a cluster whose controllers are Apache Kafka's (`kafkalite.broker.cluster`).

    `Broker()` alone listens on a free port of 127.0.0.1 and keeps its data in a temporary directory that stop()
    removes. Settings come as a BrokerConfig, as a mapping of Kafka's names, or as keyword arguments with underscores:
    `Broker(num_partitions=3, log_dirs="/var/lib/kafkalite")`. `retention_policies` are asked, beside age and size and
    those of log.retention.policies, what may be deleted (`kafkalite.RetentionPolicy`); `companions` work beside it, as
    clients of it, while it serves. Usable as a context manager.
    """

    def __init__(
        self,
        config: BrokerConfig | Mapping[str, object] | None = None,
        *,
        clock: Clock | None = None,
        retention_policies: Iterable[RetentionPolicy] = (),
        companions: Iterable[Companion] = (),
        **settings: object,
    ) -> None:
        self._temporary: str | None = None
        self._companions = tuple(companions)
        if isinstance(config, BrokerConfig):
            if settings:
                raise TypeError("give either a BrokerConfig or single settings")
            self.config = config
        else:
            texts = dict(config or {}) | {key_of(name): value for name, value in settings.items()}
            texts.setdefault("listeners", "kafka://127.0.0.1:0")
            if not {"log.dirs", "log.dir"} & texts.keys():
                import tempfile

                self._temporary = tempfile.mkdtemp(prefix="kafkalite-")
                texts["log.dirs"] = self._temporary
            try:
                self.config = BrokerConfig.load(overrides=texts)
            except BaseException:
                self._remove_temporary()
                raise
        try:
            self._policies = (*retention_policies, *named_policies(self.config.log_retention_policies))
        except BaseException:
            self._remove_temporary()
            raise
        self.clock: Clock = clock or SystemClock()
        self.failed = threading.Event()
        """Set when the broker cannot go on, a listener's thread or its directory having failed: stop it."""
        self._life = threading.RLock()  # held while it starts or stops
        self._given_up = threading.Event()  # nobody waits for the start any longer
        self._faults: object | None = None  # what requests meet first, in a broker under test: kafkalite.testing
        self._descriptor_count_max = 0
        self._workers: list[Worker] = []
        self._leaving: list[threading.Thread] = []  # each stops a worker of which there was one too many
        self._new_worker: Callable[[int, int], Worker]
        self._acceptor: Acceptor | None = None
        self._registration: BrokerRegistration | None = None
        self._cluster: ClusterParts | None = None
        self._services: BrokerServices | None = None
        self._configuring = threading.Lock()  # one at a time tells the services of the cluster's settings
        self._pool: IoPool | None = None
        self._long_requests: LongRequests | None = None
        self._memory: MemoryCeiling | None = None
        self._logs: LogManager | None = None
        self._groups: GroupCoordinator | None = None
        self._transactions: TransactionCoordinator | None = None
        self._quotas: Quotas | None = None
        self._listeners: list[BoundListener] = []
        self._tls: TlsListeners | None = None
        self._sign_ins: Mapping[str, SignIns] = {}
        self._told: Parts | None = None
        self._metrics: MetricsServer | None = None

    @property
    def logs(self) -> LogManager:
        """The log directory of a started broker."""
        if self._logs is None:
            raise RuntimeError("the broker is not running")
        return self._logs

    @property
    def bootstrap_servers(self) -> str:
        """What a client's `bootstrap.servers` takes: host:port of every listener but that of Kafka 0.7.

        Of those without TLS and SASL, where there are any; of the others otherwise.
        """
        listeners = [bound for bound in self._listeners if not bound.classic]
        plain = [bound for bound in listeners if bound.tls is None and bound.sasl is None]
        return ",".join(str(bound.endpoint) for bound in plain or listeners)

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Where clients are told to connect, by the listener's name in capitals."""
        return {bound.name: bound.endpoint for bound in self._listeners}

    def reload_certificates(self) -> None:
        """Reads the files of every listener with TLS again; what is wrong with one is logged, and the old stays."""
        if self._tls is not None:
            self._tls.reload()
        if self._metrics is not None:
            self._metrics.reload()
        if self._cluster is not None:
            self._cluster.reload_certificates()

    @property
    def metrics_urls(self) -> list[str]:
        """Where `/metrics` is served, without the path."""
        return [] if self._metrics is None else self._metrics.urls

    @property
    def progress(self) -> str:
        """How far a start is, in words; empty where there is nothing to tell. Any thread."""
        logs, cluster = self._logs, self._cluster
        if logs is None or self.running:
            return ""
        opened = f"{logs.loaded_count} of {logs.planned_count} partitions opened"
        return opened if cluster is None or cluster.member is None else f"{cluster.member.progress}, {opened}"

    def loops_turned(self) -> threading.Event:
        """An event that is set once every network worker has turned since now. Any thread."""
        turned, lock, left = threading.Event(), threading.Lock(), set(self._workers)

        def turn(worker: Worker) -> None:
            with lock:
                left.discard(worker)
                if not left:
                    turned.set()

        for worker in tuple(left):
            worker.mailbox.put(functools.partial(turn, worker))
        return turned

    @property
    def classic_endpoint(self) -> Endpoint | None:
        """Where Kafka 0.7's clients connect; None without a kafka07:// listener."""
        return next((bound.endpoint for bound in self._listeners if bound.classic), None)

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self._listeners[0].port

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped since."""
        return self._acceptor is not None

    @property
    def connection_count(self) -> int:
        """Client connections open now."""
        return 0 if self._acceptor is None else self._acceptor.connection_count

    def create_topic(self, name: str, partitions: int = 1, **settings: object) -> None:
        """Creates a topic; settings are Kafka's with underscores: `retention_ms=1000`. KafkaError when it cannot be."""
        self._check_alone()
        overrides = {key_of(attribute): to_text(value) for attribute, value in settings.items()}
        self.logs.create_topic(name, partitions, overrides)

    def add_user(self, user: str, password: str) -> None:
        """Gives a user, who may be new, a password for SCRAM-SHA-256 and SCRAM-SHA-512; it holds from now on."""
        self._check_alone()
        from kafkalite.broker.log.journal import credential_change
        from kafkalite.security.scram import HASHES, new_credential

        changes = [credential_change(mechanism, user, new_credential(mechanism, password)) for mechanism in HASHES]
        self.logs.alter_credentials(lambda: changes)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and everything in it."""
        self._check_alone()
        self.logs.delete_topic(name)

    def _check_alone(self) -> None:
        if self.config.in_cluster:
            raise RuntimeError("topics and users of a cluster are its controllers': use an admin client")

    def start(self) -> Self:
        """Serves clients when it returns, in a cluster as one whom the controllers have let in.

        StartupError says in one sentence why it cannot; StartGivenUp is one.
        """
        with self._life:
            if self._acceptor is not None:
                raise RuntimeError("the broker is running")
            self._given_up.clear()
            forget_repeats()
            self._descriptor_count_max = raise_descriptor_limit()
            try:
                load_libraries()
                self._start()
            except BaseException:
                self._stop_parts()
                self._remove_temporary()
                raise
        return self

    def give_up_start(self) -> None:
        """A start that waits for a cluster ends, by StartGivenUp; without one nothing happens. Any thread."""
        self._given_up.set()
        cluster = self._cluster
        if cluster is not None:
            cluster.give_up()

    def stop(self, reason: str = "stop was called") -> None:
        """Answers what is parked, closes every connection, flushes every log. Idempotent; the log tells the reason."""
        self.give_up_start()
        with self._life:
            self._stop(reason)

    def _stop(self, reason: str) -> None:
        began, ran = time.monotonic(), self._logs is not None
        clean = self._stop_parts()
        if ran:
            logger.log(
                logging.INFO if clean else logging.WARNING,
                "kafkalite stopped: %s",
                reason,
                extra=fields(
                    clean="yes" if clean else "no: the next start checks the logs",
                    seconds=round(time.monotonic() - began, 3),
                ),
            )
        self._remove_temporary()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        began = time.monotonic()
        config = self.config
        for note in config.notes:
            logger.info("%s", note)
        self._start_metrics()
        self._cluster = self._find_cluster()
        logs = self._open_logs("" if self._cluster is None else self._cluster.find_cluster_id())
        self._pool = pool = IoPool(logs.config.num_io_threads)
        pool.start()
        self._memory = MemoryCeiling(config.broker_memory_max, queued_max=config.queued_max_request_bytes or -1)
        self._groups = groups = GroupCoordinator(logs.config, logs, pool, self.clock, memory=self._memory)
        groups.start()
        self._transactions = transactions = TransactionCoordinator(
            logs.config, logs, pool, self.clock, groups, ProducerIds(logs), groups.timers
        )
        transactions.start()
        authorizer = self._load_authorizer(logs)
        self._quotas = quotas = Quotas(logs.quotas(), logs.change_quotas, logs.config, self._use_quotas)
        self._tls = self._load_tls(logs.config)
        self._sign_ins = self._load_sasl(logs, pool, self.clock)
        for sign_ins in self._sign_ins.values():
            sign_ins.start()
        for wanted in config.bound_listeners:  # one by one, so that a stop closes those before one that cannot be
            self._listeners.append(self._bind(wanted))
        cluster = self._cluster_view(logs)
        member = self._join(logs, authorizer)
        config = logs.config  # with what was changed while an earlier broker ran, or by the cluster
        services = BrokerServices(
            config, logs, cluster, self.clock, pool, groups, transactions, quotas, member, authorizer
        )
        logs.topic_listeners.append(lambda name: services.partition_shares.topic_changed(name, logs.topics))
        self._long_requests = long_requests = LongRequests(pool)
        dispatcher = Dispatcher(services, self._find_row(), long_requests)
        sessions = FetchSessionCache(
            slots_max=config.max_incremental_fetch_session_cache_slots,
            partitions_max=config.fetch_session_cache_max_partitions,
            eviction_ms=config.min_incremental_fetch_session_eviction_ms,
            memory=self._memory,
        )
        self._new_worker = self._new_factory(logs, dispatcher, sessions, authorizer).make
        self._workers = [self._new_worker(i, config.num_network_threads) for i in range(config.num_network_threads)]
        self._acceptor = self._make_acceptor(config)
        self._tell_parts(logs, sessions, services)
        self._take_client_metrics(logs, services)
        services.config_checks.append(lambda new: check_thread_counts(services.config, new))
        services.config_listeners.append(self._use_config)
        if self._cluster is not None:
            services.config_listeners.append(self._cluster.fetchers.use_config)
        if self._tls is not None:
            services.config_checks.append(self._tls.check)
            services.config_listeners.append(self._tls.use)
            self._tls.start()
        for worker in self._workers:
            worker.start()
        self._services = services
        self._use_cluster_config()  # what has come since they were made
        self._registration = self._register(logs)
        self._acceptor.start()
        self._enter()
        if self._told is not None:
            self._told.accepting = True
        for companion in self._companions:
            companion.start(self.bootstrap_servers)
        warm_up_soon()
        self._tell_memory()
        self._tell_serving(began)

    def _tell_memory(self) -> None:
        budget.report(
            self.config,
            clients=self.config.broker_memory_max,
            partition_count=sum(1 for _ in self.logs.logs()),
            memory_limit=cgroup_limit(),
            address_space_limit=address_space_limit(),
        )

    def _tell_serving(self, began: float) -> None:
        config, logs = self.config, self.logs
        logger.info(
            "kafkalite %s serves %s",
            VERSION,
            ", ".join(f"{name}://{endpoint}" for name, endpoint in self.endpoints.items()),
            extra=fields(
                data=str(config.data_directory),
                partitions=sum(1 for _ in logs.logs()),
                memory_max=f"{config.broker_memory_max // MIB} MiB",
                last_stop="clean" if logs.clean_start else "not clean: logs were checked",
                seconds=round(time.monotonic() - began, 3),
            ),
        )

    def _cluster_view(self, logs: LogManager) -> ClusterView:
        endpoints = {bound.name: bound.endpoint for bound in self._listeners if not bound.classic}
        return ClusterView(logs.cluster_id, self.config.node_id, self.config.broker_rack, endpoints)

    def _open_logs(self, cluster_id: str) -> LogManager:
        """The data directory, opened; a new one's cluster has this id, unless it is empty."""
        self._logs = logs = self._log_class()(
            self.config, self.clock, on_fatal=self._on_fatal, policies=self._policies, cluster_id=cluster_id
        )
        logs.open()
        return logs

    def _log_class(self) -> type[LogManager]:
        if not self.config.in_cluster:
            return LogManager
        from kafkalite.broker.log.assigned import AssignedLogs

        return AssignedLogs

    def _find_cluster(self) -> ClusterParts | None:
        """The parts that a broker has in a cluster; None, and nothing is imported, for one that stands alone."""
        if not self.config.in_cluster:
            return None
        from kafkalite.broker.cluster_parts import ClusterParts

        return ClusterParts(self.config, self.clock, self._given_up, self._on_fatal)

    def _join(self, logs: LogManager, authorizer: Authorizer | None) -> Member | None:
        """The membership in the cluster, registered and caught up; None for a broker that stands alone."""
        if self._cluster is None:
            return None
        assert self._groups is not None, "made before the listeners, as the next"
        assert self._transactions is not None, "see above"
        assert self._quotas is not None, "see above"
        return self._cluster.join(
            logs,
            self._groups,
            self._transactions,
            self._quotas,
            self._sign_ins.values(),
            authorizer,
            self.endpoints,
            self._use_cluster_config,
        )

    def _enter(self) -> None:
        """In a cluster: all parts run, so that it may be let in."""
        if self._cluster is not None:
            self._use_quotas()  # which may have come while the workers were made
            self._cluster.enter()

    def _new_factory(
        self, logs: LogManager, dispatcher: Dispatcher, sessions: FetchSessionCache, authorizer: Authorizer | None
    ) -> WorkerFactory:
        assert self._pool is not None, "made before the workers, as the next"
        assert self._transactions is not None, "see above"
        assert self._memory is not None, "see above"
        assert self._quotas is not None, "see above"
        return WorkerFactory(
            self.config,
            logs,
            self._pool,
            dispatcher,
            self._transactions,
            sessions,
            self._memory,
            self._quotas,
            listeners=self._listeners,
            find_row=self._find_plain_row(),
            authorizer=authorizer,
            cluster=self._cluster,
            told=self._told,
            faults=self._faults,
            on_connection_closed=self._on_connection_closed,
        )

    def _find_row(self) -> Callable[[int], Row | None]:
        return self._told.errors.find if self._told is not None else self._find_plain_row()

    def _find_plain_row(self) -> Callable[[int], Row | None]:
        if self._cluster is None:
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
        """Serves metrics and health from now on, where that is asked for; else nothing is imported."""
        if not self.config.metrics_listeners and not self.config.request_slow_log_ms:
            return
        from kafkalite.broker.metrics.parts import Parts
        from kafkalite.broker.metrics.slow import SlowLog

        slow = SlowLog() if self.config.request_slow_log_ms else None
        self._told = Parts(config=self.config, clock=self.clock, errors=self._new_error_counts(), slow=slow)
        if not self.config.metrics_listeners:
            return
        from kafkalite.broker.metrics.server import MetricsServer

        self._metrics = MetricsServer(self._told)
        self._metrics.start(on_failure=self.failed.set)
        logger.info("metrics and health are served at %s", ", ".join(self._metrics.urls))

    def _tell_parts(self, logs: LogManager, sessions: FetchSessionCache, services: BrokerServices) -> None:
        """What metrics and health look at, now that it is all there."""
        told = self._told
        if told is None:
            return
        told.logs, told.pool, told.sessions = logs, self._pool, sessions
        told.long_requests, told.memory = self._long_requests, self._memory
        told.groups, told.transactions = self._groups, self._transactions
        told.quotas, told.authorizer, told.sign_ins = services.quotas, services.authorizer, self._sign_ins
        told.acceptor = self._acceptor
        told.listeners, told.workers = self._listeners, self._workers
        told.sources = services.metric_sources
        services.metric_sources.extend(companion.families for companion in self._companions)
        if self._cluster is not None:
            services.metric_sources.extend(self._cluster.sources())
        told.notes = [companion.notes for companion in self._companions]

    def _take_client_metrics(self, logs: LogManager, services: BrokerServices) -> None:
        """Clients are asked for their metrics where somebody can be told; else nothing is imported."""
        if not self.config.metrics_listeners:
            return
        from kafkalite.broker.telemetry.clients import ClientMetrics

        services.client_metrics = ClientMetrics(
            lambda: logs.client_metrics, lambda: services.config.telemetry_max_bytes, self.clock
        )
        services.metric_sources.append(services.client_metrics.families)

    def _use_config(self, config: BrokerConfig) -> None:
        """Settings were changed while running: those of the network. Any thread."""
        if self._acceptor is not None:
            self._acceptor.set_limits(
                connections_max=config.max_connections,
                connections_per_address_max=config.max_connections_per_ip,
                per_address_overrides=config.connections_per_ip_overrides(),
                per_listener_max=config.connections_per_listener(),
            )
            self._acceptor.rates.set_rates(config.max_connection_creation_rate, config.connection_rates_of_listeners())
            self._resize_workers(self._acceptor, config.num_network_threads)
        if self._pool is not None:
            self._pool.resize(config.num_io_threads)

    def _use_cluster_config(self) -> None:
        """In a cluster: its settings are the log directory's already. Any thread."""
        if self._cluster is None or self._services is None:
            return
        with self._configuring:
            if self._services.config is not self.logs.config:
                self._services.use_config(self.logs.config)

    def _use_quotas(self) -> None:
        """Quotas were changed. Any thread."""
        for worker in self._workers:
            assert self._quotas is not None, "made before the workers"
            worker.io.use_quotas(self._quotas.client_control)
        if self._acceptor is not None and self._quotas is not None:
            self._acceptor.rates.set_address_rates(*address_rates(self._quotas.table))

    def _make_acceptor(self, config: BrokerConfig) -> Acceptor:
        return Acceptor(
            self._listeners,
            tuple(self._workers),
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
        if self._quotas is not None:
            rates.set_address_rates(*address_rates(self._quotas.table))
        return rates

    def _resize_workers(self, acceptor: Acceptor, count: int) -> None:
        """More network workers, or fewer: those that leave serve what they have begun, and close their connections."""
        for number in range(len(self._workers), count):
            worker = self._new_worker(number, count)
            worker.start()
            self._workers.append(worker)
        leaving = self._workers[count:]
        del self._workers[count:]
        acceptor.set_workers(tuple(self._workers))
        for worker in leaving:
            # Not here: who asked for it may be a client of that worker's, and waits for the answer.
            thread = threading.Thread(target=worker.stop, args=(LEAVE_S,), name="kafkalite-net-leaving", daemon=True)
            self._leaving.append(thread)
            thread.start()

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
        tls = None if self._tls is None else self._tls.by_name.get(wanted.name)
        remote = not ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback
        if remote and wanted.classic and self.config.asks_rules and not self.config.classic_listener_allow_remote:
            listening.close()
            raise ConfigError(
                "listeners",
                f"{wanted} would be open to other machines, whose clients nobody can know, and there is an authorizer"
                " (bind it to 127.0.0.1, or set classic.listener.allow.remote=true)",
            )
        if tls is None and remote:
            logger.warning(
                "listener %s has no TLS and is open to other machines: whoever %s may read and write",
                wanted,
                "listens on the network" if wanted.sasl else "reaches it",
            )
        sasl = self._sign_ins.get(wanted.name)
        return BoundListener(wanted.name, listening, endpoint, classic=wanted.classic, tls=tls, sasl=sasl)

    @staticmethod
    def _load_tls(config: BrokerConfig) -> TlsListeners | None:
        """Certificates of the listeners with TLS; None, and nothing is imported or loaded, where there is none."""
        if not any(listener.tls for listener in config.bound_listeners):
            return None
        from kafkalite._native.tls.tls_context import library_version
        from kafkalite.broker.security.tls_listener import TlsListeners

        listeners = TlsListeners(config)
        logger.info("TLS by %s", library_version())
        return listeners

    @staticmethod
    def _load_sasl(logs: LogManager, pool: IoPool, clock: Clock) -> Mapping[str, SignIns]:
        """Of the listeners with SASL; nothing is imported or loaded where there is none."""
        config = logs.config
        listeners = [listener for listener in config.bound_listeners if listener.sasl]
        if not listeners:
            return {}
        from kafkalite.broker.handlers.sign_in import SignIns
        from kafkalite.broker.security.sasl_listener import SaslListener, Users

        users = Users(logs.credentials, logs.secret())
        return {
            listener.name: SignIns(
                SaslListener(listener.name, config.sasl_of(listener.name), users, encrypted=listener.tls),
                pool,
                clock,
                lambda: logs.features,
                telemetry=bool(config.metrics_listeners),
            )
            for listener in listeners
        }

    @staticmethod
    def _load_authorizer(logs: LogManager) -> Authorizer | None:
        """The authoriser with the rules of the journal; None, and nothing is imported, where none is asked for."""
        config = logs.config
        if not config.asks_rules:
            return None
        from kafkalite.broker.security.authorizer import Authorizer

        authorizer = Authorizer(
            logs.acls(),
            logs.change_acls,
            super_users=config.super_user_names,
            allow_without_acl=config.allow_everyone_if_no_acl_found,
            clock=logs.clock,
        )
        if not config.in_cluster:  # whose rules are not known yet
            logger.info("permissions are asked of %d rules", len(authorizer))
        return authorizer

    def _on_connection_closed(self, connection: Connection) -> None:
        if self._groups is not None:
            self._groups.connection_closed(connection)
        if self._acceptor is not None:
            self._acceptor.released(connection)

    def _on_fatal(self, error: BaseException) -> None:
        logger.critical("the broker cannot go on: %s", error)
        self.failed.set()

    def _register(self, logs: LogManager) -> BrokerRegistration | None:
        """Tells ZooKeeper, where there is one and a listener for those who look there."""
        config = logs.config
        endpoint = self.classic_endpoint
        if not config.zookeeper_connect or not config.enable_zookeeper:
            return None
        if endpoint is None:
            logger.warning("zookeeper.connect has no effect without a kafka07:// listener")
            return None
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
        registration.start(logs.classic_topics())
        return registration

    def _stop_parts(self, *, crash: bool = False) -> bool:
        """Stops what runs; whether the logs were closed cleanly.

        `crash` as the end of the process would: nobody is answered, nothing is put in order.
        """
        if self._told is not None:
            self._told.stopping = True
        for companion in self._companions:
            companion.stop()
        if self._cluster is not None:
            self._cluster.leave(self._logs, controlled=self.config.controlled_shutdown_enable and not crash)
            self._services = None
        if self._registration is not None:
            self._registration.stop()
            self._registration = None
        if self._acceptor is not None:
            self._acceptor.stop()
        else:
            for bound in self._listeners:
                bound.socket.close()
        if crash:
            self._stop_workers(0.0)
        if self._long_requests is not None:  # before the coordinators, so that none of them begins what has no end
            if not self._long_requests.close(LONG_REQUEST_STOP_S):
                logger.warning("a long request did not end within %.0f s", LONG_REQUEST_STOP_S)
            self._long_requests = None
        if self._transactions is not None:
            self._transactions.stop()
            self._transactions = None
        if self._groups is not None:
            self._groups.stop()
            self._groups = None
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None
        self._stop_workers(DRAIN_S)
        self._acceptor = None
        self._listeners = []
        if self._tls is not None:
            self._tls.stop()
            self._tls = None
        for sign_ins in self._sign_ins.values():
            sign_ins.stop()
        self._sign_ins = {}
        if self._pool is not None:
            if not self._pool.close(POOL_CLOSE_S):
                logger.warning("background work did not end within %.0f s", POOL_CLOSE_S)
            self._pool = None
        clean = True
        if self._logs is not None:
            if crash:
                self._logs.abandon()
                clean = False
            else:
                clean = self._logs.close()
            self._logs = None
        if self._metrics is not None:
            self._metrics.stop()
        self._told = self._metrics = None
        return clean

    def _stop_workers(self, drain_s: float) -> None:
        for worker in self._workers:
            worker.stop(drain_s)
        self._workers = []
        for thread in self._leaving:
            thread.join()
        self._leaving = []

    def _connections_room(self) -> int:
        """Connections for which there are descriptors, segments and the process's own ones set apart."""
        if self._descriptor_count_max == resource.RLIM_INFINITY:
            return self.config.max_connections
        left = self._descriptor_count_max - open_segments_max(self.config) - DESCRIPTORS_KEPT
        return max(left, CONNECTIONS_ROOM_MIN)

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            import shutil  # loads two compressors; a broker with a directory of its own does without

            shutil.rmtree(Path(self._temporary), ignore_errors=True)
            self._temporary = None


def reachable_address(host: str) -> str:
    """The address of a host as text, which is what 0.7 registers; the name where it cannot be looked up."""
    try:
        return str(socket.gethostbyname(host))
    except (OSError, ValueError):  # not found, or nothing that can be asked for, such as a NUL
        return host
