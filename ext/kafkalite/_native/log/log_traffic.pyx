"""Count the bytes and records that are appended to and read from logs, for metrics. Each log has a `Traffic`.

Thread rule: any thread, with the GIL.
"""

from libc.stdint cimport int64_t

from kafkalite._native.log.log_core cimport LogCore, Traffic


def sum_traffic(logs):
    """Of several logs, since each was loaded: batches given, refused, and refused for their checksum; records and bytes
    appended, bytes refused; reads that were answered, refused, converted, and their bytes; batches refused for their
    magic, for offsets, count or sequence; records refused for the key that they lack."""
    cdef LogCore log
    cdef Traffic* traffic
    cdef int64_t[13] sums
    cdef int i
    for i in range(13):
        sums[i] = 0
    for log in logs:
        traffic = &log.traffic
        sums[0] += traffic.appends
        sums[1] += traffic.appends_failed
        sums[2] += traffic.checksums_failed
        sums[3] += traffic.records_in
        sums[4] += traffic.bytes_in
        sums[5] += traffic.bytes_refused
        sums[6] += traffic.fetches
        sums[7] += traffic.fetches_failed
        sums[8] += traffic.conversions
        sums[9] += traffic.bytes_out
        sums[10] += traffic.magics_failed
        sums[11] += traffic.numbers_failed
        sums[12] += traffic.keys_missing
    return tuple([sums[i] for i in range(13)])
