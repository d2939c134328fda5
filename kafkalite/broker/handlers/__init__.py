"""Handle requests: one module per API or small family of APIs, found through `table`.

A handler is `handle(context, request) -> response`: typed messages in and out, without bytes or sockets. It sets the
fields of all versions, and the codec drops those that the request's version lacks. It reads `context.api_version` only
if versions differ in meaning. A client's mistake is an error code in the response, never an exception; an exception is
the broker's own fault and ends the connection (`kafkalite.broker.dispatch`).

Thread rule: rows marked as blocking in the table run on the I/O pool, all others on a network worker, where nothing may
wait. Handlers keep no state, except the rest of a block of producer ids (`init_producer_id`) and the rows that
responses share (`metadata`).
"""
