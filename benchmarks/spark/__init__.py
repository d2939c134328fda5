"""Reading a topic into Spark, beside Spark's own connector and beside what Spark leaves any source in Python."""
