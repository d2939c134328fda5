"""Run a broker in a cluster whose controllers are Apache Kafka's (KRaft).

A standalone broker imports none of these modules.

Modules without I/O, clock or thread:

    metadata_types, control_types    records of the metadata log; generated
    records                          encodes and decodes these records
    image                            the cluster at one offset of the metadata log
    replay                           makes the next image from committed records
    quorum                           finds the quorum's leader
    observer                         follows the metadata log
    lifecycle                        registration and heartbeats
    follower                         what a follower fetches from a leader
    replication_limits               throttled replication
    divergence                       where a follower's log must be truncated
    in_sync                          the in-sync replicas that a leader proposes

Modules with I/O, clock or thread:

    member             this broker's membership and its threads
    membership_setup   builds a member from settings and a data directory
    connection         a connection to a controller or another broker
    security           the TLS and SASL of such a connection
    brokers            connections to other brokers
    peers              requests between coordinators and leaders
    forwarding         forwards requests to the controller
    creation           asks the controller to create missing topics
    producer_ids       producer ids from the controller
    settings           the settings in an image
    racks              the racks of replicas, for the metadata hash of a group's topics
    partitions         derives from an image which partitions this broker has and leads
    fetchers           the threads that replicate from leaders
    alter_partition    proposes changes of the in-sync replicas
    directories        takes damaged replicas out of service
    metrics            the cluster's metrics
    foreign_users      reads users with their credentials from another broker's files
    bootstrap_users    writes users into the files of controllers that have not started yet

The module `kafkalite.broker.handlers.cluster_table` lists the APIs of a broker in a cluster.

From start to stop:

    setup           a new data directory gets the cluster id from a controller; `Broker` builds a `Member`
    metadata        the `Observer` follows the metadata log; listeners get each new `Image`
    heartbeats      the `Lifecycle` registers, and then reports the offset of the published image
    partitions      `AssignedTopics` opens the logs that an image gives to this broker
    replication     `Fetchers` fetch from leaders; `InSyncReplicas` proposes the ISRs of led partitions
    coordinators    `LedPartitions` loads the partitions of the coordinators' topics that this broker leads
    stop            heartbeats ask for a controlled shutdown
"""
