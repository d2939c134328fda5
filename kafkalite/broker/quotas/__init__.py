"""Limit clients by quotas per second, for a user, a client id, both, or an address.

    table       finds the quota that applies to a client
    quotas      stores and changes quotas
    mutations   the quota for partitions that requests create or delete

A request passes these steps:

    1  the connection looks up the quotas of its principal and client id, again after each change of quotas
    2  the client's meters are charged for the request's bytes and thread time
    3  the response is sent at once, with a throttle time if a quota is exceeded
    4  the connection is muted for the throttle time: it is neither read nor served

The module `kafkalite.base.quota_entities` defines the entities. The native module `_native.serve.quota` has the meters.
"""
