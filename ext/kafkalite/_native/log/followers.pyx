"""Track the replicas that follow a log, and compute its high watermark from their log ends.

    a follower's fetch ─▶ fetched: its log end, log start, broker epoch, and when it last caught up
    replicated_end     ─▶ the lowest log end of the leader, the in-sync replicas, and replicas about to join them
    low_watermark      ─▶ the lowest log start of the leader and of the followers that are alive

The controllers decide which replicas are in sync; the leader proposes changes to them (KIP-497).

Source: Partition.maybeIncrementLeaderHW, needsExpandIsr, getOutOfSyncReplicas and Replica.updateFetchStateOrThrow of
Kafka 4.1. Times are seconds of a monotonic clock.

Thread rule: the GIL guards everything, and no method releases it.
"""

cimport cython
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc

import logging
from heapq import heapify, heappop, heappush

from kafkalite.base.logging import RepeatLogger

cdef object logger = RepeatLogger(logging.getLogger("kafkalite.broker.log"))

cdef enum:
    BROKERS_AT_FIRST = 8
    WAITS_KEPT_MIN = 64         # canceled waits that may stay in a heap


@cython.final
cdef class BrokerEpochs:
    """The registered brokers of the newest cluster metadata. All logs of a broker share one object."""

    def __dealloc__(self):
        free(self.rows)

    cdef int32_t place_of(self, int32_t broker_id) except -1:
        """Return the index of a broker's row; add a row for an unknown broker. An index never changes."""
        cdef int32_t i
        cdef void* grown
        for i in range(self.count):
            if self.rows[i].id == broker_id:
                return i
        if self.count == self.capacity:
            grown = realloc(self.rows, <size_t>max(BROKERS_AT_FIRST, 2 * self.capacity) * sizeof(BrokerRow))
            if grown == NULL:
                raise MemoryError
            self.rows = <BrokerRow*>grown
            self.capacity = max(<int32_t>BROKERS_AT_FIRST, <int32_t>(2 * self.capacity))
        self.rows[self.count] = BrokerRow(broker_id, EPOCH_UNKNOWN, False, False)
        self.count += 1
        return self.count - 1

    def use(self, brokers):
        """Set the registered brokers: (id, epoch, whether it is alive, whether it may become in sync)."""
        cdef list given = list(brokers)
        cdef int32_t i, place
        cdef BrokerRow* rows
        cdef BrokerRow* before
        for broker_id, _epoch, _alive, _eligible in given:
            self.place_of(broker_id)
        rows = <BrokerRow*>calloc(<size_t>max(1, self.capacity), sizeof(BrokerRow))
        if rows == NULL:
            raise MemoryError
        try:
            for i in range(self.count):
                rows[i] = BrokerRow(self.rows[i].id, EPOCH_UNKNOWN, False, False)
            for broker_id, epoch, alive, eligible in given:
                place = self.place_of(broker_id)
                rows[place] = BrokerRow(broker_id, epoch, alive, eligible)
        except BaseException:
            free(rows)
            raise
        before, self.rows = self.rows, rows         # in one step: other threads may be reading it
        free(before)


