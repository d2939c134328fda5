"""Serve large Fetch requests a few partitions at a time. A request is large if it or its session has many partitions.

    1  parse the request, and apply it to its session
    2  examine all partitions
    3  if there are too few bytes, or if the I/O pool has to load something, park the request. Continue with step 2
       after an append, at the deadline, or when the pool is done
    4  update the session, and write the response
    5  free the memory

The steps are those of FetchPlan. The worker serves other connections in between. Later requests of the same connection
wait until the request is parked or answered.

Thread rule: only the owning worker.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.log.log_slice cimport LogSlice
from kafkalite._native.serve.counters cimport now_ns
from kafkalite._native.serve.fetch cimport (
    FETCH_BLOCKED, FETCH_READY, FETCH_SESSIONS_FROM, FetchPlan, outcome_of, share_out, shares,
)
from kafkalite._native.serve.fetch_session cimport (
    EPOCH_INITIAL, LOADED, SESSION_NONE, FetchSession, FetchSessionCache,
)
from kafkalite._native.serve.memory cimport FETCHES
from kafkalite._native.serve.transfer cimport OutBuffer
from kafkalite._native.serve.worker_parts cimport PORTION_NS_MAX
from kafkalite._native.wire.cursor cimport cursor_init
from kafkalite._native.wire.error_codes cimport FETCH_SESSION_ID_NOT_FOUND

from kafkalite._native.log.segment import SegmentUnreadable
from kafkalite._native.serve.fetch_session import free_in_portions
from kafkalite.broker.limits.collector import OLD_OBJECTS as _OLD_OBJECTS

cdef object OLD_OBJECTS = _OLD_OBJECTS

cdef enum:
    PARTS_PER_LOOK = 32         # served between two looks at the clock
    COPIED_PER_LOOK = 512       # the same of steps that only copy numbers

cdef object MORE = True         # yielded by the generator when it has used up its turn,
cdef object PARKED = False      # or when it waits to be woken


@cython.final
cdef class FetchRun:
    """A Fetch request that is served in turns, from its arrival until it is freed."""

    def __dealloc__(self):
        free(self.frame)

    cdef int begin(self) except -1:
        """Schedule the first turn. The connection is paused until the request is parked or answered."""
        self.plan.run = self
        self.plan.takes_turns = True
        self.plan.deadline = self.plan.now
        self.steps = self.work()
        self.holds = True
        return self.schedule()

    cdef int schedule(self) except -1:
        if not self.scheduled:
            self.scheduled = True
            OLD_OBJECTS.spare()
            self.io.long_runs.append(self)
        return 0

    def wake(self):
        """Schedule another examination; if the connection has ended, schedule the last step."""
        if self.steps is not None and (self.plan.done or not self.plan.blocked):
            self.schedule()

    @property
    def closed(self):
        """Whether the connection is closed."""
        return self.connection.closed

    def close(self):
        """Close the connection, after an error."""
        self.connection.close()

    def take_share(self):
        """Run steps until the turn is over."""
        cdef int64_t began = now_ns()
        cdef object state = None
        self.until = began + PORTION_NS_MAX
        self.plan.now = self.io.now
        try:
            state = next(self.steps, None)
        finally:
            self.io.loop_left_ns -= now_ns() - began
            if state is MORE:
                self.io.long_runs.append(self)
            elif state is PARKED:
                self.scheduled = False
                OLD_OBJECTS.resume()
            else:
                self.end()
        if self.holds and state is not MORE:
            self.holds = False
            self.connection.take_share()

    cdef int end(self) except -1:
        """Release everything, after the last step or an error."""
        cdef FetchPlan plan = self.plan
        if self.scheduled:
            self.scheduled = False
            OLD_OBJECTS.resume()
        self.steps = None
        plan.done = True
        plan.unlisten()
        plan.release_slices()
        plan.run = plan.topics = plan.logs = plan.aborted = plan.forgotten = plan.session = None
        plan.part_count = plan.part_capacity = 0
        free(plan.parts)
        plan.parts = NULL
        return 0

    def work(self):
        """Run all steps, as a generator that yields at the end of a turn. If the connection ends, only free() still
        runs."""
        cdef FetchPlan plan = self.plan
        cdef int result
        if self.body != NULL:
            yield from self.parse()
            if plan.session is not None and not plan.done:
                yield from self.join_session()
        if plan.session is not None and not plan.done:
            yield from self.load()
        plan.deadline = plan.now + <double>plan.wait_ms_max / 1000.0
        if self.bounded and not plan.privileged and not plan.done:
            plan.bound(self.meter, self.throttle_ms)
        while not plan.done:
            plan.posted = False
            plan.begin_evaluation()
            while plan.examined < plan.part_count and not plan.done:
                plan.examine_some(min(plan.part_count, plan.examined + PARTS_PER_LOOK))
                if now_ns() >= self.until:
                    yield MORE
            result = outcome_of(plan)
            if not plan.done and (result == FETCH_READY or result != FETCH_BLOCKED and plan.now >= plan.deadline):
                yield from self.answer()
            else:
                yield from self.wait(result)
        yield from self.free()

    def parse(self):
        """Parse the request. A malformed request closes the connection."""
        cdef FetchPlan plan = self.plan
        cdef bint good
        cursor_init(&self.cursor, self.body, self.size)
        good = plan.begin_topics(&self.cursor)
        while good and plan.topics_left > 0 and not plan.done:
            good = plan.parse_topics(&self.cursor, PARTS_PER_LOOK)
            if now_ns() >= self.until:
                yield MORE
        if good and plan.version >= FETCH_SESSIONS_FROM and not plan.done:
            good = plan.begin_forgotten(&self.cursor)
            while good and plan.topics_left > 0 and not plan.done:
                good = plan.parse_forgotten(&self.cursor, PARTS_PER_LOOK)
                if now_ns() >= self.until:
                    yield MORE
        if plan.done:
            return
        if not good or not plan.parse_end(&self.cursor):
            self.connection.close("malformed or over-limit Fetch v%d request", plan.version, client_id=self.client_id)
            return
        free(self.frame)
        self.frame = NULL
        plan.enter_session(None)

    def join_session(self):
        """Apply an incremental request to its session."""
        cdef FetchPlan plan = self.plan
        cdef FetchSessionCache sessions = plan.server.sessions
        cdef int32_t at = 0, end
        cdef int error = 0
        while at < plan.part_count and error == 0 and not plan.done:
            end = min(plan.part_count, at + PARTS_PER_LOOK)
            error = sessions.add_some(plan, at, end)
            at = end
            if now_ns() >= self.until:
                yield MORE
        while plan.forgotten and error == 0 and not plan.done:
            end = max(<int32_t>0, <int32_t>len(plan.forgotten) - PARTS_PER_LOOK)
            error = sessions.forget_some(plan, plan.forgotten[end:])
            del plan.forgotten[end:]
            if now_ns() >= self.until:
                yield MORE
        if plan.done:
            return
        if error == 0 or error == FETCH_SESSION_ID_NOT_FOUND:
            error = sessions.finish_advance(plan, error == 0, plan.now)
        if error != 0:
            self.leave_session(error)

    def load(self):
        """Replace the request's partitions with those of its session."""
        cdef FetchPlan plan = self.plan
        cdef FetchSessionCache sessions = plan.server.sessions
        cdef int error = sessions.load_some(plan, 0)
        while error == 0 and not plan.done:
            error = sessions.load_some(plan, COPIED_PER_LOOK)
            if now_ns() >= self.until:
                yield MORE
        if not plan.done and error != LOADED:
            self.leave_session(error)

    cdef int leave_session(self, int error) except -1:
        self.plan.session = None
        return self.plan.fail(error, SESSION_NONE)

    def wait(self, int result):
        """Park the request until its logs, its deadline or the I/O pool wake it."""
        cdef FetchPlan plan = self.plan
        cdef int32_t i, end = 0
        cdef bint listened = plan.listening
        cdef list work = []
        cdef LogCore log
        yield from self.free_slices()
        while end < plan.part_count and not plan.done and (result == FETCH_BLOCKED or not listened):
            i, end = end, min(plan.part_count, end + PARTS_PER_LOOK)
            if result == FETCH_BLOCKED:
                plan.collect_blocked(work, i, end)
            else:
                plan.listening = True
                for i in range(i, end):
                    log = plan.logs[i]
                    if log is not None:
                        log.add_listener(plan)
            if now_ns() >= self.until:
                yield MORE
        if plan.done:
            return
        if not self.timed:
            self.timed = True
            plan.answer.charge_waiting(FETCHES, plan.held_size())
            self.io.add_timer(plan, plan.deadline)
        if result == FETCH_BLOCKED:
            plan.blocked = True
            plan.server.pool.submit(plan.verify_on_pool, work)
        elif plan.posted or (plan.size + plan.advanced >= plan.size_min if listened else plan.changed()):
            return
        work = None
        yield PARKED

    def answer(self):
        """Update the session, and write the response."""
        cdef FetchPlan plan = self.plan
        cdef OutBuffer out = OutBuffer.__new__(OutBuffer)
        cdef list cuts = []
        cdef Py_ssize_t start
        cdef int32_t at = 0, end
        cdef bint copy, encoded = False
        while shares(plan) and at < plan.part_count and not plan.done:
            end = min(plan.part_count, at + PARTS_PER_LOOK)
            share_out(plan, at, end)
            at = end
            if now_ns() >= self.until:
                yield MORE
        if plan.done:
            return
        if plan.meter is not None:
            plan.claim(plan.answer.connection)
        if not plan.settled and plan.session is None and plan.session_epoch == EPOCH_INITIAL:
            plan.settled = True
            yield from self.open_session()
        plan.settle()
        copy = plan.size <= plan.server.copy_size_max
        while not encoded and not plan.done:
            try:
                cuts.clear()
                start = plan.begin_encoding(out)
                at = 0
                while at < plan.part_count and not plan.done:
                    end = min(plan.part_count, at + PARTS_PER_LOOK)
                    plan.encode_parts(out, start, at, end, copy, cuts)
                    at = end
                    if now_ns() >= self.until:
                        yield MORE
                plan.end_encoding(out, start)
                encoded = True
            except SegmentUnreadable:
                out.size = 0
                plan.drop_unreadable()
        if plan.done:
            return
        plan.hand_over(plan.answer, out, copy, cuts)
        plan.answer.announce()
        out = None
        yield MORE
        if plan.server.counters is not None:
            plan.count_parts(plan.server.counters)

    def open_session(self):
        """Open a session with the partitions of the response, if the limits allow it."""
        cdef FetchPlan plan = self.plan
        cdef FetchSessionCache sessions = plan.server.sessions
        cdef FetchSession session = sessions.begin_open(plan, plan.now)
        cdef int32_t at = 0, end
        if session is None:
            return
        while at < plan.part_count and not plan.done:
            end = min(plan.part_count, at + PARTS_PER_LOOK)
            if not session.take_parts(plan, at, end):
                break
            at = end
            if now_ns() >= self.until:
                yield MORE
        if at == plan.part_count and not plan.done:
            plan.session_answered = sessions.finish_open(session, plan.now)
        if plan.session_answered == SESSION_NONE:
            plan.server.pool.submit(free_in_portions, [session])

    def free_slices(self):
        """Release the pinned ranges of segments."""
        cdef FetchPlan plan = self.plan
        cdef LogSlice piece
        cdef int32_t begin
        while plan.slices:
            begin = max(<int32_t>0, <int32_t>len(plan.slices) - PARTS_PER_LOOK)
            for piece in plan.slices[begin:]:
                if piece is not None:
                    piece.release()
            del plan.slices[begin:]
            if now_ns() >= self.until:
                yield MORE
        plan.slices = None

    def free(self):
        """Free the large structures, in portions."""
        cdef FetchPlan plan = self.plan
        cdef int32_t i, end = 0
        cdef LogCore log
        cdef list rest
        yield from self.free_slices()
        while plan.listening and end < plan.part_count:
            i, end = end, min(plan.part_count, end + PARTS_PER_LOOK)
            for i in range(i, end):
                log = plan.logs[i]
                if log is not None:
                    log.remove_listener(plan)
            if now_ns() >= self.until:
                yield MORE
        plan.listening = False
        plan.part_count = 0                             # the partitions point to the topics
        for rest in (plan.aborted, plan.forgotten, plan.topics if type(plan.topics) is list else None):
            while rest:
                del rest[max(0, len(rest) - PARTS_PER_LOOK):]
                if now_ns() >= self.until:
                    yield MORE
