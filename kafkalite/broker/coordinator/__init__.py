"""Consumer groups: who is in them, who reads what, how far they got. Transactions: who writes, and what comes of it.

    groups                        GroupCoordinator: requests of members, a group from first use to deletion, expiry
    group_table                   which groups there are, as max.groups allows
    offset_requests               what all groups have committed: commits, fetches, the ends of transactions
    base                          what groups of both protocols have
    group                         Group: one group of the classic protocol, of the eight parts that follow
    classic_state                 its members, leader, generation and protocol
    classic_parts                 what its parts share
    joins                         JoinGroup: who may join, under which id
    static_members                members with a group.instance.id that come back
    pending_members               member ids that were promised and are not used yet
    rebalance                     when a rebalance begins, for whom it waits, the next generation
    syncs                         SyncGroup: the leader's assignment, made durable and handed out
    member_sessions               members from the first join to the end: sessions, waits, memory
    member_answers                answers to joins and syncs
    members                       what a group knows of one member
    consumer_group                ConsumerGroup: one consumer group (KIP-848), of the nine parts that follow
    consumer_heartbeats           ConsumerGroupHeartbeat
    classic_members               JoinGroup, SyncGroup and Heartbeat of classic members in a consumer group
    membership                    members join, change, are reconciled, leave and are fenced
    subscriptions                 the topics that members read, as topics are created, change and are deleted
    downgrade                     a consumer group of classic members alone becomes a classic group
    operation_queue               what requests and timeouts change, in batches of one write
    member_timers                 timers of sessions, revocations, joins and syncs
    member_memory                 what members of both kinds of groups hold, charged to their clients
    staged_changes                the durable and the staged state, and the records of what differs
    consumer_parts                what its parts share
    consumer_environment          what all consumer groups share
    conversion                    what a group of one kind is as one of the other
    consumer_state                what such a group is, and a member's next step towards its target
    consumer_records              its records, in Kafka's schemas
    consumer_replay               groups out of those records
    metadata_hash                 Kafka's hash of the topics that such a group reads
    assignors                     who shall read what, as pure functions
    topic_regex                   subscriptions by regular expression
    group_offsets                 a group's committed offsets and when they expire
    transaction_coordinator       TransactionCoordinator: transactional ids, durable changes, timeouts, expiry
    transactional_offset_commits  offsets that are committed in a transaction
    transactional_id              one id in memory, and the requests that wait for it
    transaction_rules             the rules: what an id may do next
    transaction_records           the records of transactional ids, in Kafka's schemas
    marker_writer                 brings a transaction's outcome into the logs of its partitions
    producer_ids                  ids for producers, none given twice
    outbox                        the lock of a group or id, and answers that wait until it is free
    shards                        the life of the partitions of both coordinators: loading, serving, elections
    state_log                     `__consumer_offsets`, `__transaction_state`: durable writes in order, reading them
    migrated_state                what a standalone broker's groups and ids need to go into a cluster
    shard_epoch                   where something of a group or an id is kept, and in which leader epoch
    log_writer                    writes to one partition, in order, many with one flush
    records                       the records of groups, in Kafka's schemas
    timer_queue                   one clock-driven queue for every timeout

Requests come as messages of `kafkalite.wire.protocol`; who cannot be answered at once gets a
`kafkalite.base.deferred.Deferred`.

Lock order: a transactional id's lock ▸ a group's lock ▸ the tables', the timers', the state log's (leaves all three).
Answers are delivered, and other rooms called back, with none of them held.

An offset commit: the handler asks `CommittedOffsets`, which checks generation and member under the group's lock,
hands the records to the `StateLog` in that order and returns a Deferred. One job of the I/O pool appends everything
that waits for a partition of `__consumer_offsets` and asks for one flush. After the flush the offsets are applied to
the group, which makes them visible, and the client is answered.

Joins: a JoinGroup waits for the other members, a SyncGroup until the leader's assignment is durable. In a consumer
group (KIP-848) a heartbeat that changes the group waits until the change is durable; any other one is answered at once.

A transaction: InitProducerId gives a transactional id its producer id and epoch and fences the older producer.
AddPartitionsToTxn begins the transaction or extends it. TxnOffsetCommit appends offsets to `__consumer_offsets` as part
of it; they are *pending*. EndTxn makes Prepare durable and answers, then a marker goes to every partition
(`MarkerWriter`). Pending offsets take effect or are dropped when their marker is durable; then Complete is written. A
start resumes what is between. What the producer sends meanwhile is parked, and later requests of its connection wait in
the I/O pool (`IoPool.hold`). A transaction that times out is aborted the same way, one epoch higher.
"""
