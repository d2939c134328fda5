"""Quotas: how much a client may do in a second, by user, client id, both, or address.

    table      which quota applies to a client          quotas      how quotas change
    mutations  partitions that requests create or delete

`kafkalite.base.quota_entities` names whom a quota applies to; `_native.serve.quota` counts.

1. While a quota of users or client ids exists, each worker has the `QuotaControl`. Without one, a request costs one
   comparison. A connection asks for its principal and client id once, and again when the epoch has risen.
2. A client's `Meter` is charged for a Produce request's bytes before it is served, for a Fetch answer's bytes when it
   is written, and for thread time after the work. The debt says how long the client waits.
3. The request is answered at once with `throttle_time_ms` (a fetch without records). Then the connection is muted
   (`Connection.mute`): it is neither read nor served, and what arrives stays in the socket. The first bytes of a new
   connection wait before they are served.
4. A handler that creates or deletes partitions asks `Mutations`, which refuses the request or delays the client,
   depending on the request's version (KIP-599).
"""
