"""Administration of a cluster.

    acls.py           Acls: ACLs
    admin.py          Admin: topics, partitions, configurations, DeleteRecords, log directories
    groups.py         Groups: consumer groups and their committed offsets
    reassignments.py  Reassignments: replica assignments and preferred leader elections
    transactions.py   TransactionAdmin: transactional ids and open transactions

Each call sends its request to the broker responsible and waits for the response.
"""
