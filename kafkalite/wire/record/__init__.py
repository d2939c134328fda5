"""Record batches for Python: columns in and out, compression. No I/O, no clock.

columns.py       what records look like in arrays
batches.py       arrays ↔ batches, what a consumer must not see left out
compression.py   the five codecs, bounded
"""
