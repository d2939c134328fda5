"""ZooKeeper as Kafka 0.7 uses it: nodes and their values, topic filters, partition owners, a broker's own entry. Only
this package imports kazoo.
"""
