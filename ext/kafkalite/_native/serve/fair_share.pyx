"""Limit the records of one partition in the response to a fetch of several partitions.

Without this limit, a client that works on partitions in parallel may get hundreds of records of one partition in a row.
Then only one of its threads is busy. With the limit, a response has at most one share of each partition.

Shares cost more responses. So a partition is sent in shares only if few records of it are left, and if its batches have
few records. The longer a client's round trip, the fewer records may be left.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.log.log_slice cimport LogSlice
from kafkalite._native.log.record_format cimport PARSED, ItemInfo, RecordFormat

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_INFO

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    int getsockopt(int fd, int level, int name, void* value, socklen_t* size)

cdef enum:
    SHARE_BATCHES = 16          # of a share at least, however many records they hold
    LITTLE_LEFT = 4096          # records: a partition with more to come is read in bulk
    TURNS_US_MAX = 20000        # of round trips, until all that is left was sent in shares
    MIN_RTT_AT = 148            # of the kernel's struct tcp_info: tcpi_min_rtt, microseconds, since Linux 4.6
    NOT_MEASURED = 0xFFFFFFFF


cdef int64_t round_trip_us(int fd) noexcept:
    """Return a connection's shortest round trip of the last minutes in µs; 0: unknown."""
    cdef unsigned char info[MIN_RTT_AT + 4]
    cdef socklen_t size = sizeof(info)
    cdef uint32_t found
    if getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &size) != 0 or size < sizeof(info):
        return 0
    memcpy(&found, info + MIN_RTT_AT, 4)
    return 0 if found == NOT_MEASURED else found


cdef int64_t shared_max(int fd) noexcept:
    """Return up to how many remaining records a partition's records are sent in shares."""
    return shared_max_of(round_trip_us(fd))


cdef inline int64_t shared_max_of(int64_t rtt_us) noexcept:
    return min(<int64_t>LITTLE_LEFT, TURNS_US_MAX * SHARE_RECORDS // max(<int64_t>1, rtt_us))


cdef int64_t share_of(LogSlice piece, int64_t offset) noexcept:
    """Return the size in bytes of one share of a slice, which begins at or before `offset`."""
    cdef RecordFormat format = piece.segment.format
    cdef const unsigned char* records = piece.segment.map + piece.position
    cdef int64_t place = piece.segment.base_offset + piece.position
    cdef int64_t size = 0
    cdef int batches = 0
    cdef ItemInfo info
    while size < piece.size:
        if format.parse(records + size, piece.size - size, place + size, &info) != PARSED:
            return piece.size                           # the file was changed: the send reports it
        if batches >= SHARE_BATCHES and info.next_offset - offset > SHARE_RECORDS:
            break
        batches += 1
        size += info.size
    kl_assert(0 < size <= piece.size)
    return size


def measured(int fd):
    """Return (round trip in µs, or 0; shared_max()) of a connection. For tests."""
    return round_trip_us(fd), shared_max(fd)


def shared_at(int64_t rtt_us):
    """Return up to how many remaining records a partition is sent in shares, at this round trip. For tests."""
    return shared_max_of(rtt_us)
