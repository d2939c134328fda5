"""Limit clients by quotas per second, for a user, a client id, both, or an address.

    table      finds the quota that applies to a client   quotas      stores and changes quotas
    mutations  the quota for partitions that requests create or delete

`kafkalite.base.quota_entities` defines the entities; `_native.serve.quota` counts.

1. While a quota of users or client ids exists, each worker has the `QuotaControl`. Without one, a request costs one
   comparison. A connection looks up the quotas of its principal and client id once, and again when quotas have changed
   (the epoch has risen).
2. A client's `Meter` is charged for a Produce request's bytes before it is served, for a Fetch response's bytes when it
   is written, and for thread time after the work. The debt determines the client's throttle time.
3. The response is sent at once with `throttle_time_ms`; a throttled Fetch response has no records. Then the connection
   is muted (`Connection.mute`): it is neither read nor served, and new bytes stay in the socket. If a client that is
   throttled opens a new connection, its first bytes wait, too.
4. A handler that creates or deletes partitions calls `Mutations`, which refuses the request or throttles the client,
   depending on the request's version (KIP-599).
"""
