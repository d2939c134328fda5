"""Secure a broker's listeners with TLS, SASL and ACLs.

    tls_listener    the certificates of a listener, and their reload
    sasl_listener   the mechanisms and credentials of a listener
    acl_check       decisions by ACLs
    authorizer      ACLs, their changes, the log of denials

The package `kafkalite.security` has the parts that clients use, too.

A TLS connection:

1. Accepting. The acceptor assigns it to a worker like any other connection. The worker gives it the listener's current
   `TlsContext`. OpenSSL allocates nothing before the first bytes arrive.
2. Handshake. Bytes pass through a `TlsSession`, whose BIO ends in the worker's buffers. The handshakes in progress, and
   their steps in a loop turn, are limited, so that many handshakes at once do not stop other connections. If a
   handshake fails, or takes too long or too many bytes, its connection is closed.
3. Principal. After the handshake the listener returns the client's principal (`ListenerTls.principal_of`), or refuses
   the client. Frames, requests and responses are the same as without TLS.
4. Sending. A file range is encrypted in pieces. Encrypted bytes that the socket does not accept stay with the session
   and are sent first the next time. Without TLS none of this is loaded.

A SASL connection:

1. Before authentication. A listener with SASL has its own connection class (`_native.serve.sasl_connection`). Until the
   client has authenticated, a `SignIn` gets the frames. Their number, size and time are limited.
2. Authentication. The mechanism computes a response to each token (`kafkalite.security.sasl`, `scram`). Password hashes
   run on the I/O pool, a few at a time, while the connection serves nothing else.
3. Afterwards. An authenticated connection costs one comparison of times per request. After a refusal the connection is
   closed with a delay, and bytes that arrived after the refused request are dropped.
4. Re-authentication. If a session expires (KIP-368), the client sends SaslHandshake again. Then the connection serves
   nothing until the same user has re-authenticated.

An authorization:

1. Checks. If the first check of an API is on the cluster, dispatch makes it. Handlers make all other checks
   (`permissions.allows`), and check each name before they look it up. Without an authorizer nothing is checked.
2. Decision. `Authorizer` allows a super user. For any other client it uses the ACLs by resource and principal, then the
   default. Denials are logged.
3. Cache. Produce and Fetch read the `AccessView` of their principal and host, a cache with one entry per topic number.
   A missing entry is looked up once, in Python. A parked fetch is checked each time it is evaluated.
4. Changes. A change of ACLs is made durable and then applied. Then the epoch is raised, which clears every view, and
   the response is sent.
"""
