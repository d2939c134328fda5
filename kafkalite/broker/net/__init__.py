"""Run the network server: one acceptor and N workers, with connections in Cython.

The package knows neither logs nor requests.

acceptor   accepts connections, within limits
rates      limits new connections per second
worker     the event loop of one network thread
listener   listening sockets
"""
