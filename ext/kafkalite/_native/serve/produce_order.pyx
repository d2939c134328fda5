"""Which Produce requests have to wait until those before them on their connection are answered: in a cluster, acks=all.

Answers leave a connection in the order of its requests. A batch that was appended, and whose log is led elsewhere
before its replicas have it, is answered with that: at once, or the producer writes on to the new leader, and when it
learns at last that it has to send this batch again, the new leader, who has got it too, knows it no more (a producer's
last five batches are remembered). So no such answer may stand behind the wait of anything else:

    owed before it                                 a Produce with acks=all of a log with followers
    nothing                                        is served
    writes of the same log, and of no other one    is served: what ends one wait ends all
    anything else                                  waits, in the socket, until nothing is owed

Apache Kafka's connections are muted while a request of theirs is served (SocketServer), which is the same and more.
Within one request waits hold each other here as there. A broker that stands alone never asks.
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
    cdef Cursor c
    cdef Py_ssize_t ignored
    cdef int16_t version, acks
    cdef int32_t i
    cdef Topic topic
    cdef LogCore log
    if size < HEADER_SIZE_MIN or load_i16(frame) != produce.key:
        return False                                            # what signs in may be a token, of any size
    version = load_i16(frame + 2)
    if not produce.oldest <= version <= produce.newest:
        return False
    cursor_init(&c, frame + 8, size - 8)
    read_string(&c, False, &ignored)
    if version >= PRODUCE_FLEXIBLE_FROM:
        skip_tags(&c)
    if c.status != OK or not server.parse(version, <unsigned char*>c.pos, c.end - c.pos, &acks) or acks != -1:
        return False                                            # whoever serves it says what is wrong with it
    for i in range(server.part_count):
        topic = server.topic_of(&server.parts[i], version)
        if topic is None or server.parts[i].index < 0 or server.parts[i].index >= len(<tuple>topic.cores):
            continue
        log = <LogCore>(<tuple>topic.cores)[server.parts[i].index]
        if log.followers is not None and (<void*>log != sole or server.part_count > 1):
            return True
    return False
