"""Read topics as a member of a consumer group (classic protocol).

    group_reader.py        GroupReader: the public class, with rebalances, callbacks and commits
    holdings.py            the partitions assigned to this member and their positions
    one_thread.py          rejects use by a second thread, and interrupts the first when the reader is closed
    membership.py          a thread that joins the group, sends heartbeats and acts as group leader
    commits.py             commits and fetches offsets
    assignors.py           assignment strategies, compatible with Java's assignors

The encoding of subscriptions and assignments is in `kafkalite.wire.consumer_protocol`. Groups are described and deleted
in `kafkalite.client.admin`.

Each GroupReader has one thread (`Membership`) with separate connections. Partitions, positions and callbacks belong to
the caller's thread.
"""
