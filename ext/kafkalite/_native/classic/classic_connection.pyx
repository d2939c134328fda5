"""Serve Kafka 0.7's protocol: PRODUCE, FETCH, MULTIFETCH, MULTIPRODUCE and OFFSETS, on a separate listener.

    request   int32 size · int16 type · body                no version, no correlation id
    response  int32 size · int16 error code · body          only for types 1, 2 and 4

    0 PRODUCE        topic, partition i32, set size i32, set          never answered, not even for an error
    1 FETCH          topic, partition i32, offset i64, size max i32   message-set bytes
    2 MULTIFETCH     count i16, FETCH bodies                          for each: int32 size, int16 error code, bytes
    3 MULTIPRODUCE   count i16, PRODUCE bodies                        never answered
    4 OFFSETS        topic, partition i32, time i64, count max i32    count i32, offsets i64

A connection serves its requests one at a time, in order.

An error that has no response closes the connection, such as an unknown type, a refused message set, or a missing
partition in a request other than FETCH and MULTIFETCH. There is one exception: a set with a message that is too large
is dropped and logged, as in 0.7.2.

Thread rule: as in the base class Connection, which receives, queues and sends.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport free

import logging
import os

from kafkalite._native.classic.classic_log cimport SetAppend, append_set, read_range
from kafkalite._native.classic.message_set cimport (
    ANY_PARTITION, TYPE_FETCH, TYPE_MULTIFETCH, TYPE_MULTIPRODUCE, TYPE_OFFSETS, TYPE_PRODUCE,
)
from kafkalite._native.log.log_append cimport APPEND_DEFER
from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.log.log_slice cimport LogSlice
from kafkalite._native.log.segment_read cimport READ_DEFER, READ_REFUSED, ReadResult
from kafkalite._native.serve.access cimport ACCESS_READ, ACCESS_WRITE, AccessView
from kafkalite._native.serve.connection cimport Connection, access_of
from kafkalite._native.serve.request_parts cimport add_part
from kafkalite._native.serve.topic_table cimport Topic
from kafkalite._native.serve.memory cimport PARKED_SIZE, REQUESTS
from kafkalite._native.serve.transfer cimport Answer, OutBuffer, copy_records
from kafkalite._native.wire.cursor cimport (
    Cursor,
    cursor_init,
    load_i16,
    read_i16,
    read_i32,
    read_i64,
    read_raw,
    read_string,
    remaining,
    store_i32,
)
from kafkalite._native.wire.error_codes cimport (
    MESSAGE_TOO_LARGE,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkalite._native.wire.status cimport OK

from kafkalite._native.log.segment import SegmentUnreadable

from kafkalite.base.logging import RepeatLogger

cdef object logger = RepeatLogger(logging.getLogger("kafkalite.classic"))

cdef enum:
    PARTS_AT_FIRST = 8
    PART_SIZE_MIN = 10                  # a topic's length, a partition and a size: the least a part can be
    PART_HEADER_SIZE = 6                # int32 size and int16 error code
    RESPONSE_SIZE_MAX = 0x7FF00000      # the largest value of a size field, less room for headers

# Bytes of message sets copied for the I/O pool and not appended yet, over all connections. Guarded by the GIL.
cdef int64_t deferred_bytes = 0


def deferred_bytes_now():
    """Return the bytes of 0.7 message sets that currently wait for the I/O pool."""
    return deferred_bytes


@cython.final
cdef class ClassicServer:
    """The server and buffers that the 0.7 connections of one worker share.

    `host` (kafkalite.broker.log.classic.host.ClassicHost) does the steps in Python: create missing topics, append and
    read when this may block, and answer OFFSETS.
    """

    def __cinit__(self, TopicTable table not None, OutBuffer out not None, pool, host, *, int parts_max,
                  Py_ssize_t copy_size_max, int64_t deferred_bytes_max):
        self.table = table
        self.out = out
        self.pool = pool
        self.host = host
        self.parts_max = parts_max
        self.copy_size_max = copy_size_max
        self.deferred_bytes_max = deferred_bytes_max
        self.random_state = int.from_bytes(os.urandom(8), "little") | 1

    def __dealloc__(self):
        free(self.parts)

    cdef ClassicPart* next_part(self) except NULL:
        return <ClassicPart*>add_part(<void**>&self.parts, &self.part_count, &self.part_capacity, PARTS_AT_FIRST,
                                      sizeof(ClassicPart))

    cdef bint read_parts(self, Cursor* c, int32_t count, bint produce) except -1:
        """Parse the bodies of a request into `parts`. Return False if one is malformed or exceeds a limit."""
        cdef ClassicPart* part
        cdef int32_t _i
        self.part_count = 0
        if count > self.parts_max or <int64_t>count * PART_SIZE_MIN > remaining(c):
            return False
        for _i in range(count):
            part = self.next_part()
            part.topic = read_string(c, False, &part.topic_size)
            part.partition = read_i32(c)
            if produce:
                part.data_size = read_i32(c)
                part.data = read_raw(c, <Py_ssize_t>part.data_size)
            else:
                part.offset = read_i64(c)
                part.size_max = read_i32(c)
            if c.status != OK or part.topic_size < 0:
                return False
        return c.status == OK

    cdef int32_t pick(self, Py_ssize_t count) noexcept:
        """Return a random partition (xorshift64*), for a producer that lets the broker choose."""
        cdef uint64_t x = self.random_state
        x ^= x >> 12
        x ^= x << 25
        x ^= x >> 27
        self.random_state = x
        return <int32_t>(((x * <uint64_t>2685821657736338717) >> 33) % <uint64_t>count)

    cdef bint allows(self, int operation, const ClassicPart* part, Topic topic) except -1:
        """Return whether the client may READ or WRITE a topic, which may be missing."""
        if self.access is None:
            return True
        if topic is not None:
            return self.access.allows(operation, topic, self.now)
        return self.access.allows_name(
            operation, PyBytes_FromStringAndSize(<const char*>part.topic, part.topic_size), self.now)

    cdef int produce_part(self, const ClassicPart* part) except -1:
        """Append one message set without copying it. Return a PartResult."""
        cdef Topic topic = self.table.find(part.topic, part.topic_size)
        cdef SetAppend done
        cdef Py_ssize_t count
        cdef int32_t partition = part.partition
        if not self.allows(ACCESS_WRITE, part, topic):
            self.refusal = "the client is not authorized to write to the topic"
            return PART_REFUSED
        if topic is None:
            return PART_DEFERS              # it is made first
        count = len(<tuple>topic.cores)
        if partition == ANY_PARTITION:
            partition = self.pick(count)
        if partition < 0 or partition >= count:
            self.refusal = f"topic {topic.name} has no partition {partition}; it has {count}"
            return PART_REFUSED
        self.log = <LogCore>(<tuple>topic.cores)[partition]
        if not self.log.format.positional:
            self.refusal = f"topic {topic.name} takes no 0.7 messages: its message.format is {self.log.format.name}"
            return PART_REFUSED
        if append_set(self.log, part.data, part.data_size, False, &done) == APPEND_DEFER:
            return PART_DEFERS
        if done.error == MESSAGE_TOO_LARGE:
            self.host.dropped(self.log.owner)
            return PART_DONE
        if done.error != 0:
            self.refusal = self.host.reason(self.log.owner, done.error)
            return PART_REFUSED
        self.end_offset = done.end_offset
        return PART_FLUSHES if done.flush_due else PART_DONE

    cdef LogSlice fetch_part(self, const ClassicPart* part, int64_t size_left, ReadResult* out):
        """Return the bytes of one part, and set 0.7's error code in `out`. READ_DEFER: the I/O pool must open a segment
        first."""
        cdef Topic topic = self.table.find(part.topic, part.topic_size)
        cdef LogCore log
        cdef LogSlice piece
        out.outcome = READ_REFUSED
        if not self.allows(ACCESS_READ, part, topic):
            out.error = UNKNOWN_TOPIC_OR_PARTITION
            return None
        if topic is None:
            out.error = self.host.code_without_log(
                PyBytes_FromStringAndSize(<const char*>part.topic, part.topic_size), part.partition)
            return None
        out.error = UNKNOWN_TOPIC_OR_PARTITION
        if part.partition < 0 or part.partition >= len(<tuple>topic.cores):
            return None
        log = <LogCore>(<tuple>topic.cores)[part.partition]
        if not log.format.positional:
            return None
        piece = read_range(log, part.offset, min(<int64_t>part.size_max, size_left), out)
        out.error = code_of(out.error)
        return piece


cdef object asker_of(Connection connection):
    """Return the client's (principal, host) for calls on the I/O pool, or None without an authorizer."""
    cdef AccessView view = access_of(connection)
    return None if view is None else (view.principal, view.host)


