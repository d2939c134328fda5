"""What the broker answers: one module per API or small family, found through `table`.

A handler is `handle(context, request) -> response`: typed messages in and out, no bytes, no sockets. It fills the union
of all versions' fields and the codec drops what the version asked for lacks; it looks at `context.api_version` only
where the versions mean different things. What a client did wrong is a code in the response, never an exception; an
exception is the broker's own fault and ends the connection (see `kafkalite.broker.dispatch`).

Thread rule: rows marked blocking in the table run on the I/O pool, all others on a network worker, where nothing may
wait. Handlers keep no state of their own but the rest of a block of producer ids (`init_producer_id`) and the rows that
answers share (`metadata`).
"""
