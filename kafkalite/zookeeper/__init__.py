"""Use ZooKeeper as Kafka 0.7 does: to register brokers, and to coordinate consumer groups.

At run time, only this package imports kazoo, the client library for ZooKeeper.
"""
