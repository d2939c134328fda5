"""Serve Produce: parse the request in place, append each batch, and write the response.

In the common case (acks 0 or 1, all logs ready), the network worker does all this without a Python object per request.
Otherwise the request becomes a PendingProduce, which another thread completes:

    the append would block       first file of a log, roll, decompression: the batch is copied, and the I/O pool appends
                                 it in the order of its log
    a transaction begins         the batch may have to wait for the transaction coordinator (the gate)
    acks=all                     the response waits for the group commit or, in a cluster, for the replicas

deferred_produce.pyx implements these waits and their order.

Thread rule: a ProduceServer belongs to one worker.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.stdlib cimport free

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.log.log_append cimport (
    ANY_EPOCH, APPEND_ASK, APPEND_DEFER, APPEND_REFUSED, AppendTerms, append_records,
)
from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.log.producers cimport FROM_CLIENT, FROM_CLIENT_V2, NOT_ADMITTED
from kafkalite._native.serve.access cimport ACCESS_WRITE
from kafkalite._native.serve.deferred_produce cimport (
    ADMITS_FROM, AFTER_ANOTHER, ASKED, DONE, FLUSHING, QUEUED, REPLICATING, AdmissionRequest, AdmissionResult,
    WaitingPart, WaitingRequest, admission_of, is_owed,
)
from kafkalite._native.serve.counters cimport ERROR_COUNT, KEY_OF_PRODUCE, now_ns, place
from kafkalite._native.serve.leaders cimport PRODUCE_LEADER_TAG, PRODUCE_LEADERS_FROM
from kafkalite._native.serve.memory cimport PARKED_SIZE
from kafkalite._native.serve.request_parts cimport add_part, put_topic, read_topic
from kafkalite._native.serve.topic_table cimport Topic, TopicTable
from kafkalite._native.serve.transfer cimport Answer, OutBuffer
from kafkalite._native.wire.batch cimport (
    ATTRIBUTES_LOW_AT,
    CODEC_MASK,
    CODEC_ZSTD,
    FAULT_KEY,
    FAULT_TIMESTAMP,
    HEADER_SIZE,
    MAGIC_AT,
    MAGIC_V2,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL,
    RecordFault,
    RecordFaults,
)
from kafkalite._native.wire.cursor cimport (
    Cursor, cursor_init, load_i16, load_i64, read_compact_count, read_count, read_i16, read_i32, read_raw, read_string,
    read_uvarint, skip_tags,
)
from kafkalite._native.wire.error_codes cimport (
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    INVALID_TIMESTAMP,
    INVALID_TOPIC_EXCEPTION,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from kafkalite._native.wire.status cimport OK

from kafkalite.broker.limits.collector import OLD_OBJECTS as _OLD_OBJECTS

cdef object OLD_OBJECTS = _OLD_OBJECTS

# `..._FROM` is the version that introduced a field. kafkalite/broker/handlers/table.py has the supported versions.
cdef enum:
    TOPIC_IDS_FROM = 13
    ZSTD_FROM = 7               # first version of Produce that may carry it
    PARTS_AT_FIRST = 64
    PARTS_AT_ONCE = 512         # a request with more is served in turns
    PARTS_PER_LOOK = 32         # served between two looks at the clock
    PARTITION_SIZE_MIN = 5      # an int32 index and a null records field in its shortest form
    TOPIC_SIZE_MIN = 2

# Bytes of batches that were copied for the I/O pool and are not appended yet, over all connections. Guarded by the GIL.
cdef int64_t deferred_bytes = 0


def deferred_bytes_now():
    """Return the bytes of produced batches that currently wait for the I/O pool."""
    return deferred_bytes


cdef int16_t acks_of(int16_t version, const unsigned char* frame, Py_ssize_t size) noexcept:
    """Return the acks field of a Produce request with its header; 0 if the request is malformed."""
    cdef Cursor c
    cdef Py_ssize_t ignored
    cdef int16_t acks
    cursor_init(&c, frame + 8, size - 8)
    read_string(&c, False, &ignored)
    if version >= PRODUCE_FLEXIBLE_FROM:
        skip_tags(&c)
    read_string(&c, version >= PRODUCE_FLEXIBLE_FROM, &ignored)
    acks = read_i16(&c)
    return acks if c.status == OK else 0


cdef inline int refusal(const unsigned char* batch, Py_ssize_t size, int16_t version) noexcept nogil:
    """Return an error code if a request of this version must not contain such a batch, else 0."""
    cdef unsigned char attributes
    if size <= ATTRIBUTES_LOW_AT or batch[MAGIC_AT] != MAGIC_V2:
        return 0                                                # the log reports what is wrong with it
    attributes = batch[ATTRIBUTES_LOW_AT]
    if version < ZSTD_FROM and (attributes & CODEC_MASK) == CODEC_ZSTD:
        return UNSUPPORTED_COMPRESSION_TYPE
    return 0


cdef inline bint has_too_few(LogCore log) noexcept:
    """Return whether a log that is led here has too few in-sync replicas for acks=all."""
    return not log.shut and log.followers.in_sync_count < log.followers.enough()


cdef inline bint is_transactional(const unsigned char* batch, Py_ssize_t size) noexcept nogil:
    return size > ATTRIBUTES_LOW_AT and batch[MAGIC_AT] == MAGIC_V2 and batch[ATTRIBUTES_LOW_AT] & TRANSACTIONAL != 0


@cython.final
cdef class ProduceServer:
    """Serves the Produce requests of one worker. `out` is the worker's; the topic table and the pool are shared."""

    def __cinit__(self, TopicTable table not None, OutBuffer out not None, pool, *, int partitions_max,
                  int64_t deferred_bytes_max, bint flush_on_acks_all, gate=None):
        self.table = table
        self.out = out
        self.pool = pool
        self.partitions_max = partitions_max
        self.deferred_bytes_max = deferred_bytes_max
        self.flush_on_acks_all = flush_on_acks_all
        self.gate = gate
        self.parts = NULL
        self.part_capacity = 0

    def __dealloc__(self):
        free(self.parts)

    cdef ProducePart* next_part(self) except NULL:
        return <ProducePart*>add_part(<void**>&self.parts, &self.part_count, &self.part_capacity, PARTS_AT_FIRST,
                                      sizeof(ProducePart))

    cdef int parse(self, int16_t version, unsigned char* body, Py_ssize_t size, int16_t* acks) except -1:
        """Parse the request into `parts`. Return 0 if it violates its schema or a limit."""
        cdef Cursor c
        cdef bint flexible = version >= PRODUCE_FLEXIBLE_FROM
        cdef int32_t _topic_index, partition_index, partition_count
        cdef const unsigned char* topic
        cdef Py_ssize_t topic_size
        cdef ProducePart* part
        self.part_count = 0
        self.transactional = False
        cursor_init(&c, body, size)
        self.transactional_id = read_string(&c, flexible, &self.transactional_id_size)
        acks[0] = read_i16(&c)
        self.timeout_ms = read_i32(&c)                          # only for replicas: the disk answers or fails
        self.topic_count = read_compact_count(&c, TOPIC_SIZE_MIN) if flexible else read_count(&c, TOPIC_SIZE_MIN)
        if c.status != OK or self.topic_count < 0:
            return 0
        for _topic_index in range(self.topic_count):
            topic = read_topic(&c, version >= TOPIC_IDS_FROM, flexible, &topic_size)
            if flexible:
                partition_count = read_compact_count(&c, PARTITION_SIZE_MIN)
            else:
                partition_count = read_count(&c, PARTITION_SIZE_MIN)
            if c.status != OK or topic_size < 0 or partition_count < 0:
                return 0
            if self.part_count + max(<int32_t>1, partition_count) > self.partitions_max:
                return 0
            if partition_count == 0:
                # A topic without partitions still has its place in the response.
                part = self.next_part()
                part.topic, part.topic_size, part.first_of_topic, part.parts_of_topic = topic, topic_size, True, 0
            for partition_index in range(partition_count):
                part = self.next_part()
                part.topic, part.topic_size = topic, topic_size
                part.first_of_topic = partition_index == 0
                part.parts_of_topic = partition_count
                part.index = read_i32(&c)
                part.records_size = <Py_ssize_t>read_uvarint(&c) - 1 if flexible else read_i32(&c)
                part.records = NULL
                if part.records_size > 0:
                    part.records = <unsigned char*>read_raw(&c, part.records_size)
                    if part.records != NULL:
                        self.transactional |= is_transactional(part.records, part.records_size)
                if flexible:
                    skip_tags(&c)
                if c.status != OK:
                    return 0
            if flexible:
                skip_tags(&c)
        if flexible:
            skip_tags(&c)
        return c.status == OK                                   # bytes after it are ignored, as in Kafka

    cdef int serve(self, int16_t version, int32_t correlation_id, unsigned char* body, Py_ssize_t size) except -1:
        """Append the batches of the request; return a ServeResult. With PARKED, the rest of the work is in
        `pending`."""
        cdef int16_t acks
        cdef int32_t i
        cdef ProducePart* part
        cdef LogCore log
        cdef PendingProduce pending = None
        cdef bint failed = False
        if not self.parse(version, body, size, &acks):
            return MALFORMED
        if self.transactional and not self.prepare_ask(version):
            return MALFORMED
        self.acks = acks
        self.terms = AppendTerms(FROM_CLIENT, NOT_ADMITTED, ANY_EPOCH, acks == -1)
        self.flush = acks == -1 and self.flush_on_acks_all
        if self.faults is not None:
            self.faults = None
        if self.part_count > PARTS_AT_ONCE:
            return TAKES_TURNS
        for i in range(self.part_count):
            part = &self.parts[i]
            if part.parts_of_topic == 0:
                continue
            log = self.serve_part(i, version)
            if part.state != DONE:
                if pending is None:
                    pending = self.new_pending(version, correlation_id)
                    pending.parts = [None] * self.part_count
                pending.parts[i] = self.pending_part(part, log, self.flush)
            elif part.error != 0:
                failed = True
        if pending is not None:
            self.park(pending)
            return PARKED
        if self.counters is not None:
            self.count_parts()
        if acks == 0:
            return UNANSWERED if failed else NO_ANSWER
        if failed and self.leaders is not None and version >= PRODUCE_LEADERS_FROM:
            self.encode_with_leaders(version, correlation_id)
        else:
            self.encode(version, correlation_id)
        return SERVED

    cdef inline LogCore serve_part(self, int32_t i, int16_t version):
        """Append part i, or set its `state` to what it waits for. Return its log, or None if no log was looked up."""
        cdef ProducePart* part = &self.parts[i]
        cdef LogCore log = None
        part.result.record_error_index = -1         # without an append the other fields are not read
        part.state = DONE
        if self.transactional and self.ask is None:
            part.error = TRANSACTIONAL_ID_AUTHORIZATION_FAILED          # as in Kafka, for the whole request
        else:
            log = self.append_part(part, version, -1 <= self.acks <= 1)
            if is_faulty(part):
                if self.faults is None:
                    self.faults = {}
                self.faults[i] = find_faults(log, part.records, part.records_size, part)
        if part.state == DONE:
            if part.wants_replicas:
                part.state = REPLICATING if part.error == 0 else DONE
            elif part.error == 0 and (part.result.flush_due or self.flush):
                part.state = FLUSHING
        elif deferred_bytes + part.records_size > self.deferred_bytes_max:
            self.give_up(part)
        return log

    cdef PendingProduce new_pending(self, int16_t version, int32_t correlation_id):
        """Return a waiting request without its parts."""
        cdef PendingProduce pending = PendingProduce.__new__(PendingProduce)
        pending.version = version
        pending.correlation_id = correlation_id
        pending.acks = self.acks
        pending.throttle_ms = self.throttle_ms
        pending.timeout_ms = -1
        if self.acks == -1 and self.leaders is not None:
            pending.timeout_ms = max(<int32_t>0, self.timeout_ms)
        pending.counters = self.counters
        if self.leaders is not None:
            pending.server, pending.listener = self, self.listener
        pending.ask = self.ask if self.transactional else None
        return pending

    cdef ProduceServer hand_over(self):
        """Return a new server that owns the parsed request of this one."""
        cdef ProduceServer other = ProduceServer(
            self.table, self.out, self.pool, partitions_max=self.partitions_max,
            deferred_bytes_max=self.deferred_bytes_max, flush_on_acks_all=self.flush_on_acks_all, gate=self.gate)
        other.counters, other.leaders = self.counters, self.leaders
        other.access, other.listener, other.now = self.access, self.listener, self.now
        other.throttle_ms = self.throttle_ms
        other.acks, other.terms, other.flush, other.timeout_ms = self.acks, self.terms, self.flush, self.timeout_ms
        other.transactional, other.ask, self.ask = self.transactional, self.ask, None
        other.topic_count, other.part_count, other.part_capacity = self.topic_count, self.part_count, self.part_capacity
        other.parts, self.parts = self.parts, NULL
        self.part_count = self.part_capacity = 0
        return other

    cdef int count_parts(self) noexcept:
        """Count the parts of the response by error code."""
        cdef int32_t i
        cdef int64_t* counts = self.counters.apis[KEY_OF_PRODUCE].errors
        if self.part_count == 1:                                # most requests; their only part always counts
            counts[place(self.parts[0].error + 1, ERROR_COUNT)] += 1
            return 0
        for i in range(self.part_count):
            if self.parts[i].parts_of_topic > 0:
                counts[place(self.parts[i].error + 1, ERROR_COUNT)] += 1
        return 0

    cdef int park(self, PendingProduce pending) except -1:
        """Make the request wait, and add the parts that need not wait."""
        cdef int32_t i
        for i in range(self.part_count):
            if pending.parts[i] is None:
                pending.parts[i] = self.pending_part(&self.parts[i], None, False)
                if self.faults is not None:
                    (<PendingPart>pending.parts[i]).faults = self.faults.get(i)
        self.pending = pending
        return 0

    cdef Topic topic_of(self, const ProducePart* part, int16_t version):
        """Return the topic of a part, or None."""
        if part.parts_of_topic == 0:
            return None
        if version >= TOPIC_IDS_FROM:
            return self.table.find_id(part.topic)
        return self.table.find(part.topic, part.topic_size)

    cdef LogCore append_part(self, ProducePart* part, int16_t version, bint acks_valid):
        """Append one partition's batch, and set its error and result, or what it waits for.

        Returns the log, or None if no log was looked up.
        """
        cdef Topic topic
        cdef LogCore log
        topic = self.topic_of(part, version)
        if self.access is not None and not self.allows(part, topic, version >= TOPIC_IDS_FROM):
            part.error = TOPIC_AUTHORIZATION_FAILED
        elif not acks_valid:
            part.error = INVALID_REQUIRED_ACKS
        elif topic is None and version >= TOPIC_IDS_FROM:
            part.error = UNKNOWN_TOPIC_ID
        elif topic is None or part.index < 0 or part.index >= len(<tuple>topic.cores):
            part.error = UNKNOWN_TOPIC_OR_PARTITION
        elif part.records_size <= 0:
            part.error = INVALID_RECORD
        else:
            part.error = refusal(part.records, part.records_size, version)
            if part.error == 0 and topic.internal:
                part.error = INVALID_TOPIC_EXCEPTION    # the broker reads its state from it at a start
        if part.error != 0:
            return None
        log = <LogCore>(<tuple>topic.cores)[part.index]
        if log.followers is not None and self.terms.acks_all and has_too_few(log):
            part.error = NOT_ENOUGH_REPLICAS
            return log
        if self.transactional:
            self.append_transactional(part, log)
        elif append_records(log, part.records, part.records_size, False, &part.result, &self.terms) == APPEND_DEFER:
            part.state = QUEUED
        part.error = part.result.error
        part.wants_replicas = self.terms.acks_all and part.result.replicates
        return log

    cdef bint allows(self, ProducePart* part, Topic topic, bint by_id) except -1:
        """Return whether the client may write to the topic. An unknown topic id is always allowed here."""
        if topic is not None:
            return self.access.allows(ACCESS_WRITE, topic, self.now)
        return by_id or self.access.allows_name(
            ACCESS_WRITE, PyBytes_FromStringAndSize(<const char*>part.topic, part.topic_size), self.now)

    cdef int give_up(self, ProducePart* part) except -1:
        """Refuse a batch, because there is no memory to keep it until its append. The client retries."""
        if part.state == ASKED:
            self.admission.answer.then(self.admission.drop)
            self.admission = None
        part.state = DONE
        part.error = REQUEST_TIMED_OUT
        return 0

    cdef PendingPart pending_part(self, ProducePart* part, LogCore log, bint wants_flush):
        """Copy the data of a part whose request waits. `log` is None if the part itself is DONE."""
        global deferred_bytes
        cdef PendingPart pending = PendingPart.__new__(PendingPart)
        pending.topic = PyBytes_FromStringAndSize(<const char*>part.topic, part.topic_size)
        pending.part = part[0]
        pending.part.topic = <const unsigned char*>PyBytes_AS_STRING(pending.topic)
        pending.part.records = NULL
        pending.state = part.state
        pending.log = log
        pending.error = part.error
        pending.end_offset = part.result.end_offset
        pending.wants_flush = part.state == REPLICATING and part.result.flush_due
        pending.flushes_alone = wants_flush
        pending.wants_replicas = part.wants_replicas
        pending.leader_epoch = part.result.leader_epoch
        pending.producer_id = -1
        pending.admitted = NOT_ADMITTED
        if not is_owed(part.state):
            return pending
        pending.records = bytearray((<const unsigned char*>part.records)[:part.records_size])
        deferred_bytes += part.records_size
        if part.records_size >= HEADER_SIZE:
            pending.producer_id = load_i64(part.records + PRODUCER_ID_AT)
            pending.producer_epoch = load_i16(part.records + PRODUCER_EPOCH_AT)
        if self.transactional:
            pending.admitted = self.admitted
            pending.admission, self.admission = self.admission, None
        if part.state == QUEUED:
            log.deferred_appends += 1
        return pending

    cdef bint prepare_ask(self, int16_t version) except -1:
        """Set `ask` for a request with transactional batches, or None if they are refused. Return False if it is
        malformed."""
        cdef AdmissionRequest ask = AdmissionRequest.__new__(AdmissionRequest)
        self.ask = None
        if self.gate is None or self.transactional_id_size < 0:
            return True
        if self.access is not None and not self.access.allows_transactional_id(
                PyBytes_FromStringAndSize(<const char*>self.transactional_id, self.transactional_id_size)):
            return True
        ask.gate = self.gate
        ask.version = version
        ask.origin = FROM_CLIENT_V2 if version >= ADMITS_FROM else FROM_CLIENT
        try:
            ask.transactional_id = (<const char*>self.transactional_id)[:self.transactional_id_size].decode("utf-8")
        except UnicodeDecodeError:
            return False
        self.ask = ask
        return True

    cdef int append_transactional(self, ProducePart* part, LogCore log) except -1:
        """Append a transactional batch, or set what it waits for. Ask the gate first, if necessary."""
        cdef AdmissionResult answered
        cdef int64_t producer_id = -1
        cdef int outcome
        self.admission = None
        self.admitted = NOT_ADMITTED
        self.terms.origin, self.terms.admitted = self.ask.origin, NOT_ADMITTED
        part.result.error = 0
        part.result.replicates = False
        if part.records_size >= HEADER_SIZE:
            producer_id = load_i64(part.records + PRODUCER_ID_AT)
            if admission_of(log, producer_id) is not None:
                # Earlier batches of this log that the pool still has come first in the queue.
                part.state = QUEUED if log.deferred_appends > 0 else AFTER_ANOTHER
                return 0
        outcome = append_records(log, part.records, part.records_size, False, &part.result, &self.terms)
        if outcome == APPEND_ASK:
            self.admission = self.ask.send(log, producer_id, load_i16(part.records + PRODUCER_EPOCH_AT), &answered)
            self.admitted = answered.admitted
            part.result.error = answered.error
            if self.admission is not None:
                part.state = ASKED
            if self.admission is not None or answered.error != 0:
                return 0
            self.terms.admitted = answered.admitted
            outcome = append_records(log, part.records, part.records_size, False, &part.result, &self.terms)
            kl_assert(outcome != APPEND_ASK)
        if outcome == APPEND_DEFER:
            part.state = QUEUED
        return 0

    cdef int encode(self, int16_t version, int32_t correlation_id) except -1:
        cdef OutBuffer out = self.out
        cdef int32_t i
        cdef Py_ssize_t start = begin_response(out, version, correlation_id, self.topic_count)
        cdef RecordFaults faults = None
        for i in range(self.part_count):
            if self.faults is not None:
                faults = self.faults.get(i)
            encode_part(out, version, &self.parts[i], i == 0, faults)
        return end_response(out, version, start, self.part_count, self.throttle_ms)

    cdef int encode_with_leaders(self, int16_t version, int32_t correlation_id) except -1:
        """Write a response in which a part may be led elsewhere. Since version 10, it names that part's leader."""
        cdef OutBuffer out = self.out
        cdef int32_t i
        cdef Py_ssize_t start = begin_response(out, version, correlation_id, self.topic_count)
        cdef set nodes = set()
        for i in range(self.part_count):
            encode_part_fields(
                out, version, &self.parts[i], i == 0, None if self.faults is None else self.faults.get(i))
            put_part_tags(out, version, &self.parts[i], self, nodes)
        if self.part_count > 0:
            out.put_i8(0)                                       # tags of the last topic
        out.put_i32(self.throttle_ms)
        self.leaders.put_endpoints(out, self.listener, nodes)
        out.end_frame(start)
        return 0