cdef int code_of(int error) noexcept:
    """Convert a current Kafka error code to one of 0.7."""
    if error == 0:
        return NONE
    return OFFSET_OUT_OF_RANGE if error == OFFSET_OUT_OF_RANGE else UNKNOWN_SERVER_ERROR


@cython.final
cdef class PendingSets:
    """A waiting PRODUCE or MULTIPRODUCE: the sets that the I/O pool must append, and the flushes that make sets
    visible."""

    cdef int start(self) except -1:
        global deferred_bytes
        if not self.parts:
            return self.wait_for_flushes()
        deferred_bytes += self.size
        self.server.pool.submit(self.append_on_pool)
        return 0

    def append_on_pool(self):
        """Append the remaining sets in order, on the I/O pool. The first refused set ends the request and the
        connection."""
        global deferred_bytes
        reason = None
        try:
            for topic, partition, data in self.parts:
                flush = self.server.host.append(topic, partition, data, self.asker)
                if flush is not None:
                    self.flushes.append(flush)
        except ValueError as error:
            reason = str(error)
        except Exception:
            logger.exception("a 0.7 PRODUCE request failed")
            reason = "a request failed, and its API has no error response"
        finally:
            deferred_bytes -= self.size
            self.parts = []
        if reason is not None:
            self.flush_anyway()
            if self.answer.connection is not None:
                self.answer.fail("%s", reason)
        else:
            self.wait_for_flushes()

    def flush_anyway(self):
        """Request the flushes of appended sets after an error, because these sets become visible anyway."""
        for log, end_offset in self.flushes:
            log.flush_due(end_offset)

    cdef int wait_for_flushes(self) except -1:
        self.remaining = 1 + <int>len(self.flushes)
        for log, end_offset in self.flushes:
            log.flush_async(end_offset, self.flushed)
        self.flushed(0)
        return 0

    def flushed(self, int _error):
        """Note the end of one flush. A failed flush takes its partition offline; 0.7 has no response that could report
        it."""
        self.remaining -= 1
        if self.remaining == 0:
            if self.answer is not None:
                self.answer.complete_silently()
            for call in self.followers:
                self.server.pool.submit(*call)
            self.followers = []


