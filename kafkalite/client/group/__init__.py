"""Read topics as a member of a consumer group (classic protocol).

    group_reader.py        GroupReader: the public class, with rebalances, callbacks and commits
    holdings.py            the partitions assigned to this member and their positions
    one_thread.py          lets only one thread at a time use the reader, and wakes that thread on close
    membership.py          a thread that joins the group, sends heartbeats and acts as group leader
    commits.py             commits and fetches offsets
    assignors.py           assignment strategies, compatible with Java's assignors

The encoding of subscriptions and assignments is in `kafkalite.wire.consumer_protocol`. Groups are described and deleted
in `kafkalite.client.admin`.

Each GroupReader has one thread (`Membership`) with separate connections. Everything else runs in the caller's thread.
"""
