"""kafkalite on Spark, through PySpark and without a jar.

    options.py    the options of Spark's own Kafka connector, parsed
    offsets.py    which offsets they mean, and in how many pieces these are read

Nothing here imports PySpark before it is used.
"""
