"""Compare reading a topic into Spark with Spark's own connector, and with the fastest possible source in Python."""
