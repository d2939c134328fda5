"""Keep the partitions that a client fetches between its requests, in incremental fetch sessions (KIP-227).

The session id and epoch of a request mean:

    (0, -1)  full, no session            (0, 0)  full, open a session: answered with its id, or 0 if it is declined
    (n, -1)  full, close n               (n, 0)  full, close n and open another
    (n, e)   incremental: topics are added or changed, forgotten ones removed; e is 1 first and rises by one

An incremental response has only changes: partitions with records, an error, a diverging epoch or a preferred replica,
and partitions with a new high watermark or log start.

A session belongs to a principal and a listener, but not to a connection.

Thread rule: one lock guards all sessions. A thread holds it at most while it copies a session's partitions, and never
while it reads a log. The only lock taken under it is MemoryCeiling.lock.
"""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.pythread cimport (
    NOWAIT_LOCK,
    WAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
)
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc

from os import urandom
from time import sleep

from kafkalite.broker.limits.holder import holder_of
from kafkalite.broker.limits.shares import Shares
from kafkalite.model import TOPIC_NAME_SIZE_MAX as _TOPIC_NAME_SIZE_MAX

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.log.log_core cimport LogListener
from kafkalite._native.serve.memory cimport SESSIONS, MemoryCeiling
from kafkalite._native.serve.request_parts cimport add_part
from kafkalite._native.serve.topic_table cimport TopicRef
from kafkalite._native.wire.error_codes cimport (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
)

cdef enum:
    INT32_MAX = 0x7FFFFFFF
    TOPIC_NAME_SIZE_MAX = 249
    PARTS_AT_FIRST = 8
    FREED_AT_ONCE = 500                 # topics, or partitions of one
    SESSION_SIZE = 1024                 # bytes of a session
    SESSION_PART_SIZE = 256             # and of each of its partitions, with its entries in tables

cdef double FREED_PAUSE_S = 0.0002

assert TOPIC_NAME_SIZE_MAX == _TOPIC_NAME_SIZE_MAX


cdef class FetchParts(LogListener):
    """The partitions of one Fetch request: its own, or those of its session."""

    def __cinit__(self):
        self.parts = NULL

    def __dealloc__(self):
        free(self.parts)


@cython.final
cdef class SessionTopic:
    """The partitions of one topic in a session."""


