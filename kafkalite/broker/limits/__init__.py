"""Keep one client from using up the resources that all clients share: network threads, memory, entries of tables.

The limits apply to *holders*: a holder is one principal at one address, with all its connections.

    holder         identifies the holder of a connection
    shares         reserves the last tenth of a table's limit for small holders
    partitions     counts partitions by holder, for max.partitions
    long_requests  runs long requests on a separate thread
    pace           divides a long request into portions with rests
    collector      adjusts the garbage collector during large requests
    memory         describes the memory that the broker holds for clients
    budget         adds up the memory that the settings allow

Dispatch decides whether a request is *long*:

    large body                   a body above `table.INLINE_SIZE`
    costly items                 their estimated cost is above `table.INLINE_US`: the number of items times the API's
                                 `item_us`, and an estimate for null lists and large topics (`handlers.costs`)
    the holder's `InlineShare`   a limit on the network threads' time. After it is used up, all but cheap requests that
                                 were not pipelined are long

A long request is parked and submitted to the thread of `LongRequests`, which decodes it, calls the handler and encodes
the response. Handlers iterate over a client's items with `checkpointed(items)`. After a portion of 0.2 ms the thread
sleeps at least as long as the portion took, without any lock. A handler that may wait for a disk runs on one thread of
the I/O pool instead.

In one turn of its loop, a network worker serves a connection for at most a millisecond (`TURN_NS_MAX`), and at most a
few connections (`EVENTS_MAX`).

A Produce request with more than 512 partitions stays on its worker as a `ProduceRun`, and a Fetch with many partitions
as a `FetchRun`. Such a run is served in portions of 0.1 ms (`PORTION_NS_MAX`), one portion at a time in the whole
broker. The pause after a portion is twice as long, so that other clients get the GIL and the core. A ProduceRun is
completed even if its client disconnects, as in Kafka.
"""
