"""Serve WSGI applications over HTTP and HTTPS, for kafkalite's web pages and REST interfaces.

    server.py     listeners, limits, start and stop
    channels.py   waitress's connections, extended by TLS and time limits
    tls.py        certificates of an HTTPS listener, and their reload
    guard.py      checks before an application (Host, Origin, sign-in), and security headers
    signin.py     authentication by password, token or certificate
    users.py      the users file
    routes.py     paths to handlers
    prefix.py     a path prefix for a reverse proxy

The library waitress handles the HTTP protocol.
"""
