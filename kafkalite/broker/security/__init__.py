"""Security of a broker's listeners: TLS, SASL and ACLs. `kafkalite.security` has what clients use too.

    tls_listener   certificates of a listener, and their reload      rules        what follows from ACLs
    sasl_listener  who may authenticate                              authorizer   decisions, changes, the log of denials

A TLS connection:

1. The acceptor assigns it like any other. The worker gives it the listener's current `TlsContext` and counts its
   handshake. OpenSSL allocates nothing before the first bytes arrive.
2. Bytes pass through a `TlsSession`, whose BIO ends in the worker's buffers. At most eight handshake steps run in a
   loop turn, so that a storm of handshakes does not stop other connections; connections above 64 wait outside the
   selector. A handshake that takes too long or too many bytes, or fails, is closed.
3. After the handshake the listener names the client (`ListenerTls.principal_of`) or refuses it. From then on the
   session is in two places, `receive_some` and `write_out`; frames, requests and answers do not know of it. The worker
   is woken when most of a large request has arrived, after at most a millisecond, or a few where little arrives: a
   longer pause can make a client whose kernel sends small packets wait for an acknowledgement.
4. A file range is encrypted in pieces, from its map if it is long. Encrypted bytes that the socket does not accept stay
   with the session and go first. Without TLS none of this is loaded.

A SASL connection:

1. A listener with SASL has its own connection class (`_native.serve.sasl_connection`); other listeners pay nothing.
   Until the client has authenticated, frames go to a `SignIn`, are short, and are limited in number, time and bytes.
2. The mechanism turns one token into the next (`kafkalite.security.sasl`, `scram`). Password hashes run on the I/O
   pool, a few at a time; the connection is held and its answer parked.
3. An authenticated connection costs one comparison of times a request. A refusal is answered and the connection closed
   after a moment; what arrived after it is dropped.
4. SaslHandshake in a session that expires (KIP-368) closes the gate until the same user has authenticated again.

An authorization:

1. Dispatch asks the gate of an API whose first question is about the cluster. Handlers ask the rest
   (`permissions.allows`), each name before it is looked up. Without an authorizer nothing is asked.
2. `Authorizer` decides: a super user, then the ACLs by resource and principal, then the default. Denials are logged.
3. Produce and Fetch read the `AccessView` of their principal and host, with one entry per topic number; a number is
   never reused. A missing entry is asked once, in Python. A parked fetch asks at each evaluation.
4. A change of ACLs is durable, then in force, then raises the epoch, at which every view forgets; then it is answered.
"""
