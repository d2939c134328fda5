"""ZooKeeper as Kafka 0.7 uses it: nodes and their values, topic filters, partition owners, and a broker's
registration. Only this package imports kazoo.
"""