cdef Py_ssize_t begin_response(OutBuffer out, int16_t version, int32_t correlation_id, int32_t topic_count) except -1:
    cdef Py_ssize_t start = out.begin_frame(correlation_id, version >= PRODUCE_FLEXIBLE_FROM)
    out.put_array_size(topic_count, version >= PRODUCE_FLEXIBLE_FROM)
    return start


cdef int end_response(OutBuffer out, int16_t version, Py_ssize_t start, Py_ssize_t part_count,
                      int32_t throttle_ms) except -1:
    if part_count > 0 and version >= PRODUCE_FLEXIBLE_FROM:
        out.put_i8(0)                                           # tags of the last topic
    out.put_i32(throttle_ms)                                    # last in this API
    if version >= PRODUCE_FLEXIBLE_FROM:
        out.put_i8(0)
    out.end_frame(start)
    return 0


cdef inline bint is_faulty(const ProducePart* part) noexcept nogil:
    """Return whether the append refused individual records rather than the whole batch."""
    return ((part.error == INVALID_RECORD or part.error == INVALID_TIMESTAMP)
            and part.result.record_error_index >= 0)


cdef RecordFaults find_faults(LogCore log, const unsigned char* records, Py_ssize_t size, ProducePart* part):
    """Find the bad records of a part, and set the part's error to the one for all of them."""
    cdef RecordFaults faults = log.owner.faults_of(records[:size], part.result.timestamp_min, part.result.timestamp_max)
    part.error = INVALID_TIMESTAMP if faults.has_timestamps else INVALID_RECORD
    log.traffic.keys_missing += faults.keyless_count
    return faults


