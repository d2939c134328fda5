"""Write topics from Spark.

writers               the classes that PySpark calls; the only module here that imports PySpark
writing               at-least-once writes
exactly_once, markers transactions that tasks prepare and the driver commits; records of what is written
options               the options of Spark's own Kafka connector, parsed
"""
