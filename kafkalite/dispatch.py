"""From a request's bytes to its answer's bytes, for every API that is not served in C (Produce and Fetch are).

    header ─▶ row of the handler table ─▶ decode ─▶ handler, inline or on the I/O pool ─▶ encode ─▶ answer
                                                       └─▶ Deferred: parked, encoded by whoever completes it

Requests of one connection take effect in order, as in Apache Kafka, which serves one at a time. What follows a request
on the I/O pool goes there, too; what follows a Deferred of an API that is `in_order` is kept back until its answer. The
answers of Deferreds are in order in any case. Produce and Fetch do not come here.

This is the one place where exceptions become answers: a request that does not follow its schema, an API or version that
is not served, and a handler's own failure close the connection with one log line, as Kafka does; what a client did
wrong inside a well-formed request is an error code in the response, which is the handler's business.

Thread rule: called on network workers.
"""

from __future__ import annotations

import copy
import logging
import time
from typing import TYPE_CHECKING, Any

from kafkalite.deferred import Deferred
from kafkalite.errors import MalformedRequest
from kafkalite.handlers import permissions, table
from kafkalite.handlers.context import BrokerServices, RequestContext
from kafkalite.logging import RepeatLogger
from kafkalite.protocol import header

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite._native.serve.connection import Connection
    from kafkalite._native.serve.transfer import Answer

logger = RepeatLogger(logging.getLogger("kafkalite.dispatch"))


class Dispatcher:
    """Serves whole requests; one for all workers."""

    def __init__(self, services: BrokerServices, find: Callable[[int], table.Row | None] = table.find) -> None:
        """`find` gives the row of an API key, None for one that is not served."""
        self._services = services
        self._find = find

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
        row = self._find(key)
        if row is None or not row.serves(version):
            return self._refuse(connection, key, version, correlation_id, client_id)
        try:
            partitions_max = self._services.config.request_max_partitions
            request = row.decode(version, header.request_body(key, version, body), partitions_max)
            name = None if client_id is None else client_id.decode()
        except ValueError as error:
            connection.close(
                "%s v%d that does not follow its schema: %s", row.name, version, error, client_id=client_id
            )
            return None
        context = RequestContext(
            self._services, connection, key, version, name, connection.throttle_ms, connection.request_meter()
        )
        try:
            # One connection's requests take effect in order: after one that is on the pool, the next goes too.
            if not self._services.pool.has_jobs(connection) and not row.blocks(context, request):
                response = self._respond(row, context, request)
                if not isinstance(response, Deferred):
                    return self._encode(row, context, correlation_id, response)
                if response.done:
                    return self._encode(row, context, correlation_id, response.response)
                self._deliver_later(row, context, correlation_id, response, connection.park())
                return None
        except MalformedRequest as error:
            connection.close("%s v%d: %s", row.name, version, error, client_id=client_id)
            return None
        except Exception:
            logger.exception("%s v%d failed", row.name, version)
            connection.close("%s v%d failed inside the broker", row.name, version, client_id=client_id)
            return None
        self._services.pool.submit_ordered(
            connection, self._serve_parked, row, context, correlation_id, request, connection.park()
        )
        return None

    @staticmethod
    def _respond(row: table.Row, context: RequestContext, request: Any) -> Any:
        """The handler's answer, or that the asker may not come through the API's gate."""
        if context.broker.authorizer is not None and row.gated:
            refusal = permissions.refused(context, request)
            if refusal is not None:
                return refusal
        return row.handler(context, request)

    @staticmethod
    def _serve_parked(
        row: table.Row, context: RequestContext, correlation_id: int, request: Any, answer: Answer
    ) -> None:
        began = time.monotonic()
        try:
            response = Dispatcher._respond(row, context, request)
        except MalformedRequest as error:
            logger.warning(
                "closed %s (client id %.100s): %s v%d: %s",
                context.client_host,
                context.client_id,
                row.name,
                context.api_version,
                error,
            )
            answer.fail()
            return
        except Exception:
            logger.exception("%s v%d failed", row.name, context.api_version)
            answer.fail()
            return
        if context.request_meter is not None:
            now = time.monotonic()
            context.request_meter.charge(100.0 * (now - began), now)
        if isinstance(response, Deferred):
            Dispatcher._deliver_later(row, context, correlation_id, response, answer)
        else:
            Dispatcher._deliver(row, context, correlation_id, response, answer)

    @staticmethod
    def _deliver_later(
        row: table.Row, context: RequestContext, correlation_id: int, deferred: Deferred[Any], answer: Answer
    ) -> None:
        abandoned = deferred.abandoned
        if abandoned is not None:
            answer.when_abandoned(abandoned)
        release = context.broker.pool.hold(context.connection) if row.in_order and not deferred.done else None

        def deliver(response: object) -> None:
            Dispatcher._deliver(row, context, correlation_id, response, answer)
            if release is not None:
                release()

        deferred.then(deliver)

    @staticmethod
    def _deliver(
        row: table.Row, context: RequestContext, correlation_id: int, response: object, answer: Answer
    ) -> None:
        try:
            answer.complete(Dispatcher._encode(row, context, correlation_id, response))
        except Exception:
            logger.exception("%s v%d failed", row.name, context.api_version)
            answer.fail()

    @staticmethod
    def _encode(row: table.Row, context: RequestContext, correlation_id: int, response: Any) -> bytes:
        """The frame. Its client is told to wait for the longer of two quotas, and not listened to for so long."""
        own = getattr(response, "throttle_time_ms", None)
        if own is not None and own > context.throttle_ms:
            context.connection.throttle_soon(context.api_key, own, context.throttle_ms)
        elif own is not None and context.throttle_ms > 0:
            response = copy.copy(response)  # it may be one that others are given, too
            response.throttle_time_ms = context.throttle_ms
        return row.encode(context.api_version, correlation_id, response)

    @staticmethod
    def _refuse(
        connection: Connection, key: int, version: int, correlation_id: int, client_id: bytes | None
    ) -> bytes | None:
        """ApiVersions is answered in its oldest form, so that the client can step down (KIP-511); else closes."""
        if key == table.API_VERSIONS_KEY:
            return table.unsupported_api_versions(correlation_id)
        connection.close("API %d version %d is not served", key, version, client_id=client_id)
        return None
