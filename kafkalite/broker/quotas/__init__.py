"""Limit clients by quotas per second, for a user, a client id, both, or an address.

    table       finds the quota that applies to a client
    quotas      stores and changes quotas
    mutations   the quota for partitions that requests create or delete

The module `kafkalite.base.quota_entities` defines the entities; the native module `_native.serve.quota` counts.

1. Look-up. A connection looks up the quotas of its principal and client id once, and again when quotas have changed
   (their epoch has risen). Without any quota, a request costs one comparison.
2. Charging. A client's `Meter` is charged for the bytes of a Produce request before the request is served, for the
   bytes of a Fetch response when it is written, and for thread time after the work. The debt determines the client's
   throttle time.
3. Throttling. The response is sent at once with `throttle_time_ms`; a throttled Fetch response has no records. Then the
   connection is muted (`Connection.mute`): it is neither read nor served. If a throttled producer opens a new
   connection, its first Produce request waits, too.
4. Partitions. A handler that creates or deletes partitions calls `Mutations`, which refuses the request or throttles
   the client, depending on the request's version (KIP-599).
"""
