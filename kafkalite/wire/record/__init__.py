"""Decode record batches to columns, encode columns, and compress, for Python code. No I/O, no clock.

columns.py       records as arrays
batches.py       arrays ↔ batches; reading leaves out what a consumer must not see, such as transaction markers
compression.py   the five codecs, with a limit on the decompressed size
message_set.py   Kafka 0.7's compressed message sets
"""
