"""Security of a broker's listeners: TLS, SASL and ACLs. `kafkalite.security` has the parts that clients use, too.

    tls_listener   certificates of a listener, and their reload      acl_check    decisions by ACLs
    sasl_listener  mechanisms and credentials of a listener          authorizer   ACLs, changes, the log of denials

A TLS connection:

1. The acceptor assigns it like any other. The worker gives it the listener's current `TlsContext` and counts its
   handshake. OpenSSL allocates nothing before the first bytes arrive.
2. Bytes pass through a `TlsSession`, whose BIO ends in the worker's buffers. At most eight handshake steps run in a
   loop turn, so that a storm of handshakes does not stop other connections; connections above 64 wait outside the
   selector. A handshake that takes too long or too many bytes, or fails, is closed.
3. After the handshake the listener names the client (`ListenerTls.principal_of`) or refuses it. From then on the
   session is in two places, `receive_some` and `write_out`; frames, requests and responses do not know it. The worker
   is woken when most of a large request has arrived, after at most a millisecond, or a few if little arrives: a longer
   pause can make a client whose kernel sends small packets wait for an acknowledgement.
4. A file range is encrypted in pieces, from its map if it is long. Encrypted bytes that the socket does not accept stay
   with the session and go first. Without TLS none of this is loaded.

A SASL connection:

1. A listener with SASL has its own connection class (`_native.serve.sasl_connection`); other listeners pay nothing.
   Until the client has authenticated, frames go to a `SignIn`, are short, and are limited in number, time and bytes.
2. The mechanism computes a response to each token (`kafkalite.security.sasl`, `scram`). Password hashes run on the I/O
   pool, a few at a time; the connection is held and its response parked.
3. An authenticated connection costs one comparison of times per request. After a refusal the connection is closed with
   a delay; what arrived after the refused request is dropped.
4. After SaslHandshake in a session that expires (KIP-368), the connection serves nothing until the same user has
   re-authenticated.

An authorization:

1. Dispatch checks the gate of an API whose first check is on the cluster. Handlers check the rest
   (`permissions.allows`), each name before it is looked up. Without an authorizer nothing is checked.
2. `Authorizer` decides: a super user, then the ACLs by resource and principal, then the default. Denials are logged.
3. Produce and Fetch read the `AccessView` of their principal and host, with one entry per topic number; a number is
   never reused. A missing entry is looked up once, in Python. A parked fetch checks at each evaluation.
4. A change of ACLs is durable, then in force, then raises the epoch, which clears every view; then the response is
   sent.
"""
