"""Keep one client from using up the resources that all clients share: network threads, memory, and entries of tables.

These limits apply to *holders* (`holder.py`): a holder is one principal at one address, with all its connections.

    holder         identifies the holder of a connection
    shares         reserves the last tenth of a table's limit for small holders; `partitions`: that of max.partitions
    long_requests  the thread for long requests           pace    its portions of work
    collector      the garbage collector during large requests
    memory         describes the memory ceiling           budget  the memory that the settings allow in total

Long requests. Dispatch estimates the cost of a request. A body above `table.INLINE_SIZE` is long. For a smaller body
the cost is the number of items times the API's `item_us`, plus the estimate of `handlers.costs` for null lists and
large topics. Above `table.INLINE_US` the request is parked and submitted to `LongRequests`. Once a holder has used its
`InlineShare` of the network threads, its requests that were pipelined or are not short are submitted, too.

The thread for long requests decodes, checks the permission for the API, calls the handler, encodes, and frees memory.
Loops over a client's items run over `checkpointed(items)`, and the codec calls the same `Pace`. After a portion of 0.2
ms the thread sleeps at least as long, without any lock. `Pace.charge_to` charges the growth of the response. A handler
that may wait for a disk runs on the I/O pool, where all long requests share one thread. If the handler returns a
Deferred, the thread for long requests builds and encodes its result. When the client has disconnected or the broker
stops, the next checkpoint raises `Stopped`.

A network worker serves one connection for at most a millisecond in a loop turn (`TURN_NS_MAX`), and a few connections
(`EVENTS_MAX`). A Produce request with more than 512 partitions stays on its worker: a `ProduceRun` takes over its bytes
and appends some of its partitions in each portion. Then it requests the flushes, responds, and frees memory. The
connection is not read meanwhile, and the request is completed even if its client disconnects, as in Kafka. A body of
more than 256 KiB is not copied: the connection hands over its receive buffer (`LargeBody`). A Fetch with many
partitions is a `FetchRun`. Workers serve both kinds of runs in portions of 0.1 ms (`PORTION_NS_MAX`), one portion at a
time in the whole broker. After each portion there is a pause twice as long, in which other clients get the GIL and the
core.
"""