@cython.final
cdef class Followers:
    """The followers of a log that this broker leads. Empty before `begin`."""

    def __init__(self, BrokerEpochs brokers not None, double lag_s_max, on_joinable):
        self.brokers = brokers
        self.lag_s_max = lag_s_max
        self.on_joinable = on_joinable
        self.in_sync_count = self.maximal_count = 1
        self.min_in_sync = 1

    def __dealloc__(self):
        free(self.rows)

    # ---- decisions of the controllers, and proposals to them --------------------------------------------------------

    def begin(self, replica_ids, in_sync, int64_t epoch_start, double now):
        """Begin a leader epoch. The followers' state is unknown, but in-sync replicas count as caught up until now."""
        self._replace(list(replica_ids), False)
        self.epoch_start = epoch_start
        self.set_in_sync(in_sync)
        for place in range(self.count):
            if self.rows[place].in_sync:
                self.rows[place].caught_up_at = now

    def set_replicas(self, replica_ids):
        """Replace the followers in the same leader epoch. Followers that remain keep their state."""
        self._replace(list(replica_ids), True)

    cdef int _replace(self, list replica_ids, bint keep) except -1:
        cdef int32_t count = <int32_t>len(replica_ids)
        cdef int32_t i, before
        cdef Follower* rows = <Follower*>calloc(<size_t>max(1, count), sizeof(Follower))
        if rows == NULL:
            raise MemoryError
        try:
            for i in range(count):
                before = self.place_of(replica_ids[i]) if keep else -1
                if before >= 0:
                    rows[i] = self.rows[before]
                    continue
                rows[i].id = replica_ids[i]
                rows[i].broker = self.brokers.place_of(rows[i].id)
                rows[i].end_offset = rows[i].log_start = rows[i].leader_end = -1
                rows[i].broker_epoch = EPOCH_UNKNOWN
                rows[i].known_epoch = -1
                rows[i].fetched_at = rows[i].caught_up_at = -INFINITY
        except BaseException:
            free(rows)
            raise
        free(self.rows)
        self.rows = rows
        self.count = count
        return 0

    def set_in_sync(self, in_sync):
        """Set the in-sync replicas, including the leader. A pending proposal ends."""
        cdef set ids = set(in_sync)
        cdef int32_t i
        self.in_sync_count = self.maximal_count = <int32_t>len(ids)
        self.proposing = False
        for i in range(self.count):
            self.rows[i].in_sync = self.rows[i].counts = self.rows[i].id in ids
            self.rows[i].announced = False

    def propose(self, in_sync):
        """Note a proposal of in-sync replicas to the controllers. Until they answer, members of the old and new set
        count."""
        cdef set ids = set(in_sync)
        cdef int32_t i
        self.proposing = True
        for i in range(self.count):
            if self.rows[i].id in ids and not self.rows[i].counts:
                self.rows[i].counts = True
                self.maximal_count += 1

    def use_min(self, int32_t min_in_sync):
        """Set the topic's min.insync.replicas."""
        self.min_in_sync = min_in_sync

    def use_limit(self, bint limited):
        """Set whether the topic's leader.replication.throttled.replicas contains this leader."""
        self.limited = limited

    def joinable(self, int64_t high_watermark, double now):
        """Return the followers that may join the in-sync replicas and have fetched within replica.lag.time.max.ms.

        Afterwards `on_joinable` may report each of them again.
        """
        cdef int32_t i
        cdef list found = []
        for i in range(self.count):
            self.rows[i].announced = False
            if now - self.rows[i].fetched_at <= self.lag_s_max and self.may_join(i, high_watermark):
                found.append(self.rows[i].id)
        return found

    def lagging(self, int64_t log_end, double now):
        """Return the in-sync replicas that have not caught up within replica.lag.time.max.ms."""
        cdef int32_t i
        return [
            self.rows[i].id for i in range(self.count)
            if self.rows[i].in_sync and not is_caught_up(&self.rows[i], log_end, now, self.lag_s_max)]

    def epochs_of(self, replica_ids):
        """Return id → broker epoch of a follower's last fetch. -1: it has not fetched, or sent no epoch."""
        cdef int32_t place
        cdef dict found = {}
        for replica_id in replica_ids:
            place = self.place_of(replica_id)
            found[replica_id] = max(<int64_t>EPOCH_NOT_TOLD, self.rows[place].broker_epoch) if place >= 0 else -1
        return found

    def states(self):
        """Return (id, end offset, log start, broker epoch, caught up at, in sync, counts) per follower, for metrics and
        tests."""
        cdef int32_t i
        cdef Follower* row
        cdef list found = []
        for i in range(self.count):
            row = &self.rows[i]
            found.append((row.id, row.end_offset, row.log_start, row.broker_epoch, row.caught_up_at, row.in_sync,
                          row.counts))
        return found

    @property
    def under_min(self):
        """Whether fewer replicas are in sync than min.insync.replicas requires."""
        return self.in_sync_count < self.enough()

    @property
    def at_min(self):
        """Whether exactly as many replicas are in sync as min.insync.replicas requires."""
        return self.in_sync_count == self.enough()

    @property
    def under_replicated(self):
        """Whether a replica is not in sync."""
        return self.in_sync_count < self.count + 1

    def note_fetch(self, int32_t replica_id, int64_t offset, int64_t log_start, int64_t broker_epoch, int64_t log_end,
                   double now):
        """Record a fetch, for tests; return whether the follower's log end moved. Raises KeyError for an unknown
        follower."""
        cdef int32_t place = self.place_of(replica_id)
        if place < 0:
            raise KeyError(replica_id)
        return self.fetched(place, offset, log_start, broker_epoch, log_end, now)

    def high_watermark(self, int64_t log_end, double now):
        """Return the offset up to which the log is replicated, or -1 with too few in-sync replicas. For tests."""
        return self.replicated_end(log_end, now)

    def low(self, int64_t log_start):
        """Return the low watermark, or -1 if the log start of a live follower is unknown."""
        return self.low_watermark(log_start)

    # ---- a follower's fetch ------------------------------------------------------------------------------------------

    cdef int32_t place_of(self, int32_t replica_id) noexcept nogil:
        """Return the index of a follower's row, or -1."""
        cdef int32_t i
        for i in range(self.count):
            if self.rows[i].id == replica_id:
                return i
        return -1

    cdef bint is_stale(self, int32_t place, int64_t broker_epoch) noexcept nogil:
        """Return whether a fetch is from an older broker epoch than the registered one."""
        return broker_epoch != EPOCH_NOT_TOLD and broker_epoch < self.brokers.rows[self.rows[place].broker].epoch

    cdef bint fetched(self, int32_t place, int64_t offset, int64_t log_start, int64_t broker_epoch, int64_t log_end,
                      double now) noexcept nogil:
        """Record a fetch from `offset` at the leader's log end; return whether the follower's log end moved."""
        cdef Follower* row = &self.rows[place]
        cdef bint moved = row.end_offset != offset
        if offset >= log_end:
            row.caught_up_at = max(row.caught_up_at, now)
        elif offset >= row.leader_end:
            row.caught_up_at = max(row.caught_up_at, row.fetched_at)
        row.end_offset = offset
        row.log_start = log_start
        row.broker_epoch = broker_epoch
        row.leader_end = max(row.leader_end, log_end)
        row.fetched_at = now
        return moved

    cdef bint may_join(self, int32_t place, int64_t high_watermark) noexcept nogil:
        """Return whether to propose a follower as an in-sync replica.

        A restarted follower has a new broker epoch and may have lost records. So only a fetch in the currently
        registered broker epoch counts (KIP-903).
        """
        cdef Follower* row = &self.rows[place]
        return (not self.proposing and not row.in_sync and not row.announced
                and row.end_offset >= high_watermark and row.end_offset >= self.epoch_start
                and is_eligible(self.brokers, row))

    cdef int announce(self, int32_t place, object log) except -1:
        """Report to Python, once, that a follower may join the in-sync replicas. `on_joinable` runs on the thread that
        serves the fetch, and must not block."""
        self.rows[place].announced = True
        self.on_joinable(log)
        return 0

    cdef int32_t enough(self) noexcept nogil:
        """Return how many in-sync replicas are required: min.insync.replicas, or all replicas if there are fewer."""
        return min(self.min_in_sync, <int32_t>(self.count + 1))

    cdef int64_t replicated_end(self, int64_t log_end, double now) noexcept nogil:
        """Return the offset up to which the log is replicated, or -1 with too few in-sync replicas.

        A replica that has caught up and may join counts too, so that the high watermark does not pass its log end.
        """
        cdef int64_t end = log_end
        cdef int32_t i
        cdef Follower* row
        if self.in_sync_count < self.enough():
            return -1
        for i in range(self.count):
            row = &self.rows[i]
            if row.end_offset < end and (row.counts or (
                    is_caught_up(row, log_end, now, self.lag_s_max) and is_eligible(self.brokers, row))):
                end = row.end_offset
        return end

    cdef int64_t low_watermark(self, int64_t log_start) noexcept nogil:
        """Return the lowest log start of the leader and its live followers, or -1 if one is unknown."""
        cdef int64_t low = log_start
        cdef int32_t i
        for i in range(self.count):
            if self.brokers.rows[self.rows[i].broker].alive:
                low = min(low, self.rows[i].log_start)
        return low