@cython.final
cdef class FetchSession:
    """The partitions that one client fetches. Its cache's lock guards it.

    A partition that returned records moves to the end of the order, so that it does not starve the others.
    """

    def __cinit__(self):
        self.topics = {}
        self.epoch = 1
        self.first = self.last = self.free_slot = -1

    def __dealloc__(self):
        free(self.parts)

    cdef bint belongs_to(self, FetchParts request) except -1:
        return self.listener is request.listener and self.principal == request.principal

    cdef int32_t add(self, const FetchPart* part) except -2:
        """Add or change a partition; return its slot, or -1 for an impossible topic name."""
        cdef TopicRef ref = <TopicRef>part.topic
        cdef SessionTopic topic = self.topics.get(ref.key)
        cdef SessionPart* kept
        cdef int32_t slot
        if topic is None:
            if PyBytes_GET_SIZE(ref.key) > TOPIC_NAME_SIZE_MAX:
                return -1
            topic = SessionTopic.__new__(SessionTopic)
            topic.ref = ref
            topic.slots = {}
            self.topics[ref.key] = topic
            self.refs = None
        found = topic.slots.get(part.index)
        if found is None:
            slot = self.take_slot()
            topic.slots[part.index] = slot
            kept = &self.parts[slot]
            kept.topic = <PyObject*>topic.ref
            kept.index = part.index
            kept.high_watermark = kept.log_start_offset = -1
            self.append(slot)
            self.part_count += 1
        else:
            slot = found
            kept = &self.parts[slot]
        kept.offset = part.offset
        kept.size_max = part.size_max
        kept.current_leader_epoch = part.current_leader_epoch
        kept.last_fetched_epoch = part.last_fetched_epoch
        kept.replica_start = part.replica_start
        return slot

    cdef bint take_parts(self, FetchParts request, int32_t first, int32_t end) except -1:
        """Add the partitions of a full fetch, with the offsets of its response. Return False if one cannot be added."""
        cdef FetchPart* part
        cdef int32_t i, slot
        for i in range(first, end):
            part = &request.parts[i]
            if part.parts_of_topic == 0:
                continue
            slot = self.add(part)
            if slot < 0:
                return False
            self.parts[slot].high_watermark = part.high_watermark
            self.parts[slot].log_start_offset = part.log_start_offset
        return True

    cdef int forget(self, bytes key, int32_t index) except -1:
        cdef SessionTopic topic = self.topics.get(key)
        cdef int32_t slot
        if topic is None:
            return 0
        found = topic.slots.pop(index, None)
        if found is None:
            return 0
        slot = found
        self.unlink(slot)
        self.parts[slot].following = self.free_slot
        self.free_slot = slot
        self.part_count -= 1
        if not topic.slots:
            del self.topics[key]
            self.refs = None
        return 0

    cdef int32_t take_slot(self) except -1:
        cdef int32_t slot = self.free_slot
        if slot >= 0:
            self.free_slot = self.parts[slot].following
            return slot
        add_part(<void**>&self.parts, &self.slot_count, &self.part_capacity, PARTS_AT_FIRST, sizeof(SessionPart))
        return self.slot_count - 1

    cdef void append(self, int32_t slot) noexcept:
        """Move a slot to the end of the order."""
        self.parts[slot].before = self.last
        self.parts[slot].following = -1
        if self.last >= 0:
            self.parts[self.last].following = slot
        else:
            self.first = slot
        self.last = slot

    cdef void unlink(self, int32_t slot) noexcept:
        cdef SessionPart* part = &self.parts[slot]
        if part.before >= 0:
            self.parts[part.before].following = part.following
        else:
            self.first = part.following
        if part.following >= 0:
            self.parts[part.following].before = part.before
        else:
            self.last = part.before

    cdef int begin_load(self, FetchParts request) except -1:
        """Make room in a request for a copy of all the session's parts, which replace its own."""
        cdef void* grown
        if request.part_capacity < self.part_count:
            grown = realloc(request.parts, <size_t>self.part_count * sizeof(FetchPart))
            if grown == NULL:
                raise MemoryError
            request.parts = <FetchPart*>grown
            request.part_capacity = self.part_count
        if self.refs is None:
            self.refs = tuple([(<SessionTopic>topic).ref for topic in self.topics.values()])
        request.topics = self.refs
        request.part_count = 0
        request.load_slot = self.first
        return 0

    cdef bint load(self, FetchParts request, int32_t count) noexcept:
        """Copy up to `count` more parts to a request. Return True when all are copied."""
        cdef int32_t slot = request.load_slot
        cdef int32_t end = min(self.part_count, request.part_count + count)
        cdef SessionPart* kept
        cdef FetchPart* part = request.parts + request.part_count
        cdef FetchPart* stop = request.parts + end
        while part != stop:
            kl_assert(slot >= 0)
            kept = &self.parts[slot]
            # examine() sets the other fields before they are read.
            part.topic = kept.topic
            part.first_of_topic = part.left_out = part.blocked = part.noted = False
            part.rounds = 0
            part.parts_of_topic = 1
            part.index = kept.index
            part.slot = slot
            part.offset = kept.offset
            part.size_max = kept.size_max
            part.current_leader_epoch = kept.current_leader_epoch
            part.last_fetched_epoch = kept.last_fetched_epoch
            part.replica_start = kept.replica_start
            part += 1
            slot = kept.following
        request.part_count = end
        request.load_slot = slot
        return end == self.part_count

    cdef void settle(self, FetchPart* parts, int32_t count) noexcept:
        """Mark the parts of a response that have not changed for the client, and store the new offsets."""
        cdef int32_t i
        cdef FetchPart* part
        cdef SessionPart* kept
        for i in range(count):
            part = &parts[i]
            kept = &self.parts[part.slot]
            part.left_out = (
                part.records_size == 0 and part.error == 0 and part.diverging_epoch < 0 and part.preferred < 0
                and part.high_watermark == kept.high_watermark and part.log_start_offset == kept.log_start_offset)
            # An error comes with -1 in both, so that the partition is answered again once it has passed.
            kept.high_watermark = part.high_watermark
            kept.log_start_offset = part.log_start_offset
            if part.records_size > 0:
                self.unlink(part.slot)
                self.append(part.slot)


