"""The project's one HTTP server, for all that has paths or pages: application below, waitress beneath.

server.py     listeners, limits, start and stop
channels.py   waitress's connections, with TLS and a limit on how long a request may take to arrive
tls.py        certificates of an HTTPS listener, and their reload
guard.py      what stands before an application: Host, Origin, sign-in, security headers
signin.py     who comes in: passwords, tokens, certificates
users.py      the file of users
routes.py     paths to handlers

An application is WSGI's. Rooms with pages or paths build on this one; it knows none of them.
"""
