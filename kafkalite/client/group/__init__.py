"""Reading as a member of a consumer group, by the classic protocol.

group_reader.py        GroupReader: the partitions that are this member's, positions, callbacks
membership.py          a thread that joins, beats and leads
commits.py             committed offsets: sent, awaited, fetched
assignors.py           who gets which partitions, as Java's assignors decide
consumer_protocol.py   what members and leader say to each other, as bytes
"""
