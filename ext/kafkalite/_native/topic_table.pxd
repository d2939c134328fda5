"""Topics by name and by id, looked up from bytes of a request without making a str."""

cdef class Topic:
    cdef readonly str name
    cdef readonly bytes name_utf8
    cdef readonly bytes id              # 16 bytes
    cdef readonly tuple partitions      # of PartitionLog, by number
    cdef readonly object config         # TopicConfig
    cdef readonly dict overrides        # key -> value as the user set it
    cdef readonly bint internal

cdef class TopicTable:
    cdef dict by_name                   # name_utf8 -> Topic; replaced, never changed
    cdef dict by_id
    cdef Topic find(self, const unsigned char* name, Py_ssize_t size)
    cdef Topic find_id(self, const unsigned char* topic_id)
