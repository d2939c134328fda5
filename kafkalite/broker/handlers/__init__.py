"""Handle requests: one module per API or small family of APIs, which `table` lists by API key.

The docstring of a module begins with its APIs and their supported versions: "Metadata 0-13".

A handler is `handle(context, request) -> response`: typed messages in and out, without bytes or sockets. It sets the
fields of all versions, and the codec drops those that the request's version lacks. It reads `context.api_version` only
if the same fields mean different things in different versions. A client's mistake is an error code in the response,
never an exception. An exception is the broker's own fault and ends the connection (`kafkalite.broker.dispatch`).

Thread rule: APIs that the table marks as blocking run on the I/O pool, all others on a network worker, where nothing
may wait. Handlers keep no state, except the rest of a block of producer ids (`init_producer_id`) and the rows that
responses share (`metadata`).
"""
