"""Place the replicas of partitions on the brokers of a cluster.

`overview.py` reads the present state, `planner.py` computes the wanted state (without I/O), and `moving.py` carries the
change out. All three work with any Kafka cluster, through kafkalite.client.
"""
