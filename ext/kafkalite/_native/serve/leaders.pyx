"""Who leads a partition that is not led here, told in the answers of Produce 10 and Fetch 16 (KIP-951).

A partition's answer gets the leader and its epoch; the answer as a whole where those leaders are, by the listener that
the client came in on. Only a broker in a cluster has one of these, and only refusals come here.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.serve.transfer cimport OutBuffer

cdef enum:
    LEADER_SIZE = 9                     # id, epoch, own tags
    ENDPOINTS_TAG = 0


cdef class Leaders:
    """`address_of` gives (host in UTF-8, port, rack in UTF-8 or None) of a listener and a node id, or None."""

    def __init__(self, address_of):
        self.address_of = address_of

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
