"""Coordinate consumer groups (membership, assignment, committed offsets) and transactions.

    groups                        GroupCoordinator: dispatches group requests; loads, expires and deletes groups
    group_table                   the groups in memory, limited by max.groups
    offset_requests               CommittedOffsets: offset commits, fetches and deletions, transaction markers
    base                          GroupBase: base class of groups of both protocols
    group                         Group: one group of the classic protocol, built from the next nine modules
    classic_state                 members, leader, generation and protocol of a classic group
    classic_parts                 objects that the parts of one classic group share
    joins                         JoinGroup: admission of members and their ids
    static_members                returning members with a group.instance.id
    pending_members               issued member ids that have not joined yet
    rebalance                     rebalances, up to the next generation
    syncs                         SyncGroup: writes the leader's assignment durably and distributes it
    member_sessions               member lifecycle: sessions, delayed responses, memory
    member_answers                responses to JoinGroup and SyncGroup
    members                       Member: one member of a classic group
    consumer_group                ConsumerGroup: one consumer group (KIP-848), built from the next ten modules
    consumer_heartbeats           ConsumerGroupHeartbeat
    classic_members               JoinGroup, SyncGroup and Heartbeat of classic members in a consumer group
    membership                    members join, change, reconcile, leave and are fenced
    subscriptions                 subscribed topics, updated when topics are created, changed or deleted
    downgrade                     conversion of a consumer group with only classic members to a classic group
    operation_queue               batches the changes of requests and timeouts, one write per batch
    member_timers                 timers for sessions, revocations, joins and syncs
    member_memory                 memory of members of both protocols, charged to their clients
    staged_changes                the durable state, the staged state, and the records for the difference
    consumer_parts                objects that the parts of one consumer group share
    consumer_environment          objects that all consumer groups share
    conversion                    converts a group's state between the two protocols
    consumer_state                the state of a consumer group, and a member's next reconciliation step
    consumer_records              records of consumer groups, in Kafka's schemas
    consumer_replay               rebuilds consumer groups from these records
    metadata_hash                 Kafka's hash of a group's subscribed topics
    assignors                     partition assignors, as pure functions
    topic_regex                   regular-expression subscriptions
    group_offsets                 a group's committed offsets and their expiry
    transaction_coordinator       TransactionCoordinator: transactional ids, durable changes, timeouts, expiry
    transactional_offset_commits  offset commits inside a transaction
    transactional_id              one transactional id in memory, and the requests that wait for it
    transaction_rules             the state transitions of a transactional id
    transaction_records           the records of transactional ids, in Kafka's schemas
    marker_writer                 writes transaction markers to the partitions of a transaction
    marker_requests               requests between a transaction coordinator and a partition leader
    remote                        sends these requests to other brokers of a cluster
    producer_ids                  unique producer ids
    outbox                        collects responses under a lock, and delivers them after its release
    shards                        loads, serves and unloads the partitions of both coordinators' topics
    shard_leadership              in a cluster: loads the partitions that this broker leads, unloads the others
    state_log                     `__consumer_offsets`, `__transaction_state`: ordered durable writes, and reading
    migrated_state                prepares a standalone broker's groups and transactional ids for a cluster
    shard_epoch                   the partition and leader epoch of a group or transactional id
    log_writer                    ordered writes to one partition, many per flush
    records                       the records of classic groups and of committed offsets, in Kafka's schemas
    group_replay                  rebuilds groups and offsets from the records of one partition
    timer_queue                   one clock-driven queue for every timeout
    failure_log                   limits the log lines for a repeated failure

Requests are messages of `kafkalite.wire.protocol`. A response that has to wait is a `kafkalite.base.deferred.Deferred`.

Lock order: a transactional id's lock ▸ a group's lock ▸ the locks of the tables, the timers and the state log. The last
three are leaves. Responses are delivered without any of these locks.

A transaction:

    InitProducerId        gives a transactional id its producer id and epoch, and fences the older producer
    AddPartitionsToTxn    begins the transaction, or adds partitions to it
    TxnOffsetCommit       appends *pending* offsets to `__consumer_offsets`, as part of the transaction
    EndTxn                writes Prepare durably, and responds
    `MarkerWriter`        writes a marker to every partition; a durable marker commits or drops pending offsets
    Complete              is written when all markers are durable
"""
