"""Administer a cluster: topics, configurations, consumer groups, transactions, users, ACLs and quotas.

    acls.py           Acls: finds, creates and deletes ACLs
    admin.py          Admin: topics, partitions, configurations, DeleteRecords, log directories
    groups.py         Groups: consumer groups and their committed offsets
    resets.py         plans offset resets of a group
    quorum.py         describes the KRaft controller quorum
    quotas.py         ClientQuotas: quotas of users, client ids and addresses
    reassignments.py  Reassignments: replica assignments and preferred leader elections
    transactions.py   TransactionAdmin: transactional ids and open transactions
    users.py          Users: SCRAM users

Each call sends its request to the broker that is responsible for it, and waits for the response.
"""
