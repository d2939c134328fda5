"""Reading as a member of a consumer group, by the classic protocol.

    group_reader.py        GroupReader: what the caller sees; rebalances, callbacks, commits
    holdings.py            the partitions that are this member's, and how far each of them is
    one_thread.py          what keeps other threads out, and wakes the one that is inside
    membership.py          a thread that joins, beats and leads
    commits.py             committed offsets: sent, awaited, fetched
    assignors.py           who gets which partitions, as Java's assignors decide

What members and leader say to each other, as bytes: `kafkalite.wire.consumer_protocol`. Groups are described and
deleted in `kafkalite.client.admin`.

Each GroupReader has one thread (`Membership`), with its own connections. Partitions, positions and callbacks belong
to the caller's thread.
"""
