"""Run the network server: one acceptor and several workers, with connections in Cython.

    acceptor   accepts connections, within limits
    rates      limits new connections per second
    worker     the event loop of one network thread
    listener   listening sockets

The package knows neither logs nor requests.
"""