@cython.final
cdef class ClassicConnection(Connection):
    """An accepted socket of a kafka07 listener."""

    def __cinit__(self, *_arguments):
        self.server = self.io.classic
        self.in_flight_max = 1
        self.frame_size_min = 1
        self.software_name = "a Kafka 0.7 client"

    cdef int serve(self, unsigned char* frame, Py_ssize_t size) except -1:
        cdef Cursor c
        cdef int16_t kind = load_i16(frame) if size >= 2 else -1
        cdef int32_t count = 1
        self.io.requests += 1
        if self.io.access is not None:
            self.server.access = access_of(self)
            self.server.now = self.io.now
        cursor_init(&c, frame + 2, size - 2)
        if kind == TYPE_MULTIFETCH or kind == TYPE_MULTIPRODUCE:
            count = max(<int32_t>read_i16(&c), <int32_t>0)
        if kind == TYPE_PRODUCE or kind == TYPE_MULTIPRODUCE:
            return self.serve_sets(&c, count)
        if kind == TYPE_FETCH or kind == TYPE_MULTIFETCH:
            return self.serve_ranges(&c, count, kind == TYPE_MULTIFETCH)
        if kind == TYPE_OFFSETS:
            return self.serve_offsets(&c)
        return self.refuse("unknown 0.7 request type %d", (kind,))

    cdef int serve_sets(self, Cursor* c, int32_t count) except -1:
        """Serve PRODUCE and MULTIPRODUCE: append the parts in order, until one is refused."""
        cdef ClassicServer server = self.server
        cdef PendingSets pending = None
        cdef ClassicPart* part
        cdef int32_t i
        cdef int result
        if not server.read_parts(c, count, True):
            return self.refuse("malformed or over-limit 0.7 PRODUCE request")
        for i in range(server.part_count):
            part = &server.parts[i]
            result = server.produce_part(part) if pending is None or not pending.parts else PART_DEFERS
            if result == PART_DONE:
                continue
            if result != PART_REFUSED and pending is None:
                pending = PendingSets.__new__(PendingSets)
                pending.server, pending.parts, pending.flushes, pending.followers = server, [], [], []
                pending.asker = asker_of(self)
            if result == PART_FLUSHES:
                pending.flushes.append((server.log.owner, server.end_offset))
            elif result == PART_DEFERS:
                pending.size += part.data_size
                if deferred_bytes + pending.size > server.deferred_bytes_max:
                    server.refusal = "queued.append.max.bytes is reached"
                    result = PART_REFUSED
                else:
                    pending.parts.append((
                        PyBytes_FromStringAndSize(<const char*>part.topic, part.topic_size), part.partition,
                        PyBytes_FromStringAndSize(<const char*>part.data, <Py_ssize_t>part.data_size)))
            if result == PART_REFUSED:
                if pending is not None:
                    pending.flush_anyway()
                return self.refuse("0.7 PRODUCE request refused: %s", (server.refusal,))
        if pending is None:
            return 0
        if pending.parts:
            pending.answer = self.enqueue()
            pending.answer.charge_waiting(REQUESTS, PARKED_SIZE + pending.size)
        else:
            self.hold_for_flush()
            self.flushing = pending
        return pending.start()

    cdef bint is_flushing(self) noexcept:
        return self.flushing is not None and self.flushing.remaining > 0

    cdef int hold_for_flush(self) except -1:
        """Let a request whose set is due for a flush wait until the connection's current flush ends.

        PRODUCEs and MULTIPRODUCEs that are not due for a flush are served meanwhile. Requests that read wait for the
        flush.
        """
        cdef Answer answer
        if not self.is_flushing():
            return 0
        answer = self.enqueue()     # the flusher may run meanwhile
        if self.is_flushing():
            self.flushing.answer = answer
        else:
            answer.complete_silently()
        return 0

    cdef int submit_behind_flush(self, tuple call) except -1:
        """Submit a call to the I/O pool, after the connection's earlier sets are visible."""
        if self.is_flushing():
            self.flushing.followers.append(call)
        else:
            self.server.pool.submit(*call)
        return 0

    cdef int serve_ranges(self, Cursor* c, int32_t count, bint multi) except -1:
        """Serve FETCH and MULTIFETCH. Each part has its own result."""
        cdef ClassicServer server = self.server
        cdef LogSlice piece
        cdef ClassicPart* part
        cdef int32_t i
        cdef int64_t size = 0
        cdef ReadResult found
        cdef list codes = []
        cdef list pieces = []
        if not server.read_parts(c, count, False):
            return self.refuse("malformed or over-limit 0.7 FETCH request")
        for i in range(server.part_count):
            if self.is_flushing():
                break
            piece = server.fetch_part(&server.parts[i], RESPONSE_SIZE_MAX - size, &found)
            if found.outcome == READ_DEFER:
                break
            codes.append(found.error)
            pieces.append(piece)
            if piece is not None:
                size += piece.size
        else:
            return self.answer_ranges(codes, pieces, size, multi)
        wanted = []
        for i in range(server.part_count):
            part = &server.parts[i]
            wanted.append((PyBytes_FromStringAndSize(<const char*>part.topic, part.topic_size), part.partition,
                           part.offset, part.size_max))
        return self.submit_behind_flush((self.ranges_on_pool, self.enqueue(), wanted, multi, asker_of(self)))

    def ranges_on_pool(self, Answer answer, list wanted, bint multi, asker):
        """Serve FETCH or MULTIFETCH on the I/O pool, because a segment must be opened or a flush must end first."""
        cdef LogSlice piece
        cdef int64_t size = 0
        cdef list codes = []
        cdef list pieces = []
        try:
            for topic, partition, offset, size_max in wanted:
                code, piece = self.server.host.read(
                    topic, partition, offset, min(size_max, RESPONSE_SIZE_MAX - size), asker)
                codes.append(code)
                pieces.append(piece)
                if piece is not None:
                    size += piece.size
            fill_ranges(answer, codes, pieces, size, multi, self.server.copy_size_max)
            answer.announce()
        except Exception:
            logger.exception("a 0.7 FETCH request failed")
            answer.fail()

    cdef int answer_ranges(self, list codes, list pieces, int64_t size, bint multi) except -1:
        cdef OutBuffer out = self.io.out
        cdef Py_ssize_t start = out.size
        cdef Answer answer
        if size <= self.server.copy_size_max:
            encode_ranges(out, codes, pieces, size, multi, None)
            return self.requeue_out(start)
        answer = self.enqueue()
        fill_ranges(answer, codes, pieces, size, multi, self.server.copy_size_max)
        return self.answers.count(answer)

    cdef int serve_offsets(self, Cursor* c) except -1:
        """Serve OFFSETS on the I/O pool, because it reads the ages of segments from the file system."""
        cdef Py_ssize_t topic_size
        cdef const unsigned char* topic = read_string(c, False, &topic_size)
        cdef int32_t partition = read_i32(c)
        cdef int64_t time_ms = read_i64(c)
        cdef int32_t count_max = read_i32(c)
        if c.status != OK or topic_size < 0 or count_max < 0:
            return self.refuse("malformed 0.7 OFFSETS request")
        return self.submit_behind_flush((
            self.offsets_on_pool, self.enqueue(), PyBytes_FromStringAndSize(<const char*>topic, topic_size), partition,
            time_ms, count_max, asker_of(self)))

    def offsets_on_pool(self, Answer answer, bytes topic, int partition, int64_t time_ms, int count_max, asker):
        """Answer OFFSETS. A missing partition closes the connection."""
        cdef OutBuffer out
        cdef int64_t offset
        try:
            offsets = self.server.host.offsets_before(topic, partition, time_ms, count_max, asker)
            out = OutBuffer.__new__(OutBuffer)
            out.put_i32(<int32_t>(PART_HEADER_SIZE + 8 * len(offsets)))
            out.put_i16(NONE)
            out.put_i32(<int32_t>len(offsets))
            for offset in offsets:
                out.put_i64(offset)
            answer.complete(PyBytes_FromStringAndSize(<const char*>out.data, out.size))
        except ValueError as error:
            answer.fail("%s", str(error))
        except Exception:
            logger.exception("a 0.7 OFFSETS request failed")
            answer.fail()


