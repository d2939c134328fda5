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

Dispatch treats a request as *long* in each of these cases:

    large body       the body is larger than `table.INLINE_SIZE`
    costly items     the estimated cost is above `table.INLINE_US`
    used-up share    the holder has used up its time on network threads (`InlineShare`). Cheap requests are exempt if
                     the client waits for each response

Long requests run on the thread of `LongRequests`. A Produce or Fetch with many partitions stays on its network worker,
which also serves it in portions (`ProduceRun`, `FetchRun`).
"""
