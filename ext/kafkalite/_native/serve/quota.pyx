"""What quotas leave a client, kept where Produce and Fetch can look without a Python object per request.

A Meter belongs to an owner: a user, a client id or both, and one key. It is a bucket that fills at the quota's rate
up to what a whole window allows, (quota.window.num - 1) x quota.window.size.seconds, as Kafka's rate over samples does.
What is done is taken from it, and may leave it in debt; how long the debt takes to fill up is the time a client is held
up for, Kafka's (rate - quota) / quota x window. Other than samples it forgets nothing at once, so that a client who
always wants more gets his rate all the time, not a burst a window. Who was not seen before begins with one sample's
worth: a new name is no way to more.

    request ─▶ ClientQuota of (principal, client id), kept on the connection for the epoch ─▶ its meters

The quotas change by `change`, which raises the epoch. Meters stay: what is owed is owed under the new limit, too. There
are METERS_MAX at most; those at rest go first, and then newcomers share one.

Thread rule: every field is read and written with the GIL, by whichever worker.
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
    NAME_SIZE_MAX = 256                 # characters of a client id: those that begin with as many of the same share
    HELD_UP_MS_MAX = 2147483647

cdef str OVERFLOW = "\0"                # in place of a client id, where there are too many: no client can be called so


@cython.final
cdef class Meter:
    """How much one owner has of one thing."""

    def __init__(self, double limit, double burst, double start):
        self.limit = limit
        self.burst = burst
        self.left = start
        self.owed_max = INFINITY

    cdef void refill(self, double now) noexcept:
        if self.at == 0.0:
            self.at = now               # it begins with what is done first, however long ago it was made
        elif now > self.at:
            self.left = min(self.burst, self.left + (now - self.at) * self.limit)
            self.at = now

    cdef int32_t owed_ms(self, double now) noexcept:
        """How long it takes until nothing is owed any more; 0: nothing is."""
        if self.left >= 0.0:
            return 0
        self.refill(now)
        return 0 if self.left >= 0.0 else <int32_t>min(ceil(-self.left / self.limit * 1000.0), <double>HELD_UP_MS_MAX)

    cdef void take(self, double amount, double now) noexcept:
        """That much was done."""
        self.refill(now)
        self.left = max(self.left - amount, -self.owed_max)
        self.done += amount

    def owes_ms(self, double now):
        """The same as `owed_ms`, for Python."""
        return self.owed_ms(now)

    def charge(self, double amount, double now):
        """The same as `take`, for Python."""
        self.take(amount, now)

    def held_up(self, int32_t ms):
        """A client was told to wait so long."""
        self.throttled_ms += ms
        self.throttled_count += 1

    def rests(self, double now):
        """Whether it has all it can have, so that nothing is lost with it."""
        if self.at == 0.0:
            return True
        self.refill(now)
        return self.left >= self.burst

    def bound_by(self, double limit, double burst, double owed_max=INFINITY):
        """The limit has changed; what is owed above `owed_max` is forgotten."""
        self.left = max(min(self.left, burst), -owed_max)
        self.limit, self.burst, self.owed_max = limit, burst, owed_max


@cython.final
cdef class ClientQuota:
    """The meters that count for a client."""

    def __init__(self, Meter produce, Meter fetch, Meter request, Meter mutation):
        self.produce, self.fetch, self.request, self.mutation = produce, fetch, request, mutation


@cython.final
cdef class QuotaControl:
    """The native end of a broker's quotas."""

    def __init__(self, bounds, *, double window_s, int samples, double mutation_window_s, int mutation_samples):
        self.bounds = bounds
        self.meters = {}
        self.forgotten = {}
        self.clients = {}
        self.window_s = window_s
        self.burst_s = <double>max(1, samples - 1) * window_s
        self.mutation_burst_s = mutation_samples * mutation_window_s

    def change(self, bounds):
        """From now on these are the quotas. Any thread."""
        self.bounds = bounds
        self.clients = {}
        self.epoch += 1

    def quota_of(self, str principal not None, client_id):
        """What counts for a client whose id is `client_id`; None: nothing does. Any thread."""
        return self.find(principal, b"" if client_id is None else client_id.encode())

    def totals(self):
        """Key → (done, ms that clients were told to wait, how often), of all that it has ever bounded. Any thread."""
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
        """Makes room, once in a sample's time: of who has not done anything for a while there is nothing to remember.

        Whoever holds one of those that go asks anew, since the epoch is another: nobody has two.
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
    """A connection's client as quotas see it; it may name itself otherwise with each request. Its worker only."""

    def __cinit__(self):
        self.epoch = -1

    cdef int look_up(self, QuotaControl quotas, object principal, const unsigned char* frame,
                     Py_ssize_t size) except -1:
        """Finds what counts for the client of this request."""
        cdef Py_ssize_t id_size = max(<Py_ssize_t>0, <Py_ssize_t>load_i16(frame + CLIENT_ID_AT))
        self.pay()
        self.epoch = quotas.epoch
        if id_size > size - HEADER_SIZE_MIN:
            id_size = 0                                         # no request, as will be seen
            self.epoch = -1
        self.principal = principal
        self.client_id_size = 2 + id_size
        self.client_id = PyBytes_FromStringAndSize(<const char*>frame + CLIENT_ID_AT, self.client_id_size)
        self.client_id_data = <const unsigned char*>PyBytes_AS_STRING(self.client_id)
        self.window_ms = <int32_t>(quotas.window_s * 1000)
        self.quota = quotas.find(principal, self.client_id[2:])
        return 0

    cdef int pay(self) noexcept:
        """Takes the time that was spent on it from its quota."""
        cdef int64_t now
        if self.busy_since_ns != 0:
            now = now_ns()
            self.quota.request.take(100.0 * ((now - self.busy_since_ns) / 1e9), now / 1e9)
            self.busy_since_ns = 0
        return 0

    cdef int32_t owed_at_first(self, double now) except -1:
        """How long the first bytes of a connection have to wait, its client owing some already: or else a new
        connection for each request would be a way round a quota."""
        cdef int32_t owed
        if self.known or self.quota.produce is None:
            return 0
        self.known = True
        owed = self.quota.produce.owed_ms(now)
        if owed > 0:
            self.quota.produce.held_up(owed)
        return owed

    cdef int32_t delay_ms(self, Meter bytes_of, bint answered, double now) except -1:
        """How long is to be waited after a request of which these bytes count, if any do; where nothing is answered,
        time does not."""
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
