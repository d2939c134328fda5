"""Store partitions as directories of segment files, as Kafka does.

    manager             opens and closes a data directory, changes its topics, and runs its threads
    topic_source        supplies the topics of a standalone broker, from the journal
    assigned            supplies the topics of a broker in a cluster, from the controllers' metadata
    assignment          one partition as the controllers' metadata describes it
    journal             the durable topics, settings, users, ACLs, quotas and ids
    metadata_store      reads and changes the journal for request handlers
    offset_checkpoints  checkpoint files: recovery points, log start offsets, high watermarks
    opening             opens all logs of a data directory
    loading             opens one log, and recovers it
    adoption            partition directories that the journal does not know
    removals            partition directories that are renamed and removed

    partition_log       the log of one partition: appends, rolls, flushes
    replica_log         the log of a partition with replicas: leader or follower
    remote_partition    a partition of the cluster without a replica on this broker
    log_truncation      truncates the log of a follower
    log_state           the public state of a log
    leader_epochs       the start offset of each leader epoch
    producer_state      loads, saves and expires the state of producers
    record_checks       checks compressed records, and finds bad records
    recode              recompresses a batch with another codec
    markers             transaction markers
    formats             record formats by name
    classic/            topics in Kafka 0.7's format

    flusher             group commit
    sealer              makes full segments durable
    housekeeping        the thread for periodic work
    upkeep              the interface of a data directory for its maintenance threads
    retention           chooses the segments to delete
    segment_removal     deletes segments
    cleaner             chooses the logs to compact
    compaction          compacts one log
    swap                replaces segments by compacted ones
    recovery            truncates or quarantines unreadable bytes
    time_lookup         finds records by time
    backup_cut          makes hard links for a backup of a running broker
    handover            turns a standalone broker's directory into a cluster member's
    checking, repair    `kafkalite log check`, `kafkalite log repair`

    index_file          the file of a segment's index
    indexes             loads and saves the indexes of a log
    snapshots           files with producer state
    transaction_index   files with aborted transactions
    quarantine_file     files with the damaged ranges of a segment
    checkpoints         Kafka's small text files
    high_watermarks     the checkpoint of high watermarks
    expiry_checkpoint   the file with the time by which records expire
    entries             file names that a flush has to make durable
    files               names of files, and small files that are replaced as a whole
    directory           the root of a data directory: lock, identity, clean-shutdown file
    offline_journal     the journal of a stopped broker
    disk                the file system, or a simulated one

Except for classic/, the package does not know requests, sockets or the protocol. It reports appends through listeners.

The module that writes a file describes its layout. The file tests/power/README.md lists what is durable when a request
is answered.

Terms:

    position            the place of a byte in a file
    roll                close the active segment and begin the next one
    seal                trim, sync and index a closed segment
    delete horizon      the time after which compaction may remove a tombstone or marker
    group commit        one `fdatasync` for all waiting producers
    classic topic       a topic in Kafka 0.7's format
    classic group       a group that uses Kafka's older group protocol
    leader epoch        on a standalone broker: rises with every unclean start, so that clients notice a truncated log
"""
