"""The HTTP server for this project's web pages and REST interfaces: WSGI applications, served by the library waitress.

server.py     listeners, limits, start and stop
channels.py   waitress's connections, extended by TLS and by time limits for requests and responses
tls.py        certificates of an HTTPS listener, and their reload
guard.py      checks before an application (Host, Origin, sign-in) and security headers
signin.py     authentication by password, token or certificate
users.py      the users file
routes.py     paths to handlers
prefix.py     a path prefix for a reverse proxy

Packages with web pages or a REST interface import this package; it imports none of them.
"""
