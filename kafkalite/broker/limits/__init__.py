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

Which requests are long. Dispatch estimates the cost of a request:

- A request with a body above `table.INLINE_SIZE` is long.
- For a smaller body, the cost is the number of items times the API's `item_us`. The module `handlers.costs` adds an
  estimate for null lists and large topics. A request that costs more than `table.INLINE_US` is long.
- A holder has an `InlineShare` of the network threads' time. After it is used up, only cheap requests that were not
  pipelined are not long.

How long requests run. A long request is parked and submitted to the thread of `LongRequests`. This thread decodes the
request, checks the permission for the API, calls the handler, encodes the response, and frees memory. Handlers iterate
over a client's items with `checkpointed(items)`. It ends a portion after 0.2 ms; then the thread sleeps at least as
long as the portion took, at most 100 ms, without any lock. Decoding and encoding pause in the same way.
`Pace.charge_to` charges the growth of the response.

A handler that may wait for a disk runs on the I/O pool, where all long requests share one thread. If the handler
returns a Deferred, the thread for long requests builds and encodes its result. When the client has disconnected or the
broker stops, the next checkpoint raises `Stopped`.

Network workers. In one turn of its loop, a worker serves a connection for at most a millisecond (`TURN_NS_MAX`), and at
most a few connections (`EVENTS_MAX`).

A Produce request with more than 512 partitions stays on its worker as a `ProduceRun`. Each portion appends some of the
partitions. Then the run requests the flushes, responds, and frees memory. Until then the connection is not read, and
the request is completed even if its client disconnects, as in Kafka. A body of more than 256 KiB is not copied: the
connection hands over its receive buffer (`LargeBody`). A Fetch with many partitions is a `FetchRun`.

A ProduceRun or FetchRun is served in portions of 0.1 ms (`PORTION_NS_MAX`), one portion at a time in the whole broker.
The pause after a portion is twice as long as the portion, so that other clients get the GIL and the core.
"""