cdef bytes fault_text(RecordFault fault):
    if fault == FAULT_KEY:
        return b"a record of a compacted topic must have a key"
    if fault == FAULT_TIMESTAMP:
        return b"the timestamp differs from the broker's clock by more than the topic allows"
    return b"the record is malformed, or its offset delta is wrong"


cdef int encode_text(OutBuffer out, bytes text, bint flexible) except -1:
    out.put_string(<const unsigned char*>PyBytes_AS_STRING(text), len(text), flexible)
    return 0


cdef int encode_faults(OutBuffer out, RecordFaults faults, bint flexible) except -1:
    """Write the fields record_errors and error_message."""
    cdef int32_t i
    out.put_array_size(faults.named_count, flexible)
    for i in range(faults.named_count):
        out.put_i32(faults.named[i].index)
        encode_text(out, fault_text(faults.named[i].fault), flexible)
        if flexible:
            out.put_i8(0)
    encode_text(out, b"%d of %d records were refused" % (faults.fault_count, faults.record_count), flexible)
    return 0


cdef inline int encode_part(OutBuffer out, int16_t version, ProducePart* part, bint first,
                            RecordFaults faults) except -1:
    """Write one partition's response. If the partition is the first of its topic, write the topic before it."""
    encode_part_fields(out, version, part, first, faults)
    if version >= PRODUCE_FLEXIBLE_FROM and part.parts_of_topic != 0:
        out.put_i8(0)
    return 0


