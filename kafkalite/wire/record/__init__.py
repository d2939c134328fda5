"""Decode record batches into columns, and encode columns into record batches.

    columns.py       records as arrays
    batches.py       arrays to batches, and batches to the records that a consumer may read
    compression.py   the five codecs, with a limit on the decompressed size
    message_set.py   Kafka 0.7's compressed message sets

Pure: no I/O, no clock.
"""
