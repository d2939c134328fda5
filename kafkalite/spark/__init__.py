"""Connect kafkalite to Spark through PySpark, without a jar. Needs the extra `spark` (PySpark 4.2 or newer, Java 17).

    format    format("kafkalite"): the data source that PySpark finds, over source/ (reading) and sink/ (writing)
    options   the options of Spark's own Kafka connector, parsed
    avro      decode_avro, encode_avro, dead_letters: Avro columns of DataFrames
    json_values    decode_json: JSON columns of DataFrames
    load/     exactly-once loads into Parquet by topic and hour, in batches or as a stream (files: `kafkalite.load`)
    streams   counts in windows, joins with tables and between streams
    session   a Spark session with the right Python and time zone

PySpark finds the format through the package `pyspark_kafkalite`. Nothing here imports PySpark before it is used. Only
these modules import it: format, session, avro, json_values, streams, load.loading, source.batch,
source.stream and sink.writers.
"""