cdef int put_part_tags(OutBuffer out, int16_t version, ProducePart* part, ProduceServer server, set nodes) except -1:
    """Write the tags of a partition's response. If it is led elsewhere, they name its leader, which is added to
    `nodes`."""
    cdef Topic topic
    cdef LogCore log
    if part.parts_of_topic == 0:
        return 0
    if part.error != NOT_LEADER_OR_FOLLOWER:
        return out.put_i8(0)
    topic = server.topic_of(part, version)
    if topic is None or part.index < 0 or part.index >= len(<tuple>topic.cores):
        return out.put_i8(0)                                    # deleted meanwhile
    log = <LogCore>(<tuple>topic.cores)[part.index]
    if log.led:
        return out.put_i8(0)                                    # led here meanwhile
    nodes.add(log.leader_id)
    return server.leaders.put_leader(out, PRODUCE_LEADER_TAG, log)


cdef inline int encode_part_fields(OutBuffer out, int16_t version, ProducePart* part, bint first,
                                   RecordFaults faults) except -1:
    """Write all fields of a partition's response except its tags."""
    cdef bint flexible = version >= PRODUCE_FLEXIBLE_FROM
    cdef bint failed = part.error != 0
    if part.first_of_topic:
        if flexible and not first:
            out.put_i8(0)                                       # tags of the previous topic
        put_topic(out, part.topic, part.topic_size, version >= TOPIC_IDS_FROM, flexible)
        out.put_array_size(part.parts_of_topic, flexible)
    if part.parts_of_topic == 0:
        return 0
    out.put_i32(part.index)
    out.put_i16(<int16_t>part.error)
    out.put_i64(-1 if failed else part.result.base_offset)
    out.put_i64(-1 if failed else part.result.append_time_ms)
    if version >= 5:
        out.put_i64(-1 if failed else part.result.log_start_offset)
    if version >= 8:
        if faults is not None:
            encode_faults(out, faults, flexible)
        else:
            out.put_array_size(0, flexible)
            if flexible:
                out.put_i8(0)
            else:
                out.put_i16(-1)
    return 0


