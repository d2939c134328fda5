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
    forwarding, creation, producer_ids, settings   requests, topics, producer ids and settings of the controllers
    racks                  the racks of replicas, for the metadata hash of a group's topics
    partitions             derives from an image which partitions are here and which of them are led
    fetchers               the threads that replicate from leaders
    alter_partition        proposes changes of the in-sync replicas
    directories            takes damaged replicas out of service
    metrics                the cluster's metrics
    foreign_users, bootstrap_users   users read from other brokers' files; written into those of a new controller

`kafkalite.broker.handlers.cluster_table` lists the APIs of a broker in a cluster.

From start to stop:

1. `process.roles=broker` makes `Broker` build a `Member`. A new directory gets the cluster id from a controller. The
   listeners are bound first, since the registration names their ports.
2. The metadata thread fetches the metadata log (`Observer`), holds records until the high watermark has passed them,
   applies them to a `Delta` and publishes the next `Image`. A transaction of the controllers is one step.
3. The heartbeat thread registers and then reports the offset of the published image (`Lifecycle`). Once the broker has
   caught up and all parts run, it asks to be unfenced. The start ends when the broker's own image shows it.
   `Broker.stop` ends that wait.
4. Handlers answer from one image. A request that only the controller may decide is forwarded in an Envelope. Quotas,
   users, ACLs and settings come from each image (`membership_setup`, `settings`); the journal holds none of them.
5. From the first image that has this process's registration, `partitions` gives `AssignedTopics` the partitions that
   are here and led. The first time, logs are opened and strays set aside; later, logs lead or resign. A log whose only
   replica is here has its high watermark at its end. All other partitions are `Elsewhere`: Produce and Fetch look up
   all partitions the same way, and a core that is not led refuses.
6. `AssignedTopics` changes the logs under their locks, publishes, and calls `replica_listeners`: the `Fetchers` start
   or stop fetching from a leader. A log itself rejects records from a leader of another epoch.
7. The leader of a partition of a coordinator's topic serves its groups or transactional ids once it has read all of it
   and every in-sync replica has it (`LedPartitions`). A write is answered when the high watermark has passed it in the
   same leader epoch. A group or an id belongs to the epoch in which it was read or created (`ShardEpoch`) and is
   written in no other.
8. A leader's log has `Followers`. A follower's fetch is noted once, in C: it moves the high watermark and wakes
   consumers, acks=all and DeleteRecords. `InSyncReplicas` proposes followers that caught up or lag; until the
   controllers answer, the replicas of both sets count.
9. A replica that finds damage after its start, or cannot be written, is not *fit*. `DirectoryAssignments` reports it in
   a lost directory while others are in sync, which moves leadership away. Its fetcher truncates it at the damage, and
   it returns when it has what its leader has.
10. At a stop the heartbeats ask for a controlled shutdown first. The clean-shutdown marker holds the broker's epoch.
"""
