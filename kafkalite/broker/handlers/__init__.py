"""Handle client requests: one module per API or small family of APIs. `table` lists the APIs by key.

The docstring of a module begins with its APIs and their supported versions: "Handle Metadata 0-13: ...".

A handler is `handle(context, request) -> response`: typed messages in and out, without bytes or sockets. It sets the
fields of all versions, and the codec drops the fields that the request's version lacks.

A client's mistake is an error code in the response, never an exception. An exception is the broker's own fault and ends
the connection (`kafkalite.broker.dispatch`).

Thread rule: an API that the table marks as blocking runs on the I/O pool. All other APIs run on a network worker, where
no handler may wait. Handlers keep no state between requests except caches.
"""
