"""Dispatch a request's bytes to its handler, and return the response's bytes. Produce and Fetch are served in C
instead.

    1  find the row of the API in the handler table, from the request's header
    2  decode the request
    3  call the handler, on the network worker or on the I/O pool
    4  encode the response. If it is a Deferred, the thread that completes it encodes it later

A long request takes the steps 2 to 4 in portions, on the thread of kafkalite.broker.limits.long_requests. If its
handler may block, steps 3 and 4 run on the I/O pool.

The requests of one connection take effect in order, and their answers leave in order. If a request cannot be answered,
the connection is closed with one log line.

Thread rule: network workers call the Dispatcher.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafkalite._native.base import native_time as time
from kafkalite._native.serve.memory import KIND_ANSWERS, MemoryCeilingReached
from kafkalite.base.deferred import Deferred
from kafkalite.base.logging import RepeatLogger
from kafkalite.broker.handlers import permissions, table
from kafkalite.broker.handlers.context import BrokerServices, RequestContext
from kafkalite.broker.handlers.table import BYTE_US, INLINE_SIZE, INLINE_US, REQUEST_US, SHORT_SIZE
from kafkalite.broker.limits.long_requests import LongRequests
from kafkalite.broker.limits.pace import has_gone
from kafkalite.errors import MalformedRequest
from kafkalite.wire.protocol import header

if TYPE_CHECKING:
    from kafkalite._native.serve.connection import Connection, LargeBody
    from kafkalite._native.serve.memory import Charge
    from kafkalite._native.serve.transfer import Answer
    from kafkalite.broker.limits.pace import Pace

logger = RepeatLogger(logging.getLogger("kafkalite.broker.dispatch"))


NO_ROOM: Final = (
    "%s v%d: no memory for a response of %d bytes or more, because the client holds too much (broker.memory.max)"
)
"""The reason for closing a connection because no memory is left for a response: the protocol has no error code for
this."""
NO_REQUEST: Final = "%s v%d: the request does not match its schema: %s"
"""The reason for closing a connection whose bytes are not a request."""


class _Task:
    """A request on its way to the handler. `request` is None until the body is decoded."""

    __slots__ = ("body", "context", "correlation_id", "dispatcher", "request", "row")

    def __init__(
        self,
        dispatcher: Dispatcher,
        row: table.Row,
        context: RequestContext,
        correlation_id: int,
        body: bytes | LargeBody,
        request: Any,
    ) -> None:
        self.dispatcher = dispatcher
        self.row = row
        self.context = context
        self.correlation_id = correlation_id
        self.body = body
        self.request = request

    @property
    def client_id(self) -> bytes | None:
        """The client id in the request's header."""
        return id_of(self.context)


_Step = Callable[[Any], Any]
"""A part of a long request, called with the request's Pace; it returns the rest of the work for the I/O pool, or
None."""


