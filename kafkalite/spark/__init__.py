"""kafkalite on Spark, through PySpark and without a jar. Needs the extra `spark` (PySpark 4.2 or newer, and Java 17).

    source.py     format("kafkalite"): topics as DataFrames; what PySpark calls
    ranges.py     what a query reads, planned and read: all of the source that is not PySpark
    stream_source.py, stream.py   the same two for streaming queries: micro-batches, limits, groups
    sink.py, writing.py   the same two for writing, at least once
    exactly_once.py, markers.py   transactions that tasks prepare and the driver commits, and what tells what is written
    options.py, sink_options.py   the options of Spark's own Kafka connector, parsed
    offsets.py    which offsets they mean, and in how many pieces these are read
    avro.py       decode_avro, encode_avro, dead_letters: Avro columns of DataFrames
    load.py       loads into Parquet by topic and hour, each record once; batches and streams
    load_plan.py, parquet.py, manifest.py, compaction.py    its parts: what is read next, files, publishing, fewer files
    streams.py    counts in windows, joins with tables and of streams
    session.py    a Spark session that works out of the box

Nothing here imports PySpark before it is used.
"""
