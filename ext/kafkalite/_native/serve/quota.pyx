"""Meter clients against their quotas, for Produce and Fetch, without a Python object per request.

    request ─▶ ClientQuota of (principal, client id), kept on the connection for the epoch ─▶ its meters

A Meter is the token bucket of an owner (a user, a client id or both) for one quota key. Unlike Kafka's samples, the
bucket is never reset. So a client that always wants more gets its rate steadily, and not in one burst per window.

Thread rule: any worker, with the GIL.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.math cimport INFINITY, ceil
from libc.stdint cimport int32_t, int64_t

from kafkalite._native.serve.counters cimport now_ns
from kafkalite._native.wire.cursor cimport HEADER_SIZE_MIN, load_i16

cdef enum:
    METERS_MAX = 65536
    CLIENTS_MAX = 16384
    NAME_SIZE_MAX = 256                 # characters of a client id: ids that share this prefix share a meter
    HELD_UP_MS_MAX = 2147483647

cdef str OVERFLOW = "\0"                # in place of a client id when there are too many; no client can have this id


@cython.final
cdef class Meter:
    """The token bucket of one owner for one quota key.

    It fills at the rate of the quota. Its capacity is what the quota allows in (quota.window.num - 1) x
    quota.window.size.seconds, as in Kafka. Use is subtracted, and may leave a debt. The throttle time is the time that
    repays the debt; in Kafka it is (rate - quota) / quota x window. A new client begins with the tokens of one sample,
    so a new client id gains nothing. For partition mutations, it begins with a full bucket.
    """

    def __init__(self, double limit, double burst, double start):
        self.limit = limit
        self.burst = burst
        self.left = start
        self.owed_max = INFINITY

    cdef void refill(self, double now) noexcept:
        if self.at == 0.0:
            self.at = now               # it starts with its first use, however long ago it was made
        elif now > self.at:
            self.left = min(self.burst, self.left + (now - self.at) * self.limit)
            self.at = now

    cdef int32_t owed_ms(self, double now) noexcept:
        """Return the milliseconds until the debt is repaid; 0 without debt."""
        if self.left >= 0.0:
            return 0
        self.refill(now)
        return 0 if self.left >= 0.0 else <int32_t>min(ceil(-self.left / self.limit * 1000.0), <double>HELD_UP_MS_MAX)

    cdef void take(self, double amount, double now) noexcept:
        """Subtract an amount that was used."""
        self.refill(now)
        self.left = max(self.left - amount, -self.owed_max)
        self.done += amount

    def owes_ms(self, double now):
        """Return owed_ms(), for Python."""
        return self.owed_ms(now)

    def charge(self, double amount, double now):
        """Call take(), for Python."""
        self.take(amount, now)

    def held_up(self, int32_t ms):
        """Count a throttle time that was sent to a client."""
        self.throttled_ms += ms
        self.throttled_count += 1

    def rests(self, double now):
        """Return whether the bucket is full, so that removing it loses nothing."""
        if self.at == 0.0:
            return True
        self.refill(now)
        return self.left >= self.burst

    def bound_by(self, double limit, double burst, double owed_max=INFINITY):
        """Change the rate and the capacity. Debt above `owed_max` is cancelled."""
        self.left = max(min(self.left, burst), -owed_max)
        self.limit, self.burst, self.owed_max = limit, burst, owed_max


@cython.final
cdef class ClientQuota:
    """The meters of one client, for the four quota keys."""

    def __init__(self, Meter produce, Meter fetch, Meter request, Meter mutation):
        self.produce, self.fetch, self.request, self.mutation = produce, fetch, request, mutation


@cython.final
cdef class QuotaControl:
    """The native side of a broker's quotas.

    There are at most METERS_MAX meters: idle ones are removed first, then new owners share one.
    """

    def __init__(self, bounds, *, double window_s, int samples, double mutation_window_s, int mutation_samples):
        self.bounds = bounds
        self.meters = {}
        self.forgotten = {}
        self.clients = {}
        self.window_s = window_s
        self.burst_s = <double>max(1, samples - 1) * window_s
        self.mutation_burst_s = mutation_samples * mutation_window_s

    def change(self, bounds):
        """Replace the quotas and raise the epoch. Meters stay, and a debt is repaid at the new rate. Any thread."""
        self.bounds = bounds
        self.clients = {}
        self.epoch += 1

    def quota_of(self, str principal not None, client_id):
        """Return the meters of a principal with this client id; None without a quota. Any thread."""
        return self.find(principal, b"" if client_id is None else client_id.encode())

    def totals(self):
        """Return key → (use, throttle time in ms, number of throttles) over all clients. Any thread."""
        cdef dict totals = dict(self.forgotten)
        for (key, _, _), meter in list(self.meters.items()):
            self.add_total(totals, key, meter)
        return totals

    cdef int add_total(self, dict totals, str key, Meter meter) except -1:
        done, throttled_ms, throttled_count = totals.get(key, (0.0, 0.0, 0))
        totals[key] = (done + meter.done, throttled_ms + meter.throttled_ms, throttled_count + meter.throttled_count)
        return 0

    cdef ClientQuota find(self, str principal, bytes client_id):
        cdef dict clients = self.clients
        cdef int64_t epoch = self.epoch
        key = (principal, client_id)
        try:
            return clients[key]
        except KeyError:
            pass
        quota = self.make(principal, client_id)
        if epoch == self.epoch:
            if len(clients) >= CLIENTS_MAX:
                clients.clear()
            clients[key] = quota
        return quota

    cdef ClientQuota make(self, str principal, bytes client_id):
        user = principal.partition(":")[2]
        produce, fetch, request, mutation = self.bounds(user, client_id.decode("utf-8", "replace"))
        if produce is None and fetch is None and request is None and mutation is None:
            return None
        return ClientQuota(self.meter_of(produce, False), self.meter_of(fetch, False), self.meter_of(request, False),
                           self.meter_of(mutation, True))

    cdef Meter meter_of(self, object bound, bint of_mutations):
        cdef Meter meter
        cdef double limit, burst
        if bound is None:
            return None
        limit, (key, user, client_id) = bound
        burst = limit * (self.mutation_burst_s if of_mutations else self.burst_s)
        if client_id is not None and len(client_id) > NAME_SIZE_MAX:
            client_id = client_id[:NAME_SIZE_MAX]
        owner = (key, user, client_id)
        meter = self.meters.get(owner)
        if meter is None:
            if len(self.meters) >= METERS_MAX:
                self.forget_rested()
            if len(self.meters) >= METERS_MAX:
                owner = (key, None if user is None else OVERFLOW, None if client_id is None else OVERFLOW)
            meter = self.meters.setdefault(
                owner, Meter(limit, burst, burst if of_mutations else limit * min(self.window_s, self.burst_s)))
        if meter.limit != limit or meter.burst != burst:
            meter.bound_by(limit, burst)
        return meter

    cdef int forget_rested(self) except -1:
        """Remove the meters of idle clients, which are full, at most once per sample.

        This raises the epoch, so connections look up their meters again, and no owner ever has two.
        """
        now = now_ns() * 1e-9
        if now - self.forgot_at >= self.window_s:
            self.forgot_at = now
            kept = {}
            for owner, meter in self.meters.items():
                if meter.rests(now):
                    self.add_total(self.forgotten, owner[0], meter)
                else:
                    kept[owner] = meter
            self.meters = kept
            self.clients = {}
            self.epoch += 1
        return 0


@cython.final
cdef class BoundClient:
    """The quota of a connection's client, whose client id may change with each request. Only its worker."""

    def __cinit__(self):
        self.epoch = -1

    cdef int look_up(self, QuotaControl quotas, object principal, const unsigned char* frame,
                     Py_ssize_t size) except -1:
        """Find the meters for the client of this request."""
        cdef Py_ssize_t id_size = max(<Py_ssize_t>0, <Py_ssize_t>load_i16(frame + CLIENT_ID_AT))
        self.pay()
        self.epoch = quotas.epoch
        if id_size > size - HEADER_SIZE_MIN:
            id_size = 0                                         # malformed, which the handler reports
            self.epoch = -1
        self.principal = principal
        self.client_id_size = 2 + id_size
        self.client_id = PyBytes_FromStringAndSize(<const char*>frame + CLIENT_ID_AT, self.client_id_size)
        self.client_id_data = <const unsigned char*>PyBytes_AS_STRING(self.client_id)
        self.window_ms = <int32_t>(quotas.window_s * 1000)
        self.quota = quotas.find(principal, self.client_id[2:])
        return 0

    cdef int pay(self) noexcept:
        """Charge the time that was spent on the client's requests."""
        cdef int64_t now
        if self.busy_since_ns != 0:
            now = now_ns()
            self.quota.request.take(100.0 * ((now - self.busy_since_ns) / 1e9), now / 1e9)
            self.busy_since_ns = 0
        return 0

    cdef int32_t owed_at_first(self, double now) except -1:
        """Return how long a connection's first request must wait, because its client has a debt.

        Otherwise a client could bypass a quota with a new connection for each request.
        """
        cdef int32_t owed
        if self.known or self.quota.produce is None:
            return 0
        self.known = True
        owed = self.quota.produce.owed_ms(now)
        if owed > 0:
            self.quota.produce.held_up(owed)
        return owed

    cdef int32_t delay_ms(self, Meter bytes_of, bint answered, double now) except -1:
        """Return the throttle time in ms of a request that uses `bytes_of`, or None.

        If the request has no response (not `answered`), the quota on time is not applied.
        """
        cdef Meter longest_of = None
        cdef int32_t longest = 0
        cdef int32_t owed
        if bytes_of is not None:
            longest, longest_of = bytes_of.owed_ms(now), bytes_of
        if self.quota.request is not None and answered:
            owed = min(self.quota.request.owed_ms(now), self.window_ms)
            if owed > longest:
                longest, longest_of = owed, self.quota.request
        if longest > 0:
            longest_of.held_up(longest)
        return longest
