"""Who leads a partition that is not led here, told in the answers of Produce 10 and Fetch 16 (KIP-951).

A partition's answer gets the leader and its epoch; the answer as a whole where those leaders are, by the listener that
the client came in on. Only a broker in a cluster has one of these, and only refusals come here, or with `by_rack`
consumers that tell their rack: they are to read from the leader if that is there, else from the replica in sync there
that has most (KIP-392).

Source: ReplicaManager.findPreferredReadReplica and RackAwareReplicaSelector of Kafka 4.1.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.log.followers cimport Follower, Followers
from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.serve.transfer cimport OutBuffer

cdef enum:
    LEADER_SIZE = 9                     # id, epoch, own tags
    ENDPOINTS_TAG = 0


cdef class Leaders:
    """`address_of` gives (host in UTF-8, port, rack in UTF-8 or None) of a listener and a node id, or None."""

    def __init__(self, address_of, *, bint by_rack=False):
        self.address_of = address_of
        self.by_rack = by_rack

    cdef bint is_in(self, bytes rack, object listener, int32_t node_id) except -1:
        """Whether a node can be reached, and is in a rack."""
        address = self.address_of(listener, node_id)
        return address is not None and address[2] == rack

    cdef int32_t preferred(self, LogCore log, bytes rack, int64_t offset, object listener) except -2:
        """The follower that a consumer in a rack is to read a log from, from an offset on; -1: the leader."""
        cdef Followers followers = log.followers
        cdef Follower* row
        cdef list found = []
        cdef int32_t i
        if followers is None or self.is_in(rack, listener, log.leader_id):
            return -1
        for i in range(followers.count):
            row = &followers.rows[i]
            if row.in_sync and row.log_start <= offset <= row.end_offset:
                found.append((row.end_offset, row.caught_up_at, row.id))
        for _, _, node_id in sorted(found, reverse=True):
            if self.is_in(rack, listener, node_id):
                return node_id
        return -1

    cdef int put_leader(self, OutBuffer out, int tag, LogCore log) except -1:
        """The tag buffer of a partition's answer."""
        out.put_uvarint(1)
        out.put_uvarint(<unsigned int>tag)
        out.put_uvarint(LEADER_SIZE)
        out.put_i32(log.leader_id)
        out.put_i32(log.leader_epoch)
        return out.put_i8(0)

    cdef int put_endpoints(self, OutBuffer out, object listener, object nodes) except -1:
        """The tag buffer of an answer: where these nodes are, those of which it is known."""
        cdef OutBuffer inner = OutBuffer.__new__(OutBuffer)
        cdef list found = []
        cdef bytes host
        cdef bytes rack
        for node_id in sorted(nodes):
            address = self.address_of(listener, node_id)
            if address is not None:
                found.append((node_id, address))
        if not found:
            return out.put_i8(0)
        inner.put_array_size(len(found), True)
        for node_id, (host, port, rack) in found:
            inner.put_i32(node_id)
            inner.put_string(<const unsigned char*>PyBytes_AS_STRING(host), PyBytes_GET_SIZE(host), True)
            inner.put_i32(port)
            if rack is None:
                inner.put_uvarint(0)
            else:
                inner.put_string(<const unsigned char*>PyBytes_AS_STRING(rack), PyBytes_GET_SIZE(rack), True)
            inner.put_i8(0)
        out.put_uvarint(1)
        out.put_uvarint(ENDPOINTS_TAG)
        out.put_uvarint(<unsigned int>inner.size)
        return out.put(inner.data, inner.size)