class _LongTask:
    """A job for the thread for long requests: decode ─▶ handler ─▶ encode ─▶ free memory, each in portions."""

    __slots__ = ("_answer", "_charge", "_make", "_release", "_task")

    def __init__(self, task: _Task, answer: Answer, make: Callable[[], Any] | None = None) -> None:
        """`make` returns the response of a handler that was already called. If `make` is None, the job calls the
        handler."""
        self._task = task
        self._answer = answer
        self._make = make
        self._charge: Charge | None = None
        self._release: Callable[[], None] | None = None
        """Lets the connection's later requests take effect, once the answer to this request is made."""

    def run(self, pace: Pace) -> _Step | None:
        """Serve the request. If the request may wait for a disk, return the step that calls its handler."""
        if self._make is not None:
            try:
                return self._guarded(pace, self._deliver_made)
            finally:
                self._let_go()
        return self._guarded(pace, self._begin)

    def drop(self) -> None:
        """Close the connection instead of answering the request."""
        self._answer.fail(None)
        self._let_go()

    def _let_go(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()

    def _guarded(self, pace: Pace, step: Callable[[Pace], _Step | None]) -> _Step | None:
        row, version = self._task.row, self._task.context.api_version
        pace.charge_to(self._grow)
        try:
            return step(pace)
        except MalformedRequest as error:
            self._answer.fail("%s v%d: %s", row.name, version, error, client_id=self._task.client_id)
        except MemoryCeilingReached as error:
            self._answer.fail(NO_ROOM, row.name, version, error.size, client_id=self._task.client_id)
        except Exception:
            logger.exception("%s v%d failed", row.name, version)
            self._answer.fail(
                "%s v%d failed with an internal error",
                row.name,
                version,
                client_id=self._task.client_id,
            )
        finally:
            self._charge = None
        return None

    def _grow(self, size: int) -> None:
        """Charge `size` more bytes of the answer to the client. MemoryCeilingReached if the client uses too much
        memory."""
        if self._charge is None:
            self._charge = self._task.context.connection.memory.charge(KIND_ANSWERS)
        self._charge.grow(size)

    def _begin(self, pace: Pace) -> _Step | None:
        task = self._task
        if task.request is None:
            try:
                body = task.body if isinstance(task.body, bytes) else task.body.take()
                task.request = task.dispatcher.decode(task.row, task.context.api_version, body, pace.check)
            except ValueError as error:
                self._answer.fail(NO_REQUEST, task.row.name, task.context.api_version, error, client_id=task.client_id)
                return None
        task.body = body = b""
        if task.row.blocks(task.context, task.request):
            return lambda pace: self._guarded(pace, self._handle)
        self._handle(pace)
        return None

    def _handle(self, pace: Pace) -> None:
        task = self._task
        response = Dispatcher.respond(task.row, task.context, task.request)
        if not isinstance(response, Deferred):
            self._deliver(pace, response)
        elif response.done:
            self._deliver(pace, response.response)
        else:
            if response.abandoned is not None:
                self._answer.when_abandoned(response.abandoned)
            self._count_time(pace)
            release = task.context.broker.pool.hold(task.context.connection) if task.row.in_order else None
            response.then_make(lambda make: self._finish(make, release))

    def _finish(self, make: Callable[[], Any], release: Callable[[], None] | None) -> None:
        """Let the thread for long requests encode the answer of a completed Deferred. Any thread."""
        job = _LongTask(self._task, self._answer, make)
        job._release = release
        self._task.dispatcher.long_requests.finish(self._task.context.connection, job)

    def _deliver_made(self, pace: Pace) -> None:
        assert self._make is not None
        response = self._make()
        self._make = None
        self._deliver(pace, response)

    def _deliver(self, pace: Pace, response: Any) -> None:
        task = self._task
        frame = Dispatcher.encode(task.row, task.context, task.correlation_id, response, pace.check_size)
        self._count_time(pace)
        self._charge = None  # it belongs to the answer now
        self._answer.complete(frame)
        task.row.release(task.context.api_version, task.request, response, pace.check)

    def _count_time(self, pace: Pace) -> None:
        meter = self._task.context.request_meter
        if meter is not None:
            meter.charge(100.0 * pace.spent_s, time.monotonic())


def id_of(context: RequestContext) -> bytes | None:
    """Return the client id in the request's header."""
    return None if context.client_id is None else context.client_id.encode()


class Dispatcher:
    """Serves whole requests. All workers share one Dispatcher.

    For a mistake in a well-formed request, the handler sets an error code in the response. The Dispatcher closes the
    connection if

    - the request violates its schema
    - its API or version is not supported (ApiVersions gets an error response instead)
    - the handler fails
    - the response needs more memory than the client may use (broker.memory.max)

    The first two are as in Kafka.
    """

    def __init__(
        self,
        services: BrokerServices,
        find: Callable[[int], table.Row | None] = table.find,
        long_requests: LongRequests | None = None,
    ) -> None:
        """`find` returns the row of an API key, or None if the API is not supported."""
        self._services = services
        self._find = find
        self.long_requests = long_requests or LongRequests(services.pool)
        self._strands = self.long_requests.strands

    def __call__(
        self,
        connection: Connection,
        key: int,
        version: int,
        correlation_id: int,
        client_id: bytes | None,
        body: bytes | LargeBody,
    ) -> bytes | None:
        """Handle a request. Return the response frame; None if it follows later or the connection was closed."""
        row = self._find(key)
        if row is None or not row.serves(version):
            return self._refuse(connection, key, version, correlation_id, client_id)
        pool = self._services.pool
        if connection.share is None:
            connection.share = self.long_requests.share_of(connection)
        long = len(body) > INLINE_SIZE or connection in self._strands
        if not long and len(body) > SHORT_SIZE and pool.has_jobs(connection):
            # It waits there for others, so it is not decoded before its holder can afford it.
            long = not connection.affords(REQUEST_US + BYTE_US * len(body), INLINE_US)
        try:
            name = None if client_id is None else client_id.decode()
            if long:
                request = None
            else:
                partitions_max = self._services.config.request_max_partitions
                assert isinstance(body, bytes), "only long requests are not copied"
                request = row.decode(version, header.request_body(key, version, body), partitions_max)
        except ValueError as error:
            connection.close(NO_REQUEST, row.name, version, error, client_id=client_id)
            return None
        throttle_ms, meter = (0, None) if connection.throttle is None else connection.throttle.of_request()
        context = RequestContext(self._services, connection, key, version, name, throttle_ms, meter)
        try:
            if not long:
                short = len(body) <= SHORT_SIZE and row.unnamed is None
                cost_us = row.short_us if short else row.quick_cost_us(context, request, len(body))
                long = not connection.affords(cost_us, INLINE_US)
            # Requests of one connection take effect in order: after a request served elsewhere, the next goes there
            # too.
            if pool.has_jobs(connection):
                task, answer = (
                    _Task(self, row, context, correlation_id, body, request),
                    self._park(connection, body, request),
                )
                pool.submit_ordered(connection, self._after_pool, task, answer, long)
                return None
            # Checked again: the work on the pool may have moved to the thread for long requests meanwhile.
            if long or connection in self._strands:
                task = _Task(self, row, context, correlation_id, body, request)
                self.long_requests.submit(connection, _LongTask(task, self._park(connection, body, request)))
                return None
            if not row.blocks(context, request):
                response = self.respond(row, context, request)
                if not isinstance(response, Deferred):
                    return self.encode(row, context, correlation_id, response)
                if response.done:
                    return self.encode(row, context, correlation_id, response.response)
                self._deliver_later(row, context, correlation_id, response, self._park(connection, body, request))
                return None
        except MalformedRequest as error:
            connection.close("%s v%d: %s", row.name, version, error, client_id=client_id)
            return None
        except Exception:
            logger.exception("%s v%d failed", row.name, version)
            connection.close("%s v%d failed with an internal error", row.name, version, client_id=client_id)
            return None
        task = _Task(self, row, context, correlation_id, body, request)
        pool.submit_ordered(connection, self._after_pool, task, self._park(connection, body, request), False)
        return None

    @staticmethod
    def _park(connection: Connection, body: bytes | LargeBody, request: Any) -> Answer:
        """Reserve the place of a later answer among the connection's answers.

        The memory of the request is charged to the client until the answer is ready.
        """
        return connection.park(len(body), decoded=request is not None)

    def decode(self, row: table.Row, version: int, body: bytes, pace: Callable[[], object] | None = None) -> Any:
        """Decode a request. Raises ValueError if the bytes are not a valid request."""
        partitions_max = self._services.config.request_max_partitions
        return row.decode(version, header.request_body(row.key, version, body), partitions_max, pace)

    def _after_pool(self, task: _Task, answer: Answer, long: bool) -> None:
        """Serve a request on the I/O pool, after earlier requests of its connection there. Pass a long request to its
        own thread.

        A request that may wait for a disk is dropped if its client has disconnected. Otherwise many requests of one
        client would occupy the pool long after the client has disconnected.
        """
        try:
            if not long and task.row.blocks(task.context, task.request) and has_gone(task.context.connection):
                answer.fail(None)
            else:
                self._serve_in_turn(task, answer, long)
        except Exception:
            logger.exception("%s v%d failed", task.row.name, task.context.api_version)
            answer.fail()

    def _serve_in_turn(self, task: _Task, answer: Answer, long: bool) -> None:
        connection = task.context.connection
        if long or self.long_requests.has_jobs(connection) or task.row.cost_us(task.context, task.request) > INLINE_US:
            self.long_requests.submit(connection, _LongTask(task, answer))
        else:
            self._serve_parked(task.row, task.context, task.correlation_id, task.request, answer)

    @staticmethod
    def respond(row: table.Row, context: RequestContext, request: Any) -> Any:
        """Return the handler's response, or an error response if the client may not use the API."""
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
            response = Dispatcher.respond(row, context, request)
        except MalformedRequest as error:
            answer.fail("%s v%d: %s", row.name, context.api_version, error, client_id=id_of(context))
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
        """Deliver the response when the Deferred is complete. Later requests of the connection wait for it only if the
        API has `in_order`.
        """
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
            answer.complete(Dispatcher.encode(row, context, correlation_id, response))
        except Exception:
            logger.exception("%s v%d failed", row.name, context.api_version)
            answer.fail()

    @staticmethod
    def encode(
        row: table.Row,
        context: RequestContext,
        correlation_id: int,
        response: Any,
        pace: Callable[[int], object] | None = None,
    ) -> bytes:
        """Encode the response frame with the throttle time.

        If the request violated two quotas, the longer throttle time counts. The connection is muted for this time.
        """
        own = getattr(response, "throttle_time_ms", None)
        if own is not None and own > context.throttle_ms:
            context.connection.throttle_soon(context.api_key, own, context.throttle_ms)
        elif own is not None and context.throttle_ms > 0:
            response = copy.copy(response)  # it may be shared with other requests
            response.throttle_time_ms = context.throttle_ms
        return row.encode(context.api_version, correlation_id, response, pace)

    @staticmethod
    def _refuse(
        connection: Connection, key: int, version: int, correlation_id: int, client_id: bytes | None
    ) -> bytes | None:
        """Refuse an API or version that is not supported: close the connection.

        ApiVersions gets an error response of version 0 instead, so that the client can use a lower version (KIP-511).
        """
        if key == table.API_VERSIONS_KEY:
            return table.unsupported_api_versions(correlation_id)
        connection.close("unsupported API %d version %d", key, version, client_id=client_id)
        return None
