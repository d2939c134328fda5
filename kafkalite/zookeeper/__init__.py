"""ZooKeeper as Kafka 0.7 uses it: paths and values of its nodes, and a broker's entry in them."""
