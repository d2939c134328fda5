"""Administration of a cluster.

    acls.py           Acls: rules of who may do what
    admin.py          Admin: topics, partitions, configurations, DeleteRecords, log directories
    groups.py         Groups: consumer groups and their committed offsets
    reassignments.py  Reassignments: which brokers have and lead partitions
    transactions.py   TransactionAdmin: transactional ids, and what is open in partitions

Each call asks the broker that can answer it, and waits for the answer.
"""
