"""The log engine: partitions as directories of segment files, from the data directory down to the batch.

    manager         opens and closes a data directory; topics, partitions, the threads that serve them
    topic_source    which topics there are: the journal's; assigned: a cluster's
    opening         plans and opens logs                     removals   directories that are renamed and removed
    journal         topics, settings and ids, durably        metadata_store   what of them handlers read and change
    offset_checkpoints   recovery points, log starts, high watermarks
    partition_log   one partition: rolls and flushes; it owns a `_native.log.log_core`, to which log_append appends
    log_state       what there is to see of a log
    loading         a partition directory → an open log      recovery   what to do with bytes that are no batches
    flusher         group commit                             retention  which segments may go
    sealer          full segments, made durable              segment_removal   how they go
    indexes         a log's indexes: loaded, saved
    leader_epochs   where each leader epoch began            producer_state  producers: loaded, saved, expired
    entries         names a flush has to make durable        adoption   directories that the journal does not know
    record_checks   compressed records, and bad ones         quarantine damage that is remembered
    classic/        topics in Kafka 0.7's format
    index_file · snapshots · checkpoints · files             the small files beside the logs, and how they are written

It knows nothing of requests, sockets or the wire; it reports appends through listeners.

    compaction · cleaner · swap                              compacted topics: one pass, its schedule, its renames
    replica_log · log_truncation                             a partition with replicas; how its log is cut
    expiry_checkpoint · quarantine_file                      the time by which records expire; damage, across restarts
    backup_cut · handover                                    one moment for a backup; a directory that joins a cluster
    checking · repair                                        `kafkalite log check`, `kafkalite log repair`

The layout of each file is in the module that writes it. A format carries a version, and its module says how older files
are read. Durability of each answer: tests/power/README.md.

A start of a replica keeps the longest whole front of the log, takes leader epochs from the batches that it reads, and
quarantines nothing unless no other replica is in sync or eligible. A segment gets its name only after those before it
have theirs on the disk.

Terms: an *offset* is a record's number in its partition, a *position* a byte's place in a file, a *size* is in
bytes, a *count* is of things, an *index* starts at 0. The *active* segment is the last one. To *roll* is to close it
and begin the next; to *seal* is to sync, cut and index a closed one. A *marker* is the control batch that ends a
transaction; its *gate* is the coordinator that admits it. *Dirty* is what was written since the last compaction. The
*delete horizon* is the time from which a tombstone or marker that compaction has reached may go. *Group commit* is
one `fdatasync` for all producers that wait. *Classic* means Kafka 0.7's; of consumer groups it is Kafka's word for
their older protocol. The *leader epoch* rises with every unclean start, so that clients notice a shorter log.
"""
