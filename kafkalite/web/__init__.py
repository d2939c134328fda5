"""The HTTP server of the project's pages and REST interfaces: WSGI applications above, waitress below.

server.py     listeners, limits, start and stop
channels.py   waitress's connections, with TLS and a limit on how long a request may take to arrive
tls.py        certificates of an HTTPS listener, and their reload
guard.py      checks before an application: Host, Origin, sign-in, security headers
signin.py     authentication by password, token or certificate
users.py      the users file
routes.py     paths to handlers
prefix.py     a path prefix for a reverse proxy

Packages with pages or a REST interface build on this one, which imports none of them.
"""
