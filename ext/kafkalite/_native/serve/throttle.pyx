"""Decide how long one connection waits, because its client exceeds a quota (KIP-219).

`judge` decides how to serve a request:

    NOT_BOUNDED, WITHIN_QUOTA    serve it
    OVER_QUOTA                   serve it with a throttle time in the response, then mute the connection for this time
    HELD_BACK                    mute the connection first, then serve the request

Bytes are counted at the time when the turn of the worker's loop began, which saves reading the clock. `delay_ms` reads
the clock and computes the throttle time. It is called only for a client that may be over a quota.

Thread rule: only the connection's worker.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t

from kafkalite._native.serve.counters cimport now_ns
from kafkalite._native.serve.produce cimport acks_of
from kafkalite._native.serve.quota cimport CLIENT_ID_AT, BoundClient, Meter, same_bytes
from kafkalite._native.serve.worker_parts cimport WorkerParts
from kafkalite._native.wire.cursor cimport load_i16


@cython.final
cdef class Throttle:
    """The throttle of one connection. A connection gets it when a quota applies or it is muted."""

    def __cinit__(self):
        self.client = BoundClient()

    def of_request(self):
        """Return (throttle time in ms, Meter of request time or None) of the current request."""
        return self.ms, self.client.quota.request if self.counts() else None

    cdef bint counts(self) noexcept:
        """Return whether quotas apply to the current request."""
        return self.bounded and self.client.quota is not None

    cdef QuotaVerdict judge(self, WorkerParts io, object principal, unsigned char* frame, Py_ssize_t size) except *:
        """Count a request before it is served, and decide how to serve it."""
        cdef BoundClient client = self.client
        cdef int16_t key = load_i16(frame)
        cdef bint over = False
        if client.epoch != io.quotas.epoch or client.principal is not principal \
                or client.client_id_size > size - CLIENT_ID_AT \
                or not same_bytes(frame + CLIENT_ID_AT, client.client_id_data, client.client_id_size):
            client.look_up(io.quotas, principal, frame, size)
        if client.quota is None:
            return NOT_BOUNDED
        if client.quota.request is not None:
            over = client.quota.request.left < 0.0
            if client.busy_since_ns == 0:
                client.busy_since_ns = now_ns()
        if key == io.produce_api.key:
            if not client.known:
                self.owed_ms = client.owed_at_first(now_ns() / 1e9)
                if self.owed_ms > 0:
                    self.held = bytearray(frame[:size])
                    return HELD_BACK
            if client.quota.produce is not None:
                client.quota.produce.take(<double>size, io.now)
                over = over or client.quota.produce.left < 0.0
            return OVER_QUOTA if over else NOT_BOUNDED
        if key == io.fetch_api.key and client.quota.fetch is not None:
            over = over or client.quota.fetch.left < 0.0
        return OVER_QUOTA if over else WITHIN_QUOTA

    cdef int32_t delay_ms(self, WorkerParts io, unsigned char* frame, Py_ssize_t size) except -1:
        """Return the throttle time in ms of a request whose client may be over a quota. Reads the clock."""
        cdef int16_t key = load_i16(frame)
        cdef Meter bytes_of = None
        cdef bint answered = True
        if key == io.produce_api.key:
            bytes_of = self.client.quota.produce
            answered = acks_of(load_i16(frame + 2), frame, size) != 0
        elif key == io.fetch_api.key:
            bytes_of = self.client.quota.fetch
        return self.client.delay_ms(bytes_of, answered, now_ns() / 1e9)
