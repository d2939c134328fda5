"""Decide which Produce requests with acks=all wait until earlier responses of their connection are sent.

A request that writes to a log with followers is served at once in two cases:

- No earlier response waits.
- The request writes to one log, and all earlier responses that wait are for writes to this log. Then a change of
  leadership ends all these waits together.

Otherwise the request waits in the socket until no earlier response waits.

If leadership changes before the replicas have a batch, its producer must get the error at once, and not after another
response.

A standalone broker never needs this check. Apache Kafka always mutes a connection while it serves a request
(SocketServer), which includes this rule.
"""

from libc.stdint cimport int16_t, int32_t

from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.serve.produce cimport PRODUCE_FLEXIBLE_FROM, ProduceServer
from kafkalite._native.serve.topic_table cimport Topic
from kafkalite._native.serve.worker_parts cimport NativeApi
from kafkalite._native.wire.cursor cimport HEADER_SIZE_MIN, Cursor, cursor_init, load_i16, read_string, skip_tags
from kafkalite._native.wire.status cimport OK


cdef bint has_to_wait(ProduceServer server, const NativeApi* produce, const void* sole, unsigned char* frame,
                      Py_ssize_t size) except -1:
    """Return whether a request waits.

    Without the wait, a producer may send later batches to the new leader first, and resend the failed batch only after
    them. The new leader may already have this batch, but remembers only a producer's last five batches. So it would not
    detect the duplicate. Partitions of one request wait for each other, as in Kafka.
    """
    cdef Cursor c
    cdef Py_ssize_t ignored
    cdef int16_t version, acks
    cdef int32_t i
    cdef Topic topic
    cdef LogCore log
    if size < HEADER_SIZE_MIN or load_i16(frame) != produce.key:
        return False                                            # an authentication token may have any size
    version = load_i16(frame + 2)
    if not produce.oldest <= version <= produce.newest:
        return False
    cursor_init(&c, frame + 8, size - 8)
    read_string(&c, False, &ignored)
    if version >= PRODUCE_FLEXIBLE_FROM:
        skip_tags(&c)
    if c.status != OK or not server.parse(version, <unsigned char*>c.pos, c.end - c.pos, &acks) or acks != -1:
        return False                                            # the handler of the request reports the error
    for i in range(server.part_count):
        topic = server.topic_of(&server.parts[i], version)
        if topic is None or server.parts[i].index < 0 or server.parts[i].index >= len(<tuple>topic.cores):
            continue
        log = <LogCore>(<tuple>topic.cores)[server.parts[i].index]
        if log.followers is not None and (<void*>log != sole or server.part_count > 1):
            return True
    return False
