"""Secure a broker's listeners with TLS, SASL and ACLs.

    tls_listener    the certificates of a listener, and their reload
    sasl_listener   the mechanisms and credentials of a listener
    acl_check       decisions by ACLs
    authorizer      ACLs, their changes, the log of denials

The package `kafkalite.security` has the parts that clients use, too.

A connection passes these steps:

    1  TLS handshake        a `TlsSession` decrypts and encrypts all bytes; the listener maps the certificate to a
                            principal, or refuses the client
    2  SASL                 a `SignIn` gets the frames until the client has authenticated
    3  re-authentication    after its session has expired (KIP-368), the client is served only once it has
                            authenticated again, as the same user
    4  authorization        dispatch checks the API's permission on the cluster, if it requires one. Handlers, and the
                            native code of Produce and Fetch, make all other checks. A name is checked before it is
                            looked up
"""
