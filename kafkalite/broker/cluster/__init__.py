"""Run a broker in a cluster whose controllers are Apache Kafka's (KRaft).

A standalone broker imports none of these modules.

Modules without I/O, clock or thread:

    metadata_types, control_types    records of the metadata log; generated
    records                          encodes and decodes these records
    image, replay                    the cluster at one offset; the next image from committed records
    quorum, observer                 finds the quorum's leader; follows the metadata log
    lifecycle                        registration and heartbeats
    follower                         what a follower fetches from a leader
    replication_limits               throttled replication
    divergence                       where a follower's log must be truncated
    in_sync                          the in-sync replicas that a leader proposes

Modules with I/O, clock or thread:

    member, membership_setup   membership and its threads; builds it from settings and a data directory
    connection, security       a connection to a controller or a broker; its TLS and SASL
    brokers, peers             connections to other brokers; requests between coordinators and leaders
    forwarding, creation       forwards requests to the controller; asks it to create missing topics
    producer_ids, settings     producer ids from the controller; the settings in an image
    racks                      the racks of replicas, for the metadata hash of a group's topics
    partitions                 derives from an image which partitions this broker has and leads
    fetchers                   the threads that replicate from leaders
    alter_partition            proposes changes of the in-sync replicas
    directories                takes damaged replicas out of service
    metrics                    the cluster's metrics
    foreign_users              reads users with their credentials from another broker's files
    bootstrap_users            writes users into the files of controllers that have not started yet

The module `kafkalite.broker.handlers.cluster_table` lists the APIs of a broker in a cluster.

From start to stop:

1. Setup. With `process.roles=broker`, `Broker` builds a `Member`. A new directory gets the cluster id from a
   controller. The listeners are bound first, since the registration names their ports.
2. Metadata. The metadata thread fetches the metadata log (`Observer`), applies committed records to a `Delta`, and
   publishes the next `Image`. A transaction of the controllers is one step.
3. Heartbeats. The heartbeat thread registers and then reports the offset of the published image (`Lifecycle`). The
   start ends when the broker's own image shows it unfenced. `Broker.stop` ends the wait earlier.
4. Requests. A handler uses one image for its response. A request that only the controller may decide is forwarded in an
   Envelope. Quotas, users, ACLs and settings come from each image (`membership_setup`, `settings`); the journal has
   none of them.
5. Partitions. `partitions` derives from each image which partitions this broker has and leads. `AssignedTopics` opens
   their logs, and changes the logs under their locks. If no other broker has a replica, the high watermark is at the
   log end. A partition without a replica here is an `Elsewhere`.
6. Replication. The `Fetchers` start or stop fetching from a leader when a log has changed (`replica_listeners`). A log
   itself rejects records from a leader of another epoch.
7. Coordinators. A broker that becomes the leader of a partition of a coordinator's topic first reads the whole
   partition (`LedPartitions`). A write is answered when the high watermark has passed it in the same leader epoch.
8. In-sync replicas. A leader's log has `Followers`. When a follower fetches, C code notes its offset, moves the high
   watermark and wakes waiting consumers, acks=all producers and DeleteRecords. `InSyncReplicas` proposes changes of the
   in-sync replicas.
9. Damage. If a replica is damaged or cannot be written, `DirectoryAssignments` reports its directory as lost, so that
   the controllers elect another leader. Then its fetcher truncates the replica at the damage, and fetches the rest.
10. Stop. The heartbeats first ask for a controlled shutdown. The clean-shutdown file contains the broker's epoch.
"""
