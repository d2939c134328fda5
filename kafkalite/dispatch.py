"""From a request's bytes to its answer's bytes, for every API that is not served in C (Produce and Fetch are).

    header ─▶ row of the handler table ─▶ decode ─▶ handler, inline or on the I/O pool ─▶ encode ─▶ answer
                                                       └─▶ Deferred: parked, encoded by whoever completes it

This is the one place where exceptions become answers: a request that does not follow its schema, an API or version that
is not served, and a handler's own failure close the connection with one log line, as Kafka does; what a client did
wrong inside a well-formed request is an error code in the response, which is the handler's business.

Thread rule: called on network workers; `RequestContext` and the services in it are shared and immutable.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite.deferred import Deferred
from kafkalite.handlers import table
from kafkalite.protocol import header

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite._native.serve.connection import Connection
    from kafkalite._native.serve.transfer import Answer
    from kafkalite.clock import Clock
    from kafkalite.coordinator.groups import GroupCoordinator
    from kafkalite.coordinator.transactions import TransactionCoordinator
    from kafkalite.log.manager import LogManager
    from kafkalite.model import Endpoint
    from kafkalite.pool import IoPool
    from kafkalite.settings.broker import BrokerConfig

logger = logging.getLogger("kafkalite.dispatch")


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Who is in the cluster: one node today; handlers ask here, so that more can come."""

    cluster_id: str
    node_id: int
    rack: str | None
    endpoints: Mapping[str, Endpoint]

    @property
    def controller_id(self) -> int:
        """The node that answers for the cluster."""
        return self.node_id


@dataclass(slots=True)
class BrokerServices:
    """What handlers may use. `config` is replaced as a whole when dynamic settings change, by `use_config`."""

    config: BrokerConfig
    logs: LogManager
    cluster: ClusterView
    clock: Clock
    pool: IoPool
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    config_checks: list[Callable[[BrokerConfig], None]] = field(default_factory=list)
    """Asked before settings change while running; they raise ConfigError."""
    config_listeners: list[Callable[[BrokerConfig], None]] = field(default_factory=list)

    def use_config(self, config: BrokerConfig) -> None:
        """Settings changed while running: from now on these count. The log manager, which knows them, is not told."""
        self.config = config
        for listener in self.config_listeners:
            listener(config)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request's surroundings."""

    broker: BrokerServices
    connection: Connection
    api_key: int
    api_version: int
    client_id: str | None

    @property
    def client_host(self) -> str:
        """The client's address."""
        return self.connection.client_host

    @property
    def endpoint(self) -> Endpoint:
        """What this broker is called on the listener the request came through."""
        endpoint: Endpoint = self.connection.listener.endpoint
        return endpoint

    @property
    def principal(self) -> str:
        """Who asks, as `User:name`: the authoriser's seam."""
        principal: str = self.connection.principal
        return principal


class Dispatcher:
    """Serves whole requests; one for all workers."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def __call__(
        self,
        connection: Connection,
        key: int,
        version: int,
        correlation_id: int,
        client_id: bytes | None,
        body: bytes,
    ) -> bytes | None:
        """The response frame, or None when it follows through a parked Answer or the connection was closed."""
        row = table.find(key)
        if row is None or not row.serves(version):
            return self._refuse(connection, key, version, correlation_id)
        try:
            partitions_max = self._services.config.request_max_partitions
            request = row.decode(version, header.request_body(key, version, body), partitions_max)
            name = None if client_id is None else client_id.decode()
        except ValueError as error:
            connection.close(f"{row.name} v{version} that does not follow its schema: {error}")
            return None
        context = RequestContext(self._services, connection, key, version, name)
        try:
            # One connection's requests take effect in order: behind one that is on the pool, the next goes too.
            if not self._services.pool.has_jobs(connection) and not row.blocks(context, request):
                response = row.handler(context, request)
                if not isinstance(response, Deferred):
                    return row.encode(version, correlation_id, response)
                if response.done:
                    return row.encode(version, correlation_id, response.response)
                self._deliver_later(row, version, correlation_id, response, connection.park())
                return None
        except Exception:
            logger.exception("%s v%d failed", row.name, version)
            connection.close(f"{row.name} v{version} failed inside the broker")
            return None
        self._services.pool.submit_ordered(
            connection, self._serve_parked, row, context, correlation_id, request, connection.park()
        )
        return None

    @staticmethod
    def _serve_parked(
        row: table.Row, context: RequestContext, correlation_id: int, request: Any, answer: Answer
    ) -> None:
        try:
            response = row.handler(context, request)
        except Exception:
            logger.exception("%s v%d failed", row.name, context.api_version)
            answer.fail()
            return
        if isinstance(response, Deferred):
            Dispatcher._deliver_later(row, context.api_version, correlation_id, response, answer)
        else:
            Dispatcher._deliver(row, context.api_version, correlation_id, response, answer)

    @staticmethod
    def _deliver_later(
        row: table.Row, version: int, correlation_id: int, deferred: Deferred[Any], answer: Answer
    ) -> None:
        deferred.then(lambda response: Dispatcher._deliver(row, version, correlation_id, response, answer))

    @staticmethod
    def _deliver(row: table.Row, version: int, correlation_id: int, response: object, answer: Answer) -> None:
        try:
            answer.complete(row.encode(version, correlation_id, response))
        except Exception:
            logger.exception("%s v%d failed", row.name, version)
            answer.fail()

    @staticmethod
    def _refuse(connection: Connection, key: int, version: int, correlation_id: int) -> bytes | None:
        """ApiVersions is answered in its oldest form, so that the client can step down (KIP-511); else closes."""
        if key == table.API_VERSIONS_KEY:
            return table.unsupported_api_versions(correlation_id)
        connection.close(f"API {key} version {version} is not served")
        return None
