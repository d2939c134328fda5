"""The log engine: partitions as directories of segment files, from the data directory down to the batch.

    manager         opens and closes a data directory; topics, partitions, the threads behind them
    journal         topics, settings and ids, durably
    partition_log   one partition: rolls, flushes, retention; it owns a `_native.log.log_core`, which appends and reads
    log_state       what there is to see of a log
    loading         a partition directory → an open log      recovery   what to do with bytes that are no batches
    flusher         group commit                             retention  which segments may go
    entries         names a flush has to make durable        adoption   directories that the journal does not know
    record_checks   compressed records, and bad ones         quarantine damage that is remembered
    classic/        topics in Kafka 0.7's format
    index_file · snapshots · checkpoints · files             the small files beside the logs, and how they are written

It knows nothing of requests, sockets or the wire; it reports appends through listeners.
"""
