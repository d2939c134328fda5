"""Write the rows of Spark queries to topics.

    writers.py        the classes that PySpark calls
    writing.py        at-least-once writes
    exactly_once.py   exactly-once writes: tasks prepare transactions, and the driver commits them
    markers.py        stores which batch each task has written last, for exactly-once writes
    options.py        the options of Spark's own Kafka connector, parsed

Only writers.py imports PySpark.
"""
