"""Define the broker's settings, one module per area.

    server        node id, listeners, data directory, threads
    cluster       controllers, traffic between brokers
    connections   limits of connections, requests and fetch sessions
    security      connections before authentication
    permissions   authorizer and super users
    tls           TLS, for all listeners or for one
    sasl          SASL, for all listeners, one listener, or one mechanism
    quotas        the windows over which quotas are measured
    logs          topics, durability, defaults of topic settings
    cleaner       compaction
    groups        consumer groups and their offsets
    transactions  idempotent producers and transactions
    replication   replicas of partitions in a cluster
    metrics       metrics and health checks
    classic       Kafka 0.7: classic topics and their listener

The class of each module, such as ServerRows, is a base class of BrokerConfig (settings/broker.py).
"""
