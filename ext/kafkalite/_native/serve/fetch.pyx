"""Serve Fetch: find whole batches, respond at once or wait for enough bytes, and send copies or file ranges.

A request is parsed and then evaluated:

- If there are enough bytes or an error, or if the max wait is 0, the response is sent.
- If there are too few bytes, the fetch is parked. It is evaluated again after an append, a deletion or its deadline.
- If bytes are not verified or producer state is not loaded, the I/O pool does that. Then the fetch is evaluated again.

Up to `copy_size_max` bytes of records are copied into the response. More are sent directly from the files.

fetch_session.pyx explains incremental fetches, leaders.pyx the choice of a read replica.

Thread rule: a FetchPlan belongs to its worker. Appending threads call `on_advance`, which only counts and posts.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.math cimport INFINITY
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint32_t

import logging

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.log.log_core cimport HAS_REPLICAS, LOOK_AGAIN, REPLICATED, LogCore
from kafkalite._native.log.log_slice cimport LogSlice
from kafkalite._native.log.producers cimport ProducerTable
from kafkalite._native.log.segment_read cimport READ_DEFER, ReadResult, end_offset_at
from kafkalite._native.serve.access cimport ACCESS_READ, AccessView, is_allowed
from kafkalite._native.serve.counters cimport KEY_OF_FETCH, RequestCounters
from kafkalite._native.serve.fair_share cimport SHARE_RECORDS, share_of, shared_max
from kafkalite._native.serve.fetch_session cimport (
    EPOCH_FINAL, EPOCH_INITIAL, FETCH_AT_ONCE, LEADER_TOLD, SESSION_NONE, FetchPart, FetchParts, FetchSessionCache,
)
from kafkalite._native.serve.follower_fetch cimport diverges, is_held_back, limited_size, read_for, refusal_of
from kafkalite._native.serve.leaders cimport FETCH_LEADER_TAG, FETCH_LEADERS_FROM
from kafkalite._native.serve.memory cimport PARKED_SIZE
from kafkalite._native.serve.request_parts cimport add_part, put_topic, read_topic
from kafkalite._native.serve.quota cimport Meter
from kafkalite._native.serve.topic_table cimport Topic, TopicRef, TopicTable
from kafkalite._native.serve.transfer cimport Answer, Mailbox, OutBuffer, copy_records, frame_length
from kafkalite._native.wire.cursor cimport (
    Cursor, cursor_init, load_i32, load_i64, read_compact_count, read_count, read_i8, read_i32, read_i64, read_raw,
    read_string, read_uvarint, skip_tags, store_i32,
)
from kafkalite._native.wire.error_codes cimport (
    FENCED_LEADER_EPOCH,
    INVALID_FETCH_SESSION_EPOCH,
    KAFKA_STORAGE_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkalite._native.wire.status cimport OK

from kafkalite._native.log.segment import SegmentUnreadable

from kafkalite.base.logging import RepeatLogger

cdef object logger = RepeatLogger(logging.getLogger("kafkalite.fetch"))

# `..._FROM` is the version that introduced a field. kafkalite/broker/handlers/table.py has the supported versions.
cdef enum:
    RECORDS_SIZE_MAX = 1 << 30          # of a response, with any settings: a frame's length has 31 bits
    TOPIC_IDS_FROM = 13
    RACKS_FROM = 11
    REPLICA_STATE_FROM = 15     # the replica's id and epoch, in a tag that only followers send
    REPLICA_STATE_TAG = 1
    PARTS_AT_FIRST = 4
    PARTITION_SIZE_MIN = 16     # index, offset and size limit, which every version has
    TOPIC_SIZE_MIN = 2
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    LOAD_ROUNDS_MAX = 3         # attempts to load a log's producer state
    PART_OBJECTS_SIZE = 160     # bytes that lists and the log's listeners take for a partition
    BLOCKED_MAX = FETCH_AT_ONCE  # most partitions that the I/O pool gets at a time
    ROUNDS_MAX = 100            # rounds on the I/O pool before a partition's storage is taken as broken


@cython.final
cdef class FetchServer:
    """The state that all fetches of a worker share."""

    def __cinit__(self, TopicTable table not None, OutBuffer out not None, Mailbox mailbox not None, pool,
                  FetchSessionCache sessions not None, *, int partitions_max, int response_size_max,
                  Py_ssize_t copy_size_max):
        self.table = table
        self.out = out
        self.mailbox = mailbox
        self.pool = pool
        self.sessions = sessions
        self.partitions_max = partitions_max
        self.response_size_max = min(response_size_max, <int32_t>RECORDS_SIZE_MAX)
        self.copy_size_max = copy_size_max
        sessions.pool = pool

    cdef FetchPlan parse(self, int16_t version, int32_t correlation_id, const unsigned char* body, Py_ssize_t size,
                         double now, object listener, object principal, AccessView access):
        """Parse a request; return its plan, or None if it violates its schema or a limit."""
        cdef FetchPlan plan = self.new_plan(version, correlation_id, now, listener, principal, access)
        if not plan.parse_body(body, size):
            return None
        return plan

    cdef FetchPlan new_plan(self, int16_t version, int32_t correlation_id, double now, object listener,
                            object principal, AccessView access):
        """Return a plan whose request is not parsed yet."""
        cdef FetchPlan plan = FetchPlan.__new__(FetchPlan)
        plan.server = self
        plan.version = version
        plan.correlation_id = correlation_id
        plan.by_id = version >= TOPIC_IDS_FROM
        plan.now = now
        plan.listener, plan.principal = listener, principal
        plan.access = access
        plan.fd = -1
        plan.shared_max = -1
        return plan


@cython.final
cdef class FetchPlan(FetchParts):
    """One Fetch request, from parsing to its response."""

    cdef FetchPart* next_part(self) except NULL:
        return <FetchPart*>add_part(<void**>&self.parts, &self.part_count, &self.part_capacity, PARTS_AT_FIRST,
                                    sizeof(FetchPart))

    cdef int parse_body(self, const unsigned char* body, Py_ssize_t size) except -1:
        """Parse the request. Return 0 if it violates its schema or a limit."""
        cdef Cursor c
        cursor_init(&c, body, size)
        if not self.begin_topics(&c) or not self.parse_topics(&c, INT32_MAX):
            return 0
        if self.version >= FETCH_SESSIONS_FROM:
            if not self.begin_forgotten(&c):
                return 0
            if self.topics_left > 0 and not self.parse_forgotten(&c, INT32_MAX):
                return 0
        if not self.parse_end(&c):
            return 0
        self.enter_session(self.forgotten)
        return 1

    cdef inline bint begin_topics(self, Cursor* c) except -1:
        """Parse the request up to its topics; parse_topics() continues. Return False if it violates its schema."""
        cdef bint flexible = self.version >= FETCH_FLEXIBLE_FROM
        self.asker.epoch = -1
        self.replica_id = -1  # a single-node broker has no followers, but a client may claim to be one
        if self.version < REPLICA_STATE_FROM:
            self.replica_id = read_i32(c)
        self.wait_ms_max = read_i32(c)
        self.size_min = read_i32(c)
        self.size_max = read_i32(c)
        self.isolation = read_i8(c)
        self.session_epoch = EPOCH_FINAL
        if self.version >= FETCH_SESSIONS_FROM:
            self.session_id = read_i32(c)
            self.session_epoch = read_i32(c)
        self.topics = []
        self.topic_count = read_compact_count(c, TOPIC_SIZE_MIN) if flexible else read_count(c, TOPIC_SIZE_MIN)
        self.topics_left = self.topic_count
        return c.status == OK and self.topic_count >= 0

    cdef inline bint parse_end(self, Cursor* c) except -1:
        """Parse the fields after the topics. Return False if they violate the schema."""
        cdef bint flexible = self.version >= FETCH_FLEXIBLE_FROM
        cdef const unsigned char* rack
        cdef Py_ssize_t rack_size
        if self.version >= RACKS_FROM:
            rack = read_string(c, flexible, &rack_size)
            if rack_size > 0 and self.server.leaders is not None and self.server.leaders.by_rack:
                self.rack = PyBytes_FromStringAndSize(<const char*>rack, rack_size)
        if flexible:
            read_request_tags(c, &self.replica_id, &self.asker.epoch)
        self.asker.replica_id = self.replica_id
        if (self.replica_id >= 0 and self.server.leaders is not None
                and (self.access is None or self.access.allows_following())):
            self.privileged = True
            self.isolation = READ_UNCOMMITTED
        if c.status != OK:                              # bytes after the request are ignored, as in Kafka
            return False
        self.size_max = min(self.size_max, self.server.response_size_max)
        self.size_min = min(self.size_min, self.size_max)
        return True

    cdef bint parse_topics(self, Cursor* c, int32_t items_max) except -1:
        """Parse up to `items_max` more topics and partitions. Return False if they violate the schema or a limit."""
        cdef bint flexible = self.version >= FETCH_FLEXIBLE_FROM
        cdef const unsigned char* key
        cdef Py_ssize_t key_size
        cdef int32_t j, count, end
        cdef list topics = self.topics
        cdef TopicRef topic
        cdef FetchPart* part
        while self.topics_left > 0 and items_max > 0:
            items_max -= 1
            if self.parts_left == 0:
                key = read_topic(c, self.by_id, flexible, &key_size)
                count = read_compact_count(c, PARTITION_SIZE_MIN) if flexible else read_count(c, PARTITION_SIZE_MIN)
                if c.status != OK or key_size < 0 or count < 0:
                    return False
                if self.part_count + max(<int32_t>1, count) > self.server.partitions_max:
                    return False
                topic = TopicRef.new(key, key_size, self.by_id)
                topics.append(topic)
                self.parts_left = self.parts_of_topic = count
                if count == 0:
                    part = self.next_part()
                    part.topic, part.first_of_topic = <PyObject*>topic, True
            else:
                topic = topics[len(topics) - 1]
                count = self.parts_of_topic
            end = count - self.parts_left + min(self.parts_left, items_max)
            for j in range(count - self.parts_left, end):
                part = self.next_part()
                part.topic = <PyObject*>topic
                part.first_of_topic = j == 0
                part.parts_of_topic = count
                part.index = read_i32(c)
                part.current_leader_epoch = read_i32(c) if self.version >= 9 else -1
                part.offset = read_i64(c)
                part.last_fetched_epoch = read_i32(c) if self.version >= 12 else -1
                if self.version >= 5:
                    part.replica_start = read_i64(c)
                part.size_max = read_i32(c)
                if flexible:
                    skip_tags(c)                        # a follower's directory id and high watermark
                if c.status != OK:
                    return False
            items_max -= end - count + self.parts_left
            self.parts_left = count - end
            if self.parts_left == 0:
                self.topics_left -= 1
                if flexible:
                    skip_tags(c)
        return c.status == OK

    cdef inline bint begin_forgotten(self, Cursor* c) noexcept:
        """Parse the number of topics to forget; parse_forgotten() continues. Return False if it exceeds the limit."""
        self.topics_left = max(<int32_t>0, read_compact_count(c, TOPIC_SIZE_MIN)
                               if self.version >= FETCH_FLEXIBLE_FROM else read_count(c, TOPIC_SIZE_MIN))
        return c.status == OK and self.topics_left <= self.server.partitions_max

    cdef bint parse_forgotten(self, Cursor* c, int32_t items_max) except -1:
        """Parse up to `items_max` topics and partitions into `forgotten`, as (topic key, partition).

        Returns False if they violate the schema or a limit.
        """
        cdef bint flexible = self.version >= FETCH_FLEXIBLE_FROM
        cdef int32_t _i, count
        cdef const unsigned char* key
        cdef Py_ssize_t key_size
        if self.forgotten is None:
            self.forgotten = []
        while self.topics_left > 0 and items_max > 0:
            items_max -= 1
            if self.parts_left == 0:
                key = read_topic(c, self.by_id, flexible, &key_size)
                count = read_compact_count(c, 4) if flexible else read_count(c, 4)
                if c.status != OK:
                    return False
                if self.session_id != SESSION_NONE and count > 0 and key_size >= 0:
                    if len(self.forgotten) + count > self.server.partitions_max:
                        return False
                    self.forgetting = PyBytes_FromStringAndSize(<const char*>key, key_size)
                    self.parts_left = count
                else:
                    read_raw(c, <Py_ssize_t>max(count, 0) * 4)
            count = min(self.parts_left, items_max)
            for _i in range(count):
                self.forgotten.append((self.forgetting, read_i32(c)))
            items_max -= count
            self.parts_left -= count
            if self.parts_left == 0:
                self.topics_left -= 1
                if flexible:
                    skip_tags(c)
        return c.status == OK

    cdef int enter_session(self, list forgotten) except -1:
        """Apply the request's session fields: close the session, or apply this request to it."""
        cdef FetchSessionCache sessions = self.server.sessions
        cdef int error
        if self.session_epoch == EPOCH_INITIAL or self.session_epoch == EPOCH_FINAL:
            if self.session_id != SESSION_NONE:
                sessions.close(self)
            return 0
        error = sessions.advance(self, forgotten, self.now)
        if error != 0:
            self.fail(error, SESSION_NONE)
        return 0

    cdef int fail(self, int error, int32_t session_id) except -1:
        """Respond with this error and no partitions."""
        self.release_slices()
        self.error = <int16_t>error
        self.session_answered = session_id
        self.part_count = self.topic_count = 0
        self.size = 0
        self.settled = True
        return 0

    cdef int settle(self) except -1:
        """Update the session for the response that follows an evaluation. Runs once."""
        if self.settled:
            return 0
        self.settled = True
        if self.session is not None:
            if not self.server.sessions.settle(self):
                return self.fail(INVALID_FETCH_SESSION_EPOCH, self.session_id)
            self.session_answered = self.session_id
            self.regroup()
        elif self.session_epoch == EPOCH_INITIAL:
            self.session_answered = self.server.sessions.open(self, self.now)
        return 0

    cdef int bound(self, Meter meter, int32_t throttle_ms) except -1:
        """Apply the client's quota: limit the response to what a window allows, and send no records during a
        throttle."""
        self.meter = meter
        if meter is not None:
            self.size_max = <int32_t>max(1.0, min(<double>self.size_max, meter.burst))
            self.size_min = min(self.size_min, self.size_max)
        return self.withhold(throttle_ms) if throttle_ms > 0 else 0

    cdef int withhold(self, int32_t throttle_ms) except -1:
        """Respond without records and with this throttle time. An existing session continues (KIP-219)."""
        self.throttle_ms = throttle_ms
        if self.error != 0:
            return 0
        return self.fail(0, SESSION_NONE if self.session is None else self.session_id)

    cdef int regroup(self) noexcept:
        """Group the parts in the response by topic. A topic may occur more than once."""
        cdef FetchPart* head = NULL
        cdef FetchPart* part
        cdef int32_t i
        self.topic_count = 0
        for i in range(self.part_count):
            part = &self.parts[i]
            if part.left_out:
                continue
            part.first_of_topic = head == NULL or head.topic != part.topic
            if part.first_of_topic:
                head = part
                head.parts_of_topic = 1
                self.topic_count += 1
            else:
                head.parts_of_topic += 1
        return 0

    cdef int evaluate(self) except -1:
        """Examine all partitions in the order of the request (KIP-74); return a FetchResult. FETCH_READY keeps
        slices."""
        cdef int result
        self.begin_evaluation()
        self.examine_some(self.part_count)
        result = outcome_of(self)
        if result == FETCH_BLOCKED:
            self.release_slices()
        elif result == FETCH_READY and shares(self):
            share_out(self, 0, self.part_count)
        return result

    cdef inline int begin_evaluation(self) except -1:
        self.examined = 0
        self.failed = self.error != 0
        self.blocking = 0
        self.left = self.size_max
        self.size = self.converted_size = 0
        self.advanced = 0
        self.asker.now = self.now
        if self.access is not None:
            self.readable = None
            if self.replica_id >= 0:
                self.follows = self.access.allows_following()
        if self.logs is None:
            self.logs = [None] * self.part_count
        self.slices = [None] * self.part_count
        self.aborted = [None] * self.part_count if self.isolation == READ_COMMITTED else None
        return 0

    cdef inline int examine_some(self, int32_t end) except -1:
        """Examine the parts before `end`, or fewer if they give the I/O pool enough work."""
        cdef int32_t i
        cdef FetchPart* part
        cdef bint failed = self.failed
        for i in range(self.examined, end):
            part = &self.parts[i]
            if part.parts_of_topic == 0:
                continue
            part.blocked = self.examine(part, i, self.left - self.size) == FETCH_BLOCKED
            if part.blocked:
                # Continue, so that the I/O pool gets all parts at once, but not more bytes than the response may have.
                # Only logs with producer state count for that; the others just have it loaded in this round.
                part.rounds += 1
                self.blocking += 1
                if part.last_stable_offset >= 0:
                    self.left -= max(0, part.size_max)
                if part.last_stable_offset >= 0 and self.left <= self.size or self.blocking >= BLOCKED_MAX:
                    end = self.part_count
                    break
                continue
            part.rounds = 0
            failed = failed or part.error != 0 or part.diverging_epoch >= 0 or part.preferred >= 0
        self.failed = failed
        self.examined = end
        return 0

    cdef int examine(self, FetchPart* part, int32_t i, int64_t size_left) except -1:
        """Find the records and offsets of one partition for the response. Return FETCH_READY or FETCH_BLOCKED.

        With read_committed, only records below the last stable offset are found, with the aborted transactions among
        them. This offset requires the log's producer state, which is therefore loaded before the first response.
        """
        cdef TopicRef wanted = <TopicRef>part.topic
        cdef Topic topic = wanted.resolve(self.server.table)
        cdef LogCore log
        cdef LogSlice piece
        cdef ReadResult found
        cdef ProducerTable producers
        cdef int64_t upper
        cdef bint shut
        part.error = 0
        part.records_size = 0
        part.diverging_epoch = part.preferred = -1
        part.high_watermark = part.last_stable_offset = part.log_start_offset = -1
        if self.access is not None and (topic is None or topic is not self.readable):
            part.error = self.refusal(wanted, topic, part.index)
            if part.error != 0:
                return FETCH_READY
        if topic is None or part.index < 0 or part.index >= len(<tuple>topic.cores):
            part.error = wanted.error_of(part.index)
            return FETCH_READY
        log = <LogCore>(<tuple>topic.cores)[part.index]
        if self.logs[i] is not log:
            self.watch(i, log)
        if part.current_leader_epoch >= 0 and part.current_leader_epoch != log.leader_epoch:
            part.error = (FENCED_LEADER_EPOCH if part.current_leader_epoch < log.leader_epoch
                          else UNKNOWN_LEADER_EPOCH)
            if not log.led and len(log.segments) == 0:
                part.error = NOT_LEADER_OR_FOLLOWER         # no replica is here
            self.note_leader(part, log)
            return FETCH_READY
        if self.privileged:
            part.error = refusal_of(log, part, &self.asker)
            if part.error != 0:
                return FETCH_READY
        shut = log.shut and not self.may_read_copy(log)
        if (part.last_fetched_epoch >= 0 and not shut and diverges(log, part, self.asker.replica_id)
                and part.error != 0):
            return FETCH_READY
        producers = log.producers  # another thread may truncate the log during the read, and drop them
        if producers is None and not log.offline and not shut:
            if part.rounds < LOAD_ROUNDS_MAX:
                return FETCH_BLOCKED
            part.error = KAFKA_STORAGE_ERROR
            return FETCH_READY
        part.high_watermark = log.high_watermark
        part.last_stable_offset = min(log.last_stable_offset, part.high_watermark)
        part.log_start_offset = log.log_start_offset
        if self.rack is not None and not log.shut and self.replica_id < 0:
            part.preferred = self.server.leaders.preferred(log, self.rack, part.offset, self.listener)
        if part.diverging_epoch >= 0 or part.preferred >= 0:
            return FETCH_READY
        upper = part.last_stable_offset if self.isolation == READ_COMMITTED else part.high_watermark
        size_left = max(0, min(<int64_t>part.size_max, size_left))
        if log.format.positional:
            return self.examine_classic(part, i, log, part.high_watermark, size_left)
        if self.privileged:
            piece = read_for(log, part, &self.asker, size_left, self.size == 0, &found)
        elif part.offset == log.log_end_offset and not log.shut and not log.offline:
            return FETCH_READY                              # most partitions of most fetches have nothing new
        else:
            piece = log.read_slice(part.offset, size_left, self.size == 0, upper, &found, not shut)
        if found.outcome == READ_DEFER:
            if part.rounds < ROUNDS_MAX:
                return FETCH_BLOCKED
            found.error = KAFKA_STORAGE_ERROR
        if found.error != 0:
            part.error = found.error
            self.note_leader(part, log)
            part.high_watermark = part.last_stable_offset = part.log_start_offset = -1
        elif piece is not None and self.privileged and is_held_back(
                log, self.replica_id, self.server.limit, self.now):
            piece.release()
        elif piece is not None:
            self.slices[i] = piece
            part.records_size = piece.size
            self.size += piece.size
            if self.aborted is not None and producers.aborted.count > 0:
                self.aborted[i] = producers.aborted.overlapping(
                    part.offset, end_offset_at(piece.segment, piece.position, piece.position + piece.size))
                if piece.segment.has_fault() or piece.segment.index.has_fault():
                    log.after_fault(piece.segment, &found)
                    self.drop_part(i)
                    if found.outcome == READ_DEFER and part.rounds < ROUNDS_MAX:
                        return FETCH_BLOCKED
        return FETCH_READY

    cdef bint may_read_copy(self, LogCore log) noexcept:
        """Return whether a consumer may read a log of which this broker is a follower. This needs version 11. The
        consumer reads up to the high watermark that this follower knows."""
        return (self.replica_id < 0 and self.version >= RACKS_FROM and not log.led and not log.deleted
                and len(log.segments) > 0)

    cdef int note_leader(self, FetchPart* part, LogCore log) noexcept:
        """Name the current leader in a part that was refused because another broker leads. Since version 16."""
        if self.server.leaders is None or self.version < FETCH_LEADERS_FROM:
            return 0
        if part.error == NOT_LEADER_OR_FOLLOWER or part.error == FENCED_LEADER_EPOCH:
            part.diverging_epoch = LEADER_TOLD
            self.tells_leaders = self.tells_leaders or self.replica_id < 0      # followers know the brokers' addresses
        return 0

    cdef int put_endpoints(self, OutBuffer out) except -1:
        """Write the addresses of the leaders that the parts name."""
        cdef set nodes = set()
        cdef int32_t i
        for i in range(self.part_count):
            if self.parts[i].diverging_epoch == LEADER_TOLD and not self.parts[i].left_out:
                nodes.add((<LogCore>self.logs[i]).leader_id)
        return self.server.leaders.put_endpoints(out, self.listener, nodes)

    cdef int refusal(self, TopicRef wanted, Topic topic, int32_t index) except -1:
        """Return the error if the client may not read a partition now, else 0.

        A missing topic gives 0 if the client may know that it is missing. Each evaluation of a parked fetch checks
        again, because the ACLs may have changed since.
        """
        if self.replica_id >= 0:
            if not self.follows:
                return TOPIC_AUTHORIZATION_FAILED
            if self.privileged:
                return 0
            # It may fetch as a replica but not read, and has no followed replica, or got that permission only since.
            return NOT_LEADER_OR_FOLLOWER if topic is not None and 0 <= index < len(<tuple>topic.cores) else 0
        if topic is None:
            if wanted.by_id or self.access.allows_name(ACCESS_READ, wanted.key, self.now):
                return 0                                # no permission applies to an unknown id
            return TOPIC_AUTHORIZATION_FAILED
        if not is_allowed(self.access, ACCESS_READ, topic) and not self.access.allows(ACCESS_READ, topic, self.now):
            return TOPIC_AUTHORIZATION_FAILED
        self.readable = topic
        return 0

    cdef int examine_classic(self, FetchPart* part, int32_t i, LogCore log, int64_t upper, int64_t size_left) except -1:
        """Examine a part of a topic in Kafka 0.7's format, whose messages the I/O pool converts to batches."""
        cdef bytes batches
        cdef tuple made = None if self.converted is None else self.converted.get(i)
        cdef int error = 0
        part.last_stable_offset = upper
        if log.deleted:
            error = UNKNOWN_TOPIC_OR_PARTITION
        elif log.offline:
            error = KAFKA_STORAGE_ERROR
        elif part.offset < log.log_start_offset or part.offset > upper:
            error = OFFSET_OUT_OF_RANGE
        elif part.offset == upper:
            return FETCH_READY
        elif made is None or made[0] != part.offset or (made[1] != upper and not made[3] and made[2] == 0):
            return FETCH_BLOCKED                        # not converted yet, or it was empty then and is not now
        else:
            error = made[2]
        if error != 0:
            part.error = error
            part.high_watermark = part.last_stable_offset = part.log_start_offset = -1
            return FETCH_READY
        batches = made[3]
        if batches and (self.size == 0 or len(batches) <= size_left):
            part.records_size = len(batches)
            self.size += part.records_size
            self.converted_size += part.records_size
        return FETCH_READY

    cdef int watch(self, int32_t i, LogCore log) except -1:
        """Set a part's log: found now, or replaced because its topic was deleted and recreated."""
        cdef LogCore before = self.logs[i]
        self.logs[i] = log
        if self.listening:
            if before is not None:
                before.remove_listener(self)
            log.add_listener(self)
        return 0

    cdef inline Py_ssize_t begin_encoding(self, OutBuffer out) except -1:
        """Write the response up to its topics; return where its frame begins."""
        cdef bint flexible = self.version >= FETCH_FLEXIBLE_FROM
        cdef Py_ssize_t start = out.begin_frame(self.correlation_id, flexible)
        self.topic_begun = False
        out.put_i32(self.throttle_ms)
        if self.version >= FETCH_SESSIONS_FROM:
            out.put_i16(self.error)
            out.put_i32(self.session_answered)
        out.put_array_size(self.topic_count, flexible)
        return start

    cdef inline int encode_parts(self, OutBuffer out, Py_ssize_t start, int32_t begin, int32_t end, bint copy,
                                 list cuts) except -1:
        """Write partitions `begin` to `end`, with their records if `copy`. Otherwise add the place of each file range
        to `cuts`."""
        cdef bint flexible = self.version >= FETCH_FLEXIBLE_FROM
        cdef FetchPart* part
        cdef TopicRef topic
        cdef LogSlice piece
        cdef bytes batches
        cdef int32_t i
        for i in range(begin, end):
            part = &self.parts[i]
            if part.left_out:
                continue
            if part.first_of_topic:
                if flexible and self.topic_begun:
                    out.put_i8(0)                       # tags of the previous topic
                self.topic_begun = True
                topic = <TopicRef>part.topic
                put_topic(out, <const unsigned char*>PyBytes_AS_STRING(topic.key), PyBytes_GET_SIZE(topic.key),
                          topic.by_id, flexible)
                out.put_array_size(part.parts_of_topic, flexible)
            if part.parts_of_topic == 0:
                continue
            encode_part_head(out, self.version, part)
            encode_aborted(out, self.version, self.aborted is not None, self.aborted[i] if self.aborted else None,
                           part.preferred)
            kl_assert(part.records_size < INT32_MAX)
            if flexible:
                out.put_uvarint(<unsigned int>(part.records_size + 1))
            else:
                out.put_i32(<int32_t>part.records_size)
            if part.records_size > 0:
                piece = self.slices[i]
                if piece is None:
                    batches = self.converted[i][3]
                    out.put(<const unsigned char*>PyBytes_AS_STRING(batches), PyBytes_GET_SIZE(batches))
                elif copy:
                    copy_records(out, piece)
                else:
                    cuts.append(out.size - start)
            if flexible:
                if part.diverging_epoch == LEADER_TOLD:
                    self.server.leaders.put_leader(out, FETCH_LEADER_TAG, <LogCore>self.logs[i])
                else:
                    encode_part_tags(out, part)
        return 0

    cdef inline int end_encoding(self, OutBuffer out, Py_ssize_t start) except -1:
        if self.version >= FETCH_FLEXIBLE_FROM:
            if self.topic_begun:
                out.put_i8(0)
            if self.tells_leaders:
                self.put_endpoints(out)
            else:
                out.put_i8(0)
        out.end_frame(start)
        return 0

    cdef int encode_readable(self, OutBuffer out, bint copy, list cuts) except -1:
        """Write the response frame.

        If a file is unreadable, its log goes offline, and the frame is written again with errors for its partitions.
        """
        cdef Py_ssize_t start = out.size
        while True:
            try:
                self.begin_encoding(out)
                self.encode_parts(out, start, 0, self.part_count, copy, cuts)
                return self.end_encoding(out, start)
            except SegmentUnreadable:
                out.size = start
                self.drop_unreadable()

    cdef int count_parts(self, RequestCounters counters) except -1:
        """Count the parts of the response, by log and by error code."""
        cdef int32_t i
        cdef FetchPart* part
        cdef LogCore log
        if self.error != 0:
            counters.note_error(KEY_OF_FETCH, self.error)
        for i in range(self.part_count):
            part = &self.parts[i]
            if part.parts_of_topic == 0 or part.left_out:
                continue
            counters.note_error(KEY_OF_FETCH, part.error)
            log = self.logs[i]
            if log is not None and not self.privileged:
                log.traffic.fetches += 1
                log.traffic.fetches_failed += part.error != 0
                log.traffic.bytes_out += part.records_size
                log.traffic.conversions += log.format.positional and part.records_size > 0
        return 0

    cdef int count_limited(self) noexcept:
        """Charge a follower's response to the leader's replication limit, as far as its partitions are throttled."""
        cdef int32_t i
        cdef int64_t size = 0
        for i in range(self.part_count):
            size += limited_size(&self.parts[i], <LogCore>self.logs[i])
        if size > 0:
            self.server.limit.take(<double>size, self.now)
        return 0

    cdef int drop_unreadable(self) except -1:
        """Replace the parts whose file is unreadable by errors."""
        cdef int32_t i
        cdef LogSlice piece
        for i in range(self.part_count):
            piece = self.slices[i]
            if piece is not None and piece.segment.has_fault():
                self.drop_part(i)
        return 0

    cdef int drop_part(self, int32_t i) except -1:
        """Replace one part by an error."""
        cdef FetchPart* part = &self.parts[i]
        cdef LogSlice piece = self.slices[i]
        self.size -= piece.size
        self.slices[i] = None
        piece.release()
        part.records_size = 0
        part.error = KAFKA_STORAGE_ERROR
        part.high_watermark = part.last_stable_offset = part.log_start_offset = -1
        if self.aborted is not None:
            self.aborted[i] = None
        return 0

    cdef int answer_into(self, OutBuffer out, object connection) except -1:
        """Write a small response into the connection's `out`, with copied records."""
        cdef Py_ssize_t start = out.size
        if self.meter is not None:
            self.claim(connection)
        self.settle()
        try:
            self.encode_readable(out, True, None)
        finally:
            self.release_slices()
        self.done = True
        if self.privileged and self.server.limit.limit != INFINITY:
            self.count_limited()
        if self.meter is not None:
            self.meter.take(<double>(out.size - start) - self.claimed, self.now)
        if self.server.counters is not None:
            self.count_parts(self.server.counters)
        return 0

    cdef int fill(self, Answer answer) except -1:
        """Give `answer` the evaluated response."""
        cdef OutBuffer out = OutBuffer.__new__(OutBuffer)
        cdef list cuts = []
        cdef bint copy
        if self.meter is not None:
            self.claim(answer.connection)
        self.settle()
        copy = self.size <= self.server.copy_size_max
        try:
            self.encode_readable(out, copy, cuts)
            self.hand_over(answer, out, copy, cuts)
        finally:
            self.release_slices()
        if self.server.counters is not None:
            self.count_parts(self.server.counters)
        return 0

    cdef inline int hand_over(self, Answer answer, OutBuffer out, bint copy, list cuts) except -1:
        """Give `answer` the encoded response, with the slices whose records were not copied."""
        cdef list slices = None
        if not copy:
            slices = [piece for piece in self.slices if piece is not None]
            self.slices = None
        if slices:
            store_i32(out.data, frame_length(out.size + self.size - self.converted_size - 4))
        answer.fill(PyBytes_FromStringAndSize(<const char*>out.data, out.size), slices, cuts)
        self.done = True
        if self.privileged and self.server.limit.limit != INFINITY:
            self.count_limited()
        if self.meter is not None:
            self.meter.take(<double>answer.size - self.claimed, self.now)
        return 0

    cdef int64_t held_size(self) noexcept:
        """Return the approximate size in bytes of the parked plan."""
        return PARKED_SIZE + self.part_capacity * <int64_t>(sizeof(FetchPart) + PART_OBJECTS_SIZE)

    cdef int listen(self) except -1:
        cdef LogCore log
        if not self.listening:
            self.listening = True
            for log in self.logs:
                if log is not None:
                    log.add_listener(self)
        return 0

    cdef int unlisten(self) except -1:
        cdef LogCore log
        if self.listening:
            self.listening = False
            for log in self.logs:
                if log is not None:
                    log.remove_listener(self)
        return 0

    cdef int release_slices(self) except -1:
        cdef LogSlice piece
        if self.slices is not None:
            for piece in self.slices:
                if piece is not None:
                    piece.release()
            self.slices = None
        return 0

    cdef int on_advance(self, LogCore log, int64_t appended_bytes) except -1:
        """Wake the worker, once, if there are enough new bytes or a change to examine. The appending thread calls
        this."""
        if log.after_write & HAS_REPLICAS:
            if self.privileged:
                if appended_bytes == REPLICATED:
                    return 0  # it reads to the log's end, and learns the high watermark with its next fetch
            elif appended_bytes > 0 and log.high_watermark < log.log_end_offset:
                return 0                                # not readable yet; the advance of the high watermark reports it
            if appended_bytes == REPLICATED:
                appended_bytes = LOOK_AGAIN
        if self.isolation == READ_COMMITTED and appended_bytes > 0 and log.last_stable_offset < log.high_watermark:
            return 0                                    # not readable yet; the marker reports it
        self.advanced += appended_bytes
        if not self.posted and not self.done and (appended_bytes == 0 or self.size + self.advanced >= self.size_min):
            self.posted = True
            self.server.mailbox.post(self)
        return 0

    cdef int park(self, Answer answer, int result) except -1:
        """Wait until resume() completes `answer`."""
        self.answer = answer
        self.deadline = self.now + <double>self.wait_ms_max / 1000.0
        if result == FETCH_BLOCKED:
            return self.verify()
        return self.wait()

    cdef int wait(self) except -1:
        """Wait for the logs' next notification."""
        cdef bint listened = self.listening
        self.release_slices()
        self.listen()
        # An append between evaluate() and listen() was not reported; one during evaluate() was, against an outdated
        # size.
        if not self.posted and (self.size + self.advanced >= self.size_min if listened else self.changed()):
            self.posted = True
            self.server.mailbox.post(self)
        return 0

    cdef int verify(self) except -1:
        """Let the I/O pool verify the bytes that this fetch would send, then return to the worker."""
        cdef list work = []
        self.blocked = True
        self.collect_blocked(work, 0, self.part_count)
        self.server.pool.submit(self.verify_on_pool, work)
        return 0

    cdef int collect_blocked(self, list work, int32_t begin, int32_t end) except -1:
        """Add the parts that must be verified to `work`."""
        cdef int32_t i
        cdef FetchPart* part
        for i in range(begin, end):
            part = &self.parts[i]
            if part.blocked:
                part.blocked = False
                work.append((i, self.logs[i], part.offset, part.size_max))
        return 0

    def verify_on_pool(self, list work):
        """Verify the bytes of this fetch, or quarantine them. Runs on the I/O pool."""
        try:
            self.make_servable(work)
            self.server.mailbox.post(self)
        except Exception:
            self.answer.fail()
            raise

    cdef int make_servable(self, list work) except -1:
        if self.converted is None:
            self.converted = {}
        for i, log, offset, size_max in work:
            upper = log.high_watermark
            try:
                if log.format.positional:
                    self.converted[i] = (offset, upper, *log.owner.as_batches(offset, min(size_max, self.size_max)))
                else:
                    log.owner.verify_blocking(offset, min(size_max, self.size_max))
            except Exception:
                if log.format.positional:
                    self.converted[i] = (offset, upper, KAFKA_STORAGE_ERROR, b"")
                logger.exception("verifying %s-%d at offset %d failed", log.topic, log.partition, offset)
        self.blocked = False
        self.posted = True
        return 0

    cdef int resume(self, double now) except -1:
        """Evaluate again, and complete the response or wait again. Only on its worker."""
        cdef int result
        if self.run is not None:
            self.run.wake()
            return 0
        self.posted = False
        if self.done or self.blocked:
            return 0
        self.now = now
        result = self.evaluate()
        if result == FETCH_BLOCKED:
            return self.verify()
        if result == FETCH_WAITS and now < self.deadline:
            return self.wait()
        self.unlisten()
        self.fill(self.answer)
        self.answer.announce()
        return 0

    cdef int claim(self, object connection) except -1:
        """Charge the records to the quota, before another worker uses up the rest of it.

        If other requests have used it up meanwhile, the response has no records and the client is muted.
        """
        cdef int32_t owed = self.meter.owed_ms(self.now) if self.throttle_ms == 0 else 0
        if owed == 0:
            self.claimed = <double>self.size
            self.meter.take(self.claimed, self.now)
        elif connection is not None:
            self.withhold(owed)
            self.meter.held_up(owed)
            if self.server.counters is not None:
                self.server.counters.note_throttled(KEY_OF_FETCH, owed, 0)
            connection.mute(owed)
        return 0

    cdef bint changed(self) except -1:
        """Return whether a log changed between evaluate() and listen()."""
        cdef int32_t i
        cdef LogCore log
        cdef FetchPart* part
        for i in range(self.part_count):
            part = &self.parts[i]
            log = self.logs[i]
            if log is None:
                continue
            if self.privileged:
                if log.log_end_offset != part.log_end or log.shut or log.offline or (
                        part.current_leader_epoch >= 0 and part.current_leader_epoch != log.leader_epoch):
                    return True
            elif (
                    log.high_watermark != part.high_watermark or log.log_start_offset != part.log_start_offset
                    or min(log.last_stable_offset, log.high_watermark) != part.last_stable_offset
                    or (log.shut and not self.may_read_copy(log)) or log.offline):
                return True
        return False

    cdef int cancel(self) except -1:
        """Discard the plan without a response, because the connection is closed."""
        self.done = True
        if self.run is not None:
            self.run.wake()
            return 0
        self.unlisten()
        self.release_slices()
        return 0

    def expire(self, double now):
        """Respond with the records found so far, because the deadline has passed or the broker stops."""
        # While its bytes are being verified the response follows right after that.
        self.deadline = now
        self.resume(now)


