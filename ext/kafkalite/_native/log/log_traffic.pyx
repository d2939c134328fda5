"""Sum up the metrics of logs: batches and bytes that were appended, read or refused. Each log counts in its `Traffic`.

Thread rule: any thread, with the GIL.
"""

from libc.stdint cimport int64_t

from kafkalite._native.log.log_core cimport LogCore, Traffic


def sum_traffic(logs):
    """Return the sums of these counters over several logs, each since it was loaded, as a tuple of 13 numbers:

        batches to append, of which refused, of which with a wrong checksum
        appended records, appended bytes, refused bytes
        reads, refused reads, converted reads, bytes read
        batches refused for their magic; for offsets, count or sequence; records refused for a missing key
    """
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
