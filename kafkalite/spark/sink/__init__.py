"""Writing topics from Spark.

writers               what PySpark calls, and the only module here that imports it
writing               at least once
exactly_once, markers transactions that tasks prepare and the driver commits, and what tells what is written
options               the options of Spark's own Kafka connector, parsed
"""
