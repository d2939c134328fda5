"""Quotas of clients per second, by user, client id, both, or address.

    table      which quota applies to a client          quotas      how quotas change
    mutations  partitions that requests create or delete

`kafkalite.base.quota_entities` defines the entities; `_native.serve.quota` counts.

1. While a quota of users or client ids exists, each worker has the `QuotaControl`. Without one, a request costs one
   comparison. A connection asks for its principal and client id once, and again when the epoch has risen.
2. A client's `Meter` is charged for a Produce request's bytes before it is served, for a Fetch response's bytes when it
   is written, and for thread time after the work. The debt determines the client's throttle time.
3. The response is sent at once with `throttle_time_ms` (a fetch's without records). Then the connection is muted
   (`Connection.mute`): it is neither read nor served, and what arrives stays in the socket. The first bytes of a new
   connection wait before they are served.
4. A handler that creates or deletes partitions calls `Mutations`, which refuses the request or throttles the client,
   depending on the request's version (KIP-599).
"""
