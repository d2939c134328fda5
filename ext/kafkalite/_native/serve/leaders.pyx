"""Add the current leader to error responses (KIP-951), and select read replicas (KIP-392).

KIP-951 concerns Produce from version 10 and Fetch from version 16: a partition that another broker leads has its leader
and leader epoch in the response, and the response has the leaders' endpoints on the client's listener. KIP-392 concerns
consumers that send their rack, and is enabled by `by_rack`.

Only a broker in a cluster has this object. Source: ReplicaManager.findPreferredReadReplica and RackAwareReplicaSelector
of Kafka 4.1.
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
    """The leaders of a cluster, as clients see them.

    `address_of` returns (host in UTF-8, port, rack in UTF-8 or None) of a listener and a node id, or None.
    """

    def __init__(self, address_of, *, bint by_rack=False):
        self.address_of = address_of
        self.by_rack = by_rack

    cdef bint is_in(self, bytes rack, object listener, int32_t node_id) except -1:
        """Return whether a node is known to the listener and in a rack."""
        address = self.address_of(listener, node_id)
        return address is not None and address[2] == rack

    cdef int32_t preferred(self, LogCore log, bytes rack, int64_t offset, object listener) except -2:
        """Return the follower from which a consumer in a rack should read a log at an offset; -1 for the leader.

        A consumer in the leader's rack reads from the leader. Otherwise it reads from the in-sync replica of its rack
        with the highest log end.
        """
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
        """Write the tag buffer of a partition's response: its leader and leader epoch."""
        out.put_uvarint(1)
        out.put_uvarint(<unsigned int>tag)
        out.put_uvarint(LEADER_SIZE)
        out.put_i32(log.leader_id)
        out.put_i32(log.leader_epoch)
        return out.put_i8(0)

    cdef int put_endpoints(self, OutBuffer out, object listener, object nodes) except -1:
        """Write the tag buffer of a response: the known endpoints of these nodes."""
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