cdef int share_out(FetchPlan plan, int32_t begin, int32_t end) except -1:
    """Limit the records of partitions `begin` to `end` to one share each."""
    cdef int32_t i
    cdef int64_t left, upper, size
    cdef FetchPart* part
    cdef LogSlice piece
    for i in range(begin, end):
        piece = plan.slices[i]
        if piece is None:
            continue
        part = &plan.parts[i]
        upper = part.last_stable_offset if plan.isolation == READ_COMMITTED else part.high_watermark
        left = upper - part.offset
        if left <= SHARE_RECORDS:
            continue
        if plan.shared_max < 0:
            plan.shared_max = shared_max(plan.fd)
        if left <= plan.shared_max:
            size = share_of(piece, part.offset)
            plan.size -= piece.size - size
            piece.size = part.records_size = size
    return 0


cdef int read_request_tags(Cursor* c, int32_t* replica_id, int64_t* replica_epoch) noexcept nogil:
    """Read a request's tags: the replica's id and epoch, if present. Other tags are skipped."""
    cdef uint32_t _i
    cdef uint32_t size
    cdef uint32_t tag
    cdef const unsigned char* value
    for _i in range(read_uvarint(c)):
        tag = read_uvarint(c)
        size = read_uvarint(c)
        value = read_raw(c, <Py_ssize_t>size)
        if c.status != OK:
            break
        if tag == REPLICA_STATE_TAG and size >= 4:
            replica_id[0] = load_i32(value)
            if size >= 12:
                replica_epoch[0] = load_i64(value + 4)
    return 0


