"""Place the replicas of partitions on the brokers of a cluster.

    overview.py   reads the current state of the cluster
    planner.py    computes a new placement, without I/O
    moving.py     moves the replicas

The package works with any Kafka cluster, through kafkalite.client.
"""