# ---- requests that wait ---------------------------------------------------------------------------------------------

@cython.final
cdef class PendingPart(WaitingPart):
    """One partition of a request that could not be answered at once, with its batch."""

    cdef int release(self) except -1:
        global deferred_bytes
        if self.records is not None:
            deferred_bytes -= len(self.records)
            kl_assert(deferred_bytes >= 0)
            self.records = None
        return 0


@cython.final
cdef class PendingProduce(WaitingRequest):
    """A Produce request whose response waits for the gate, the I/O pool, the disk or replicas."""

    cdef int prepare(self, Answer answer, object pool) except -1:
        """Set the place of its response. Its parts are then started one by one."""
        self.answer = answer
        if self.timeout_ms >= 0:
            answer.when_abandoned(self.give_up)
        self.pool = pool
        self.remaining = 1
        return 0

    cdef int start(self, Answer answer, object pool) except -1:
        self.prepare(answer, pool)
        return self.begin(pool)

    cdef int64_t held_size(self) except -1:
        """Return the approximate size in bytes of the waiting request."""
        cdef PendingPart part
        cdef int64_t size = PARKED_SIZE
        for part in self.parts:
            size += PART_SIZE
            if part.records is not None:
                size += len(part.records)
        return size

    cdef void* sole(self):
        """Return the only log of the request, if acks is all and the log has followers; else NULL."""
        cdef PendingPart part = self.parts[0]
        if len(self.parts) > 1 or self.acks != -1 or part.log is None or part.log.followers is None:
            return NULL
        return <void*>part.log

    def give_up(self):
        """Stop waiting for replicas, because the client has gone. Without a response, its errors are not counted."""
        self.counters = None
        self.expire(0.0)

    cdef int append(self, WaitingPart waiting) except -1:
        cdef PendingPart pending = <PendingPart>waiting
        cdef ProducePart* part = &pending.part
        cdef unsigned char[::1] view = pending.records
        cdef AppendTerms terms = AppendTerms(
            FROM_CLIENT if self.ask is None else self.ask.origin, pending.admitted, ANY_EPOCH, self.acks == -1)
        cdef int outcome
        cdef LogCore log = pending.log
        if log.followers is not None and terms.acks_all and has_too_few(log):
            pending.error = part.error = NOT_ENOUGH_REPLICAS
            return APPEND_REFUSED
        outcome = append_records(log, &view[0], view.shape[0], True, &part.result, &terms)
        pending.wants_replicas = terms.acks_all and part.result.replicates
        pending.leader_epoch = part.result.leader_epoch
        part.error = part.result.error
        if is_faulty(part):
            pending.faults = find_faults(pending.log, &view[0], view.shape[0], part)
        pending.error = part.error
        pending.end_offset = part.result.end_offset
        pending.wants_flush |= part.result.flush_due
        return outcome

    cdef int lose_answer(self) except -1:
        self.answer.fail()
        return 0

    cdef int answer_all(self) except -1:
        cdef OutBuffer out
        cdef PendingPart pending
        cdef Py_ssize_t start
        cdef set nodes
        cdef int32_t topic_count = 0
        cdef bint failed = False
        for pending in self.parts:
            topic_count += pending.part.first_of_topic
            failed = failed or pending.error != 0
            if self.counters is not None and pending.part.parts_of_topic > 0:
                self.counters.note_error(KEY_OF_PRODUCE, pending.error)
        if self.acks == 0:
            if failed:
                self.answer.fail()
            else:
                self.answer.complete_silently()
            return 0
        out = OutBuffer.__new__(OutBuffer)
        start = begin_response(out, self.version, self.correlation_id, topic_count)
        nodes = set() if failed and self.server is not None and self.version >= PRODUCE_LEADERS_FROM else None
        for i, pending in enumerate(self.parts):
            pending.part.error = pending.error
            if nodes is None:
                encode_part(out, self.version, &pending.part, i == 0, pending.faults)
            else:
                encode_part_fields(out, self.version, &pending.part, i == 0, pending.faults)
                put_part_tags(out, self.version, &pending.part, self.server, nodes)
        if nodes is None:
            end_response(out, self.version, start, len(self.parts), self.throttle_ms)
        else:
            out.put_i8(0)                                       # tags of the last topic
            out.put_i32(self.throttle_ms)
            self.server.leaders.put_endpoints(out, self.listener, nodes)
            out.end_frame(start)
        self.answer.complete(PyBytes_FromStringAndSize(<const char*>out.data, out.size))
        return 0