cdef int encode_part_head(OutBuffer out, int16_t version, FetchPart* part) except -1:
    """Write the fields of PartitionData before the aborted transactions."""
    out.put_i32(part.index)
    out.put_i16(<int16_t>part.error)
    out.put_i64(part.high_watermark)
    out.put_i64(part.last_stable_offset)
    if version >= 5:
        out.put_i64(part.log_start_offset)
    return 0


cdef int encode_aborted(OutBuffer out, int16_t version, bint asked, list aborted, int32_t preferred) except -1:
    """Write the aborted transactions, null for read_uncommitted, and the preferred read replica."""
    cdef bint flexible = version >= FETCH_FLEXIBLE_FROM
    if not asked:
        out.put_array_size(-1, flexible)
    elif aborted is None:
        out.put_array_size(0, flexible)
    else:
        out.put_array_size(<int32_t>len(aborted), flexible)
        for first_offset, producer_id in aborted:
            out.put_i64(producer_id)
            out.put_i64(first_offset)
            if flexible:
                out.put_i8(0)
    if version >= RACKS_FROM:
        out.put_i32(preferred)
    return 0


cdef int encode_part_tags(OutBuffer out, FetchPart* part) except -1:
    """Write a partition's tag buffer: empty, or the diverging epoch (tag 0: epoch, end offset, own tags)."""
    if part.diverging_epoch < 0:
        return out.put_i8(0)
    out.put_uvarint(1)
    out.put_uvarint(0)
    out.put_uvarint(13)
    out.put_i32(part.diverging_epoch)
    out.put_i64(part.diverging_end_offset)
    return out.put_i8(0)
