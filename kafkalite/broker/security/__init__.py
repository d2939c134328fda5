"""Secure a broker's listeners: TLS, SASL and ACLs. `kafkalite.security` has the parts that clients use, too.

    tls_listener   certificates of a listener, and their reload      acl_check    decisions by ACLs
    sasl_listener  mechanisms and credentials of a listener          authorizer   ACLs, changes, the log of denials

A TLS connection:

1. The acceptor assigns it like any other. The worker gives it the listener's current `TlsContext` and counts its
   handshake. OpenSSL allocates nothing before the first bytes arrive.
2. Bytes pass through a `TlsSession`, whose BIO ends in the worker's buffers. At most eight handshake steps run in a
   loop turn, so that a storm of handshakes does not stop other connections; connections above 64 wait outside the
   selector. A handshake that takes too long or too many bytes, or fails, is closed.
3. After the handshake the listener returns the client's principal (`ListenerTls.principal_of`) or refuses the client.
   Then only `receive_some` and `write_out` use the session; frames, requests and responses are the same as without TLS.
   The worker is woken when most of a large request has arrived, or after at most a millisecond (a few if little
   arrives): after a longer pause, a client whose kernel sends small packets may wait for an acknowledgement.
4. A file range is encrypted in pieces; a long one is read from the segment's map. Encrypted bytes that the socket does
   not accept stay with the session and are sent first the next time. Without TLS none of this is loaded.

A SASL connection:

1. A listener with SASL has its own connection class (`_native.serve.sasl_connection`); SASL costs other listeners
   nothing. Until the client has authenticated, a `SignIn` gets the frames; their number, size and time are limited.
2. The mechanism computes a response to each token (`kafkalite.security.sasl`, `scram`). Password hashes run on the I/O
   pool, a few at a time; meanwhile the response is parked and the connection serves nothing else.
3. An authenticated connection costs one comparison of times per request. After a refusal the connection is closed with
   a delay; bytes that arrived after the refused request are dropped.
4. If a session expires (KIP-368), the client sends SaslHandshake again. Then the connection serves nothing until the
   same user has re-authenticated.

An authorization:

1. Dispatch checks the gate of an API whose first check is on the cluster. Handlers check the rest
   (`permissions.allows`), each name before it is looked up. Without an authorizer nothing is checked.
2. `Authorizer` decides: a super user, then the ACLs by resource and principal, then the default. Denials are logged.
3. Produce and Fetch read the `AccessView` of their principal and host, a cache with one entry per topic number; a
   number is never reused. A missing entry is looked up once, in Python. A parked fetch checks at each evaluation.
4. A change of ACLs is made durable and then applied. Then the epoch is raised, which clears every view, and the
   response is sent.
"""
