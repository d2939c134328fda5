"""The network server: one acceptor, N workers, connections in Cython. It does not know logs or requests.

acceptor   accepts connections, within limits
rates      limits new connections per second
worker     the event loop of one network thread
listener   listening sockets
"""
