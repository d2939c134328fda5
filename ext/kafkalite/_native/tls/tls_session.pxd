"""Declare the TLS session of one connection, between the worker's buffers and libssl."""

from libc.stdint cimport int64_t
from kafkalite._native.tls.libssl cimport SSL
from kafkalite._native.tls.tls_context cimport TlsContext

cdef enum:
    TLS_CAPACITY = 262144           # of a worker's buffers
    TLS_HELD_MAX = 17408            # what libssl may hold back of records that came cut: one record
    TLS_RECORD_SIZE = 16384         # of the data of a full record


cdef struct TlsCut:
    # Position in the stream of received records. Both are 0 between two records.
    unsigned char header[5]
    unsigned int header_size
    unsigned int body_left
    # The same for handshake messages in plaintext.
    unsigned char message[4]
    unsigned int message_size
    unsigned int message_left
    bint sealed                     # the following records are encrypted, or are not of a handshake
    bint excessive                  # a message announced a size above the limit; libssl has not received it


cdef struct TlsLink:
    const unsigned char* received   # ciphertext that libssl may read
    size_t received_size
    TlsCut* cut                     # of the session that reads it
    SSL* ssl                        # its
    unsigned char* out              # ciphertext that it wrote
    size_t out_size
    size_t out_capacity


cdef class TlsBuffers:
    cdef TlsLink link
    cdef unsigned char* sealed      # what recv filled
    cdef unsigned char* plain       # parts of an answer on their way into records


cdef class TlsSession:
    cdef TlsContext context         # of its handshake: a new one is for new connections
    cdef TlsBuffers buffers
    cdef SSL* ssl                   # NULL until the first bytes have come
    cdef readonly bint established
    cdef TlsCut cut
    cdef bint keeps                 # libssl's buffers, between two requests
    cdef bint ended                 # the peer closed, or broke the protocol
    cdef readonly str problem       # why it ended, None for an ordinary end
    cdef int64_t barren             # bytes that brought no data, less what data has earned since
    cdef int64_t record_count       # sealed since the last change of keys
    cdef unsigned char* unsent      # sealed and not taken by the socket: goes first, unchanged
    cdef Py_ssize_t unsent_size
    cdef Py_ssize_t unsent_capacity
    cdef Py_ssize_t piece_size      # of what is sealed at once

    cdef int begin(self) except -1
    cdef Py_ssize_t open(self, Py_ssize_t size, unsigned char* target, Py_ssize_t room) except -1
    cdef int unseal(self, unsigned char* target, size_t room, size_t* done) noexcept nogil
    cdef void keep_buffers(self, bint keeps) noexcept
    cdef void release(self) noexcept nogil
    cdef int handshake(self) except -1
    cdef int end(self, str problem) except -1
    cdef str mistake(self)
    cdef Py_ssize_t send(self, int fd, const unsigned char* plain, Py_ssize_t size, const int* fault=*) except -2
    cdef int flush(self, int fd) except -2
    cdef int push(self, int fd) except -2
    cdef int pushed(self, const unsigned char* start, size_t left, int error) except -2
    cdef int keep(self, const unsigned char* sealed, Py_ssize_t size) except -1
    cdef void say_goodbye(self, int fd) noexcept
