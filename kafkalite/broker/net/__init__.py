"""The network server: one acceptor, N selector workers, connections in Cython. It knows nothing of logs or requests."""
