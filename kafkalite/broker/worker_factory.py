"""Build network workers. A worker has its own buffers and request servers; all workers share the other parts.

    WorkerFactory.make(number, count) ─▶ Worker ─▶ WorkerResources: produce, fetch, dispatcher, sign-in, 0.7

Thread rule: the thread that starts the broker or changes its settings calls `make`. This thread also builds the
worker's resources.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kafkalite._native.serve.connection import Connection, WorkerResources
from kafkalite._native.serve.counters import Turns
from kafkalite._native.serve.fetch import FetchServer
from kafkalite._native.serve.produce import ProduceServer
from kafkalite._native.serve.transfer import Mailbox, OutBuffer
from kafkalite.broker.handlers.table import native_apis
from kafkalite.broker.limits.shares import SMALL_COUNT
from kafkalite.broker.net.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite._native.classic.classic_connection import ClassicServer
    from kafkalite._native.serve.fetch_session import FetchSessionCache
    from kafkalite._native.serve.memory import MemoryCeiling
    from kafkalite.base.pool import IoPool
    from kafkalite.broker.cluster_parts import ClusterParts
    from kafkalite.broker.coordinator.transaction_coordinator import TransactionCoordinator
    from kafkalite.broker.dispatch import Dispatcher
    from kafkalite.broker.handlers.table import Row
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.metrics.parts import Parts
    from kafkalite.broker.net.listener import BoundListener
    from kafkalite.broker.quotas.quotas import Quotas
    from kafkalite.broker.security.authorizer import Authorizer
    from kafkalite.settings.broker import BrokerConfig


class WorkerFactory:
    """Builds network workers.

    `config` has the settings at the start of the broker. `faults` are injected into requests of a broker under test
    (kafkalite.testing).
    """

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        pool: IoPool,
        dispatcher: Dispatcher,
        transactions: TransactionCoordinator,
        sessions: FetchSessionCache,
        memory: MemoryCeiling,
        quotas: Quotas,
        *,
        listeners: Sequence[BoundListener],
        find_row: Callable[[int], Row | None],
        authorizer: Authorizer | None,
        cluster: ClusterParts | None,
        told: Parts | None,
        faults: object | None,
        on_connection_closed: Callable[[Connection], None],
    ) -> None:
        self._config = config
        self._logs = logs
        self._pool = pool
        self._dispatcher = dispatcher
        self._transactions = transactions
        self._sessions = sessions
        self._memory = memory
        self._quotas = quotas
        self._has_classic = any(bound.classic for bound in listeners)
        self._has_tls = any(bound.tls is not None for bound in listeners)
        self._has_sasl = any(bound.sasl is not None for bound in listeners)
        self._find_row = find_row
        self._authorizer = authorizer
        self._cluster = cluster
        self._told = told
        self._faults = faults
        self._on_connection_closed = on_connection_closed

    def make(self, number: int, worker_count: int) -> Worker:
        """Return a new worker that is not started. `worker_count` workers share the limits."""
        config, logs, pool, mailbox = self._config, self._logs, self._pool, Mailbox()

        def make_io(
            on_interest: Callable[[Connection, int], None], on_close: Callable[[Connection], None]
        ) -> WorkerResources:
            out = OutBuffer()
            produce = ProduceServer(
                logs.table,
                out,
                pool,
                partitions_max=config.request_max_partitions,
                deferred_bytes_max=config.queued_append_max_bytes,
                flush_on_acks_all=config.flush_on_acks_all,
                gate=self._transactions,
            )
            fetch = FetchServer(
                logs.table,
                out,
                mailbox,
                pool,
                self._sessions,
                partitions_max=config.request_max_partitions,
                response_size_max=config.fetch_max_bytes,
                copy_size_max=config.fetch_copy_max_bytes,
            )
            io = WorkerResources(
                mailbox,
                out,
                produce,
                fetch,
                self._dispatcher,
                on_interest,
                on_close,
                native_apis(self._find_row),
                request_size_max=config.socket_request_max_bytes,
                output_bytes_max=config.connection_output_buffer_max_bytes,
                in_flight_max=config.connection_max_in_flight_requests,
            )
            io.faults = self._faults
            io.use_quotas(self._quotas.client_control)
            self._add_sign_in(io, worker_count)
            self._add_shared(io)
            if self._told is not None:
                io.use_counters(self._told.new_counters())
                mailbox.turns = Turns()
            if self._has_classic:
                io.classic = self._make_classic_server(out)
            return io

        return Worker(
            number,
            mailbox,
            make_io,
            idle_s_max=math.inf if config.connections_max_idle_ms < 0 else config.connections_max_idle_ms / 1000,
            on_closed=self._on_connection_closed,
        )

    def _add_sign_in(self, io: WorkerResources, worker_count: int) -> None:
        """Give a worker the objects for TLS and SASL, if a listener uses them, with the worker's part of their
        limits."""
        config = self._config
        if self._has_tls:
            io.use_tls()
        if self._has_tls or self._has_sasl:
            io.use_sign_in(
                handshake_s_max=config.connection_authentication_timeout_ms / 1000,
                handshake_count_max=max(1, config.connection_authentication_max // worker_count),
                handshake_count_small=SMALL_COUNT // worker_count,
                failing_s=config.connection_failed_authentication_delay_ms / 1000,
                unknown_bytes_max=config.connection_authentication_max_bytes // worker_count,
            )

    def _add_shared(self, io: WorkerResources) -> None:
        """Give a worker the objects that all workers share: memory ceiling, permissions, and in a cluster the
        leaders."""
        io.use_memory(self._memory)
        if self._cluster is not None:
            io.use_leaders(self._cluster.new_leaders(), self._cluster.fetchers.limits.leading)
        if self._authorizer is not None:
            io.use_access(self._authorizer.control)

    def _make_classic_server(self, out: OutBuffer) -> ClassicServer:
        from kafkalite._native.classic.classic_connection import ClassicServer
        from kafkalite.broker.log.classic.host import ClassicHost

        return ClassicServer(
            self._logs.table,
            out,
            self._pool,
            ClassicHost(self._logs, self._authorizer),
            parts_max=self._config.request_max_partitions,
            copy_size_max=self._config.fetch_copy_max_bytes,
            deferred_bytes_max=self._config.queued_append_max_bytes,
        )