@cython.final
cdef class FetchSessionCache:
    """The fetch sessions of a broker. Any thread.

    Each request works on a copy: `advance` copies the session's partitions to the request, and `settle` writes the
    result back. `settle` fails if a later request was accepted meanwhile, perhaps on another worker. A request that is
    served in turns does both in steps, and each step can fail like this.

    The number of sessions, their partitions in total and each client's memory are limited. A session above a limit is
    declined, or evicts another one (evictable).
    """

    def __cinit__(self, *, int slots_max, int partitions_max, int64_t eviction_ms, MemoryCeiling memory=None):
        """Create an empty cache. `memory` is the limit to which sessions are charged."""
        self.memory = memory
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError
        self.sessions = {}
        self.shares = Shares()
        self.partition_shares = Shares()
        self.slots_max = slots_max
        self.partitions_max = partitions_max
        self.eviction_s = <double>eviction_ms / 1000.0

    def __dealloc__(self):
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    def __len__(self):
        return len(self.sessions)

    def _set_epoch(self, int32_t session_id, int32_t epoch):
        """Set the epoch of the next request. For tests."""
        (<FetchSession?>self.sessions[session_id]).epoch = epoch

    cdef int acquire(self) except -1:
        if not PyThread_acquire_lock(self.lock, NOWAIT_LOCK):
            with nogil:
                PyThread_acquire_lock(self.lock, WAIT_LOCK)
        return 0

    cdef int release(self) except -1:
        """Release the lock. Large sessions that were removed under it are freed on the I/O pool."""
        cdef list removed = self.removed
        self.removed = None
        PyThread_release_lock(self.lock)
        if removed is not None:
            self.pool.submit(free_in_portions, removed)
        return 0

    cdef int32_t open(self, FetchParts request, double now) except -1:
        """Open a session with the partitions of an answered full fetch; return its id, or 0 if it is declined."""
        cdef FetchSession session
        self.acquire()
        try:
            session = self.new_session(request, now)
            if session is None or not session.take_parts(request, 0, request.part_count):
                return SESSION_NONE
            return self.publish(session, now)
        finally:
            self.release()

    cdef FetchSession begin_open(self, FetchParts request, double now):
        """Begin open() in turns: return a session that take_parts() fills without the lock; None if it is declined."""
        self.acquire()
        try:
            return self.new_session(request, now)
        finally:
            self.release()

    cdef FetchSession new_session(self, FetchParts request, double now):
        """Return an empty session that no client can use yet; None if it is declined. The caller holds the lock."""
        cdef FetchSession session
        holder = None if request.client_host is None else holder_of(request.principal, request.client_host)
        if not self.make_room(request.part_count, holder, request.privileged, now):
            return None
        if not request.privileged and not self.has_memory(None, holder, request.part_count):
            return None
        session = FetchSession.__new__(FetchSession)
        session.by_id, session.privileged = request.by_id, request.privileged
        session.listener, session.principal = request.listener, request.principal
        session.holder = holder
        return session

    cdef int32_t publish(self, FetchSession session, double now) except -1:
        """Give a session its id, so that requests find it. The caller holds the lock."""
        while session.id == SESSION_NONE or session.id in self.sessions:
            session.id = <int32_t>(int.from_bytes(urandom(4), "little") & 0x7FFFFFFF)
        session.created_at = now
        if self.memory is not None:
            session.charge = self.memory.of(session.holder).charge(SESSIONS, 0)
        self.sessions[session.id] = session
        self.shares.add(session.holder)
        self.enlist(session, now)
        return session.id

    cdef int32_t finish_open(self, FetchSession session, double now) except -1:
        """Publish a session that was filled without the lock; return 0 if its room was taken meanwhile."""
        self.acquire()
        try:
            if not self.make_room(session.part_count, session.holder, session.privileged, now):
                return SESSION_NONE
            if not session.privileged and not self.has_memory(None, session.holder, session.part_count):
                return SESSION_NONE
            return self.publish(session, now)
        finally:
            self.release()

    cdef bint has_memory(self, FetchSession session, object holder, int32_t part_count) except -1:
        """Return whether there is memory for a session of `part_count` partitions. `session` is None for a new one."""
        cdef int64_t size = session_size(part_count)
        if self.memory is None:
            return True
        if session is None:
            return self.memory.of(holder).admits(size, lasting=True)
        return session.charge.may_become(size, lasting=True)

    cdef int close(self, FetchParts request) except -1:
        """Close the request's session, if it belongs to this client."""
        cdef FetchSession session
        self.acquire()
        try:
            session = self.sessions.get(request.session_id)
            if session is not None and session.belongs_to(request):
                self.remove(session)
        finally:
            self.release()
        return 0

    cdef int advance(self, FetchParts request, list forgotten, double now) except -1:
        """Apply an incremental request to its session, and copy all the session's partitions to the request.

        Returns a Kafka error code. A session that has no partitions left is closed, and the request is served without
        one. For a request in turns this is only the first step; with a large session, the request begins to take turns.
        """
        cdef FetchSession session
        cdef int32_t i
        cdef bint kept = True
        self.acquire()
        try:
            session = self.sessions.get(request.session_id)
            if session is None or not session.belongs_to(request):
                return FETCH_SESSION_ID_NOT_FOUND
            if session.epoch != request.session_epoch:
                return INVALID_FETCH_SESSION_EPOCH
            if session.by_id != request.by_id:
                return FETCH_SESSION_TOPIC_ID_ERROR
            session.turn += 1
            request.session_turn = session.turn
            if request.takes_turns:
                request.session = session
                return 0
            for i in range(request.part_count):
                kept = kept and (request.parts[i].parts_of_topic == 0 or session.add(&request.parts[i]) >= 0)
            if forgotten is not None:
                for key, index in forgotten:
                    session.forget(key, index)
            return self.complete(session, request, kept, now)
        finally:
            self.release()

    cdef int complete(self, FetchSession session, FetchParts request, bint kept, double now) except -1:
        """Finish advance(), after the request's changes were made. The caller holds the lock.

        `kept`: all changes could be made. If not, the session is removed.
        """
        cdef int32_t grown = session.part_count - session.counted
        if grown > 0 and self.partition_count + grown > self.partitions_for(session.holder, grown, session.privileged):
            kept = False
        if grown > 0 and not session.privileged and not self.has_memory(session, None, session.part_count):
            kept = False
        self.unlink(session)
        self.enlist(session, now)
        if session.part_count == 0:
            self.remove(session)
            request.session = None
            return 0
        if not kept:
            # The client starts again with a full fetch, whose session is kept or declined like any other.
            self.remove(session)
            request.session = None
            return FETCH_SESSION_ID_NOT_FOUND
        session.epoch = next_epoch(session.epoch)
        request.session = session
        if session.part_count > FETCH_AT_ONCE:
            request.takes_turns = True
        if request.takes_turns:
            return 0
        session.begin_load(request)
        session.load(request, session.part_count)
        return 0

    cdef int add_some(self, FetchParts request, int32_t first, int32_t end) except -1:
        """Add some of a request's parts to its session, as a step in turns. Returns a Kafka error code."""
        cdef int32_t i
        cdef bint kept = True
        self.acquire()
        try:
            if request.session.turn != request.session_turn:
                return INVALID_FETCH_SESSION_EPOCH
            for i in range(first, end):
                kept = kept and (request.parts[i].parts_of_topic == 0 or request.session.add(&request.parts[i]) >= 0)
            return 0 if kept else FETCH_SESSION_ID_NOT_FOUND
        finally:
            self.release()

    cdef int forget_some(self, FetchParts request, list forgotten) except -1:
        """Remove some forgotten partitions from a request's session, as a step in turns. Returns a Kafka error code."""
        self.acquire()
        try:
            if request.session.turn != request.session_turn:
                return INVALID_FETCH_SESSION_EPOCH
            for key, index in forgotten:
                request.session.forget(key, index)
            return 0
        finally:
            self.release()

    cdef int finish_advance(self, FetchParts request, bint kept, double now) except -1:
        """Finish the changes of a session, as a step in turns. `kept`: all of them could be made."""
        cdef FetchSession session = request.session
        self.acquire()
        try:
            if session.turn != request.session_turn:
                return INVALID_FETCH_SESSION_EPOCH
            if self.sessions.get(session.id) is not session:
                return FETCH_SESSION_ID_NOT_FOUND
            return self.complete(session, request, kept, now)
        finally:
            self.release()

    cdef int load_some(self, FetchParts request, int32_t count) except -1:
        """Copy some of the session's parts to the request, as a step in turns. Returns a Kafka error code, or LOADED.

        The first call has `count` 0 and only makes room for the copy.
        """
        cdef FetchSession session = request.session
        self.acquire()
        try:
            if session.turn != request.session_turn:
                return INVALID_FETCH_SESSION_EPOCH
            if count == 0:
                # Of a session that was removed the topics may be freed by now; a begun copy keeps them.
                if self.sessions.get(session.id) is not session:
                    return FETCH_SESSION_ID_NOT_FOUND
                return session.begin_load(request)
            return LOADED if session.load(request, count) else 0
        finally:
            self.release()

    cdef bint settle(self, FetchParts request) except -1:
        """Write the response of an incremental fetch back. Return False if a later request was accepted meanwhile."""
        self.acquire()
        try:
            if request.session.turn != request.session_turn:
                return False
            request.session.settle(request.parts, request.part_count)
            return True
        finally:
            self.release()

    cdef int remove(self, FetchSession session) except -1:
        self.unlink(session)
        if session.part_count > FETCH_AT_ONCE and self.pool is not None:
            if self.removed is None:
                self.removed = []
            self.removed.append(session)
        del self.sessions[session.id]
        self.partition_count -= session.counted
        self.shares.remove(session.holder)
        self.partition_shares.remove(session.holder, session.counted)
        return 0

    cdef int32_t partitions_for(self, object holder, int32_t size, bint privileged) except -1:
        """Return the limit on partitions for a client that would add `size` more.

        The last tenth is for followers, and for clients with few partitions (`kafkalite.broker.limits.shares`). The
        limit on sessions has the same reserve.
        """
        return self.partitions_max if privileged else self.partition_shares.limit_for(holder, self.partitions_max, size)

    cdef int enlist(self, FetchSession session, double now) except -1:
        """Make a session the most recently used, and count its partitions."""
        session.used_at = now
        session.older = self.newest
        if self.newest is not None:
            self.newest.newer = session
        else:
            self.oldest = session
        self.newest = session
        if session.part_count != session.counted:
            self.partition_count += session.part_count - session.counted
            self.partition_shares.add(session.holder, session.part_count - session.counted)
            session.counted = session.part_count
        if session.charge is not None:
            session.charge.resize(session_size(session.counted))
        return 0

    cdef int unlink(self, FetchSession session) except -1:
        """Remove a session from the order of use."""
        if session.older is not None:
            session.older.newer = session.newer
        else:
            self.oldest = session.newer
        if session.newer is not None:
            session.newer.older = session.older
        else:
            self.newest = session.older
        session.older = session.newer = None
        return 0

    cdef bint make_room(self, int32_t size, object holder, bint privileged, double now) except -1:
        """Evict sessions until one of `size` partitions fits. Return False if the new session must be declined."""
        cdef FetchSession victim
        cdef int32_t slots_max = self.slots_max if privileged else self.shares.limit_for(holder, self.slots_max)
        cdef int32_t partitions_max = self.partitions_for(holder, size, privileged)
        if size > partitions_max:
            return False
        while len(self.sessions) >= slots_max or self.partition_count + size > partitions_max:
            victim = self.evictable(size, privileged, now)
            if victim is None:
                return False
            self.remove(victim)
            self.evicted_count += 1
        return True

    cdef FetchSession evictable(self, int32_t size, bint privileged, double now):
        """Return the session that a new one of `size` partitions may evict, or None.

        As in Kafka, this is the least recently used session, if it was idle for `eviction_ms`. Otherwise it is the
        smallest session that is smaller than the new one and older than `eviction_ms`. Consumers' sessions are evicted
        before followers', regardless of size and age.
        """
        cdef FetchSession session = self.oldest
        cdef FetchSession least = None
        if session is not None and now - session.used_at > self.eviction_s:
            return session
        while session is not None:
            if (privileged and not session.privileged) or session.used_at - session.created_at > self.eviction_s:
                if least is None or is_worth_less(session.privileged, session.counted, least.privileged, least.counted):
                    least = session
            session = session.newer
        if least is not None and is_worth_less(least.privileged, least.counted, privileged, size):
            return least
        return None


def free_in_portions(list sessions):
    """Free large sessions, releasing the GIL in between: a topic takes 0.3 µs."""
    cdef FetchSession session
    cdef SessionTopic topic
    cdef int _i
    while sessions:
        session = sessions[len(sessions) - 1]
        session.refs = None
        for _i in range(FREED_AT_ONCE):
            if not session.topics:
                break
            topic = session.topics.popitem()[1]
            if len(topic.slots) > FREED_AT_ONCE:
                break
        if not session.topics:
            sessions.pop()
        sleep(FREED_PAUSE_S)


cdef inline bint is_worth_less(bint one, int32_t one_size, bint other, int32_t other_size) noexcept nogil:
    """Return whether one session is evicted before another: consumers' before followers', then the smaller one."""
    return one_size < other_size if one == other else other


cdef inline int64_t session_size(int32_t part_count) noexcept nogil:
    return SESSION_SIZE + SESSION_PART_SIZE * <int64_t>part_count


cdef inline int32_t next_epoch(int32_t epoch) noexcept nogil:
    return <int32_t>(1 if epoch == INT32_MAX else epoch + 1)