@cython.final
cdef class ProduceRun:
    """A Produce request with many partitions, which its worker serves in turns between other connections.

        append each part ─▶ request the flushes, once all are appended ─▶ respond, when all parts are DONE ─▶ free

    As in Kafka, a received request is completed even if its client disconnects.
    """

    def __cinit__(self):
        OLD_OBJECTS.spare()

    def __dealloc__(self):
        free(self.frame)
        OLD_OBJECTS.resume()

    cdef bint take_turn(self, int64_t turn_ns, double now) except -1:
        """Do the work that fits into a turn. Return True if nothing but the response is left to wait for."""
        cdef int64_t until = now_ns() + turn_ns
        cdef list parts = self.pending.parts
        cdef int32_t count = self.server.part_count
        self.server.now = now
        while self.at < count:
            self.serve_some(min(count, self.at + PARTS_PER_LOOK))
            if now_ns() >= until:
                return False
        while self.begun < count:
            self.flush_some(min(count, self.begun + PARTS_PER_LOOK))
            if now_ns() >= until:
                return False
        if not self.counted:
            self.counted = True
            self.pending.count_down()
            return not self.pending.done
        while parts:
            del parts[max(0, len(parts) - PARTS_PER_LOOK):]
            if now_ns() >= until:
                return False
        return True

    cdef int serve_some(self, int32_t end) except -1:
        """Serve the parts before `end`. Each is then DONE or waits, as in any PendingProduce."""
        cdef ProduceServer server = self.server
        cdef PendingPart waiting
        cdef LogCore log
        while self.at < end:
            log = None
            if server.parts[self.at].parts_of_topic > 0:
                log = server.serve_part(self.at, self.version)
            waiting = server.pending_part(&server.parts[self.at], log, server.flush)
            if server.faults is not None:
                waiting.faults = server.faults.pop(self.at, None)
            self.pending.parts.append(waiting)
            if waiting.state != FLUSHING:
                self.pending.begin_part(self.at)
            self.at += 1
        return 0

    cdef int flush_some(self, int32_t end) except -1:
        """Start the flushes of parts that wait only for the disk. Other parts' waits have already started."""
        while self.begun < end:
            if self.server.parts[self.begun].state == FLUSHING:
                self.pending.begin_part(self.begun)
            self.begun += 1
        return 0


cdef ProduceRun run_of(ProduceServer server, int16_t version, int32_t correlation_id, Py_ssize_t moved, void* frame,
                       Answer answer):
    """Return the run of a request for which `serve` returned TAKES_TURNS.

    The request's bytes were moved by `moved` bytes into `frame`, which the run frees.
    """
    cdef ProduceRun run = ProduceRun.__new__(ProduceRun)
    cdef int32_t i
    run.frame = frame
    run.version = version
    run.server = server = server.hand_over()
    for i in range(server.part_count if moved != 0 else 0):
        server.parts[i].topic += moved
        if server.parts[i].records != NULL:
            server.parts[i].records += moved
    run.pending = server.new_pending(version, correlation_id)
    run.pending.parts = []
    run.pending.prepare(answer, server.pool)
    return run