@cython.final
cdef class OffsetWaits:
    """Callbacks that wait until an offset is reached. Each is called at most once, by `settle`."""

    def __cinit__(self):
        self.heap = []
        self.callbacks = {}

    cdef int64_t add(self, int64_t offset, object callback) except -1:
        """Add a callback. Return the number of the wait, at least 1."""
        self.number += 1
        self.callbacks[self.number] = callback
        heappush(self.heap, (offset, self.number))
        return self.number

    cdef bint cancel(self, int64_t number) except -1:
        """Cancel a wait. Return False if it has ended."""
        if self.callbacks.pop(number, None) is None:
            return False
        if len(self.heap) > 2 * len(self.callbacks) + WAITS_KEPT_MIN:
            self.heap = [each for each in self.heap if each[1] in self.callbacks]
            heapify(self.heap)
        return True

    cdef list take(self, int64_t reached):
        """Remove and return the callbacks whose offset is reached, in the order of offsets."""
        cdef list taken = []
        while self.heap and <int64_t>self.heap[0][0] <= reached:
            callback = self.callbacks.pop(heappop(self.heap)[1], None)
            if callback is not None:
                taken.append(callback)
        return taken

    cdef int settle(self, int64_t reached, int error) except -1:
        """Call each callback whose offset is reached with an error code (0: none).

        An exception in a callback is logged and does not affect the others.
        """
        for callback in self.take(reached):
            try:
                callback(error)
            except Exception:
                logger.exception("a callback that waited for followers failed")
        return 0


cdef inline bint is_caught_up(const Follower* row, int64_t log_end, double now, double lag_s_max) noexcept nogil:
    """Return whether a follower has the whole log, or had it within the last `lag_s_max` seconds."""
    return row.end_offset == log_end or now - row.caught_up_at <= lag_s_max


cdef inline bint is_eligible(BrokerEpochs brokers, const Follower* row) noexcept nogil:
    """Return whether a follower's broker may become in sync, and has not restarted since its last fetch."""
    cdef BrokerRow* broker = &brokers.rows[row.broker]
    return broker.eligible and (row.broker_epoch == EPOCH_NOT_TOLD or row.broker_epoch == broker.epoch)
