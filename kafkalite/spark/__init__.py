"""Read, write and load topics with Spark through PySpark, without a jar.

The extra `spark` is required: PySpark 4.2 or newer, and Java 17 or newer.

    format.py        the data source format("kafkalite")
    source/          reads topics as DataFrames
    sink/            writes rows to topics
    options.py       the options of Spark's own Kafka connector, parsed
    avro.py          decode_avro, encode_avro, dead_letters: Avro columns of DataFrames
    json_values.py   decode_json: JSON columns of DataFrames
    load/            exactly-once loads into Parquet files (by default, by topic and hour), in batches or as a stream
    streams.py       counts in windows, joins with tables and between streams
    session.py       a Spark session with the right Python and time zone

PySpark finds the format through the package `pyspark_kafkalite`. Only these modules import PySpark: format, session,
avro, json_values, streams, load.loading, source.batch, source.stream and sink.writers.
"""