cdef int encode_ranges(OutBuffer out, list codes, list pieces, int64_t size, bint multi, list cuts) except -1:
    """Write a response, with the bytes of its pieces. With `cuts`, write the position of each piece there instead."""
    cdef LogSlice piece
    cdef Py_ssize_t start = out.size
    cdef Py_ssize_t head
    cdef Py_ssize_t i
    cdef Py_ssize_t count = len(codes)
    if multi:
        out.put_i32(<int32_t>(2 + count * PART_HEADER_SIZE + size))
        out.put_i16(NONE)
    for i in range(count):
        piece = pieces[i]
        head = out.size
        out.put_i32(<int32_t>(2 + (0 if piece is None else piece.size)))
        out.put_i16(<int16_t>(<int>codes[i]))
        if piece is None:
            continue
        if cuts is not None:
            cuts.append(out.size - start)
            continue
        try:
            copy_records(out, piece)
        except SegmentUnreadable:       # the log is offline: this part alone is an error
            out.size = head
            out.put_i32(2)
            out.put_i16(UNKNOWN_SERVER_ERROR)
            size -= piece.size
        piece.release()
    if multi:
        store_i32(out.data + start, <int32_t>(2 + count * PART_HEADER_SIZE + size))
    return 0


cdef int fill_ranges(Answer answer, list codes, list pieces, int64_t size, bint multi,
                     Py_ssize_t copy_size_max) except -1:
    """Give `answer` a response. If it is larger than `copy_size_max`, its pieces are sent directly from their files."""
    cdef OutBuffer out = OutBuffer.__new__(OutBuffer)
    cdef list cuts = None if size <= copy_size_max else []
    encode_ranges(out, codes, pieces, size, multi, cuts)
    answer.fill(
        PyBytes_FromStringAndSize(<const char*>out.data, out.size),
        None if cuts is None else [piece for piece in pieces if piece is not None], cuts)
    return 0
