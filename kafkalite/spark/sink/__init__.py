"""Write the rows of Spark queries to topics.

writers               the classes that PySpark calls; the only module here that imports PySpark
writing               at-least-once writes
exactly_once          exactly-once writes: transactions that tasks prepare and the driver commits
markers               records in a topic of what tasks have written, for exactly-once writes
options               the options of Spark's own Kafka connector, parsed
"""
