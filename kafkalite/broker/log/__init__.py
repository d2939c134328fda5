"""Store partitions as directories of segment files: append, flush, index, recover, retain, compact.

    manager         opens and closes a data directory; topics, partitions, and the threads that serve them
    topic_source    topics of a standalone broker, from the journal; assigned: of a cluster's broker
    opening         plans and opens logs                     removals   directories that are renamed and removed
    journal         durable topics, settings and ids         metadata_store   the part that handlers read and change
    offset_checkpoints   recovery points, log start offsets, high watermarks
    partition_log   one partition: rolls and flushes; owns a `_native.log.log_core`, to which log_append appends
    log_state       the public state of a log
    loading         opens a log from its directory           recovery   decides what happens to unreadable bytes
    flusher         group commit                             retention  chooses the segments to delete
    sealer          makes full segments durable              segment_removal   deletes them
    indexes         a log's indexes: load, save              leader_epochs  start offset of each leader epoch
    producer_state  producers: load, save, expire            entries    file names that a flush has to make durable
    record_checks   compressed and bad records               adoption   directories that the journal does not know
    markers         transaction markers                      recode     batches in another codec
    formats         record formats by name                   classic/   topics in Kafka 0.7's format
    index_file · snapshots · checkpoints · files             the small files of a log, and how they are written
    compaction · cleaner · swap                              compacted topics: one pass, its schedule, its renames
    replica_log · log_truncation                             a partition with replicas; truncation of its log
    assignment · remote_partition · high_watermarks          what a broker in a cluster knows about partitions
    expiry_checkpoint · quarantine_file                      the trusted time, and damage, across restarts
    backup_cut · handover                                    links for a backup; a directory that joins a cluster
    checking · repair                                        `kafkalite log check`, `kafkalite log repair`
    housekeeping · upkeep                                    periodic work; what its threads see of the directory
    disk · directory · offline_journal                       file system, root of a data directory, a stopped broker

The package does not know requests, sockets or the protocol. It reports appends through listeners.

The module that writes a file describes its layout, its version, and how older versions are read. tests/power/README.md
lists what is durable when a request is answered.

A starting replica keeps the longest intact prefix of its log and takes leader epochs from the batches that it reads. It
quarantines damage only if no other replica is in sync or eligible to lead (KIP-966). A segment gets its file name only
after the names of all earlier segments are durable.

Terms:

    offset, position    the number of a record in its partition; the place of a byte in a file
    size, count         a number of bytes; a number of other things
    active segment      the last segment of a log, to which records are appended
    roll, seal          close the active segment and begin the next one; trim, sync and index a closed segment
    marker              the control batch that ends a transaction
    gate                the transaction coordinator, which admits a transaction's first batch to a log
    dirty               written since the last compaction
    delete horizon      the time after which compaction may remove a tombstone or marker
    group commit        one `fdatasync` for all waiting producers
    classic topic       a topic in Kafka 0.7's format (but a classic group uses Kafka's older group protocol)
    leader epoch        of a standalone broker: rises with every unclean start, so that clients notice a truncated log
"""
