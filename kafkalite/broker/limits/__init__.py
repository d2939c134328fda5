"""Keep one client from using up the resources that all clients share: network threads, memory, entries of tables.

The limits apply to *holders*: a holder is one principal at one address, with all its connections.

    holder         identifies the holder of a connection
    shares         reserves the last tenth of a table's limit for small holders
    partitions     counts partitions by holder, for max.partitions
    long_requests  runs long requests on a separate thread
    pace           divides a long request into portions with rests
    collector      the garbage collector during large requests
    memory         describes the memory that the broker holds for clients
    budget         the memory that the settings allow in total

Long requests. Dispatch estimates the cost of a request:

- A body above `table.INLINE_SIZE` is long.
- For a smaller body, the cost is the number of items times the API's `item_us`. The module `handlers.costs` adds an
  estimate for null lists and large topics. Above `table.INLINE_US` the request is long.
- When a holder has used up its `InlineShare` of the network threads, its requests are long if they were pipelined
  or their body is above `table.SHORT_SIZE`.

A long request is parked and submitted to `LongRequests`. Its thread decodes the request, checks the permission for the
API, calls the handler, encodes the response, and frees memory. Loops over a client's items run over
`checkpointed(items)`, and the codec calls the same `Pace`. After a portion of 0.2 ms the thread sleeps at least as
long (at most 100 ms), without any lock. `Pace.charge_to` charges the growth of the response.

A handler that may wait for a disk runs on the I/O pool, where all long requests share one thread. If the handler
returns a Deferred, the thread for long requests builds and encodes its result. When the client has disconnected or the
broker stops, the next checkpoint raises `Stopped`.

Network workers. A worker serves one connection for at most a millisecond in a loop turn (`TURN_NS_MAX`), and a few
connections (`EVENTS_MAX`).

A Produce request with more than 512 partitions stays on its worker. A `ProduceRun` owns its bytes and appends some of
its partitions in each portion. Then it requests the flushes, responds, and frees memory. The connection is not read
meanwhile, and the request is completed even if its client disconnects, as in Kafka. A body of more than 256 KiB is not
copied: the connection hands over its receive buffer (`LargeBody`). A Fetch with many partitions is a `FetchRun`.

Both kinds of runs are served in portions of 0.1 ms (`PORTION_NS_MAX`), one portion at a time in the whole broker. The
pause after a portion is twice as long, so that other clients get the GIL and the core.
"""
