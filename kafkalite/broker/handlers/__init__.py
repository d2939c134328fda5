"""Handle client requests: one module per API or small family of APIs. `table` lists the APIs by key.

Most docstrings of modules begin with the APIs and their supported versions: "Handle Metadata 0-13: ...".

A handler is `handle(context, request) -> response`: typed messages in and out, without bytes or sockets. It may set the
fields of all versions, since the codec drops those that the request's version lacks.

A client's mistake is an error code in the response. An exception ends the connection: MalformedRequest is the client's
mistake, any other exception the broker's own fault (`kafkalite.broker.dispatch`).

Thread rule: an API that the table marks as blocking runs on the I/O pool. All other APIs run on a network worker or on
the thread for long requests, where no handler may wait. Handlers keep no state between requests except caches.
"""
