"""Serve a connection of a SASL listener, after its client has authenticated.

While `io.now <= open_until`, a frame is served as on any listener. Otherwise a SignIn, in Python, gets the frame: it
responds, pauses the connection (hold), fails the client or opens the connection.

Before authentication, each frame is limited to `receive_size_max` bytes. The bytes of all such connections of a worker
are limited together.

Thread rule: as in the base class Connection.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.math cimport INFINITY
from libc.stdint cimport int16_t, int32_t

import logging

from kafkalite._native.serve.connection cimport (
    CLIENT_ID_SHOWN_MAX, EVENT_READ, TLS_HELLO_SIZE, Connection, name_for_log,
)
from kafkalite._native.serve.frame_buffer cimport PENDING_CAPACITY_MIN
from kafkalite._native.serve.transfer cimport OutBuffer
from kafkalite._native.wire.cursor cimport HEADER_SIZE_MIN, Cursor, cursor_init, load_i16, load_i32, read_string
from kafkalite._native.wire.status cimport OK

from kafkalite.broker.limits.holder import network_of
from kafkalite.base.logging import RepeatLogger

cdef object logger = RepeatLogger(logging.getLogger("kafkalite.broker.net"))

cdef enum:
    SASL_HANDSHAKE = 17

cdef str TOO_MANY_BYTES = "unauthenticated connections hold too many bytes; closed the oldest of its address"


cdef class SaslConnection(Connection):
    """An accepted socket of a SASL listener."""

    def __cinit__(self, *_arguments):
        self.open_until = -INFINITY
        self.frame_size_min = 1
        self.frame_size_max = self.listener.sasl.receive_size_max
        self.sign_in = self.listener.sasl.begin(self)

    def await_sign_in(self):
        """Start the time limit connection.authentication.timeout.ms. With TLS, `secure` does this."""
        self.io.begin_handshake(self)

    def open(self, double lifetime_s):
        """Serve the client, which is now authenticated, for `lifetime_s` seconds."""
        self.open_until = self.io.now + lifetime_s
        self.raw = False
        self.frame_size_min = HEADER_SIZE_MIN
        self.frame_size_max = self.io.request_size_max
        self.io.end_handshake(self)
        self.count_bytes(0)

    def shut(self):
        """Serve no requests while the client reauthenticates."""
        self.open_until = -INFINITY
        self.frame_size_min = 1
        self.frame_size_max = self.listener.sasl.receive_size_max
        self.io.begin_handshake(self, again=True)

    def expect_tokens(self):
        """Read later frames as tokens, which have no request headers."""
        self.raw = True

    def hold(self):
        """Pause until go_on(), because a hash or a token verification runs on another thread. Return an Answer in the
        place of the current request's response."""
        self.holding = True
        self.paused = True
        self.set_interest(self.interest & ~EVENT_READ)
        return self.enqueue()

    def go_on(self):
        """Resume after hold()."""
        self.holding = False
        if not self.closed:
            self.settle()

    def post(self, call):
        """Call a function on the worker. Any thread."""
        self.io.mailbox.put(call)

    def fail_sign_in(self, str problem not None, bytes farewell=None, reason="protocol"):
        """End a failed authentication: send `farewell` as the last response and close, both after a delay.

        The delay is connection.failed.authentication.delay.ms. Later bytes are ignored. `reason` is a label of the
        metrics (`kafkalite.broker.handlers.sign_in.Outcome`).
        """
        if self.closed or self.failed:
            return
        logger.warning("%s:%d (%s) failed to authenticate: %s", self.client_host, self.client_port,
                       name_for_log(self, self.claimed_id), problem, kind=("did not sign in", reason))
        self.sign_in.count_failure(reason)
        self.io.end_handshake(self)
        self.failed = True
        self.paused = True
        self.holding = False
        self.open_until = -INFINITY
        self.farewell = farewell
        self.write_out()
        self.set_interest(0)
        self.io.failing.append((self.io.now + self.io.failing_s, self))

    def close(self, str reason=None, *values, bytes client_id=None):
        """Close the connection and its authentication."""
        if not self.closed:
            self.count_bytes(0)
            self.sign_in.close()
        Connection.close(self, reason, *values, client_id=client_id)

    cdef int admit(self) except -1:
        """Continue after the TLS handshake without authenticating, because SASL authenticates the client."""
        return 0

    cdef int end(self) except -1:
        if self.farewell is not None and not self.closed:
            self.io.out.put(<const unsigned char*>PyBytes_AS_STRING(self.farewell), PyBytes_GET_SIZE(self.farewell))
            self.failed = False
            self.write_out()
        self.close(None)
        return 0

    cdef bint refrains(self) noexcept:
        return self.holding or self.failed

    cdef int settle(self) except -1:
        if not self.refrains():
            return Connection.settle(self)
        if not self.failed and not self.closed:
            self.write_out()
            self.drain_queue()
        self.io.out.size = 0
        return 0

    cdef int refuse_size(self, int32_t size) except -1:
        if self.open_until > -INFINITY:
            return Connection.refuse_size(self, size)
        if self.tls is None and size & ~0xFFFF == TLS_HELLO_SIZE & ~0xFFFF:
            self.fail_sign_in("TLS handshake on a listener without TLS; check the client's security.protocol")
        else:
            self.fail_sign_in(f"a frame of {size} bytes exceeds sasl.server.max.receive.size ({self.frame_size_max})")
        return 0

    cdef int keep(self, const unsigned char* data, Py_ssize_t size) except -1:
        if self.failed:
            return 0
        if self.received.capacity < size + PENDING_CAPACITY_MIN:
            self.grow_pending(size + max(<Py_ssize_t>PENDING_CAPACITY_MIN, size))
        return 0 if self.failed else Connection.keep(self, data, size)

    cdef int grow_pending(self, Py_ssize_t capacity) except -1:
        """Grow the buffer, or fail if the limit for unauthenticated clients is reached."""
        if self.awaited and not self.may_keep(capacity):
            self.fail_sign_in("unauthenticated connections of its address hold too many bytes")
            return 0
        return Connection.grow_pending(self, capacity)

    cdef bint may_keep(self, Py_ssize_t size) except -1:
        """Return whether it may buffer `size` bytes before authentication.

        The last tenth of the worker's limit is for addresses with few bytes.
        Older connections of its address are closed to make room. If no other connection has bytes, it always may,
        because its frame has a limit.
        """
        cdef object shares = self.io.unknown_byte_shares
        cdef str network = network_of(self.client_host)
        cdef Connection oldest
        self.count_bytes(0)
        while self.io.unknown_bytes > 0 and not shares.admits(
                network, self.io.unknown_bytes, self.io.unknown_bytes_max, size):
            order = iter(self.io.handshakes_from[network])
            oldest = next(order, None)
            if oldest is self:
                oldest = next(order, None)
            if oldest is None:
                return False
            oldest.close(TOO_MANY_BYTES)                        # which removes it from `handshakes_from`
        self.count_bytes(size)
        return True

    cdef int count_bytes(self, Py_ssize_t size) except -1:
        """Set the number of its bytes that count towards the limit for unauthenticated clients."""
        cdef object shares
        if size != self.counted_bytes:
            shares = self.io.unknown_byte_shares
            shares.add(network_of(self.client_host), size - self.counted_bytes)
            self.io.unknown_bytes += size - self.counted_bytes
            self.counted_bytes = size
        return 0

    cdef int serve(self, unsigned char* frame, Py_ssize_t size) except -1:
        if self.io.now <= self.open_until:
            return Connection.serve(self, frame, size)
        return self.step(frame, size)

    cdef int serve_other(self, int16_t key, int16_t version, int32_t correlation_id, bytes client_id,
                         unsigned char* body, Py_ssize_t size) except -1:
        if key == SASL_HANDSHAKE and self.sign_in.may_begin_again():
            return self.answer(self.sign_in.request(
                key, version, correlation_id, PyBytes_FromStringAndSize(<const char*>body, size)))
        return Connection.serve_other(self, key, version, correlation_id, client_id, body, size)

    cdef int step(self, unsigned char* frame, Py_ssize_t size) except -1:
        """Handle a frame of a client that is not authenticated, or whose session has expired."""
        cdef Cursor c
        cdef Py_ssize_t client_id_size
        cdef const unsigned char* client_id
        self.io.requests += 1
        if self.raw:
            return self.answer(self.sign_in.token(PyBytes_FromStringAndSize(<const char*>frame, size)))
        if size < HEADER_SIZE_MIN:
            self.fail_sign_in("the bytes are not a request")
            return 0
        cursor_init(&c, frame + 8, size - 8)
        client_id = read_string(&c, False, &client_id_size)
        if c.status != OK:
            self.fail_sign_in("malformed request header")
            return 0
        if self.claimed_id is None and client_id_size > 0:
            self.claimed_id = PyBytes_FromStringAndSize(
                <const char*>client_id, min(client_id_size, <Py_ssize_t>CLIENT_ID_SHOWN_MAX))
        return self.answer(self.sign_in.request(
            load_i16(frame), load_i16(frame + 2), load_i32(frame + 4),
            PyBytes_FromStringAndSize(<const char*>c.pos, c.end - c.pos)))

    cdef int answer(self, bytes frame) except -1:
        cdef OutBuffer out = self.io.out
        cdef Py_ssize_t start = out.size
        if frame is None or self.closed or self.failed:
            return 0
        out.put(<const unsigned char*>PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame))
        return self.requeue_out(start)
