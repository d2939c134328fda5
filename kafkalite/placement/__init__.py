"""Place the replicas of partitions on the brokers of a cluster.

`overview.py` reads the present state, `planner.py` computes the wanted state (without I/O), and `moving.py` moves
replicas from one to the other. All three work with any Kafka cluster, through kafkalite.client.
"""
