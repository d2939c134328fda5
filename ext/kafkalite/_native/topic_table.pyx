"""Topics by name and by id, looked up from bytes of a request without making a str.

Topics are immutable: a change of settings or partitions publishes a new Topic, and the table replaces its dicts as a
whole, so that readers need no lock. Only the LogManager publishes.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize


cdef class Topic:
    """One incarnation of a topic with its settings and partitions."""

    def __init__(self, str name, bytes topic_id, partitions, config, overrides, *, bint internal=False):
        if len(topic_id) != 16:
            raise ValueError(f"a topic id has 16 bytes, not {len(topic_id)}")
        self.name = name
        self.name_utf8 = name.encode()
        self.id = topic_id
        self.partitions = tuple(partitions)
        self.config = config
        self.overrides = dict(overrides)
        self.internal = internal

    def __repr__(self):
        return f"Topic({self.name!r}, partitions={len(self.partitions)})"


cdef class TopicTable:
    """The topics of a broker."""

    def __cinit__(self):
        self.by_name = {}
        self.by_id = {}

    cdef Topic find(self, const unsigned char* name, Py_ssize_t size):
        """The topic of that name, or None."""
        return self.by_name.get(PyBytes_FromStringAndSize(<const char*>name, size))

    cdef Topic find_id(self, const unsigned char* topic_id):
        """The topic of that 16-byte id, or None."""
        return self.by_id.get(PyBytes_FromStringAndSize(<const char*>topic_id, 16))

    def publish(self, topics):
        """Replaces the whole contents."""
        by_name = {}
        by_id = {}
        for topic in topics:
            by_name[(<Topic?>topic).name_utf8] = topic
            by_id[(<Topic>topic).id] = topic
        self.by_id = by_id
        self.by_name = by_name

    def get(self, bytes name):
        """The topic of that name in UTF-8, or None."""
        return self.by_name.get(name)

    def get_id(self, bytes topic_id):
        """The topic of that id, or None."""
        return self.by_id.get(topic_id)

    def __len__(self):
        return len(self.by_name)

    def __iter__(self):
        return iter(self.by_name.values())
