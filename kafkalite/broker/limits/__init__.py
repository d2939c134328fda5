"""Limits that keep one client from taking what all clients share: network threads, memory, and entries of tables.

A *holder* (`holder.py`) is the unit that these limits compare: one principal at one address.

    holder         the party that a share is charged to
    shares         the last tenth of a limit, reserved for small holders; `partitions`: of max.partitions
    long_requests  the thread for long requests           pace    its portions of work
    collector      the garbage collector during large requests
    memory         describes the memory ceiling           budget  the memory that the settings allow in total

A long request. Dispatch estimates the cost. A body above `table.INLINE_SIZE` is long. For a shorter one the decoded
items count, times the row's `item_us`, plus what `handlers.costs` estimates for null lists and large topics. Above
`table.INLINE_US` the request is parked and submitted to `LongRequests`. So is a request that was pipelined or is not
short once its holder has used its `InlineShare` of the network threads.

The thread decodes, checks the gate, calls the handler, encodes and frees. Loops over a client's items run over
`checkpointed(items)`, and the codec calls the same `Pace`: a portion of 0.2 ms ends with a sleep of at least the same
time, without any lock. `Pace.charge_to` charges the growth of the response. A handler that may wait for a disk runs on
the I/O pool, where all long requests share one thread; the long-request thread builds and encodes the result of a
Deferred. When the client has disconnected or the broker stops, the next checkpoint raises `Stopped`.

A network worker serves one connection for at most a millisecond in a loop turn (`TURN_NS_MAX`), and a few connections
(`EVENTS_MAX`). A Produce request with more than 512 partitions stays on its worker: a `ProduceRun` takes its bytes and
appends some of its parts in each portion, then requests the flushes, responds and frees. The connection is not read
meanwhile, and the request is completed even if its client disconnects, as in Kafka. A body of more than 256 KiB is not
copied: the connection gives its receive buffer away (`LargeBody`). A Fetch with many partitions is a `FetchRun`.
Workers serve both kinds of runs in portions of 0.1 ms (`PORTION_NS_MAX`), one portion at a time in the whole broker,
and each is followed by a pause twice as long: other clients need the GIL and the core meanwhile.
"""
