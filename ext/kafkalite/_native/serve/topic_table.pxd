"""Look up topics by name or id from a request's bytes, without creating a str."""

from libc.stdint cimport int32_t, int64_t

cdef enum:
    TOPIC_ID_SIZE = 16

cdef class Topic:
    cdef readonly str name
    cdef readonly bytes name_utf8
    cdef readonly bytes id              # 16 bytes
    cdef readonly tuple partitions      # of PartitionLog, by number
    cdef tuple cores                    # their LogCores
    cdef readonly object config         # TopicConfig
    cdef readonly dict overrides        # key -> value as the user set it
    cdef readonly bint internal
    cdef readonly int64_t number        # unique in this process; from 1

cdef class TopicTable:
    cdef dict by_name                   # name_utf8 -> Topic; replaced, never changed
    cdef dict by_id
    cdef readonly int64_t generation    # rises with each publish
    cdef Topic find(self, const unsigned char* name, Py_ssize_t size)
    cdef Topic find_id(self, const unsigned char* topic_id)

cdef class TopicRef:
    cdef readonly bytes key             # the name in UTF-8, or the id
    cdef readonly bint by_id
    cdef Topic topic                    # as of `seen`; None: see `error`
    cdef int error                      # a Kafka error code
    cdef int64_t seen                   # the table's generation at the last look, -1 before the first
    cdef bytes name                     # by id: the name under which the topic was found, None if never
    cdef Py_ssize_t namesake_size       # by id: partitions of a later topic of that name

    @staticmethod
    cdef TopicRef new(const unsigned char* key, Py_ssize_t size, bint by_id)
    cdef Topic resolve(self, TopicTable table)
    cdef int error_of(self, int32_t partition) noexcept
