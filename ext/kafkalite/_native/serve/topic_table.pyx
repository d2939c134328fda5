"""Look up topics by name or id from a request's bytes, without creating a str.

Topics are immutable: a change of settings or partitions creates a new Topic, and the LogManager publishes the whole
table again.

Thread rule: any thread reads without a lock, because the table's dicts are replaced as a whole. Only the LogManager
publishes.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t

from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.wire.error_codes cimport INCONSISTENT_TOPIC_ID, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION

# Topics made by this process. Guarded by the GIL.
cdef int64_t topics_made = 0


cdef class Topic:
    """A topic with its settings and partitions. A topic that is deleted and recreated is a new one with another id."""

    def __init__(self, str name, bytes topic_id, partitions, config, overrides, *, bint internal=False):
        global topics_made
        if len(topic_id) != 16:
            raise ValueError(f"a topic id must have 16 bytes, not {len(topic_id)}")
        self.name = name
        self.name_utf8 = name.encode()
        self.id = topic_id
        self.partitions = tuple(partitions)
        self.cores = tuple([<LogCore?>log.core for log in self.partitions])
        self.config = config
        self.overrides = dict(overrides)
        self.internal = internal
        topics_made += 1
        self.number = topics_made

    def __repr__(self):
        return f"Topic({self.name!r}, partitions={len(self.partitions)})"


cdef class TopicTable:
    """The topics of a broker."""

    def __cinit__(self):
        self.by_name = {}
        self.by_id = {}

    cdef Topic find(self, const unsigned char* name, Py_ssize_t size):
        """Return the topic with a name, or None."""
        return self.by_name.get(PyBytes_FromStringAndSize(<const char*>name, size))

    cdef Topic find_id(self, const unsigned char* topic_id):
        """Return the topic with a 16-byte id, or None."""
        return self.by_id.get(PyBytes_FromStringAndSize(<const char*>topic_id, TOPIC_ID_SIZE))

    def publish(self, topics):
        """Replace all topics."""
        by_name = {}
        by_id = {}
        for topic in topics:
            by_name[(<Topic?>topic).name_utf8] = topic
            by_id[(<Topic>topic).id] = topic
        self.by_id = by_id
        self.by_name = by_name
        self.generation += 1

    def get(self, bytes name):
        """Return the topic with a name in UTF-8, or None."""
        return self.by_name.get(name)

    def get_id(self, bytes topic_id):
        """Return the topic with an id, or None."""
        return self.by_id.get(topic_id)

    def __len__(self):
        return len(self.by_name)

    def __iter__(self):
        return iter(self.by_name.values())


@cython.final
@cython.freelist(64)
cdef class TopicRef:
    """A topic in a request, by name or id, with the result of its last look-up.

    A deleted topic's id is never reused (KIP-516). So an id that the table does not know gives one of three errors.
    UNKNOWN_TOPIC_ID: this object has never found it. UNKNOWN_TOPIC_OR_PARTITION: found before, but the topic is
    deleted. INCONSISTENT_TOPIC_ID: found before, but another topic has its name now.
    """

    def __init__(self):
        raise TypeError("TopicRef is made by the broker")

    @staticmethod
    cdef TopicRef new(const unsigned char* key, Py_ssize_t size, bint by_id):
        cdef TopicRef ref = TopicRef.__new__(TopicRef)
        ref.key = PyBytes_FromStringAndSize(<const char*>key, size)
        ref.by_id = by_id
        ref.seen = -1
        return ref

    cdef Topic resolve(self, TopicTable table):
        """Look up the topic again; return it, or None. Then error_of() returns the reason."""
        cdef Topic namesake
        cdef Topic _before                  # its end may run any code: not until the fields agree again
        if self.seen == table.generation:
            return self.topic
        _before = self.topic
        self.seen = table.generation
        if not self.by_id:
            self.topic = table.by_name.get(self.key)
            self.error = UNKNOWN_TOPIC_OR_PARTITION
            return self.topic
        self.topic = table.by_id.get(self.key)
        if self.topic is not None:
            self.name = self.topic.name_utf8
            self.error = UNKNOWN_TOPIC_OR_PARTITION
        elif self.name is None:
            self.error = UNKNOWN_TOPIC_ID
        else:
            namesake = table.by_name.get(self.name)
            self.namesake_size = 0 if namesake is None else len(<tuple>namesake.cores)
            self.error = UNKNOWN_TOPIC_OR_PARTITION if namesake is None else INCONSISTENT_TOPIC_ID
        return self.topic

    cdef int error_of(self, int32_t partition) noexcept:
        """Return the error code of a partition that the last resolve() did not find."""
        if self.error == INCONSISTENT_TOPIC_ID and not 0 <= partition < self.namesake_size:
            return UNKNOWN_TOPIC_OR_PARTITION
        return self.error
