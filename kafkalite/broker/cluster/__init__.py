"""Run a broker in a cluster whose controllers are Apache Kafka's (KRaft).

A single-node broker imports only `bootstrap_users` and `foreign_users`.

Without I/O, clock or thread:

    metadata_types, control_types, records    records of the metadata log; the two `_types` modules are generated
    image, replay                             the cluster at one offset, and the next image from committed records
    quorum, observer                          finds the quorum's leader; follows the metadata log
    lifecycle                                 registration and heartbeats
    follower, replication_limits              what a follower fetches from a leader; its throttled rate
    divergence                                where a follower's log must be truncated
    in_sync                                   the in-sync replicas that a leader proposes

With them:

    member, membership_setup  membership and its threads; builds it from settings and a data directory
    connection, security   a connection to a controller or a broker, and its TLS and SASL
    brokers, peers         connections to other brokers; requests between coordinators and leaders
    forwarding, creation   forwards requests to the controller; has it create missing topics
    producer_ids, settings   producer ids from the controller; the settings in an image
    racks                  the racks of replicas, for the metadata hash of a group's topics
    partitions             derives from an image which partitions this broker has and leads
    fetchers               the threads that replicate from leaders
    alter_partition        proposes changes of the in-sync replicas
    directories            takes damaged replicas out of service
    metrics                the cluster's metrics
    foreign_users          reads users with their credentials from another broker's files
    bootstrap_users        writes users into the files of controllers that have not started yet

`kafkalite.broker.handlers.cluster_table` lists the APIs of a broker in a cluster.

From start to stop:

1. `process.roles=broker` makes `Broker` build a `Member`. A new directory gets the cluster id from a controller. The
   listeners are bound first, since the registration names their ports.
2. The metadata thread fetches the metadata log (`Observer`), holds records until the high watermark has passed them,
   applies them to a `Delta` and publishes the next `Image`. A transaction of the controllers is one step.
3. The heartbeat thread registers and then reports the offset of the published image (`Lifecycle`). Once the broker has
   caught up and all parts run, it asks to be unfenced. The start ends when the broker's own image shows it unfenced;
   `Broker.stop` ends the wait earlier.
4. Handlers answer from one image. A request that only the controller may decide is forwarded in an Envelope. Quotas,
   users, ACLs and settings come from each image (`membership_setup`, `settings`); the journal holds none of them.
5. From the first image that has this process's registration on, `partitions` gives `AssignedTopics` the partitions that
   this broker has and leads. The first time, logs are opened, and partition directories that belong to no partition of
   this broker are set aside. Later, logs begin or stop to lead. If no other broker has a replica, the high watermark
   is at the log end. A partition without a replica here is an `Elsewhere`: Produce and Fetch look it up like any other
   one, and it refuses them, like a log that this broker does not lead.
6. `AssignedTopics` changes the logs under their locks, publishes them, and calls `replica_listeners`: the `Fetchers`
   start or stop fetching from a leader. A log itself rejects records from a leader of another epoch.
7. A broker that becomes the leader of a partition of a coordinator's topic first reads the whole partition. It serves
   the groups or transactional ids when every in-sync replica has these records (`LedPartitions`). A write is answered
   when the high watermark has passed it in the same leader epoch. State of a group or transactional id belongs to the
   epoch in which it was read or created (`ShardEpoch`) and is written only in that epoch.
8. A leader's log has `Followers`. When a follower fetches, C code notes its offset, moves the high watermark and wakes
   waiting consumers, acks=all producers and DeleteRecords. `InSyncReplicas` proposes to add followers that caught up
   and to remove those that lag. Until the controllers answer, the replicas of both sets count for the high watermark.
9. A replica in which damage is found after its start, or that cannot be written, is not *fit*. While others are in
   sync, `DirectoryAssignments` reports its directory as lost, so the controllers elect another leader. Its fetcher
   truncates it at the damage. It joins again when it has caught up with its leader.
10. At a stop the heartbeats first ask for a controlled shutdown. The clean-shutdown marker holds the broker's epoch.
"""
