"""Use ZooKeeper as Kafka 0.7 does: nodes and their values, topic filters, partition owners, a broker's registration.

Only this package imports kazoo.
"""
